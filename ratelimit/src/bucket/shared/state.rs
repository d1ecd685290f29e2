//! SHELL. The state under the lock: the bucket, the waiters and the alarm. The state grants the tokens that become due as time passes.

use std::num::NonZeroU32;
use std::task::Waker;
use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::waiting::{Alarm, Place, Released};

use crate::bucket::packed::LockedBucket;
use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::bucket::shared::effects::Effects;
use crate::bucket::token_bucket::TokenBucket;
use crate::bucket::unclaimed::UnclaimedGrants;
use crate::bucket::waiters::{Served, WaitQueue};
use crate::error::{InsufficientCapacity, NotYet, TryAcquireError};

pub(crate) struct State {
    pub(super) exact: LockedBucket,
    pub(super) waiters: WaitQueue,
    pub(super) unclaimed: UnclaimedGrants,
    pub(super) alarm: Alarm,
    /// The latest clock reading, which is used if the clock panics.
    latest_now: Nanos,
    /// While tokens are granted in several batches, because one batch does not hold all wakers: the time as of which they are granted.
    granting: Option<Nanos>,
    /// Whether waiters that request more than the burst must be refused.
    refusing: bool,
}

/// A request for tokens, with its place in the wait queue once it has joined.
pub(crate) struct AcquireRequest {
    pub(crate) count: NonZeroU32,
    /// The time limit, counted from the time at which the request joins the wait queue.
    pub(crate) limit: Option<Duration>,
    pub(crate) place: Option<Place>,
}

/// Why the granting stopped.
enum Granted {
    /// There are no more waiters.
    All,
    /// The first waiter's tokens are not due before this time.
    Until(Nanos),
    /// The batch of wakers is full.
    Full,
}

/// The result of polling a request.
pub(crate) enum Progress {
    Ready(Result<(), TryAcquireError>),
    Pending,
    /// The request must wait, and needs a waker, which must be cloned outside the lock.
    WithoutWaker,
}

impl State {
    pub(super) fn new(bucket: TokenBucket) -> Self {
        Self {
            exact: LockedBucket::new(bucket),
            waiters: WaitQueue::new(),
            unclaimed: UnclaimedGrants::new(),
            alarm: Alarm::default(),
            latest_now: Nanos::ZERO,
            granting: None,
            refusing: false,
        }
    }

    /// Grants the tokens that are due, in FIFO order, and sets the next alarm.
    pub(super) fn settle(&mut self, now: Nanos, effects: &mut Effects) {
        // Tokens that are due at the time `at` are granted as of that time, even if this takes several batches, with other calls in between.
        // Otherwise, a call between two batches would refill the bucket up to its own, later time, and could spend tokens that a dropped request
        // still gives back.
        if let Some(at) = self.granting.take() {
            if let Granted::Full = self.serve(at, effects) {
                return;
            }
        }
        self.latest_now = now;
        self.observe(now);
        if self.refusing {
            self.refusing =
                self.waiters.refuse_above(self.exact.bucket.quota().burst_size(), &mut effects.wake);
            if self.refusing {
                effects.more = true;
                return;
            }
        }
        match self.serve(now, effects) {
            Granted::Until(due) => {
                let next = self.waiters.next_deadline().map_or(due, |deadline| due.min(deadline));
                self.call_timer(Some(next), effects);
            }
            // An alarm without a waiter would keep the thread of a `ThreadTimer` alive, and a paused clock would advance to it.
            Granted::All => self.call_timer(None, effects),
            Granted::Full => {}
        }
    }

    /// Grants the tokens that are due at `now`, and times out the waiters whose deadline has passed, until the batch is
    /// full.
    fn serve(&mut self, now: Nanos, effects: &mut Effects) -> Granted {
        loop {
            let granted = self.grant(now, effects);
            let Granted::Until(_) = granted else { return granted };
            // Deadlines are checked after granting, so that a waiter whose tokens are available gets them even if the timer fires after the deadline.
            // The waiters behind a waiter that timed out move up.
            if self.waiters.next_deadline().is_none_or(|deadline| deadline > now) {
                return granted;
            }
            if effects.wake.is_full() {
                effects.more = true;
                self.granting = Some(now);
                return Granted::Full;
            }
            self.time_out_next(now, effects);
        }
    }

