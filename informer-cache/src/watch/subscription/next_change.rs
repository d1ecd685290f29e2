//! SHELL. Futures that wait for the next change.
//!
//! The futures have no state: between two polls, all state is in the subscription.
//!
//! Cancel safety: a change is taken and returned in the same poll. So a future that is dropped before it completes has not taken a change.

use std::fmt;
use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::{Subscription, Taken};
use crate::Change;

impl<K, V> Subscription<K, V>
where
    K: Clone + Eq + Hash,
{
    /// Waits for the next change. Returns `None` when the store is closed, or the [index](crate::SubscriptionBuilder::by_index) of the subscription
    /// is removed, and every change was delivered.
    ///
    /// A thread without a runtime calls `block_on(changes.next())`, or [`block_on_timeout`](crate::block_on_timeout) for a limit.
    ///
    /// # Cancel safety
    /// If the future is dropped, no change is lost.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{NextChange, Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut changes = pods.subscribe();
    /// pods.upsert(("a", 1));
    /// drop(changes.next()); // the other branch of a `select!` was ready first: nothing is lost
    /// drop(pods);
    /// flyball_sync::block_on(async {
    ///     let next: NextChange<'_, _, _> = changes.next();
    ///     assert_eq!(next.await.map(|change| *change.key()), Some("a"));
    ///     assert!(changes.next().await.is_none()); // the store is closed
    /// });
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[expect(clippy::should_implement_trait, reason = "it waits, and an iterator does not")]
    pub fn next(&mut self) -> NextChange<'_, K, V> {
        NextChange { subscription: self }
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
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Change<K, V>>> {
        self.take(Some(cx.waker())).map(Taken::change)
    }

    /// Returns the next change if one is ready.
    pub fn try_next(&mut self) -> Option<Change<K, V>> {
        match self.take(None) {
            Poll::Ready(taken) => taken.change(),
            Poll::Pending => None,
        }
    }
}

/// A future that waits for the next change. [`Subscription::next`] creates it.
#[must_use = "futures do nothing unless polled"]
pub struct NextChange<'a, K, V> {
    subscription: &'a mut Subscription<K, V>,
}

impl<K, V> Future for NextChange<'_, K, V>
where
    K: Clone + Eq + Hash,
{
    type Output = Option<Change<K, V>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.subscription.poll_next(cx)
    }
}

impl<K, V> fmt::Debug for NextChange<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NextChange").finish_non_exhaustive()
    }
}
