//! SHELL. An adaptive limit behind one lock, with a clock and a wait queue.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `adaptive` | the limit, and the number of operations in flight |
//! | `late`, `waiting` | the waiters for a slot, each list in FIFO order; empty while a slot is free |
//! | `given` | the waiters that were given a slot and not polled since, with the time of the wake-up; times not known yet (`None`) are last |
//! | `seen` | the latest clock reading so far; a thread that takes the lock may have an older reading |
//!
//! | outside the lock | |
//! |---|---|
//! | the clock is read | before locking |
//! | wakers are cloned, woken and dropped | before locking, or after unlocking, because wakers run user code |
//!
//! A free slot is given to the first waiter before that waiter is woken. So later callers cannot overtake the waiter, each waiter is woken once, and
//! a waiter that leaves passes its slot on. Rejected: waking the first waiter to try again (other callers may overtake it repeatedly), and waking all
//! waiters (a thundering herd).
//!
//! A slot that was given to a waiter stays reserved until the waiter is polled, but at most for [`SLOT_RESERVATION`]. After that time, the next call
//! that acquires or ends a permit takes the slot back, for the next waiter or for its own caller. So a future that is never polled delays the others
//! by [`SLOT_RESERVATION`], but the slot is not lost. If the future is polled later, it still has its slot if no other call has taken the slot back;
//! otherwise it waits in `late`, whose waiters are served first. Rejected: its former place among them, which takes a search.
//!
//! The reservation starts at the wake-up, so the clock is read whenever an operation ends, although the latency is measured only for a success. If an
//! older reading were used, a reservation could be over before the waiter is woken. If the clock panics, or if a permit is dropped while its thread
//! unwinds, there is no reading, and the reservation starts at the next call that reads the clock.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use flyball_sync::locks::Mutex;
use flyball_sync::panics::{Panic, drop_each, keep_first, raise};
use flyball_sync::waiting::{Place, Released, WaitList, WakeBatch};
use flyball_sync::{Clock, Monotonic, Nanos};

use crate::adaptive::acquire_permit::AcquirePermit;
use crate::adaptive::limit::{AimdLimit, Outcome, Started};
use crate::adaptive::permit::Permit;

/// A limit on the number of operations in flight, which adapts to their outcomes: a shared [`AimdLimit`].
///
/// Clones share the limit. A [`Permit`] represents one operation: report its outcome with the permit's methods. A permit that is dropped without an
/// outcome, because of a panic, a timeout or a dropped future, counts as a failure.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter};
/// use std::time::Duration;
///
/// let limiter = ConcurrencyLimiter::new(AimdLimit::new(2..=64, Duration::from_millis(200)));
/// let (first, second) = (limiter.try_acquire().unwrap(), limiter.try_acquire().unwrap());
/// assert!(limiter.try_acquire().is_none());
/// first.succeed(); // its latency is measured
/// second.fail(); // the server answered: too many requests
/// assert_eq!((limiter.in_flight(), limiter.limit()), (0, 2));
/// ```
pub struct ConcurrencyLimiter<C = Monotonic> {
    shared: Arc<Shared<C>>,
}

pub(crate) struct Shared<C> {
    state: Mutex<State>,
    clock: C,
}

struct State {
    adaptive: AimdLimit,
    /// The waiters that have lost a slot. A waiter is served with its place in `given`.
    late: WaitList<Waker, Place>,
    /// The other waiters.
    waiting: WaitList<Waker, Place>,
    /// The slots that were given to a waiter. A slot that is taken back is served.
    given: WaitList<Option<Nanos>, ()>,
    seen: Nanos,
}

/// The place of a future in the wait queue, once it has joined.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    place: Option<Place>,
    /// Whether the future has lost a slot, so that it waits in `late`.
    late: bool,
}

impl Turn {
    pub(crate) const fn is_waiting(&self) -> bool {
        self.place.is_some()
    }
}

/// How long a slot is reserved for a waiter that was woken for it.
pub(crate) const SLOT_RESERVATION: Duration = Duration::from_millis(100);

// === impl ConcurrencyLimiter ===

impl ConcurrencyLimiter {
    /// Creates a limiter on the machine's monotonic clock.
    #[must_use]
    pub fn new(adaptive: AimdLimit) -> Self {
        Self::with_clock(adaptive, Monotonic)
    }
}

