//! SHELL. An adaptive limit behind one lock, with a clock and a wait queue.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `adaptive` | the limit, and the number of operations in flight |
//! | `waiting` | the waiters for a slot in FIFO order, with increasing tickets; empty while a slot is free |
//! | `handed_over` | the waiters that were given a slot and not polled since, with the time of the wake-up; times not known yet (`None`) are last |
//! | `next_ticket` | the next ticket; tickets are never reused |
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
//! otherwise it waits before all waiters that joined later, because it keeps its ticket.
//!
//! The reservation starts at the wake-up, so the clock is read whenever an operation ends, although the latency is measured only for a success. If an
//! older reading were used, a reservation could be over before the waiter is woken. If the clock panics, or if a permit is dropped while its thread
//! unwinds, there is no reading, and the reservation starts at the next call that reads the clock.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use flyball_sync::locks::Mutex;
use flyball_sync::panics::raise;
use flyball_sync::waiting::wake_all;
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
    waiting: VecDeque<(u64, Waker)>,
    handed_over: VecDeque<(u64, Option<Nanos>)>,
    next_ticket: u64,
    seen: Nanos,
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
        let (waiting, handed_over) = (VecDeque::new(), VecDeque::new());
        let state = State { adaptive, waiting, handed_over, next_ticket: 0, seen: Nanos::ZERO };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), clock }) }
    }

    /// Returns a permit if one is free and there is no waiter.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit<C>> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        let admitted = state.grant_slots(Some(now));
        let started = state.adaptive.start(now);
        drop(state);
        // The permit is created before any waiter is woken: if a waker panics, the permit is dropped and its slot is passed on.
        let permit = started.map(|started| Permit::new(self.shared.clone(), started));
        raise(wake_all(admitted));
        permit
    }

    /// Waits for a permit. Waiters are served in the order of their first polls.
    ///
    /// Each waiter is woken once, when it is given a slot. With n waiters, a poll is O(log n + limit), and leaving the wait queue is O(n).
    ///
    /// # Cancel safety
    /// Dropping the future removes it from the wait queue; if the future was given a slot already, the slot goes to the next waiter. A future that is
    /// not polled within 100 ms after it was woken can lose its slot: the next attempt to acquire a permit, or the next end of a permit, gives the
    /// slot to the next waiter. When a future that lost its slot is polled again, it is served before all waiters that joined later.
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
        self.shared.state.lock().waiting.len()
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let state = self.shared.state.lock();
        let free = state.adaptive.in_flight() < state.adaptive.limit();
        if free && !state.waiting.is_empty() {
            return Err(format!("{} waiters while a slot is free", state.waiting.len()));
        }
        if state.handed_over.len() > state.adaptive.in_flight() as usize {
            return Err(format!(
                "{} slots are given, but only {} operations are in flight",
                state.handed_over.len(),
                state.adaptive.in_flight()
            ));
        }
        if !state.waiting.iter().is_sorted_by_key(|(ticket, _)| ticket) {
            return Err("the tickets are not in increasing order".to_owned());
        }
        state.adaptive.check()
    }
}

impl State {
    /// If `now` is given, advances `seen` to it and takes back slots whose waiters were not polled in time. Then gives
    /// free slots to the waiters in FIFO order. The caller must wake the returned wakers after unlocking.
    fn grant_slots(&mut self, now: Option<Nanos>) -> Vec<Waker> {
        if let Some(now) = now {
            self.seen = self.seen.max(now);
            self.take_back();
        }
        let since = now.map(|_| self.seen);
        let mut admitted = Vec::new();
        while !self.waiting.is_empty() && self.adaptive.admit() {
            if let Some((ticket, waker)) = self.waiting.pop_front() {
                self.handed_over.push_back((ticket, since));
                admitted.push(waker);
            }
        }
        admitted
    }

