//! SHELL. The operations of a queue that its leases call.

use std::time::Duration;

use flyball_sync::Timer;

use crate::key::Key;
use crate::lease::outcome::LeaseOutcome;
use crate::limiter::QueueLimiter;
use crate::queue::end::Ending;
use crate::queue::shared::Shared;
use crate::state::order::Order;
use crate::state::types::LeaseId;

/// The operations of a queue that its leases call. A lease holds its queue as a trait object of this trait, so the
/// type of a lease does not depend on the queue's order and limiter.
pub(crate) trait Leasing<K>: Send + Sync {
    fn end(&self, id: LeaseId, key: &K, outcome: LeaseOutcome);
    fn requeues(&self, key: &K) -> u32;
    fn fail_up_to(&self, key: &K, most: u32, at_least: Duration) -> Option<Ending>;
    fn end_decided(&self, id: LeaseId, key: &K, ending: Ending);
    fn age(&self, id: LeaseId) -> Option<Duration>;
    fn detach(&self, id: LeaseId);
}

impl<K, O, L, T> Leasing<K> for Shared<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    fn end(&self, id: LeaseId, key: &K, outcome: LeaseOutcome) {
        Shared::end(self, id, key, outcome);
    }

    fn requeues(&self, key: &K) -> u32 {
        self.limiter.num_requeues(key)
    }

    fn fail_up_to(&self, key: &K, most: u32, at_least: Duration) -> Option<Ending> {
        Shared::fail_up_to(self, key, most, at_least)
    }

    fn end_decided(&self, id: LeaseId, key: &K, ending: Ending) {
        self.end_by(id, key, ending);
    }

    fn age(&self, id: LeaseId) -> Option<Duration> {
        let now = self.now_if_timed()?;
        self.lock().state.lease_age(id, now)
    }

    fn detach(&self, id: LeaseId) {
        self.lock().state.detach(id);
    }
}
