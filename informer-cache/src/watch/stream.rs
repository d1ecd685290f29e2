//! EDGE. A subscription as a stream of its items.
//!
//! Cancel safety: an item is taken and returned in the same poll. So no item that was taken is lost if the stream is dropped.

use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::Subscription;
use crate::watch::subscription::SubscriptionItem;

/// The stream ends when the store is closed, or the [index](crate::SubscriptionBuilder::by_index) of the subscription is removed, and every change
/// has been delivered.
impl<K: Clone + Eq + Hash, V, E: SubscriptionItem<K, V>> Stream for Subscription<K, V, E> {
    type Item = E;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Calls the inherent method with the same name.
        Subscription::poll_next(self.get_mut(), cx)
    }
}
