//! PURE. The default policy of Kubernetes controllers.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::backoff::combine::{Capped, MaxOf};
use crate::backoff::exponential::Exponential;
use crate::bucket::quota::Quota;
use crate::bucket::token_bucket::TokenBucket;

/// The type of [`controller_default`].
#[doc(alias = "DefaultControllerRateLimiter")]
pub type ControllerDefault<K> = MaxOf<Exponential<K>, TokenBucket>;

/// The default policy of Kubernetes controllers: the longer of two waits. One is the key's exponential backoff, which
/// doubles from 5 ms to 1000 s. The other is the wait for a token of a bucket that all keys share, with 10 tokens a
/// second and a burst of 100.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Nanos, Policy, controller_default};
/// use std::time::Duration;
///
/// let mut policy = controller_default();
/// assert_eq!(policy.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false).wait, Duration::from_millis(5));
/// ```
#[must_use]
#[doc(alias = "DefaultControllerRateLimiter")]
pub fn controller_default<K: Hash + Eq + Clone>() -> ControllerDefault<K> {
    let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1_000));
    MaxOf::new(backoff, TokenBucket::new(Quota::per_second(TEN).allow_burst(HUNDRED)))
}

/// Like [`controller_default`], but no wait is longer than `cap`: if very many keys fail, their retries exceed the shared
/// rate instead of waiting longer.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Nanos, Policy, controller_default_capped};
/// use std::time::Duration;
///
/// let mut policy = controller_default_capped(Duration::from_secs(60));
/// let longest = (0..1_000).map(|_| policy.record_failure(&"a", Nanos::ZERO, 0, &mut |_| false).wait).max();
/// assert_eq!(longest, Some(Duration::from_secs(60)));
/// ```
#[must_use]
pub fn controller_default_capped<K: Hash + Eq + Clone>(cap: Duration) -> Capped<ControllerDefault<K>> {
    Capped::new(controller_default(), cap)
}

const TEN: NonZeroU32 = NonZeroU32::new(10).unwrap();
const HUNDRED: NonZeroU32 = NonZeroU32::new(100).unwrap();
