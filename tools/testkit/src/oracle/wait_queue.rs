//! The oracle of a token bucket with a wait queue. It keeps all waiters that ever existed in a list, and searches the list linearly.
//!
//! Times are nanoseconds in a `u64`. Tokens are counted in parts: if the quota in lowest terms is `tokens` per `period` nanoseconds, a token consists
//! of `period` parts, and the bucket gains `tokens` parts per nanosecond.

use arbitrary::Arbitrary;

use crate::oracle::limiter::{OracleQuota, Span};

/// One step of a random run of a bucket with a wait queue.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum WaitQueueOp {
    /// Adds a waiter and polls it once.
    Join(u8),
    /// Polls one of the waiters.
    Poll(u8),
    /// Drops one of the waiters.
    Drop(u8),
    /// Takes this many tokens if they are available.
    TryAcquire(u8),
    /// Reserves this many tokens.
    Reserve(u8),
    /// Cancels one of the reservations.
    Cancel(u8),
    /// Changes the rate and the burst.
    SetQuota(OracleQuota),
    /// Advances the clock.
    Advance(Span),
    /// Advances the clock to the time of the next alarm.
    AdvanceToAlarm,
    /// Sets the clock back.
    JumpBack(Span),
    /// Adds a waiter with a timeout and polls it once.
    JoinTimeout(u8, Span),
}

/// The state of a waiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaiterState {
    /// The waiter is in the wait queue.
    Waiting,
    /// The tokens of the waiter were taken for it.
    Granted,
    /// The waiter requests more tokens than the burst.
    Refused,
    /// The waiter has timed out.
    TimedOut,
    /// The waiter has returned its result, or was dropped.
    Left,
}

/// A reservation of tokens. It can be used to give the tokens back.
#[derive(Clone, Copy, Debug)]
pub struct Promise {
    /// The time at which the tokens are due.
    pub due: u64,
    /// The values that the counters `changes` and `returns` of the bucket had at the time of the reservation.
    changes: u64,
    returns: u64,
}

#[derive(Clone, Debug)]
struct Waiter {
    count: u32,
    state: WaiterState,
    promised: Option<Promise>,
    grant: Option<usize>,
    /// The time at which the waiter times out.
    until: Option<u64>,
}

/// Tokens that were granted.
#[derive(Clone, Copy, Debug)]
struct Grant {
    at: u64,
    /// The number of parts that were granted and not given back.
    parts: u128,
    /// Whether the waiter can still give the tokens back. This ends when the waiter is polled, or when the bucket becomes full after the grant.
    open: bool,
}

/// The oracle: a bucket and its wait queue.
#[derive(Clone, Debug)]
pub struct OracleWaitQueue {
    quota: OracleQuota,
    changes: u64,
    /// How often a dropped waiter gave back tokens that it had been granted. Giving them back lowers `full`, but no reservation changes its due time.
    /// So `full` no longer shows which reservation is the last one, and reservations that were made before cannot be given back any more.
    returns: u64,
    /// The time at which the bucket will be full, expressed as the number of parts that the bucket gains from time 0 until then.
    full: u128,
    waiters: Vec<Waiter>,
    grants: Vec<Grant>,
    /// The smallest number of parts that the bucket has lacked since the oldest open grant. At most this many parts can be given back.
    slack: u128,
}

impl OracleWaitQueue {
    /// Creates a full bucket.
    #[must_use]
    pub fn new(quota: OracleQuota) -> Self {
        Self { quota, changes: 0, returns: 0, full: 0, waiters: Vec::new(), grants: Vec::new(), slack: 0 }
    }

    /// Adds a waiter. If `within` is given, the waiter times out after this time. Returns its index.
    pub fn join(&mut self, count: u32, within: Option<u64>, now: u64) -> usize {
        self.settle(now);
        let state = match self.take(count, now) {
            _ if count > self.burst() => WaiterState::Refused,
            Ok(()) => {
                self.log(now, count, false);
                WaiterState::Granted
            }
            Err(_) if within == Some(0) => WaiterState::TimedOut,
            Err(_) if within.is_some_and(|within| self.earliest(count, now) > now.saturating_add(within)) => {
                WaiterState::TimedOut
            }
            Err(_) => WaiterState::Waiting,
        };
        let until = within.map(|within| now.saturating_add(within));
        self.waiters.push(Waiter { count, state, promised: None, grant: None, until });
        self.settle(now);
        self.waiters.len() - 1
    }

