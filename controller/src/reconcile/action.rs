//! PURE. The result of a successful reconcile.

use std::time::Duration;

use flyball_workqueue::LeaseOutcome;

/// The result of a successful reconcile, which determines when its key is reconciled again.
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
    /// Requests no requeue. The next change adds the key again.
    pub const fn await_change() -> Self {
        Self(None)
    }

    /// Requeues the key after `delay`, or at its next change if that is earlier. A zero delay adds the key immediately,
    /// at the tail of the queue.
    ///
    /// The delay counts from the end of the reconcile. The controller [may extend](crate::ControllerConfig::requeue_spread_percent) it. If the shutdown has begun, the key is not requeued; it is
    /// reported as a [leftover](crate::RunReport::leftovers).
    pub const fn requeue_after(delay: Duration) -> Self {
        Self(Some(delay))
    }

    pub(crate) const fn lease_outcome(self) -> LeaseOutcome {
        match self.0 {
            None => LeaseOutcome::Succeeded,
            Some(delay) => LeaseOutcome::SucceededAndRequeueAfter(delay),
        }
    }

    /// Returns the requested delay; `None` if no requeue is requested.
    #[must_use]
    pub const fn requeue_delay(self) -> Option<Duration> {
        self.0
    }
}
