//! EDGE. Resyncs of a subscription, which are requested or periodic.
//!
//! Cancel safety: the timer does not take changes. The timer wakes the task that polled last; once the timer is dropped, it wakes no task.

use std::hash::Hash;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_sync::panics::DropContained;
use flyball_sync::{Nanos, Timer};

use super::Subscription;
use super::initial::InitialObjects;
use crate::changes::buffer::Settled;

impl<K, V, E> Subscription<K, V, E>
where
    K: Clone + Eq + Hash,
{
    /// Requests a resync: every object is delivered again, as an update whose old and new states are the same.
    ///
    /// The call itself takes O(1) time. The resync begins when every pending change was delivered and no write is in progress. If an object changes
    /// before the resync reaches it, the change is delivered instead. A call has no effect while the initial objects are being delivered, while a
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

    pub(super) fn period_is_over(&mut self) -> bool {
        self.resyncing.as_mut().is_some_and(ResyncTimer::is_due)
    }

    /// Begins a resync, if every published change has been delivered. In that case, the subscriber has the same state as the store. So when the walk
    /// reaches a key, the pending entry of the key contains every change since the resync began.
    pub(super) fn begin_resync(&mut self) -> Poll<()> {
        let Some(store) = self.store.upgrade() else { return Poll::Ready(()) };
        // `resync` stays true until the walk was created. So if its creation panics, the resync is tried again.
        self.resync = true;
        match store.settled(&self.buffer) {
            Settled::Yes(table) => {
                self.walk = InitialObjects::new(&table, self.buffer.selection(), &self.store);
                self.resync = false;
                Poll::Ready(())
            }
            // A change has become pending meanwhile. It is delivered before the resync.
            Settled::Pending => Poll::Ready(()),
            // A writer is still merging its changes into the buffer. When it has finished, it wakes this task.
            Settled::Behind => Poll::Pending,
        }
    }
}

/// The timer for the periodic resyncs of one subscription. Writes, relists and other subscriptions do not affect it.
pub(super) struct ResyncTimer {
    timer: DropContained<Box<dyn Timer>>,
    period: Duration,
    next: Nanos,
}

impl ResyncTimer {
    /// Creates a timer whose first resync is due after one period. Returns `None` if the period is zero, because this would cause resyncs without
    /// end.
    pub(super) fn new(timer: DropContained<Box<dyn Timer>>, period: Duration) -> Option<Self> {
        let next = timer.now() + period;
        (!period.is_zero()).then_some(Self { timer, period, next })
    }

    /// Returns whether a resync is due. If it is, the next one is due one period from now, so missed periods are skipped.
    pub(super) fn is_due(&mut self) -> bool {
        let now = self.timer.now();
        let due = now >= self.next;
        if due {
            self.next = now + self.period;
        }
        due
    }

    /// Sets the timer, which wakes the task when the next resync is due.
    pub(super) fn arm(&self, waker: &Waker) {
        self.timer.wake_at(self.next, waker);
    }
}