    /// The time at which tokens are available if all waiters leave now and give back as much as they can.
    fn earliest(&self, count: u32, now: u64) -> u64 {
        let waiting = self.waiters.iter().filter(|waiter| waiter.state == WaiterState::Waiting);
        let promised: u64 = waiting.filter(|c| c.promised.is_some()).map(|c| u64::from(c.count)).sum();
        let open: u128 = self.grants.iter().filter(|grant| grant.open).map(|grant| grant.parts).sum();
        let open = open.min(self.slack).min(self.missing(now));
        let mut all_left = self.clone();
        all_left.full = self.full.saturating_sub(u128::from(promised) * self.token() + open);
        all_left.due(all_left.after(count.into(), now), now)
    }

    /// The state of a waiter.
    #[must_use]
    pub fn state(&self, index: usize) -> WaiterState {
        self.waiters[index].state
    }

    /// Polls a waiter and returns its state. If the state is not `Waiting`, the waiter has left after this call.
    pub fn poll(&mut self, index: usize, now: u64) -> WaiterState {
        self.settle(now);
        let state = self.waiters[index].state;
        if state != WaiterState::Waiting {
            self.waiters[index].state = WaiterState::Left;
            if let Some(grant) = self.waiters[index].grant {
                self.grants[grant].open = false;
            }
        }
        self.settle(now);
        match state {
            // The burst has fallen since.
            WaiterState::TimedOut if self.waiters[index].count > self.burst() => WaiterState::Refused,
            // A late poll takes tokens that are available by then.
            WaiterState::TimedOut if self.take(self.waiters[index].count, now).is_ok() => {
                self.log(now, self.waiters[index].count, false);
                WaiterState::Granted
            }
            state => state,
        }
    }

    /// Drops a waiter.
    pub fn leave(&mut self, index: usize, now: u64) {
        self.settle(now);
        let waiter = self.waiters[index].clone();
        self.waiters[index].state = WaiterState::Left;
        match waiter.state {
            WaiterState::Waiting => {
                if let Some(promised) = waiter.promised {
                    self.give_back(promised, waiter.count, now);
                }
            }
            WaiterState::Granted => {
                if let Some(grant) = waiter.grant.filter(|&grant| self.grants[grant].open) {
                    let back = self.grants[grant].parts.min(self.slack);
                    self.grants[grant].open = false;
                    self.grants[grant].parts -= back;
                    self.slack -= back;
                    self.full -= back;
                    self.returns += u64::from(back > 0);
                }
            }
            WaiterState::Refused | WaiterState::TimedOut | WaiterState::Left => {}
        }
        self.settle(now);
    }

    /// Takes tokens if they are available and there are no waiters.
    ///
    /// # Errors
    /// The time at which the tokens will be available; `None` if `count` is larger than the burst.
    pub fn try_acquire(&mut self, count: u32, now: u64) -> Result<(), Option<u64>> {
        self.settle(now);
        if count > self.burst() {
            return Err(None);
        }
        self.take(count, now).map_err(Some)?;
        self.log(now, count, false);
        self.settle(now);
        Ok(())
    }

    /// Reserves tokens. Returns `None` if `count` is larger than the burst.
    pub fn reserve(&mut self, count: u32, now: u64) -> Option<Promise> {
        self.settle(now);
        if count > self.burst() {
            return None;
        }
        for index in 0..self.waiters.len() {
            let Waiter { count, state, promised, .. } = self.waiters[index];
            if state == WaiterState::Waiting && promised.is_none() {
                let due = self.take_ahead(count, now);
                self.waiters[index].promised = Some(self.promise(due));
            }
        }
        let due = self.take_ahead(count, now);
        self.log(due, count, false);
        self.settle(now);
        Some(self.promise(due))
    }

    fn promise(&self, due: u64) -> Promise {
        Promise { due, changes: self.changes, returns: self.returns }
    }

    /// Gives reserved tokens back, if that is still possible. Returns whether they were given back.
    ///
    /// # Panics
    /// Does not panic, because `reserve` logs a grant for every reservation.
    pub fn cancel(&mut self, reserved: Promise, count: u32, now: u64) -> bool {
        self.settle(now);
        let returned = self.give_back(reserved, count, now);
        if returned {
            // Open grants are skipped: an open grant with the same time and size belongs to a waiter, which may still give it back itself.
            let cost = u128::from(count) * self.token();
            let is_it = |grant: &Grant| !grant.open && grant.at == reserved.due && grant.parts == cost;
            let taken = self.grants.iter().rposition(is_it);
            self.grants[taken.expect("it was logged")].parts = 0;
        }
        self.settle(now);
        returned
    }

