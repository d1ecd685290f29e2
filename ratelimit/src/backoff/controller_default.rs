//! PURE. The default policy of Kubernetes controllers.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::backoff::combine::MaxOf;
use crate::backoff::exponential::Exponential;
use crate::bucket::quota::Quota;
use crate::bucket::token_bucket::TokenBucket;

/// The default policy of Kubernetes controllers: the longer of two waits. One is the key's exponential backoff, which
/// doubles from 5 ms to 1000 s. The other is the wait for a token of a bucket that all keys share, with 10 tokens a
/// second and a burst of 100.
///
/// If very many keys fail, they wait for a long time for their tokens. To limit that wait, wrap the policy in a [`Capped`](crate::Capped): the retries
/// then exceed the shared rate instead.
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
pub fn controller_default<K: Hash + Eq + Clone>() -> MaxOf<Exponential<K>, TokenBucket> {
    let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1_000));
    MaxOf::new(backoff, TokenBucket::new(Quota::per_second(TEN).allow_burst(HUNDRED)))
}

const TEN: NonZeroU32 = NonZeroU32::new(10).unwrap();
const HUNDRED: NonZeroU32 = NonZeroU32::new(100).unwrap();
