//! PURE. Queries of the state machine, and its `check`.

use std::borrow::Borrow;

use flyball_sync::Nanos;

use super::{GATHER_LIMIT, Phase, Postponed, QueueState};
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::spread;
use crate::state::slots::{Flags, State};
use crate::state::types::Leftovers;

/// The state of a key. A key whose deadline has passed is reported as `Ready`, or as `LeasedDirty` if it is leased.
///
/// # Examples
/// ```
/// use flyball_workqueue::{KeyState, ManualClock, Queue};
/// use std::time::Duration;
///
/// let queue = Queue::builder().timer(ManualClock::new().timer()).build();
/// assert_eq!(queue.state(&"a"), KeyState::Absent);
/// queue.add("a")?;
/// assert_eq!(queue.state(&"a"), KeyState::Ready);
/// let lease = queue.try_get()?;
/// assert_eq!(queue.state(&"a"), KeyState::Leased);
/// queue.add_after("a", Duration::from_secs(5))?;
/// let at = queue.now() + Duration::from_secs(5);
/// assert_eq!(queue.state(&"a"), KeyState::LeasedWaiting(at));
/// lease.done();
/// assert_eq!(queue.state(&"a"), KeyState::Waiting(at));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum KeyState {
    /// The key is not in the queue.
    Absent,
    /// The key becomes Ready at this time. In a queue that is shut down it does so only if a drain serves delayed keys up to this time; otherwise it is a
    /// leftover.
    Waiting(Nanos),
    /// The key is queued to be handed out.
    Ready,
    /// The key is leased.
    Leased,
    /// The key is leased, and becomes Ready when its lease ends.
    LeasedDirty,
    /// The key is leased and has a deadline at this time. It becomes Ready at the deadline or, if the lease is still held then, when the lease ends.
    LeasedWaiting(Nanos),
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Returns whether operations need the current time, because there is a deadline, ages are tracked, groups have rates, or a drain serves delayed
    /// keys.
    #[inline]
    pub(crate) fn is_timed(&self) -> bool {
        let waits = self.waits() + self.postponed.len() > 0;
        waits | self.ages.is_some() | self.order.has_rates() | (self.phase == Phase::DrainingDelays)
    }

    /// Returns how many keys can be handed out, and the next time at which a key becomes Ready, or a Ready key gets the token of its group. If `now` is
    /// `None`, no deadline counts as passed. After shutdown, exactly the deadlines up to the horizon count as passed, whatever `now` is. If more than
    /// `most` keys can be handed out, both results may be wrong, but the first one is more than `most`. If `checks` is true, also prepares the check of
    /// conditions, as [`observe_to_check`](Self::observe_to_check) does.
    ///
    /// Moves at most [`GATHER_LIMIT`] keys, in O(log n) each. Returns `None` if more must be moved: the caller must then unlock and call this again.
    pub(crate) fn outlook(
        &mut self,
        now: Option<Nanos>,
        most: usize,
        checks: bool,
    ) -> Option<(usize, Option<Nanos>)> {
        let mut moves = GATHER_LIMIT;
        let most = if self.paused || self.phase == Phase::Stopped { 0 } else { most };
        if !self.gather_until(most, checks, &mut moves) {
            return None;
        }
        if self.paused || self.phase == Phase::Stopped {
            return Some((0, None));
        }
        let (granted, token) = self.order.tokens(now.unwrap_or(self.seen), most.min(GATHER_LIMIT));
        let ready = self.order.available() + granted;
        if self.waits() == 0 {
            return Some((ready, token));
        }
        let by = match self.phase {
            Phase::ShutDown => self.horizon,
            _ => now.map_or(Nanos::ZERO, |now| self.due_by(now)),
        };
        let (due, next) = match self.first_wait() {
            Some((at, _)) if at > by => (0, Some(at)),
            _ => self.passed(by, most, &mut moves)?,
        };
        Some((ready + due, next.filter(|at| self.is_served(*at)).into_iter().chain(token).min()))
    }

    /// Returns whether a key with this deadline becomes Ready at it. After a shutdown, later ones do not.
    fn is_served(&self, at: Nanos) -> bool {
        self.phase == Phase::Open || at <= self.horizon
    }

    /// Returns the first deadline after `now` at which a key becomes Ready. O(deadlines that have passed).
    pub(super) fn next_wait(&self, now: Nanos) -> Option<Nanos> {
        self.survey(self.due_by(now), usize::MAX).1.filter(|at| self.is_served(*at))
    }

    /// Returns how many absent keys the queue has room for.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.options.capacity.saturating_sub(self.slab.live())
    }

    /// Returns the number of keys in the lines of the order. A key that is still in a heap does not count, even if its deadline has passed.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        if self.phase == Phase::Stopped { 0 } else { self.order.count() }
    }

    #[inline]
    pub(super) fn leased(&self) -> usize {
        self.leases.len() + self.reported.len()
    }

    /// Returns the earliest time at which a key becomes Ready or gets the token of its group, or the queue may close, although no operation is called.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        let first = self.first_wait().map(|(at, _)| at).filter(|_| !self.paused);
        let token = if self.paused { None } else { self.order.tokens(self.seen, GATHER_LIMIT).1 };
        match self.phase {
            Phase::Open => first.into_iter().chain(token).min(),
            Phase::DrainingDelays => first.into_iter().chain(token).chain(self.closes_at(self.seen)).min(),
            Phase::ShutDown => token,
            Phase::Stopped => None,
        }
    }

    /// Returns the next time after `now` at which the queue may become closed or drained although no operation is called: at the horizon of a drain
    /// that serves delayed keys, and before it at each deadline of a key whose group is suspended.
    pub(crate) fn closes_at(&self, now: Nanos) -> Option<Nanos> {
        if self.phase != Phase::DrainingDelays || now >= self.horizon {
            return None;
        }
        // If more have passed, although the caller has gathered, an alarm has fired early, and the waiters check again at the horizon.
        let next = if O::GATHERS { self.survey(now, GATHER_LIMIT) } else { (0, None) };
        let next = next.1.filter(|_| next.0 <= GATHER_LIMIT);
        Some(next.map_or(self.horizon, |next| next.min(self.horizon)))
    }

    /// Like [`closes_at`](Self::closes_at), but returns only the horizon while a Ready key can be handed out now or when a lease ends: the queue closes
    /// only after an operation on that key, which calls this again. So no deadlines are examined while a drain works through many that have passed, which
    /// stay in the heap until they are gathered, a few in each operation.
    pub(crate) fn closes_without_operation(&self, now: Nanos) -> Option<Nanos> {
        if O::GATHERS && self.order.count() > self.order.suspended() {
            return (self.phase == Phase::DrainingDelays && now < self.horizon).then_some(self.horizon);
        }
        self.closes_at(now)
    }

    /// Returns whether there is a waiting key whose deadline has passed. If `now` is `None`, no deadline counts as passed. After shutdown, exactly
    /// the deadlines up to the horizon count as passed, whatever `now` is.
    #[inline]
    pub(crate) fn has_due(&self, now: Option<Nanos>) -> bool {
        let by = match self.phase {
            Phase::Open => now,
            Phase::DrainingDelays => now.map(|now| now.min(self.horizon)),
            Phase::ShutDown => Some(self.horizon),
            Phase::Stopped => None,
        };
        self.first_wait().is_some_and(|(at, _)| by.is_some_and(|by| at <= by))
    }

    /// Returns whether a getter may find a key. Does not change the last time that was passed in (`seen`). Due keys count even if the order cannot
    /// hand them out.
    #[cold]
    pub(crate) fn may_hand_out(&self, now: Option<Nanos>) -> bool {
        let at = now.unwrap_or(self.seen);
        !self.paused && (self.has_due(now) || self.next_slot(at).is_some() || self.order.tokens(at, 0).0 > 0)
    }

    /// Returns whether the key is in the queue.
    pub(crate) fn contains<Q>(&self, key: &Q, hash: u32) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.find(key, hash).is_some()
    }

    pub(crate) fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns whether the queue is shut down, no key is Ready and no key can become Ready. Keys of suspended groups do not count. A closed queue
    /// stays closed, because no group of a closed queue can be resumed.
    #[inline]
    pub(crate) fn is_closed_at(&self, now: Nanos) -> bool {
        match self.phase {
            Phase::Open => false,
            // Before the horizon, the queue is not closed while a key is leased: the lease may end as a failure, and the key may then become Ready
            // again. From the horizon on, only a key that is dirty or whose deadline has passed becomes Ready when its lease ends.
            Phase::DrainingDelays if now < self.horizon => self.leased() == 0 && self.serves_none(now),
            Phase::DrainingDelays => {
                let due = |own: &Postponed| own.wait.at <= self.horizon;
                self.dirty == 0 && self.serves_none(now) && !self.postponed.iter().any(|(_, own)| due(&own))
            }
            Phase::ShutDown => self.dirty == 0 && self.serves_none(now),
            Phase::Stopped => true,
        }
    }

    /// Returns whether no Ready key can be handed out, now or when a lease ends, and no key becomes Ready at a deadline up to the horizon. A key whose
    /// deadline has passed may still be in the heap; if its group is suspended, it does not count.
    fn serves_none(&self, now: Nanos) -> bool {
        if self.order.count() != self.order.suspended() {
            return false;
        }
        let by = self.due_by(now);
        match self.first_wait() {
            Some((at, _)) if at > self.horizon => true,
            Some((at, _)) if at > by => false,
            Some(_) => {
                self.all_suspended(by, GATHER_LIMIT)
                    && self.survey(by, GATHER_LIMIT).1.is_none_or(|at| at > self.horizon)
            }
            None => true,
        }
    }

    /// Returns whether the groups of all waiting keys with a deadline at or before `by` are suspended, and there are at most `most` such keys. O(these
    /// keys), and only while such keys are in the heap, that is, before the next operation with a time.
    fn all_suspended(&self, by: Nanos, most: usize) -> bool {
        let suspended =
            |due: Vec<u32>| due.len() <= most && due.into_iter().all(|slot| self.order.is_suspended(slot));
        O::GATHERS && self.order.heaps().all(|heap| suspended(heap.due(by, most)))
    }

    /// Observes the time, and returns whether the queue is stopped, or closed and without leased keys.
    pub(crate) fn is_drained(&mut self, now: Option<Nanos>) -> bool {
        let now = self.observe(now);
        self.is_drained_at(now)
    }

    pub(crate) fn is_drained_at(&self, now: Nanos) -> bool {
        self.phase == Phase::Stopped || (self.is_closed_at(now) && self.leased() == 0)
    }

    /// Returns whether the queue holds no key.
    pub(crate) fn is_empty(&self) -> bool {
        self.slab.live() == 0
    }

    /// Observes the time, and returns whether no key is leased and no Ready key can be handed out.
    ///
    /// A waiter that finds the queue not idle must have observed the time at which it was not: a later check at an earlier time would find the queue
    /// idle, and wake the waiter, which would wait again, over and over.
    pub(crate) fn is_idle(&mut self, now: Option<Nanos>) -> bool {
        let now = self.observe(now);
        self.is_idle_at(now)
    }

    pub(crate) fn is_idle_at(&self, now: Nanos) -> bool {
        self.leased() == 0 && !self.has_ready_at(now, GATHER_LIMIT)
    }

    /// Returns whether there is a Ready key that can be handed out now, or later when a lease of its group ends. If `now` is `None`, uses the last
    /// time that was passed in.
    pub(crate) fn has_ready(&self, now: Option<Nanos>) -> bool {
        self.has_ready_at(now.unwrap_or(self.seen), usize::MAX)
    }

    /// If more than `most` deadlines have passed and were not gathered yet, one of these keys counts as a key that can be handed out.
    fn has_ready_at(&self, now: Nanos, most: usize) -> bool {
        self.queued() > self.order.suspended()
            || (self.has_due(Some(now)) && !self.all_suspended(self.due_by(now), most))
    }

    /// Returns the later of `now` and the time that was last passed to an operation. Conditions are checked at this time, because a waiter may have
    /// found at that last time that its condition does not hold.
    #[inline]
    pub(crate) fn latest(&self, now: Option<Nanos>) -> Nanos {
        now.map_or(self.seen, |now| now.max(self.seen))
    }

    /// Returns the number of Ready keys at `now`. O(deadlines that have passed).
    pub(crate) fn len(&self, now: Option<Nanos>) -> usize {
        self.queued() + self.survey(self.due_by(now.unwrap_or(self.seen)), usize::MAX).0
    }

    pub(crate) fn state<Q>(&self, key: &Q, hash: u32, now: Option<Nanos>) -> KeyState
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.find(key, hash).map_or(KeyState::Absent, |slot| self.state_of(slot, now.unwrap_or(self.seen)))
    }

    fn state_of(&self, slot: u32, now: Nanos) -> KeyState {
        let due_by = self.due_by(now);
        match self.slab.get(slot).state {
            State::Vacant => KeyState::Absent,
            State::Ready => KeyState::Ready,
            State::Leased => KeyState::Leased,
            State::LeasedDirty => KeyState::LeasedDirty,
            State::Waiting => match self.slab.get(slot).at {
                at if at <= due_by => KeyState::Ready,
                at => KeyState::Waiting(at),
            },
            State::LeasedWaiting => match self.postponed_of(slot).wait.at {
                at if at <= due_by => KeyState::LeasedDirty,
                at => KeyState::LeasedWaiting(at),
            },
        }
    }

    /// Clones all keys of the queue into `left`, separately for each state. O(n log n).
    ///
    /// The caller passes `left` in, so that the clones are dropped outside every lock even if cloning a later key panics.
    pub(crate) fn leftovers(&mut self, now: Option<Nanos>, left: &mut Leftovers<K>)
    where
        K: Clone,
    {
        let (ready, waiting, leased) = self.slots(now);
        // The drain that asks is over. If its limit has passed, the queue serves no more delayed keys, even if the clock jumps back.
        self.pass_horizon();
        self.clone_keys(ready, &mut left.ready);
        self.clone_keys(waiting, &mut left.waiting);
        self.clone_keys(leased, &mut left.leased);
    }

    /// Clones all keys into `keys`, with their states. The Ready keys come first, in the order in which they will be handed out; then the waiting
    /// keys, by deadline; then the leased keys. Otherwise like [`leftovers`](Self::leftovers).
    pub(crate) fn keys_and_states(&mut self, now: Option<Nanos>, keys: &mut Vec<(K, KeyState)>)
    where
        K: Clone,
    {
        let (ready, waiting, leased) = self.slots(now);
        let now = now.unwrap_or(self.seen);
        for slot in ready.into_iter().chain(waiting).chain(leased) {
            keys.extend(self.slab.get(slot).key.clone().map(|key| (key, self.state_of(slot, now))));
        }
    }

    pub(super) fn clone_keys(&self, slots: Vec<u32>, keys: &mut Vec<K>)
    where
        K: Clone,
    {
        keys.extend(slots.into_iter().filter_map(|slot| self.slab.get(slot).key.clone()));
    }

    /// Returns the Ready slots in the order in which `get` would take them, the waiting slots by deadline, and the leased slots.
    pub(super) fn slots(&mut self, now: Option<Nanos>) -> (Vec<u32>, Vec<u32>, Vec<u32>) {
        self.gather_all(now);
        let now = now.unwrap_or(self.seen);
        let due = self.due_by(now);
        let ready = self.order.slots(&self.slab, now, due);
        let waiting = self.waiting_after(due);
        (ready, waiting, self.leased_slots())
    }

    pub(super) fn leased_slots(&self) -> Vec<u32> {
        self.reported.iter(&self.slab).chain(self.leases.iter(&self.slab)).collect()
    }

    /// Returns the time up to which deadlines count as passed.
    #[inline]
    pub(super) fn due_by(&self, now: Nanos) -> Nanos {
        self.phase.due_by(now, self.horizon)
    }

    /// Checks all invariants, and returns a description of the first one that is violated. O(n).
    pub(crate) fn check(&self) -> Result<(), String> {
        self.slab.check()?;
        self.order.check(&self.slab)?;
        self.leases.check(&self.slab)?;
        self.reported.check(&self.slab)?;
        let ready = self.order.linked(&self.slab);
        let in_order = |slot: &u32| self.slab.get(*slot).state == State::Ready;
        if ready.len() != self.order.count() || !ready.iter().all(in_order) {
            return Err(format!("state 2: the order links {ready:?}, {} slots", self.order.count()));
        }
        for (list, reported) in [(&self.leases, false), (&self.reported, true)] {
            let belongs = |slot| {
                let entry = self.slab.get(slot);
                entry.state.is_leased() && entry.flags.has(Flags::REPORTED) == reported
            };
            if !list.iter(&self.slab).all(belongs) {
                return Err(format!("state 2: a slot is in the wrong list of leases (reported: {reported})"));
            }
        }
        let (mut leased, mut dirty, mut postponed, mut limited) = (0, 0, 0, 0);
        for (slot, entry) in self.slab.iter() {
            if self.keys.find(spread(entry.hash), |&other| other == slot).is_none() {
                return Err(format!("state 1: slot {slot} is not in the key table"));
            }
            leased += usize::from(entry.state.is_leased());
            dirty += usize::from(entry.state == State::LeasedDirty);
            if entry.state == State::LeasedWaiting {
                postponed += usize::from(self.postponed.get(slot).is_some());
            }
            if entry.flags.has(Flags::LIMITED) || entry.flags.has(Flags::BACKOFF) {
                if entry.state != State::Waiting {
                    return Err(format!("state 4: slot {slot} is flagged, but {:?}", entry.state));
                }
                limited += usize::from(entry.flags.has(Flags::LIMITED) && self.limits.get(slot).is_some());
            }
        }
        if self.keys.len() != self.slab.live() {
            return Err(format!("state 1: {} keys in the table, {} live", self.keys.len(), self.slab.live()));
        }
        if ready.len() + self.waits() + leased != self.slab.live() || leased != self.leased() {
            return Err(format!("state 2: {} ready, {leased} leased of {}", ready.len(), self.slab.live()));
        }
        if (dirty, postponed) != (self.dirty, self.postponed.len()) {
            return Err(format!("state 3: {dirty} dirty and {postponed} postponed, counted {}", self.dirty));
        }
        if limited != self.limits.len() {
            return Err(format!("state 4: {limited} limited waits, {} limits", self.limits.len()));
        }
        self.check_meter()
    }
}
