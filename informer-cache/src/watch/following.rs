//! SHELL. Following a store: subscriptions, observers, and waits.

use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flyball_sync::{block_on, block_on_timeout};

use crate::{
    Change, Observer, Stopped, Store, Subscription, SubscriptionBuilder, Version, WaitForError, WaitForKey,
    WaitForVersion,
};

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Subscribes to the stored objects and every later change. Costs O(subscriptions), and increments one reference count for every 2048 objects.
    /// The call waits for at most one commit, and holds the lock no longer than a commit does.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<K, V> {
        let (snapshot, buffer) = self.inner.subscribe(None, usize::MAX);
        Subscription::new(buffer, Arc::downgrade(&self.inner), &snapshot)
    }

    /// Returns a builder for a [subscription](Self::subscribe) to some objects only, with a periodic resync, or with a bound on the number of pending
    /// keys.
    pub fn subscription(&self) -> SubscriptionBuilder<K, V> {
        SubscriptionBuilder::new(self.inner.clone())
    }

    /// Calls `f` with every stored object, then, on the writing thread, with every later change, without coalescing.
    ///
    /// This call reports the objects of one snapshot to `f`, as initial additions. (If the store's first list is published later, its objects are
    /// initial, too.) From that snapshot on, every write calls `f` with each of its changes, after readers can see them and after every lock is
    /// released, so `f` may use the store. A relist reports deletions first. A different object under the same key is reported as one change,
    /// [`Replaced`](crate::ChangeKind::Replaced), whose `old()` is the former object. `f` must be quick, because the writer waits for it.
    ///
    /// The changes of one writing thread are reported in the order of its writes. Calls from several threads may overlap each other and the calls for
    /// the initial objects. So use an observer for a receiver that accepts repeated changes in any order, has bounded memory, and needs every state,
    /// for example a queue of keys. If `f` writes, through a [`SharedWriter`](crate::SharedWriter), that write is reported to every observer within
    /// the call, so observers that were registered later receive the inner write before the outer one. Registering costs O(observers), besides the
    /// calls for the initial objects. To receive changes at the subscriber's own pace, use [`subscribe`](Self::subscribe).
    ///
    /// The run future of an informer reports a long list in pieces, on the thread that polls it. If the future is dropped meanwhile, its destructor
    /// reports the rest.
    ///
    /// The observation ends when the observer is dropped, or when the store is closed. While `f` holds a writer, dropping the other writers does not
    /// close the store.
    ///
    /// # Panics
    /// A panic of `f` is caught and [counted](Observer::panic_count), and `f` is called again for the next change.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ChangeKind, Schema, Store, Version};
    /// use std::sync::mpsc;
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// pods.upsert(("a", 1));
    /// let (send, received) = mpsc::channel();
    /// let observer = pods.observe(move |change| send.send((*change.key(), change.kind())).unwrap());
    /// pods.upsert(("a", 2));
    /// pods.upsert(("a", 3)); // not merged with the previous change
    /// use ChangeKind::{Initial, Updated};
    /// assert!(received.try_iter().eq([("a", Initial), ("a", Updated), ("a", Updated)]));
    ///
    /// drop(observer);
    /// pods.upsert(("a", 4));
    /// assert!(received.try_recv().is_err());
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn observe(&self, f: impl Fn(&Change<K, V>) + Send + Sync + 'static) -> Observer<K, V> {
        Observer::begin(&self.inner, f)
    }

    /// Waits until the store's [version](Self::version) is this one or later. Returns the store's version at that moment.
    ///
    /// If the source delivers changes in the order of versions, as one watch of a Kubernetes API server does, the store then shows every change up to this
    /// version. Otherwise the version may be that of a newer change to another object, and the awaited change may not have arrived; only a list or a
    /// bookmark guarantees that every change up to its version is stored.
    ///
    /// # Errors
    /// Returns an error if a relist sets the store back to a version before this one, or if the store is closed, for example by dropping its writer.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub fn wait_for_version(&self, version: Version) -> WaitForVersion<K, V> {
        WaitForVersion::new(Arc::downgrade(&self.inner), version)
    }

    /// Like [`wait_for_version`](Self::wait_for_version), but blocks this thread.
    ///
    /// # Errors
    /// The same as for [`wait_for_version`](Self::wait_for_version).
    pub fn blocking_wait_for_version(&self, version: Version) -> Result<Version, WaitForError> {
        block_on(self.wait_for_version(version))
    }

    /// Like [`wait_for_version`](Self::wait_for_version), but blocks this thread, for at most `limit`. In a task, use your runtime's timeout with
    /// `wait_for_version`.
    ///
    /// # Errors
    /// The same as for [`wait_for_version`](Self::wait_for_version), and [`WaitForError::TimedOut`] if the limit has passed.
    pub fn blocking_wait_for_version_timeout(
        &self,
        version: Version,
        limit: Duration,
    ) -> Result<Version, WaitForError> {
        block_on_timeout(self.wait_for_version(version), limit).unwrap_or(Err(WaitForError::TimedOut))
    }

    /// Waits until the store shows the state that was written to a key at this version, or a newer one (read-your-writes). Returns the object stored
    /// at that moment, or `None` if it was deleted: a deletion ends the wait, too.
    ///
    /// The call waits for the store's version, so it depends on the order of versions, as [`wait_for_version`](Self::wait_for_version) does. If the
    /// versions of a source are not ordered, compare the version of the returned object with `version` yourself.
    ///
    /// # Errors
    /// The same as for [`wait_for_version`](Self::wait_for_version).
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    ///
    /// # Examples
    /// ```
    /// # use flyball_informer_cache::{Schema, Store, Version};
    /// # use std::pin::pin;
    /// # use std::task::{Context, Poll, Waker};
    /// let mut store = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let mut written = pin!(store.wait_for_key(7, Version::new(42)));
    /// # let mut cx = Context::from_waker(Waker::noop());
    /// # use std::future::Future;
    /// assert!(written.as_mut().poll(&mut cx).is_pending());
    /// store.upsert((7, 42)); // the watch catches up
    /// assert!(matches!(written.poll(&mut cx), Poll::Ready(Ok(Some(pod))) if pod.1 == 42));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    pub fn wait_for_key(&self, key: K, version: Version) -> WaitForKey<K, V> {
        WaitForKey::new(Arc::downgrade(&self.inner), key, version)
    }

    /// Waits until the first list is published and all observers have received it. Any number of tasks may wait; all are woken. An observer function
    /// must not wait for this future, because the future itself waits for the observers.
    ///
    /// # Errors
    /// Returns an error if the store is closed before its first list.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version, WaitForError};
    /// use std::time::Duration;
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// pods.upsert(("a", 1)); // no list
    /// let limit = Duration::from_millis(1);
    /// assert_eq!(pods.blocking_synced_timeout(limit), Err(WaitForError::TimedOut));
    ///
    /// pods.replace([("a", 1), ("b", 2)], Version::new(2));
    /// assert!(pods.is_synced());
    /// pods.blocking_synced()?; // in a task: `pods.synced().await?`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn synced(&self) -> Result<(), Stopped> {
        self.inner.synced.wait().await
    }

    /// Like [`synced`](Self::synced), but blocks this thread.
    ///
    /// # Errors
    /// The same as for [`synced`](Self::synced).
    pub fn blocking_synced(&self) -> Result<(), Stopped> {
        block_on(self.inner.synced.wait())
    }

    /// Like [`synced`](Self::synced), but blocks this thread, for at most `limit`.
    ///
    /// # Errors
    /// Returns [`WaitForError::Closed`] if the store is closed before its first list, and [`WaitForError::TimedOut`] if the limit has passed.
    pub fn blocking_synced_timeout(&self, limit: Duration) -> Result<(), WaitForError> {
        match block_on_timeout(self.inner.synced.wait(), limit) {
            Some(synced) => synced.map_err(|Stopped| WaitForError::Closed),
            None => Err(WaitForError::TimedOut),
        }
    }

    /// Like [`wait_for_key`](Self::wait_for_key), but blocks this thread.
    ///
    /// # Errors
    /// The same as for [`wait_for_version`](Self::wait_for_version).
    ///
    /// # Examples
    /// A thread that reads its own write:
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version, WaitForError};
    /// use std::time::Duration;
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let readers = pods.store();
    /// let thread = std::thread::spawn(move || readers.blocking_wait_for_key("a", Version::new(7)));
    /// pods.upsert(("a", 7)); // the watch delivers it
    /// assert_eq!(thread.join().unwrap()?.as_deref(), Some(&("a", 7)));
    ///
    /// assert_eq!(pods.blocking_wait_for_version(Version::new(7))?, Version::new(7));
    /// let limit = Duration::from_millis(1);
    /// assert_eq!(pods.blocking_wait_for_key_timeout("a", Version::new(8), limit), Err(WaitForError::TimedOut));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn blocking_wait_for_key(&self, key: K, version: Version) -> Result<Option<Arc<V>>, WaitForError> {
        block_on(self.wait_for_key(key, version))
    }

    /// Like [`wait_for_key`](Self::wait_for_key), but blocks this thread, for at most `limit`.
    ///
    /// # Errors
    /// The same as for [`wait_for_version`](Self::wait_for_version), and [`WaitForError::TimedOut`] if the limit has passed.
    pub fn blocking_wait_for_key_timeout(
        &self,
        key: K,
        version: Version,
        limit: Duration,
    ) -> Result<Option<Arc<V>>, WaitForError> {
        block_on_timeout(self.wait_for_key(key, version), limit).unwrap_or(Err(WaitForError::TimedOut))
    }

    /// Returns whether the first list is published and all observers have received it. Once `true`, stays `true`, even after
    /// [`close`](crate::Writer::close).
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.inner.synced.is_set()
    }
}
