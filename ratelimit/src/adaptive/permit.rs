//! SHELL. An operation in flight, which reports its outcome to its limiter.
//!
//! A permit guards no shared state: it owns its data, and takes the limiter's lock once, when it ends.

use std::fmt;
use std::sync::Arc;

use flyball_sync::{Clock, Monotonic};

use crate::adaptive::limit::{Outcome, Started};
use crate::adaptive::limiter::Shared;

/// A permit for an operation in flight under a [`ConcurrencyLimiter`](crate::ConcurrencyLimiter).
///
/// A permit that is dropped without an outcome counts as a failure. Timeouts, dropped futures and panics drop permits;
/// the first two are signs of a server that is too slow. The latency is measured from the time at which the permit
/// was handed out.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter, Permit};
/// use flyball_sync::block_on;
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// fn report<T>(permit: Permit, answer: &Result<T, Error>) {
///     match answer {
///         Ok(_) => permit.succeed(),
///         Err(error) if error.kind() == ErrorKind::InvalidInput => permit.ignore(), // the request was never sent
///         Err(_) => permit.fail(),
///     }
/// }
///
/// let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=64, Duration::from_millis(200)));
/// report(block_on(limiter.acquire()), &Ok("pods"));
/// report::<&str>(block_on(limiter.acquire()), &Err(ErrorKind::TimedOut.into()));
/// assert_eq!(limiter.in_flight(), 0);
/// ```
#[must_use = "dropping a permit ends it, as a failure"]
pub struct Permit<C: Clock = Monotonic> {
    shared: Arc<Shared<C>>,
    /// `None` once the permit has ended.
    started: Option<Started>,
}

impl<C: Clock> Permit<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, started: Started) -> Self {
        Self { shared, started: Some(started) }
    }

    /// Reports that the server answered. The latency is the time from handing out the permit to this call.
    pub fn succeed(self) {
        self.end(Outcome::Success);
    }

    /// Reports that the operation was refused, timed out or was abandoned.
    pub fn fail(self) {
        self.end(Outcome::Failure);
    }

    /// Reports an outcome that says nothing about the server's load.
    pub fn ignore(self) {
        self.end(Outcome::Ignored);
    }

    fn end(mut self, outcome: Outcome) {
        self.report(outcome);
    }

    fn report(&mut self, outcome: Outcome) {
        if self.started.is_none() {
            return;
        }
        // The clock is read before `started` is taken: if the clock panics, the permit is dropped, which reports a failure without reading the clock
        // again. For outcomes other than success, `now` is used only as the time at which the next waiter is given the slot.
        let now = match outcome {
            Outcome::Success => Some(self.shared.now()),
            _ => self.shared.now_unless_it_panics(),
        };
        if let Some(started) = self.started.take() {
            self.shared.end(started, outcome, now);
        }
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        self.report(Outcome::Failure);
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
