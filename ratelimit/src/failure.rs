//! PURE. The answer of a policy to a failure.

use std::time::Duration;

/// What a [`Policy`](crate::Policy) decides about a failure of a key.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, Failure, Nanos, OncePerBackoff, Policy};
/// use std::time::Duration;
///
/// let secs = Duration::from_secs;
/// let mut policy = OncePerBackoff::new(Exponential::new(secs(10)..=secs(60)));
/// let mut fail = |at| policy.record_failure(&"a", Nanos::ZERO + secs(at), 0, &mut |_| false);
/// assert_eq!(fail(0), Failure { wait: secs(10), counted: true });
/// assert_eq!(fail(4), Failure { wait: secs(6), counted: false }); // the rest of the first wait
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the key should wait before it is tried again"]
pub struct Failure {
    /// How long the key waits from the time of the failure. [`Duration::MAX`] means that the key is given up: it is not to be tried again, as with
    /// [`MaxElapsed`](crate::MaxElapsed).
    pub wait: Duration,
    /// False if the failure changed nothing, because an earlier backoff of the key is still open: see [`OncePerBackoff`](crate::OncePerBackoff). True
    /// for a policy that takes the failure into account without a [count per key](crate::Policy::COUNTS_FAILURES), such as a token bucket.
    pub counted: bool,
}
