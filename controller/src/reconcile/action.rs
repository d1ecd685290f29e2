//! PURE. What a successful reconcile asks for.

use std::time::Duration;

use flyball_workqueue::LeaseOutcome;

/// What comes after a successful reconcile of a key.
///
/// # Examples
/// ```
/// use flyball_controller::Action;
/// use std::time::Duration;
///
/// assert_eq!(Action::await_change().requeue_delay(), None);
/// let daily = Duration::from_secs(86_400);
/// assert_eq!(Action::requeue_after(daily).requeue_delay(), Some(daily));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "an action does nothing until it is returned"]
pub struct Action(Option<Duration>);

impl Action {
    /// Nothing: the next change brings the key back.
    pub const fn await_change() -> Self {
        Self(None)
    }

    /// The key comes back after `delay`, or with the next change if that is earlier; zero is at once, at the tail of
    /// the queue.
    ///
    /// The delay counts from the end of the reconcile. After shutdown has begun the key is a leftover instead.
    pub const fn requeue_after(delay: Duration) -> Self {
        Self(Some(delay))
    }

    pub(crate) const fn lease_outcome(self) -> LeaseOutcome {
        match self.0 {
            None => LeaseOutcome::Succeeded,
            Some(delay) => LeaseOutcome::SucceededAndRequeueAfter(delay),
        }
    }

    /// The delay it asks for.
    #[must_use]
    pub const fn requeue_delay(self) -> Option<Duration> {
        self.0
    }
}