impl<C: Clock> ConcurrencyLimiter<C> {
    /// Creates a limiter on a clock of your choice, such as a [`ManualClock`](crate::ManualClock).
    #[must_use]
    pub fn with_clock(adaptive: AimdLimit, clock: C) -> Self {
        let (late, waiting, given) = (WaitList::new(), WaitList::new(), WaitList::new());
        let state = State { adaptive, late, waiting, given, seen: Nanos::ZERO };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), clock }) }
    }

    /// Returns a permit if one is free and there is no waiter.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit<C>> {
        let now = self.shared.clock.now();
        let (permit, woken) = self.shared.change(
            Some(now),
            |_| (),
            |state, ()| {
                let started = state.adaptive.start(now);
                started.map(|started| Permit::new(self.shared.clone(), started))
            },
        );
        // If a waker has panicked, the permit is dropped, and its slot is passed on.
        raise(woken);
        permit
    }

    /// Waits for a permit. Waiters are served in the order of their first polls.
    ///
    /// Each waiter is woken once, when it is given a slot.
    ///
    /// # Cancel safety
    /// Dropping the future removes it from the wait queue; if the future was given a slot already, the slot goes to the next waiter. A future that is
    /// not polled within 100 ms after it was woken can lose its slot: the next attempt to acquire a permit, or the next end of a permit, gives the
    /// slot to the next waiter. When a future that lost its slot is polled again, it is served before all waiters that have not had one.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter};
    /// use std::time::Duration;
    ///
    /// async fn call(limiter: &ConcurrencyLimiter) -> u32 {
    ///     let permit = limiter.acquire().await;
    ///     let answer = 7; // the request itself; if this future is dropped meanwhile, it counts as a failure
    ///     permit.succeed();
    ///     answer
    /// }
    ///
    /// let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=64, Duration::from_millis(200)));
    /// assert_eq!(flyball_sync::block_on(call(&limiter)), 7);
    /// ```
    pub fn acquire(&self) -> AcquirePermit<C> {
        AcquirePermit::new(self.shared.clone())
    }

    /// The current limit.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.shared.state.lock().adaptive.limit()
    }

    /// The number of operations in flight, including waiters that were given a slot and have not been polled since. It
    /// can be higher than the limit if the limit has just fallen.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.shared.state.lock().adaptive.in_flight()
    }

    /// The number of waiters for a permit.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.shared.state.lock().waiters()
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let state = self.shared.state.lock();
        let free = state.adaptive.in_flight() < state.adaptive.limit();
        if free && state.waiters() > 0 {
            return Err(format!("{} waiters while a slot is free", state.waiters()));
        }
        if state.given.waiting() > state.adaptive.in_flight() as usize {
            return Err(format!(
                "{} slots are given, but only {} operations are in flight",
                state.given.waiting(),
                state.adaptive.in_flight()
            ));
        }
        state.late.check().and(state.waiting.check()).and(state.given.check())?;
        state.adaptive.check()
    }
}

impl State {
    /// Returns whether there is a waiter, or a slot that is reserved for one.
    const fn is_contended(&self) -> bool {
        self.waiters() > 0 || self.given.waiting() > 0
    }

    /// If the time is known, which is `seen`, takes back slots whose waiters were not polled in time. Then gives free slots to the waiters in FIFO
    /// order. Does a bounded number of steps, and returns whether there may be more to do.
    fn settle(&mut self, knows_time: bool, wake: &mut WakeBatch) -> bool {
        if knows_time {
            self.set_unknown_times();
        }
        for _ in 0..WakeBatch::CAPACITY {
            if knows_time && self.take_back_first() {
                continue;
            }
            if self.waiters() == 0 || !self.adaptive.admit() {
                return false;
            }
            let place = self.given.join(knows_time.then_some(self.seen));
            let line = if self.late.waiting() > 0 { &mut self.late } else { &mut self.waiting };
            line.serve_first(place).into_iter().for_each(|waker| wake.push(waker));
        }
        true
    }

    fn set_unknown_times(&mut self) {
        let mut slot = self.given.last_slot();
        while let Some(since @ None) = slot.and_then(|slot| self.given.at_mut(slot)) {
            *since = Some(self.seen);
            slot = slot.and_then(|slot| self.given.before(slot));
        }
    }

    /// If the slot that was given first is overdue, takes it back and returns true.
    fn take_back_first(&mut self) -> bool {
        let since = self.given.first().copied().flatten();
        let overdue = since.is_some_and(|since| self.seen.since(since) >= SLOT_RESERVATION);
        if overdue {
            self.given.serve_first(());
            self.adaptive.leave();
        }
        overdue
    }

    /// The number of waiters.
    const fn waiters(&self) -> usize {
        self.late.waiting() + self.waiting.waiting()
    }

    const fn line(&mut self, turn: &Turn) -> &mut WaitList<Waker, Place> {
        if turn.late { &mut self.late } else { &mut self.waiting }
    }

    /// If the waiter was given a slot, takes the waiter out of the wait queue, and returns whether it still has the slot.
    fn claim(&mut self, turn: &mut Turn) -> bool {
        let line = self.line(turn);
        let Some(place) = turn.place.take_if(|place| line.served(place).is_some()) else { return false };
        let has_slot = match line.leave(place) {
            Released::Served(given) => matches!(self.given.leave(given), Released::Waiting(_)),
            Released::Waiting(_) => unreachable!("the waiter was served"),
        };
        turn.late = !has_slot;
        has_slot
    }

    /// Adds the waker to the wait queue, or replaces the waiter's waker and returns the old one, which the caller must drop after unlocking.
    fn wait(&mut self, turn: &mut Turn, waker: Waker) -> Option<Waker> {
        let line = self.line(turn);
        match turn.place.as_ref().and_then(|place| line.at_mut(place.slot())) {
            Some(own) => Some(std::mem::replace(own, waker)),
            None => {
                turn.place = Some(line.join(waker));
                None
            }
        }
    }

