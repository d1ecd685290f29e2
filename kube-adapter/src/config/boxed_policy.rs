//! PURE. Erases the type of the user's retry policy.

use std::any::Any;
use std::time::Duration;

use flyball_informer_cache::NamespacedName;
use flyball_ratelimit::Policy;
use flyball_sync::Nanos;

/// Any retry policy for the keys of a controller. Each method call is virtual, and each failure allocates a box for its reservation.
pub(crate) struct BoxedPolicy(Box<dyn Erased>);

type Reservation = Box<dyn Any + Send>;

type InUse<'a> = &'a mut dyn FnMut(&NamespacedName) -> bool;

trait Erased: Send {
    fn failed(
        &mut self,
        key: &NamespacedName,
        now: Nanos,
        random: u64,
        in_use: InUse<'_>,
    ) -> (Duration, Reservation);
    fn forget(&mut self, key: &NamespacedName);
    fn requeues(&self, key: &NamespacedName) -> u32;
    fn cancel(&mut self, reservation: Reservation, now: Nanos) -> bool;
    fn tracked(&self) -> usize;
    fn take_evicted(&mut self, dead: &mut Vec<NamespacedName>);
}

impl<P> Erased for P
where
    P: Policy<NamespacedName> + Send,
    P::Reservation: Send + 'static,
{
    fn failed(
        &mut self,
        key: &NamespacedName,
        now: Nanos,
        random: u64,
        in_use: InUse<'_>,
    ) -> (Duration, Reservation) {
        let (wait, reservation) = Policy::record_failure_keeping(self, key, now, random, in_use);
        (wait, Box::new(reservation))
    }

    fn forget(&mut self, key: &NamespacedName) {
        Policy::forget(self, key);
    }

    fn requeues(&self, key: &NamespacedName) -> u32 {
        Policy::num_requeues(self, key)
    }

    fn cancel(&mut self, reservation: Reservation, now: Nanos) -> bool {
        // The downcast always succeeds: this policy made every reservation that is passed back to it.
        reservation.downcast().is_ok_and(|reservation| Policy::cancel(self, *reservation, now))
    }

    fn tracked(&self) -> usize {
        Policy::tracked_keys(self)
    }

    fn take_evicted(&mut self, dead: &mut Vec<NamespacedName>) {
        Policy::take_evicted(self, dead);
    }
}

impl BoxedPolicy {
    pub(crate) fn new<P>(policy: P) -> Self
    where
        P: Policy<NamespacedName> + Send + 'static,
        P::Reservation: Send + 'static,
    {
        Self(Box::new(policy))
    }
}

impl Policy<NamespacedName> for BoxedPolicy {
    type Reservation = Reservation;

    fn record_failure(&mut self, key: &NamespacedName, now: Nanos, random: u64) -> (Duration, Reservation) {
        self.0.failed(key, now, random, &mut |_| false)
    }

    fn record_failure_keeping(
        &mut self,
        key: &NamespacedName,
        now: Nanos,
        random: u64,
        in_use: InUse<'_>,
    ) -> (Duration, Reservation) {
        self.0.failed(key, now, random, in_use)
    }

    fn forget(&mut self, key: &NamespacedName) {
        self.0.forget(key);
    }

    fn num_requeues(&self, key: &NamespacedName) -> u32 {
        self.0.requeues(key)
    }

    fn cancel(&mut self, reservation: Reservation, now: Nanos) -> bool {
        self.0.cancel(reservation, now)
    }

    fn tracked_keys(&self) -> usize {
        self.0.tracked()
    }

    fn take_evicted(&mut self, dead: &mut Vec<NamespacedName>) {
        self.0.take_evicted(dead);
    }
}
