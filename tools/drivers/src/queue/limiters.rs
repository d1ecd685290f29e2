//! The limiters of the queues under test, and how operations change them while the queue is in use.

use flyball_ratelimit::{Exponential, MaxOf, TokenBucket};
use flyball_sync::Nanos;
use flyball_workqueue::{NoLimiter, QueueLimiter};
use testkit::queue_setup::{LimiterChange, SmallKey};

use crate::queue::driver::quota_of;

/// A limiter under test.
pub(crate) trait Changeable: QueueLimiter<SmallKey> {
    /// Replaces what the change replaces. A new backoff has counted no failures.
    fn change(&mut self, _: LimiterChange, _: Nanos) {}
}

impl Changeable for NoLimiter {}

impl Changeable for Exponential<SmallKey> {
    fn change(&mut self, change: LimiterChange, _: Nanos) {
        if let Some(backoff) = change.backoff {
            *self = Exponential::new(backoff.base..=backoff.cap);
        }
    }
}

impl Changeable for MaxOf<Exponential<SmallKey>, TokenBucket> {
    fn change(&mut self, change: LimiterChange, now: Nanos) {
        let (backoff, bucket) = self.get_mut();
        backoff.change(change, now);
        if let Some(quota) = change.quota {
            bucket.set_quota(quota_of(quota), now);
        }
    }
}
