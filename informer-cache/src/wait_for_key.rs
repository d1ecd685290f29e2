//! EDGE. Reading one's own writes: a wait for a version, then a look at one key.
//!
//! What an event says of a key takes the store to its version, and a deletion does as any event. So to wait for the store is to wait for the
//! key, and a wait for an object that is gone by then ends, too. Only a list may hold an object newer than itself; a wait for that one ends with
//! the store's version all the same.
//!
//! Cancel safety: that of [`WaitFor`].

use std::fmt;
use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use crate::inner::Inner;
use crate::{Version, WaitFor, WaitForError};

/// Waits until a store shows what was written to a key; made by [`Store::wait_for_key`](crate::Store::wait_for_key).
#[must_use = "futures do nothing unless polled"]
pub struct WaitForKey<K, V> {
    wait: WaitFor<K, V>,
    store: Weak<Inner<K, V>>,
    key: K,
}

impl<K, V> WaitForKey<K, V> {
    pub(crate) fn new(store: Weak<Inner<K, V>>, key: K, version: Version) -> Self {
        Self { wait: WaitFor::new(store.clone(), version), store, key }
    }
}

impl<K: Eq + Hash + Unpin, V> Future for WaitForKey<K, V> {
    type Output = Result<Option<Arc<V>>, WaitForError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let reached = match Pin::new(&mut this.wait).poll(cx) {
            Poll::Ready(reached) => reached,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(reached.and_then(|_| {
            let store = this.store.upgrade().ok_or(WaitForError::Closed)?;
            let hash = store.reading.seed.hash_one(&this.key);
            Ok(store.published.look(|table| table.object(hash, |key| *key == this.key)))
        }))
    }
}

impl<K, V> fmt::Debug for WaitForKey<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitForKey").field("wait", &self.wait).finish_non_exhaustive()
    }
}
