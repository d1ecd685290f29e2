//! PURE. Erases the type of the user's retry policy.

use flyball_informer_cache::NamespacedName;
use flyball_ratelimit::{Failure, Policy};
use flyball_sync::Nanos;

/// Any retry policy for the keys of a controller. Each method call is virtual.
pub(crate) struct BoxedPolicy(Box<dyn Erased>);

type InUse<'a> = &'a mut dyn FnMut(&NamespacedName) -> bool;

trait Erased: Send {
    fn failed(&mut self, key: &NamespacedName, now: Nanos, random: u64, in_use: InUse<'_>) -> Failure;
    fn restore(&mut self, key: &NamespacedName, failures: u32, now: Nanos, in_use: InUse<'_>);
    fn forget(&mut self, key: &NamespacedName);
    fn requeues(&self, key: &NamespacedName) -> u32;
    fn tracked(&self) -> usize;
    fn take_evicted(&mut self, dead: &mut Vec<NamespacedName>);
}

impl<P: Policy<NamespacedName> + Send> Erased for P {
    fn failed(&mut self, key: &NamespacedName, now: Nanos, random: u64, in_use: InUse<'_>) -> Failure {
        Policy::record_failure(self, key, now, random, in_use)
    }

    fn restore(&mut self, key: &NamespacedName, failures: u32, now: Nanos, in_use: InUse<'_>) {
        Policy::restore_failures(self, key, failures, now, in_use);
    }

    fn forget(&mut self, key: &NamespacedName) {
        Policy::forget(self, key);
    }

    fn requeues(&self, key: &NamespacedName) -> u32 {
        Policy::num_requeues(self, key)
    }

    fn tracked(&self) -> usize {
        Policy::tracked_keys(self)
    }

    fn take_evicted(&mut self, dead: &mut Vec<NamespacedName>) {
        Policy::take_evicted(self, dead);
    }
}

impl BoxedPolicy {
    pub(crate) fn new(policy: impl Policy<NamespacedName> + Send + 'static) -> Self {
        Self(Box::new(policy))
    }
}

impl Policy<NamespacedName> for BoxedPolicy {
    fn record_failure(
        &mut self,
        key: &NamespacedName,
        now: Nanos,
        random: u64,
        in_use: InUse<'_>,
    ) -> Failure {
        self.0.failed(key, now, random, in_use)
    }

    fn restore_failures(&mut self, key: &NamespacedName, failures: u32, now: Nanos, in_use: InUse<'_>) {
        self.0.restore(key, failures, now, in_use);
    }

    fn forget(&mut self, key: &NamespacedName) {
        self.0.forget(key);
    }

    fn num_requeues(&self, key: &NamespacedName) -> u32 {
        self.0.requeues(key)
    }

    fn tracked_keys(&self) -> usize {
        self.0.tracked()
    }

    fn take_evicted(&mut self, dead: &mut Vec<NamespacedName>) {
        self.0.take_evicted(dead);
    }
}