    /// Removes a waiter, and releases the slot that was given to it. Returns its waker, which the caller must drop after unlocking.
    fn leave(&mut self, turn: &mut Turn) -> Option<Waker> {
        let place = turn.place.take()?;
        match self.line(turn).leave(place) {
            Released::Waiting(waker) => Some(waker),
            Released::Served(given) => {
                if let Released::Waiting(_) = self.given.leave(given) {
                    self.adaptive.leave();
                }
                None
            }
        }
    }
}

// === for futures and permits ===

impl<C: Clock> Shared<C> {
    /// The common part of all changes: `before` runs first, and `after`, which receives its result, when every free slot is given to a waiter, so that
    /// `after` overtakes none. Wakes the waiters that were given a slot, after unlocking, and returns the first panic of a waker.
    fn change<B, R>(
        &self,
        now: Option<Nanos>,
        before: impl FnOnce(&mut State) -> B,
        after: impl FnOnce(&mut State, B) -> R,
    ) -> (R, Result<(), Panic>) {
        let (mut wake, mut woken) = (None, Ok(()));
        let mut state = self.state.lock();
        let passed = before(&mut state);
        state.seen = now.map_or(state.seen, |now| now.max(state.seen));
        while state.is_contended() && state.settle(now.is_some(), wake.get_or_insert_with(WakeBatch::new)) {
            drop(state);
            keep_first(&mut woken, wake.as_mut().map_or(Ok(()), WakeBatch::wake));
            state = self.state.lock();
        }
        let result = after(&mut state, passed);
        drop(state);
        if let Some(mut wake) = wake {
            keep_first(&mut woken, wake.wake());
        }
        (result, woken)
    }

    /// If the caller can have a slot, starts an operation and returns its permit. Otherwise adds the caller to the wait queue.
    pub(crate) fn poll_start(self: &Arc<Self>, turn: &mut Turn, waker: &Waker) -> Poll<Permit<C>> {
        let now = self.clock.now();
        // Cloned before locking, and dropped after unlocking if it is not stored, because a waker's vtable is user code.
        let mut spare = Some(waker.clone());
        // If the caller was given a slot, it takes this slot first; only then does `settle` take back the slots of late waiters. In the opposite order,
        // two waiters that are polled late would take the slot from each other for ever.
        let claim = |state: &mut State| (state.claim(turn), turn);
        let start_or_wait = |state: &mut State, (kept, turn): (bool, &mut Turn)| {
            let started = if kept || state.claim(turn) {
                Some(state.adaptive.started(now))
            } else if turn.is_waiting() {
                None
            } else {
                state.adaptive.start(now)
            };
            match started {
                Some(started) => (Poll::Ready(Permit::new(self.clone(), started)), None),
                None => (Poll::Pending, spare.take().and_then(|waker| state.wait(turn, waker))),
            }
        };
        // If a waker panics, the permit is dropped and its slot is passed on.
        let ((polled, replaced), woken) = self.change(Some(now), claim, start_or_wait);
        // Also if the drop of a waker panics here, the permit is dropped.
        drop(replaced);
        drop(spare);
        raise(woken);
        polled
    }

    /// Removes a waiter from the wait queue. If a slot was given to it, passes the slot to the next waiter.
    pub(crate) fn give_up(&self, turn: &mut Turn) {
        let now = self.now_unless_it_panics();
        let (left, woken) = self.change(now, |state| state.leave(turn), |_, left| left);
        drop_each(left.into_iter());
        raise(woken);
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Reads the clock for callers that use the time only to reserve slots and take them back. Returns `None` if the clock panics, or if the thread
    /// is already panicking. Callers that need the time use `now` instead, which does not catch a panic of the clock.
    pub(crate) fn now_unless_it_panics(&self) -> Option<Nanos> {
        if thread::panicking() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| self.clock.now())) {
            Ok(now) => Some(now),
            Err(panic) => {
                // The payload is leaked, because dropping it may panic in turn.
                std::mem::forget(panic);
                None
            }
        }
    }

    /// Ends an operation. `now` is always `Some` for a success.
    pub(crate) fn end(&self, operation: Started, outcome: Outcome, now: Option<Nanos>) {
        let end = |state: &mut State| state.adaptive.end(operation, outcome, now.unwrap_or(state.seen));
        let ((), woken) = self.change(now, end, |_, ()| ());
        raise(woken);
    }
}

impl<C> Clone for ConcurrencyLimiter<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<C> fmt::Debug for ConcurrencyLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, in_flight, waiting) = {
            let state = self.shared.state.lock();
            (state.adaptive.limit(), state.adaptive.in_flight(), state.waiters())
        };
        // The writer is user code, so it runs after unlocking.
        f.debug_struct("ConcurrencyLimiter")
            .field("limit", &limit)
            .field("in_flight", &in_flight)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
