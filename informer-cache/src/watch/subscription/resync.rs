//! EDGE. Resyncs of a subscription, on request and periodically.
//!
//! Cancel safety: waiting takes no change. The timer wakes the task that polled last; a dropped timer wakes no task.

use std::hash::Hash;
use std::task::Waker;
use std::time::Duration;

use flyball_sync::{Nanos, Timer};

use super::Subscription;

impl<K, V> Subscription<K, V>
where
    K: Clone + Eq + Hash,
{
    /// Requests that every object be delivered again, as an update from its state to the same state.
    ///
    /// The resync begins once every pending change was delivered and no write is in progress. The resync replaces no change: if an object changes
    /// before the resync reaches it, only that change is delivered. O(1). A call has no effect while the initial objects are delivered, while a
    /// resync is in progress, or after the end of the subscription.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ChangeKind, Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// pods.upsert(("a", 1));
    /// let mut changes = pods.subscribe();
    /// assert!(changes.try_next().is_some());
    /// assert!(changes.try_next().is_none());
    ///
    /// changes.resync();
    /// let again = changes.try_next().expect("every object once more");
    /// assert_eq!((again.kind(), again.old() == again.new()), (ChangeKind::Updated, true));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn resync(&mut self) {
        self.resync |= !self.initial && self.walk.is_none();
    }
}

/// The resync period of one subscription, on its own timer. No write, relist or other subscription affects it.
pub(super) struct ResyncTimer {
    timer: Box<dyn Timer>,
    period: Duration,
    next: Nanos,
}

impl ResyncTimer {
    /// Creates a timer whose first resync is due after one period. `None` for a period of zero, which would resync without end.
    pub(super) fn new(timer: Box<dyn Timer>, period: Duration) -> Option<Self> {
        let next = timer.now() + period;
        (!period.is_zero()).then_some(Self { timer, period, next })
    }

    /// Returns whether a resync is due. If it is, schedules the next one a period from now; missed periods are skipped.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.timer.now();
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }

    /// Wakes the task once the next resync is due.
    pub(super) fn arm(&self, waker: &Waker) {
        self.timer.wake_at(self.next, waker);
    }
}
