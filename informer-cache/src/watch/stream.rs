//! EDGE. Changes as a stream.
//!
//! Cancel safety: a change is taken and returned in the same poll. So no change that was taken is lost if the stream is dropped.

use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::{Change, Subscription};

/// The stream ends when the store is closed, or the [index](crate::SubscriptionBuilder::by_index) of the subscription is removed, and every change
/// has been delivered.
impl<K: Clone + Eq + Hash, V> Stream for Subscription<K, V> {
    type Item = Change<K, V>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // Calls the inherent method with the same name.
        Subscription::poll_next(self.get_mut(), cx)
    }
}