    /// Changes the quota.
    pub fn set_quota(&mut self, quota: OracleQuota, now: u64) {
        self.settle(now);
        let (old, old_token) = (self.quota, self.token());
        if (old.tokens(), old.period(), old.burst()) != (quota.tokens(), quota.period(), quota.burst()) {
            let missing = self.missing(now);
            let (whole, rest) = (missing / old_token, missing % old_token);
            self.quota = quota;
            self.changes += 1;
            let token = self.token();
            let missing = whole.saturating_mul(token).saturating_add((rest * token).div_ceil(old_token));
            let missing = missing.saturating_add(u128::from(quota.burst()) * token);
            let missing = missing.saturating_sub(u128::from(old.burst()) * token);
            self.full = self.parts(now).saturating_add(missing).min(self.never());
            self.grants.clear();
            for waiter in &mut self.waiters {
                waiter.grant = None;
                if waiter.state == WaiterState::Waiting
                    && waiter.promised.is_none()
                    && waiter.count > quota.burst().into()
                {
                    waiter.state = WaiterState::Refused;
                }
            }
        }
        self.settle(now);
    }

    /// Updates the state after the clock was set back. Earlier grants then no longer count for [`within_rate`](Self::within_rate).
    pub fn jumped(&mut self, now: u64) {
        for grant in &mut self.grants {
            grant.at = u64::MAX;
        }
        self.settle(now);
    }

    /// Updates the state after the clock has advanced.
    pub fn passed(&mut self, now: u64) {
        self.settle(now);
        self.settle(now);
    }

    /// The number of available tokens.
    ///
    /// # Panics
    /// Does not panic: the number is at most the burst.
    pub fn available(&mut self, now: u64) -> u32 {
        self.settle(now);
        if self.waiting() > 0 {
            return 0;
        }
        let there = (u128::from(self.burst()) * self.token()).saturating_sub(self.missing(now));
        u32::try_from(there / self.token()).expect("no more than the burst")
    }

