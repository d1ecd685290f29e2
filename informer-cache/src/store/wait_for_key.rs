//! EDGE. Read-your-writes: a future that waits for a version, and then looks up one key.
//!
//! Every event, including a deletion, raises the store's version to at least the version of the event. So if events arrive in the order of their
//! versions, a store that has reached the version of a write contains this write, or a later update or deletion of the object. A list may contain an
//! object with a newer version than the list itself. A wait for the version of that object still ends only when the store's version reaches it.
//!
//! Cancel safety: the same as for [`WaitForVersion`].

use std::future::Future;
use std::hash::{BuildHasher, Hash};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};

use flyball_sync::panics::DropContained;

use crate::store::inner::StoreInner;
use crate::store::wait_for::WaitForVersion;
use crate::{Version, WaitForError};

/// The future of [`Store::wait_for_key`](crate::Store::wait_for_key).
pub(crate) struct WaitForKey<K, V> {
    wait: WaitForVersion<K, V>,
    store: Weak<StoreInner<K, V>>,
    key: DropContained<K>,
}

impl<K, V> WaitForKey<K, V> {
    pub(crate) fn new(store: Weak<StoreInner<K, V>>, key: K, version: Version) -> Self {
        Self { wait: WaitForVersion::new(store.clone(), version), store, key: DropContained::new(key) }
    }
}

// No field is pinned.
impl<K, V> Unpin for WaitForKey<K, V> {}

impl<K: Eq + Hash, V> Future for WaitForKey<K, V> {
    type Output = Result<Option<Arc<V>>, WaitForError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let reached = match Pin::new(&mut this.wait).poll(cx) {
            Poll::Ready(reached) => reached,
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(reached.and_then(|_| {
            let store = this.store.upgrade().ok_or(WaitForError::Closed)?;
            let hash = store.reader.seed.hash_one(&*this.key);
            let object = store.published.with_table(|table| table.object(hash, |key| *key == *this.key));
            let object = object.map(DropContained::new);
            // The handle is dropped explicitly: it may be the last one, which drops all objects, and a panic in their destructors while the function
            // returns would leak the result.
            drop(store);
            Ok(object.map(DropContained::into_inner))
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::hash::Hasher;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::task::Waker;

    use super::*;
    use crate::{Schema, Store};

    thread_local! { static LAST: RefCell<Option<Store<Key, Thing>>> = const { RefCell::new(None) }; }

    #[derive(Clone, Eq)]
    struct Key(u8);

    /// Drops the last handle of the store during a comparison of keys, to simulate another thread that drops it at that time.
    impl PartialEq for Key {
        fn eq(&self, other: &Self) -> bool {
            drop(LAST.take());
            self.0 == other.0
        }
    }

    impl Hash for Key {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }

    struct Thing(u8);

    impl Drop for Thing {
        fn drop(&mut self) {
            assert_ne!(self.0, 2, "a drop that panics");
        }
    }

    #[test]
    fn object_does_not_leak_when_the_last_handle_panics_on_drop() {
        let version = Version::new(1);
        let store = Store::builder(Schema::new(|thing: &Thing| Key(thing.0), |_| Version::new(1))).build();
        let mut writer = store.unwrap();
        writer.upsert(Thing(1));
        writer.upsert(Thing(2));
        let store = writer.store();
        let wanted = Arc::downgrade(&store.get(&Key(1)).unwrap());
        let mut wait = store.wait_for_key(Key(1), version);
        drop(writer);
        LAST.set(Some(store));
        let mut poll = || Pin::new(&mut wait).poll(&mut Context::from_waker(Waker::noop())).is_ready();
        assert!(catch_unwind(AssertUnwindSafe(&mut poll)).is_err());
        assert_eq!(wanted.strong_count(), 0);
    }
}
