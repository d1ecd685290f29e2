//! SHELL. An operation in flight, which reports its outcome to its limiter.
//!
//! It guards nothing by itself: what it holds belongs to it alone, and its end takes the limiter's lock once.

use std::fmt;
use std::sync::Arc;

use crate::adaptive::limit::Started;
use crate::adaptive::limiter::Shared;
use crate::{Clock, Monotonic, Outcome};

/// An operation in flight under a [`ConcurrencyLimiter`](crate::ConcurrencyLimiter).
///
/// Dropped untold it has failed: that is what a timeout, a future no longer wanted or a panic does, and a server that
/// is too slow causes the first two. It is timed from when it was handed out.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter, Permit};
/// use std::io::{Error, ErrorKind};
/// use std::time::Duration;
///
/// fn report<T>(permit: Permit, answer: &Result<T, Error>) {
///     match answer {
///         Ok(_) => permit.succeed(),
///         Err(error) if error.kind() == ErrorKind::InvalidInput => permit.ignore(), // it was never sent
///         Err(_) => permit.fail(),
///     }
/// }
///
/// let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=64, Duration::from_millis(200)));
/// report(limiter.blocking_acquire(), &Ok("pods"));
/// report::<&str>(limiter.blocking_acquire(), &Err(ErrorKind::TimedOut.into()));
/// assert_eq!(limiter.in_flight(), 0);
/// ```
#[must_use = "dropping a permit ends it, as a failure"]
pub struct Permit<C: Clock = Monotonic> {
    shared: Arc<Shared<C>>,
    /// Taken when it ends.
    started: Option<Started>,
}

impl<C: Clock> Permit<C> {
    pub(crate) fn new(shared: Arc<Shared<C>>, started: Started) -> Self {
        Self { shared, started: Some(started) }
    }

    /// It was answered, as fast as it took until now.
    pub fn succeed(self) {
        self.end(Outcome::Success);
    }

    /// It was refused or given up.
    pub fn fail(self) {
        self.end(Outcome::Failure);
    }

    /// It says nothing about the server.
    pub fn ignore(self) {
        self.end(Outcome::Ignored);
    }

    fn end(mut self, outcome: Outcome) {
        self.tell(outcome);
    }

    fn tell(&mut self, outcome: Outcome) {
        // Read before the limiter is taken: a clock that panics turns a success into a failure, and the drop that reports it does
        // not read the clock again. For other outcomes the time is only used as the time at which the next waiter got the place.
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
        self.tell(Outcome::Failure);
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").finish_non_exhaustive()
    }
}
