//! SHELL. An adaptive limit behind one lock, with a clock and a line of those who wait.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `adaptive` | the limit, and how many are in flight |
//! | `waiting` | who waits for a place, first come, first served; tickets rise. Nobody waits while a place is free |
//! | `next_ticket` | no two are alike |
//!
//! | outside the lock | |
//! |---|---|
//! | the clock is read | before locking |
//! | wakers are cloned, woken and dropped | before locking, or after unlocking: they are user code |
//!
//! A place that becomes free is given to the first in line before anybody is woken: a ticket that is no longer in line
//! has a place. So those who come later cannot overtake, a waiter is woken once, and one that leaves hands its
//! place on. Rejected: waking the first to try for itself (it may lose again and again), waking all (a herd).

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::thread;

use crate::adaptive::Started;
use crate::sync::Mutex;
use crate::{AcquirePermit, Adaptive, Clock, Monotonic, Nanos, Outcome, Permit};

/// How many operations may be in flight at once, learnt from how they end: an [`Adaptive`] to share.
///
/// Clones share the limit. A [`Permit`] is one operation; how it ends is told to it, and a permit that is dropped
/// untold, by a panic, a timeout or a future that is no longer wanted, counts as a failure.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Adaptive, AdaptiveLimiter};
/// use std::time::Duration;
///
/// let limiter = AdaptiveLimiter::new(Adaptive::new(2..=64, Duration::from_millis(200)));
/// let (first, second) = (limiter.try_acquire().unwrap(), limiter.try_acquire().unwrap());
/// assert!(limiter.try_acquire().is_none());
/// first.succeed(); // how long it took is known
/// second.fail(); // the server said: too many requests
/// assert_eq!((limiter.in_flight(), limiter.limit()), (0, 2));
/// ```
pub struct AdaptiveLimiter<C = Monotonic> {
    shared: Arc<Shared<C>>,
}

pub(crate) struct Shared<C> {
    state: Mutex<State>,
    clock: C,
}

struct State {
    adaptive: Adaptive,
    waiting: VecDeque<(u64, Waker)>,
    next_ticket: u64,
}

// === impl AdaptiveLimiter ===

impl AdaptiveLimiter {
    /// On the machine's monotonic clock.
    #[must_use]
    pub fn new(adaptive: Adaptive) -> Self {
        Self::with_clock(adaptive, Monotonic)
    }
}

impl<C: Clock> AdaptiveLimiter<C> {
    /// On a clock of your own, such as a [`ManualClock`](crate::ManualClock).
    #[must_use]
    pub fn with_clock(adaptive: Adaptive, clock: C) -> Self {
        let state = State { adaptive, waiting: VecDeque::new(), next_ticket: 0 };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), clock }) }
    }

    /// A permit, if one is free and nobody waits for it.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit<C>> {
        let now = self.shared.clock.now();
        let started = self.shared.state.lock().adaptive.start(now)?;
        Some(Permit::new(self.shared.clone(), started))
    }

    /// A permit, as soon as one is free; those who wait are served in the order of their first polls.
    ///
    /// Each is woken once, when its place is there. With n in line a poll is O(log n), and leaving the line O(n).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; a place that was already given to it goes to the next.
    pub fn acquire(&self) -> AcquirePermit<C> {
        AcquirePermit::new(self.shared.clone())
    }

    /// As [`acquire`](Self::acquire), and the thread sleeps meanwhile.
    pub fn blocking_acquire(&self) -> Permit<C> {
        self.acquire().wait()
    }

    /// How many may be in flight now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.shared.state.lock().adaptive.limit()
    }

    /// How many are in flight; more than the limit when that has just fallen.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.shared.state.lock().adaptive.in_flight()
    }

    /// How many wait for a permit.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.shared.state.lock().waiting.len()
    }

    /// Walks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let state = self.shared.state.lock();
        let free = state.adaptive.in_flight() < state.adaptive.limit();
        if free && !state.waiting.is_empty() {
            return Err(format!("{} wait while a place is free", state.waiting.len()));
        }
        if !state.waiting.iter().is_sorted_by_key(|(ticket, _)| ticket) {
            return Err("tickets do not rise".to_owned());
        }
        state.adaptive.check()
    }
}

impl State {
    /// Gives free places to those who wait, in their order; they are to be woken after unlocking.
    fn admit_waiting(&mut self) -> Vec<Waker> {
        let mut admitted = Vec::new();
        while !self.waiting.is_empty() && self.adaptive.admit() {
            admitted.extend(self.waiting.pop_front().map(|(_, waker)| waker));
        }
        admitted
    }
}

// === for futures and permits ===

impl<C: Clock> Shared<C> {
    /// Starts, or waits with a ticket.
    pub(crate) fn poll_start(&self, ticket: &mut Option<u64>, context: &Context<'_>) -> Poll<Started> {
        let now = self.clock.now();
        let waker = context.waker().clone();
        let mut state = self.state.lock();
        let Some(mine) = *ticket else {
            if let Some(started) = state.adaptive.start(now) {
                // Nobody is overtaken: nobody waits while a place is free.
                // The waker is dropped after the lock: it was made before it.
                drop(state);
                return Poll::Ready(started);
            }
            let mine = state.next_ticket;
            state.next_ticket += 1;
            state.waiting.push_back((mine, waker));
            *ticket = Some(mine);
            return Poll::Pending;
        };
        let Ok(place) = state.waiting.binary_search_by_key(&mine, |(ticket, _)| *ticket) else {
            *ticket = None;
            let started = state.adaptive.started(now);
            drop(state);
            return Poll::Ready(started);
        };
        let replaced = std::mem::replace(&mut state.waiting[place].1, waker);
        drop(state);
        drop(replaced);
        Poll::Pending
    }

    /// Leaves the line, or hands on the place it was given.
    pub(crate) fn give_up(&self, ticket: u64) {
        let mut state = self.state.lock();
        let (left, admitted) = match state.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            Ok(place) => (state.waiting.remove(place), Vec::new()),
            Err(_) => {
                state.adaptive.leave();
                (None, state.admit_waiting())
            }
        };
        drop(state);
        drop(left);
        wake(admitted);
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    pub(crate) fn end(&self, operation: Started, outcome: Outcome, now: Nanos) {
        let mut state = self.state.lock();
        state.adaptive.end(operation, outcome, now);
        let admitted = state.admit_waiting();
        drop(state);
        wake(admitted);
    }
}

/// Wakes all, whichever panics; a panic goes on afterwards, unless there is one already.
fn wake(wakers: Vec<Waker>) {
    let mut panicked = None;
    for waker in wakers {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| waker.wake())) {
            panicked = Some(panic);
        }
    }
    if let Some(panic) = panicked.filter(|_| !thread::panicking()) {
        resume_unwind(panic);
    }
}

impl<C> Clone for AdaptiveLimiter<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<C> fmt::Debug for AdaptiveLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("AdaptiveLimiter")
            .field("adaptive", &state.adaptive)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}
