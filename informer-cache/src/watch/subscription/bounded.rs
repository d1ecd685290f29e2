//! SHELL. A subscription with a bound on the number of pending keys.
//!
//! When the capacity of the buffer is exceeded, the buffer reports this and does not merge further changes, and the subscription restarts or ends.
//! This module has no shared data.
//!
//! | owned by the subscriber alone | |
//! |---|---|
//! | `restarting` | a restart has begun and has not ended; if it panics, the next call repeats it |
//! | `lagged` | the error with which the subscription has ended |
//!
//! Cancel safety: the same as for [`Subscription`]. A restart is performed and delivered in the same poll.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use super::{Lag, Subscription, Taken};
use crate::{Change, Version};

/// A [`Subscription`] with a bound on the number of pending keys. [`SubscriptionBuilder::bounded`](crate::SubscriptionBuilder::bounded) creates it.
///
/// Every subscription merges the pending changes of each key. So the pending keys are at most those of the stored objects, and of deleted objects
/// that the subscriber has received before. Use a `BoundedSubscription` if this is too many: when its bound is exceeded, it does not deliver every
/// change, but restarts or ends with an error. A restart holds the lock of the store for O(1) time, and an end does not take it.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{BoundedSubscription, Lagged, OverflowPolicy, Schema, Store, SubscriptionEvent, Version};
///
/// let mut pods = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
/// let mut changes: BoundedSubscription<u8, _> =
///     pods.subscription().bounded(2.try_into()?, OverflowPolicy::Disconnect);
/// pods.upsert((1, 1));
/// pods.upsert((1, 2));
/// assert_eq!((changes.pending(), changes.lag().merged_version), (1, Version::new(2)));
/// assert!(matches!(changes.try_next(), Ok(Some(SubscriptionEvent::Change(_)))));
///
/// for key in 1..=3 {
///     pods.upsert((key, 3)); // three keys are too many
/// }
/// let lagged = Lagged { delivered_version: Version::ZERO, version: Version::new(3) };
/// assert_eq!(changes.try_next().err().map(|lagged| lagged.version), Some(lagged.version));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct BoundedSubscription<K, V> {
    changes: Subscription<K, V>,
    overflow: OverflowPolicy,
    restarting: bool,
    lagged: Option<Lagged>,
}

/// What happens when a subscriber has too many pending keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverflowPolicy {
    /// The subscription restarts; see [`SubscriptionEvent::Restarted`].
    Restart,
    /// The subscription ends with the error [`Lagged`].
    Disconnect,
}

/// An item of a [`BoundedSubscription`].
pub enum SubscriptionEvent<K, V> {
    /// A change.
    Change(Change<K, V>),
    /// The subscriber fell too far behind, and the subscription has restarted. Discard all state that you derived from earlier changes: the
    /// subscription now delivers all stored objects as [initial](Change::is_initial) additions, and then every later change.
    Restarted,
}

/// The error that a [`BoundedSubscription`] returns after it has ended because the subscriber fell too far behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lagged {
    /// A version of the store up to which every change was delivered. Later changes may have been delivered, too.
    pub delivered_version: Version,
    /// The version of the store when the subscription ended, which may be later than the version at which the bound was exceeded.
    pub version: Version,
}