    /// Times out the waiter with the earliest deadline, and gives back the tokens promised to it.
    fn time_out_next(&mut self, now: Nanos, effects: &mut Effects) {
        let Some(waiter) = self.waiters.time_out_next() else { return };
        if let Some(promised) = waiter.promised {
            self.cancel(promised, now);
        }
        effects.wake.push(waiter.waker);
    }

    /// Grants the tokens that are due at `now`, until the batch is full.
    fn grant(&mut self, now: Nanos, effects: &mut Effects) -> Granted {
        loop {
            let Some(first) = self.waiters.first() else { return Granted::All };
            if effects.wake.is_full() {
                effects.more = true;
                self.granting = Some(now);
                return Granted::Full;
            }
            match &first.promised {
                Some(promised) if promised.due() > now => return Granted::Until(promised.due()),
                Some(_) => {}
                None => match self.exact.bucket.try_acquire_fitting(first.count, now) {
                    Ok(()) => {}
                    Err(not_yet) => return Granted::Until(not_yet.due()),
                },
            }
            // A grant of promised tokens is not recorded in `unclaimed`: once these tokens are due, they count as used, because the due times that
            // were returned to other callers depend on them.
            let round = first.promised.is_none().then(|| self.unclaimed.grant(first.count));
            let granted = Served::Granted { count: first.count, round };
            let Some(waiter) = self.waiters.serve_first(granted) else { return Granted::All };
            effects.wake.push(waiter.waker);
        }
    }