    fn take_back(&mut self) {
        let seen = self.seen;
        for (_, since) in self.handed_over.iter_mut().rev().take_while(|(_, since)| since.is_none()) {
            *since = Some(seen);
        }
        let overdue = |since: Option<Nanos>| since.is_some_and(|since| seen.since(since) >= SLOT_RESERVATION);
        while self.handed_over.front().is_some_and(|(_, since)| overdue(*since)) {
            self.handed_over.pop_front();
            self.adaptive.leave();
        }
    }

    /// If the slot that was given to `ticket` has not been taken back, takes this slot and returns true.
    fn take_handed_over(&mut self, ticket: u64) -> bool {
        let place = self.handed_over.iter().position(|(other, _)| *other == ticket);
        place.and_then(|place| self.handed_over.remove(place)).is_some()
    }

    fn is_waiting(&self, ticket: u64) -> bool {
        self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket).is_ok()
    }

    fn draw_ticket(&mut self) -> u64 {
        let own = self.next_ticket;
        self.next_ticket += 1;
        own
    }

    /// Adds the waker to the wait queue in ticket order, or replaces the ticket's waker and returns the old one, which the
    /// caller must drop after unlocking.
    fn wait(&mut self, ticket: u64, waker: Waker) -> Option<Waker> {
        match self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            Ok(place) => Some(std::mem::replace(&mut self.waiting[place].1, waker)),
            Err(place) => {
                self.waiting.insert(place, (ticket, waker));
                None
            }
        }
    }
}

// === for futures and permits ===

impl<C: Clock> Shared<C> {
    /// If the caller can have a slot, starts an operation and returns its permit. Otherwise adds the caller to the wait queue with `ticket`, or with
    /// a new ticket if `ticket` is `None`.
    pub(crate) fn poll_start(self: &Arc<Self>, ticket: &mut Option<u64>, waker: &Waker) -> Poll<Permit<C>> {
        let now = self.clock.now();
        let waker = waker.clone();
        let mut state = self.state.lock();
        // If the caller was given a slot, it takes this slot first; only then does `grant_slots` take back the slots of late waiters. In the opposite
        // order, two waiters that are polled late would take the slot from each other for ever.
        let kept = ticket.is_some_and(|own| state.take_handed_over(own));
        let admitted = state.grant_slots(Some(now));
        // `start` overtakes no waiter, because there is no waiter while a slot is free. A waiter that lost its slot keeps its ticket.
        let started = match *ticket {
            Some(own) if kept || state.take_handed_over(own) => Some(state.adaptive.started(now)),
            Some(own) if state.is_waiting(own) => None,
            _ => state.adaptive.start(now),
        };
        let Some(started) = started else {
            let own = ticket.unwrap_or_else(|| state.draw_ticket());
            *ticket = Some(own);
            let replaced = state.wait(own, waker);
            drop(state);
            drop(replaced);
            raise(wake_all(admitted));
            return Poll::Pending;
        };
        *ticket = None;
        drop(state);
        // As in `try_acquire`, the permit is created before any waiter is woken.
        let permit = Permit::new(self.clone(), started);
        raise(wake_all(admitted));
        Poll::Ready(permit)
    }

    /// Removes a ticket from the wait queue. If a slot was given to the ticket, passes the slot to the next waiter.
    pub(crate) fn give_up(&self, ticket: u64) {
        let now = self.now_unless_it_panics();
        let mut state = self.state.lock();
        let left = match state.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            Ok(place) => state.waiting.remove(place),
            Err(_) if state.take_handed_over(ticket) => {
                state.adaptive.leave();
                None
            }
            // The slot has been taken back.
            Err(_) => None,
        };
        let admitted = state.grant_slots(now);
        drop(state);
        drop(left);
        raise(wake_all(admitted));
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
        let mut state = self.state.lock();
        let at = now.unwrap_or(state.seen);
        state.adaptive.end(operation, outcome, at);
        let admitted = state.grant_slots(now);
        drop(state);
        raise(wake_all(admitted));
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
            (state.adaptive.limit(), state.adaptive.in_flight(), state.waiting.len())
        };
        // The writer is user code, so it runs after unlocking.
        f.debug_struct("ConcurrencyLimiter")
            .field("limit", &limit)
            .field("in_flight", &in_flight)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}
