//! SHELL. An adaptive limit behind one lock, with a clock and a wait queue.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `adaptive` | the limit, and how many are in flight |
//! | `waiting` | the waiters for a place, in FIFO order; tickets rise. No waiter while a place is free |
//! | `given` | the waiters that were given a place, and since when, until they are polled; those whose time is not known yet are the last |
//! | `next_ticket` | no two are alike |
//! | `seen` | the latest time that was read: threads lock in another order than they read |
//!
//! | outside the lock | |
//! |---|---|
//! | the clock is read | before locking |
//! | wakers are cloned, woken and dropped | before locking, or after unlocking: they are user code |
//!
//! A free place is given to the first waiter before that waiter is woken. So later callers cannot
//! overtake it, a waiter is woken once, and a waiter that leaves hands its place on. Rejected: waking the first waiter to try again (it
//! may lose repeatedly), waking all (a thundering herd).
//!
//! A place that was given to a waiter counts as in flight only once the waiter is polled: after [`KEPT`] the next call takes the place back, for the next
//! waiter or for itself. So a future that is kept and never polled delays the others by [`KEPT`] and does not cost the place. If it
//! is polled after all, it is first in the wait queue, as its ticket is the oldest; without another call in between, it still
//! has its place.
//!
//! The time counts from the wake-up. So every end of an operation reads the clock, and not only that of a success, whose
//! latency is wanted: since an older reading a place would be overdue as soon as it is given. Where the clock cannot be read,
//! in a drop that a panic runs, the time counts from the next call that reads it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread;
use std::time::Duration;

use flyball_sync::locks::Mutex;

use crate::adaptive::limit::Started;
use crate::{AcquirePermit, AimdLimit, Clock, Monotonic, Nanos, Outcome, Permit, TimedOut};

/// How many operations may be in flight at once, learnt from how they end: an [`AimdLimit`] to share.
///
/// Clones share the limit. A [`Permit`] is one operation: report its outcome by the permit's methods. A permit that is dropped
/// without an outcome, by a panic, a timeout or a dropped future, counts as a failure.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter};
/// use std::time::Duration;
///
/// let limiter = ConcurrencyLimiter::new(AimdLimit::new(2..=64, Duration::from_millis(200)));
/// let (first, second) = (limiter.try_acquire().unwrap(), limiter.try_acquire().unwrap());
/// assert!(limiter.try_acquire().is_none());
/// first.succeed(); // how long it took is known
/// second.fail(); // the server said: too many requests
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
    given: VecDeque<(u64, Option<Nanos>)>,
    next_ticket: u64,
    seen: Nanos,
}

/// For how long a place is kept for one that was woken for it.
pub(crate) const KEPT: Duration = Duration::from_millis(100);

// === impl ConcurrencyLimiter ===

impl ConcurrencyLimiter {
    /// On the machine's monotonic clock.
    #[must_use]
    pub fn new(adaptive: AimdLimit) -> Self {
        Self::with_clock(adaptive, Monotonic)
    }
}

impl<C: Clock> ConcurrencyLimiter<C> {
    /// On a clock of your own, such as a [`ManualClock`](crate::ManualClock).
    #[must_use]
    pub fn with_clock(adaptive: AimdLimit, clock: C) -> Self {
        let (waiting, given) = (VecDeque::new(), VecDeque::new());
        let state = State { adaptive, waiting, given, next_ticket: 0, seen: Nanos::ZERO };
        Self { shared: Arc::new(Shared { state: Mutex::new(state), clock }) }
    }

    /// A permit, if one is free and nobody waits for it.
    #[must_use]
    pub fn try_acquire(&self) -> Option<Permit<C>> {
        let now = self.shared.clock.now();
        let mut state = self.shared.state.lock();
        let admitted = state.pass(Some(now));
        let started = state.adaptive.start(now);
        drop(state);
        // Made before anybody is woken: if a waker panics it ends, and its place goes on.
        let permit = started.map(|started| Permit::new(self.shared.clone(), started));
        wake(admitted);
        permit
    }

    /// A permit, as soon as one is free; those who wait are served in the order of their first polls.
    ///
    /// Each is woken once, when its place is there. With n in line a poll is O(log n + limit), and leaving the line O(n).
    ///
    /// # Cancel safety
    /// Dropping the future leaves the line; a place that was already given to it goes to the next. A future that is kept
    /// and not polled within 100 ms after it was woken loses its place to the next in line as soon as anybody else calls the
    /// limiter or ends a permit. It is the first in line when it is polled again.
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

    /// As [`acquire`](Self::acquire), and the thread sleeps meanwhile.
    pub fn blocking_acquire(&self) -> Permit<C> {
        match self.acquire().wait(None) {
            Ok(permit) => permit,
            Err(TimedOut) => unreachable!("it waits without an end"),
        }
    }

    /// As [`acquire`](Self::acquire), and the thread sleeps meanwhile, for at most `limit` on the machine's clock.
    ///
    /// # Errors
    /// [`TimedOut`]: it has left the line, and holds no permit.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter, TimedOut};
    /// use std::time::Duration;
    ///
    /// let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=64, Duration::from_millis(200)));
    /// let _permit = limiter.blocking_acquire();
    /// let second = limiter.blocking_acquire_timeout(Duration::from_millis(10));
    /// assert_eq!(second.unwrap_err(), TimedOut);
    /// ```
    pub fn blocking_acquire_timeout(&self, limit: Duration) -> Result<Permit<C>, TimedOut> {
        self.acquire().wait(Some(Monotonic.now() + limit))
    }