    /// Returns whether the bucket can be used without the lock: there is no waiter, and no grant that can still be given back.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiters.waiting() == 0 && !self.unclaimed.is_open()
    }

    pub(super) fn try_acquire(&mut self, count: NonZeroU32, now: Nanos) -> Result<(), TryAcquireError> {
        if self.waiters.waiting() == 0 {
            return self.exact.bucket.try_acquire_many(count, now);
        }
        Err(self.not_taken(count, now))
    }

    /// Why `count` tokens are not taken at `now`: they are due after all waiters have received theirs, or are more than the burst.
    fn not_taken(&self, count: NonZeroU32, now: Nanos) -> TryAcquireError {
        let bucket = &self.exact.bucket;
        if let Err(error) = bucket.fits(count) {
            return error.into();
        }
        let scale = bucket.scale();
        let cost = scale.cost(self.waiters.tokens().saturating_add(count.get().into()));
        let due = scale.due(scale.after(bucket.full_at(), now, cost), now);
        NotYet::new(due.max(self.waiters.promised_until()), now).into()
    }

    /// Whether `count` tokens arrive after `until` even if all waiters leave now, and give back the tokens that were promised to them or granted and
    /// not claimed. Reservations of other callers are not cancelled, and the quota does not change.
    fn is_too_late(&self, count: NonZeroU32, now: Nanos, until: Nanos) -> bool {
        let (bucket, scale) = (&self.exact.bucket, self.exact.bucket.scale());
        let missing = bucket.full_at().saturating_sub(scale.parts(now));
        let back = scale.cost(self.waiters.promised_tokens())
            + self.unclaimed.returnable(missing, |tokens| scale.cost(tokens));
        let full_at = scale.after(bucket.full_at().saturating_sub(back), now, scale.cost(count.get().into()));
        scale.due(full_at, now) > until
    }

    /// Takes tokens ahead of time, after all waiters; this fixes the due times of the waiters.
    pub(super) fn reserve(
        &mut self,
        count: NonZeroU32,
        now: Nanos,
    ) -> Result<Reservation, InsufficientCapacity> {
        let (bucket, unclaimed) = (&mut self.exact.bucket, &mut self.unclaimed);
        bucket.fits(count)?;
        let mut reserve = |count| {
            let reservation = bucket.reserve_fitting(count, now);
            // The tokens count as used at their due time, so record how many parts are missing just before that time.
            let (scale, full_at) = (bucket.scale(), bucket.full_at());
            let used = scale.parts(reservation.due()) + scale.cost(u64::from(count.get()));
            unclaimed.observe(full_at.saturating_sub(used));
            reservation
        };
        self.waiters.promise_all(&mut reserve);
        Ok(reserve(count))
    }

    /// Gives back tokens whose due time has not passed, and returns whether this had an effect.
    pub(super) fn cancel(&mut self, reservation: Reservation, now: Nanos) -> bool {
        let cost = self.exact.bucket.scale().cost(reservation.count().get().into());
        let returned = self.exact.bucket.cancel(reservation, now);
        if returned {
            self.unclaimed.lower(cost);
        }
        returned
    }

    pub(super) fn set_quota(&mut self, quota: Quota, now: Nanos) {
        if quota == self.exact.bucket.quota() {
            return;
        }
        self.unclaimed.end_round();
        self.exact.bucket.set_quota(quota, now);
        // The call of `settle` after this change refuses the waiters that request more than the new burst.
        self.refusing = true;
        self.waiters.start_refusing();
    }

    /// Takes the tokens of a request if they are due, and otherwise adds the request to the wait queue. `spare` is a clone of `waker`, to be stored
    /// if the request has to wait. If the clone replaces an earlier waker, the earlier waker is moved into `spare`, and the caller drops it after
    /// unlocking.
    pub(super) fn poll_request(
        &mut self,
        request: &mut AcquireRequest,
        waker: &Waker,
        spare: &mut Option<Waker>,
        now: Nanos,
    ) -> Progress {
        let Some(place) = request.place.take() else {
            let until = request.limit.map(|limit| now + limit);
            match self.try_acquire(request.count, now) {
                Err(TryAcquireError::NotYet(_))
                    if until
                        .is_none_or(|until| until > now && !self.is_too_late(request.count, now, until)) => {}
                result => return Progress::Ready(result),
            }
            let Some(waker) = spare.take() else { return Progress::WithoutWaker };
            request.place = Some(self.waiters.join(request.count, waker, until));
            return Progress::Pending;
        };
        match self.waiters.served(&place) {
            Some(served) => {
                self.waiters.leave(place);
                match served {
                    Served::Granted { round, .. } => {
                        round.into_iter().for_each(|round| self.unclaimed.used(round, request.count));
                        Progress::Ready(Ok(()))
                    }
                    Served::Refused(error) => Progress::Ready(Err(error.into())),
                    // This poll may be late, so that the tokens are available by now.
                    Served::TimedOut => Progress::Ready(self.try_acquire(request.count, now)),
                }
            }
            None => {
                let same = self.waiters.waits_for(&place, waker);
                if !same && spare.is_none() {
                    request.place = Some(place);
                    return Progress::WithoutWaker;
                }
                if let Some(waker) = spare.take_if(|_| !same) {
                    *spare = Some(self.waiters.wait_with(&place, waker));
                }
                request.place = Some(place);
                Progress::Pending
            }
        }
    }

    /// Removes a waiter and returns its waker, which the caller must drop after unlocking. If `now` is known, gives back tokens that were granted to
    /// the waiter.
    pub(super) fn leave(&mut self, place: Place, now: Option<Nanos>) -> Option<Waker> {
        match self.waiters.leave(place) {
            Released::Waiting(waiter) => {
                if let (Some(promised), Some(now)) = (waiter.promised, now) {
                    self.cancel(promised, now);
                }
                Some(waiter.waker)
            }
            Released::Served(Served::Granted { count, round: Some(round) }) => {
                match now {
                    Some(_) => {
                        let bucket = &mut self.exact.bucket;
                        let back =
                            self.unclaimed.give_back(round, count, bucket.scale().cost(count.get().into()));
                        bucket.refund(back);
                    }
                    None => self.unclaimed.used(round, count),
                }
                None
            }
            Released::Served(_) => None,
        }
    }

    /// The latest clock reading.
    pub(super) const fn latest_now(&self) -> Nanos {
        self.latest_now
    }

    /// Requests an alarm at `due` or earlier, or none.
    fn call_timer(&mut self, due: Option<Nanos>, effects: &mut Effects) {
        let call = match due {
            Some(due) => self.alarm.request(due),
            None => self.alarm.release(),
        };
        effects.arm = call.or(effects.arm.take());
    }

    /// Checks the invariants.
    pub(super) fn check(&self) -> Result<(), String> {
        self.waiters.check()?;
        self.exact.bucket.check()
    }

    fn observe(&mut self, now: Nanos) {
        if self.unclaimed.is_open() {
            let bucket = &self.exact.bucket;
            self.unclaimed.observe(bucket.full_at().saturating_sub(bucket.scale().parts(now)));
        }
    }
}