    /// The length of the wait queue.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.iter().filter(|waiter| waiter.state == WaiterState::Waiting).count()
    }

    /// Checks for every span of time that at most burst + rate × span tokens were granted in it.
    ///
    /// # Errors
    /// The times of the first and the last grant of a span in which more than this number of tokens were granted.
    pub fn within_rate(&self) -> Result<(), (u64, u64)> {
        let mut grants: Vec<_> = self.grants.iter().filter(|grant| grant.at < u64::MAX).collect();
        grants.sort_by_key(|grant| grant.at);
        for (i, first) in grants.iter().enumerate() {
            let mut parts = 0;
            for last in &grants[i..] {
                parts += last.parts;
                // The span includes both ends.
                let span = u128::from(last.at - first.at) + 1;
                if parts > u128::from(self.burst()) * self.token() + span * self.rate() {
                    return Err((first.at, last.at));
                }
            }
        }
        Ok(())
    }

    /// Grants tokens to the first waiters in the queue, as far as tokens are available. Then removes the waiters whose timeouts have passed, one
    /// after the other. After each removal, tokens may have become available for other waiters, so tokens are granted again.
    fn settle(&mut self, now: u64) {
        self.observe(now);
        self.grant(now);
        while let Some(index) = self.next_to_give_up(now) {
            let Waiter { count, promised, .. } = self.waiters[index];
            self.waiters[index].state = WaiterState::TimedOut;
            if let Some(promised) = promised {
                self.give_back(promised, count, now);
            }
            self.grant(now);
        }
    }

    /// The earliest time at which a waiter times out.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        let waiting = self.waiters.iter().filter(|waiter| waiter.state == WaiterState::Waiting);
        waiting.filter_map(|waiter| waiter.until).min()
    }

    fn next_to_give_up(&self, now: u64) -> Option<usize> {
        let waiting =
            (0..self.waiters.len()).filter(|&index| self.waiters[index].state == WaiterState::Waiting);
        let over = waiting.filter_map(|index| Some((self.waiters[index].until?, index)));
        over.filter(|(until, _)| *until <= now).min().map(|(_, index)| index)
    }

    fn grant(&mut self, now: u64) {
        while let Some(index) = self.waiters.iter().position(|waiter| waiter.state == WaiterState::Waiting) {
            let Waiter { count, promised, .. } = self.waiters[index];
            match promised {
                Some(promise) if promise.due > now => return,
                Some(_) => {}
                None => {
                    let full = self.after(count.into(), now);
                    if self.due(full, now) > now {
                        return;
                    }
                    self.full = full;
                }
            }
            self.waiters[index].state = WaiterState::Granted;
            match promised {
                // Tokens that were promised to a waiter count as granted at their due time. If they were promised under an earlier quota, they do not
                // count for the current rate.
                Some(promise) if promise.changes == self.changes => _ = self.log(promise.due, count, false),
                Some(_) => {}
                None => self.waiters[index].grant = Some(self.log(now, count, true)),
            }
        }
    }

    /// Takes tokens in advance and returns the time at which they are due. If there are open grants, also lowers `slack` to at most the number of
    /// parts that the bucket will lack at that time, before these tokens are taken from it.
    fn take_ahead(&mut self, count: u32, now: u64) -> u64 {
        self.full = self.after(count.into(), now);
        let due = self.due(self.full, now);
        if self.grants.iter().any(|grant| grant.open) {
            let used = self.parts(due) + u128::from(count) * self.token();
            self.spend(self.full.saturating_sub(used));
        }
        due
    }

    /// Updates `slack`, and closes the open grants if the bucket is full. Must be called before each change of the bucket.
    fn observe(&mut self, now: u64) {
        if self.grants.iter().any(|grant| grant.open) {
            self.spend(self.missing(now));
        }
    }

    fn spend(&mut self, all_but: u128) {
        self.slack = self.slack.min(all_but);
        if self.slack == 0 {
            self.grants.iter_mut().for_each(|grant| grant.open = false);
        }
    }

    fn log(&mut self, at: u64, count: u32, open: bool) -> usize {
        if open && !self.grants.iter().any(|grant| grant.open) {
            self.slack = u128::MAX;
        }
        self.grants.push(Grant { at, parts: u128::from(count) * self.token(), open });
        self.grants.len() - 1
    }

    /// Takes tokens if they are available and no waiter is in the queue. Otherwise returns the time at which they will be available.
    fn take(&mut self, count: u32, now: u64) -> Result<(), u64> {
        let waiting = self.waiters.iter().filter(|waiter| waiter.state == WaiterState::Waiting);
        let before: u64 = waiting.clone().filter(|c| c.promised.is_none()).map(|c| u64::from(c.count)).sum();
        let promised = waiting.filter_map(|waiter| waiter.promised).map(|promise| promise.due).max();
        let full = self.after(before + u64::from(count), now);
        let due = self.due(full, now).max(promised.unwrap_or(0));
        if due > now || self.waiting() > 0 {
            return Err(due);
        }
        if count <= self.burst() {
            self.full = full;
        }
        Ok(())
    }

    fn give_back(&mut self, Promise { due, changes, returns }: Promise, count: u32, now: u64) -> bool {
        let last = self.due(self.full, now);
        if due < now || due < last || due == u64::MAX {
            return false;
        }
        if (changes, returns) != (self.changes, self.returns) {
            return false;
        }
        let cost = u128::from(count) * self.token();
        self.full = self.full.saturating_sub(cost);
        self.slack = self.slack.saturating_sub(cost);
        true
    }

    fn after(&self, count: u64, now: u64) -> u128 {
        (self.full.max(self.parts(now)) + u128::from(count) * self.token()).min(self.never())
    }

    fn due(&self, full: u128, now: u64) -> u64 {
        let burst = u128::from(self.burst()) * self.token();
        let at = full.saturating_sub(burst).div_ceil(self.rate());
        u64::try_from(at).unwrap_or(u64::MAX).max(now)
    }

    fn missing(&self, now: u64) -> u128 {
        self.full.saturating_sub(self.parts(now))
    }

    fn parts(&self, now: u64) -> u128 {
        u128::from(now) * self.rate()
    }

    fn never(&self) -> u128 {
        self.parts(u64::MAX) + u128::from(self.burst()) * self.token()
    }

    fn burst(&self) -> u32 {
        self.quota.burst().into()
    }

    fn token(&self) -> u128 {
        self.quota.in_lowest_terms().1.into()
    }

    fn rate(&self) -> u128 {
        self.quota.in_lowest_terms().0.into()
    }
}
