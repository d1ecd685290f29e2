//! SHELL. How to take the next item of a subscription.
//!
//! The future has no state: between two polls, all state is in the subscription.
//!
//! Cancel safety: an item is taken and returned in the same poll. So a future that is dropped before it completes has not taken an item.

use std::future::{Future, poll_fn};
use std::hash::Hash;
use std::task::{Context, Poll};

use super::{Subscription, SubscriptionItem, Taken};

impl<K, V, E> Subscription<K, V, E>
where
    K: Clone + Eq + Hash,
    E: SubscriptionItem<K, V>,
{
    /// Waits for the next item: a change, or a restart if the subscription has a bound. Returns `None` when the store is closed, or the [index](crate::SubscriptionBuilder::by_index) of the subscription
    /// is removed, and every change was delivered.
    ///
    /// A thread without a runtime calls `block_on(changes.next())`, or [`block_on_timeout`](crate::block_on_timeout) for a limit.
    ///
    /// # Cancel safety
    /// If the future is dropped, no change and no restart is lost.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = pods.subscribe();
    /// pods.upsert(("a", 1));
    /// drop(changes.next()); // the other branch of a `select!` was ready first: nothing is lost
    /// drop(pods);
    /// flyball_sync::block_on(async {
    ///     assert_eq!(changes.next().await.map(|change| *change.key()), Some("a"));
    ///     assert!(changes.next().await.is_none()); // the store is closed
    /// });
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[expect(clippy::should_implement_trait, reason = "it waits, and an iterator does not")]
    pub fn next(&mut self) -> impl Future<Output = Option<E>> + Unpin {
        poll_fn(|cx| self.poll_next(cx))
    }

    /// Like [`next`](Self::next), for handwritten streams and futures.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Change, Schema, Store, Subscription, Version};
    /// use std::{pin::Pin, task::{Context, Poll, Waker}};
    ///
    /// type Pod = (&'static str, u64);
    ///
    /// /// Changes of two kinds of objects, whichever comes first.
    /// struct Both(Subscription<&'static str, Pod>, Subscription<&'static str, Pod>);
    ///
    /// impl Future for Both {
    ///     type Output = Option<Change<&'static str, Pod>>;
    ///
    ///     fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
    ///         match self.0.poll_next(cx) {
    ///             Poll::Pending => self.1.poll_next(cx),
    ///             ready => ready,
    ///         }
    ///     }
    /// }
    ///
    /// let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    /// let (pods, mut nodes) = (Store::builder(schema).build()?, Store::builder(schema).build()?);
    /// let mut both = Both(pods.subscribe(), nodes.subscribe());
    /// nodes.upsert(("n1", 1));
    /// assert_eq!(flyball_sync::block_on(&mut both).map(|change| *change.key()), Some("n1"));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<E>> {
        self.take(Some(cx.waker())).map(Taken::item)
    }

    /// Returns the next item if one is ready.
    pub fn try_next(&mut self) -> Option<E> {
        match self.take(None) {
            Poll::Ready(taken) => taken.item(),
            Poll::Pending => None,
        }
    }
}