    /// How many may be in flight now.
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.shared.state.lock().adaptive.limit()
    }

    /// How many are in flight, those included whose place is there and who have not looked yet; more than the limit when that
    /// has just fallen.
    #[must_use]
    pub fn in_flight(&self) -> u32 {
        self.shared.state.lock().adaptive.in_flight()
    }

    /// How many wait for a permit.
    #[must_use]
    pub fn waiters(&self) -> usize {
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
        if state.given.len() > state.adaptive.in_flight() as usize {
            return Err(format!("{} places given of {}", state.given.len(), state.adaptive.in_flight()));
        }
        if !state.waiting.iter().is_sorted_by_key(|(ticket, _)| ticket) {
            return Err("tickets do not rise".to_owned());
        }
        state.adaptive.check()
    }
}

impl State {
    /// Time has passed, where it is known: takes back what was given and not looked at. Gives free places to those who wait,
    /// in their order; they are to be woken after unlocking.
    fn pass(&mut self, now: Option<Nanos>) -> Vec<Waker> {
        if let Some(now) = now {
            self.seen = self.seen.max(now);
            self.take_back();
        }
        let since = now.map(|_| self.seen);
        let mut admitted = Vec::new();
        while !self.waiting.is_empty() && self.adaptive.admit() {
            if let Some((ticket, waker)) = self.waiting.pop_front() {
                self.given.push_back((ticket, since));
                admitted.push(waker);
            }
        }
        admitted
    }

    fn take_back(&mut self) {
        let seen = self.seen;
        for (_, since) in self.given.iter_mut().rev().take_while(|(_, since)| since.is_none()) {
            *since = Some(seen);
        }
        let overdue = |since: Option<Nanos>| since.is_some_and(|since| seen.since(since) >= KEPT);
        while self.given.front().is_some_and(|(_, since)| overdue(*since)) {
            self.given.pop_front();
            self.adaptive.leave();
        }
    }

    /// Takes the place that was given to a ticket, if it still is.
    fn take_given(&mut self, ticket: u64) -> bool {
        let place = self.given.iter().position(|(other, _)| *other == ticket);
        place.and_then(|place| self.given.remove(place)).is_some()
    }

    fn is_in_line(&self, ticket: u64) -> bool {
        self.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket).is_ok()
    }

    fn draw_ticket(&mut self) -> u64 {
        let mine = self.next_ticket;
        self.next_ticket += 1;
        mine
    }

    /// Waits with this waker, in the order of the tickets; the one before is for the caller to drop.
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
    /// Starts, or waits with a ticket.
    pub(crate) fn poll_start(self: &Arc<Self>, ticket: &mut Option<u64>, waker: &Waker) -> Poll<Permit<C>> {
        let now = self.clock.now();
        let waker = waker.clone();
        let mut state = self.state.lock();
        // Before time passes: two that look late would take the place from one another for ever.
        let kept = ticket.is_some_and(|mine| state.take_given(mine));
        let admitted = state.pass(Some(now));
        // Nobody is overtaken: nobody waits while a place is free. One that lost its place comes back as the first in line.
        let started = match *ticket {
            Some(mine) if kept || state.take_given(mine) => Some(state.adaptive.started(now)),
            Some(mine) if state.is_in_line(mine) => None,
            _ => state.adaptive.start(now),
        };
        let Some(started) = started else {
            let mine = ticket.unwrap_or_else(|| state.draw_ticket());
            *ticket = Some(mine);
            let replaced = state.wait(mine, waker);
            drop(state);
            drop(replaced);
            wake(admitted);
            return Poll::Pending;
        };
        *ticket = None;
        drop(state);
        // As in `try_acquire`.
        let permit = Permit::new(self.clone(), started);
        wake(admitted);
        Poll::Ready(permit)
    }

    /// Leaves the line, or hands on the place it was given.
    pub(crate) fn give_up(&self, ticket: u64) {
        let now = self.now_unless_it_panics();
        let mut state = self.state.lock();
        let left = match state.waiting.binary_search_by_key(&ticket, |(ticket, _)| *ticket) {
            Ok(place) => state.waiting.remove(place),
            Err(_) if state.take_given(ticket) => {
                state.adaptive.leave();
                None
            }
            // It was taken back.
            Err(_) => None,
        };
        let admitted = state.pass(now);
        drop(state);
        drop(left);
        wake(admitted);
    }

    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// For who only asks how long others have had their places: a clock that panics is theirs to hear of, when they call.
    pub(crate) fn now_unless_it_panics(&self) -> Option<Nanos> {
        if thread::panicking() {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| self.clock.now())) {
            Ok(now) => Some(now),
            Err(panic) => {
                // Dropping it may panic in turn.
                std::mem::forget(panic);
                None
            }
        }
    }

    /// Of a success it is known when.
    pub(crate) fn end(&self, operation: Started, outcome: Outcome, now: Option<Nanos>) {
        let mut state = self.state.lock();
        let at = now.unwrap_or(state.seen);
        state.adaptive.end(operation, outcome, at);
        let admitted = state.pass(now);
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

impl<C> Clone for ConcurrencyLimiter<C> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<C> fmt::Debug for ConcurrencyLimiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.shared.state.lock();
        f.debug_struct("ConcurrencyLimiter")
            .field("adaptive", &state.adaptive)
            .field("waiting", &state.waiting.len())
            .finish()
    }
}