impl<K, V> BoundedSubscription<K, V>
where
    K: Clone + Eq + Hash,
{
    pub(super) fn new(changes: Subscription<K, V>, overflow: OverflowPolicy) -> Self {
        Self { changes, overflow, restarting: false, lagged: None }
    }

    /// Waits for the next event. Returns `None` when the store is closed, or the [index](crate::SubscriptionBuilder::by_index) of the subscription is
    /// removed, and every change was delivered.
    ///
    /// # Errors
    /// Returns an error if the subscriber has fallen too far behind and the policy is [`OverflowPolicy::Disconnect`]. With
    /// [`OverflowPolicy::Restart`], a subscriber that falls too far behind gets an error only if the store was dropped, because then there is no
    /// state from which to restart. Every later call returns the same error.
    ///
    /// # Cancel safety
    /// If the future is dropped, no event is lost.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Lagged, NextEvent, OverflowPolicy, Schema, Store, SubscriptionEvent, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = pods.subscription().bounded(1.try_into()?, OverflowPolicy::Restart);
    /// pods.replace([(1, 1), (2, 1)], Version::new(1));
    /// flyball_sync::block_on(async {
    ///     let next: NextEvent<'_, _, _> = changes.next();
    ///     assert!(matches!(next.await?, Some(SubscriptionEvent::Restarted))); // discard all state
    ///     assert!(!changes.is_initial_delivered());
    ///     for _ in 0..2 {
    ///         assert!(matches!(changes.next().await?, Some(SubscriptionEvent::Change(change)) if change.is_initial()));
    ///     }
    ///     assert!(changes.is_initial_delivered());
    ///     Ok::<(), Lagged>(())
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[expect(clippy::should_implement_trait, reason = "it waits, and an iterator does not")]
    pub fn next(&mut self) -> NextEvent<'_, K, V> {
        NextEvent { subscription: self }
    }

    /// Like [`next`](Self::next), for handwritten streams and futures.
    pub fn poll_next(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<Option<SubscriptionEvent<K, V>>, Lagged>> {
        self.take(Some(cx.waker()))
    }

    /// Returns the next event, if one is ready.
    ///
    /// # Errors
    /// The same as for [`next`](Self::next).
    pub fn try_next(&mut self) -> Result<Option<SubscriptionEvent<K, V>>, Lagged> {
        match self.take(None) {
            Poll::Ready(told) => told,
            Poll::Pending => Ok(None),
        }
    }

    /// Returns the number of keys for which an object of the snapshot or a change still has to be delivered. After the bound was exceeded, this
    /// includes the keys that were pending at that time.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.changes.pending()
    }

    /// Returns how far this subscriber is behind.
    #[must_use]
    pub fn lag(&self) -> Lag {
        self.changes.lag()
    }

    /// Like [`Subscription::is_initial_delivered`], but a restart resets it to `false`.
    #[must_use]
    pub fn is_initial_delivered(&self) -> bool {
        !self.restarting && self.lagged.is_none() && self.changes.is_initial_delivered()
    }

    /// Like [`Subscription::resync`].
    pub fn resync(&mut self) {
        self.changes.resync();
    }

    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.changes.check()
    }

    fn take(&mut self, waker: Option<&Waker>) -> Poll<Result<Option<SubscriptionEvent<K, V>>, Lagged>> {
        if let Some(lagged) = self.lagged {
            return Poll::Ready(Err(lagged));
        }
        // The overflow is checked first: if the bound was exceeded, the rest of the snapshot does not have to be delivered.
        if !self.restarting && !self.changes.buffer.has_overflowed() {
            match self.changes.take(waker) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Taken::Change(change)) => {
                    return Poll::Ready(Ok(Some(SubscriptionEvent::Change(change))));
                }
                Poll::Ready(Taken::Ended) => return Poll::Ready(Ok(None)),
                Poll::Ready(Taken::Overflowed) => {}
            }
        }
        if self.overflow == OverflowPolicy::Restart && self.restart() {
            return Poll::Ready(Ok(Some(SubscriptionEvent::Restarted)));
        }
        let Lag { delivered_version: seen, merged_version: version, .. } = self.changes.lag();
        let lagged = *self.lagged.insert(Lagged { delivered_version: seen, version });
        // After this, writers ignore the buffer, and no timer wakes the task.
        self.changes.buffer.detach();
        let store = self.changes.store.upgrade();
        store.iter().for_each(|store| store.unsubscribe(&self.changes.buffer));
        drop(self.changes.resyncing.take());
        self.changes.forget();
        Poll::Ready(Err(lagged))
    }

    /// Restarts the subscription, and returns `true`. If the store was dropped, returns `false`.
    fn restart(&mut self) -> bool {
        let Some(store) = self.changes.store.upgrade() else { return false };
        self.restarting = true;
        self.changes.forget();
        let table = store.restart_buffer(&self.changes.buffer);
        self.changes.begin(&table);
        // The table and the store are dropped before the restart is marked as complete. They may have the last references to objects, whose drop may
        // panic; then the next call repeats the restart.
        drop(table);
        drop(store);
        self.restarting = false;
        true
    }
}

impl<K, V> Subscription<K, V> {
    /// Discards everything that was taken out of the buffer, and the rest of the snapshot, without delivering it.
    fn forget(&mut self) {
        self.resync = false;
        self.taken = None;
        self.initial = false;
        // The fields are cleared one by one, because each drop may panic.
        drop(self.walk.take());
        drop(self.due.take());
        drop(self.ready.take());
    }
}

impl<K: fmt::Debug, V> fmt::Debug for BoundedSubscription<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("BoundedSubscription");
        debug.field("overflow", &self.overflow).field("lagged", &self.lagged).finish_non_exhaustive()
    }
}

impl<K: fmt::Debug, V> fmt::Debug for SubscriptionEvent<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Change(change) => change.fmt(f),
            Self::Restarted => f.write_str("Restarted"),
        }
    }
}

impl fmt::Display for Lagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the consumer fell too far behind: it has seen version {} of {}",
            self.delivered_version, self.version
        )
    }
}

impl Error for Lagged {}

/// A future that waits for the next event. [`BoundedSubscription::next`] creates it.
#[must_use = "futures do nothing unless polled"]
pub struct NextEvent<'a, K, V> {
    subscription: &'a mut BoundedSubscription<K, V>,
}

impl<K, V> Future for NextEvent<'_, K, V>
where
    K: Clone + Eq + Hash,
{
    type Output = Result<Option<SubscriptionEvent<K, V>>, Lagged>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.subscription.poll_next(cx)
    }
}

impl<K, V> fmt::Debug for NextEvent<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextEvent").finish_non_exhaustive()
    }
}
