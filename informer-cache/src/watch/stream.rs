//! EDGE. Changes as a stream.
//!
//! Cancel safety: what is taken is handed over in the same poll, so a stream that is dropped has taken nothing.

use std::hash::Hash;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;

use crate::{Change, Subscription};

/// It ends once the store is closed and everything was told.
impl<K: Clone + Eq + Hash, V> Stream for Subscription<K, V> {
    type Item = Change<K, V>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The method of the same name, by reference.
        Subscription::poll_next(self.get_mut(), cx)
    }
}
