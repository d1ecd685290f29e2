//! SHELL. How to follow the changes of a store: methods that subscribe, observe and wait.

use std::hash::Hash;
use std::sync::Arc;

use crate::store::wait_for::WaitForVersion;
use crate::store::wait_for_key::WaitForKey;
use crate::{
    Change, Observer, Snapshot, Stopped, Store, Subscription, SubscriptionBuilder, Version, WaitForError,
};

impl<K, V> Store<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Subscribes to the stored objects and every later change. This takes O(n) time for n subscriptions, during which the call holds the lock of the
    /// store. After that, without the lock, it increments one reference count for every 2048 objects.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<K, V> {
        let (snapshot, buffer) = self.inner.subscribe(None, usize::MAX);
        Subscription::new(buffer, Arc::downgrade(&self.inner), &snapshot)
    }

    /// Returns a builder for a [subscription](Self::subscribe) with options. For example, the subscription may select only some of the objects, have
    /// a periodic resync, or limit the number of pending keys.
    pub fn subscription(&self) -> SubscriptionBuilder<K, V> {
        SubscriptionBuilder::new(self.inner.clone())
    }

    /// Calls `f` with every stored object, and then with every later change, on the thread that writes it. Changes are not coalesced.
    ///
    /// This call reports the objects of one snapshot to `f`, as initial additions. (If the first list of the store is published later, its objects
    /// are initial, too.) Every write after that snapshot calls `f` with each of its changes. At that time, readers can already see the change, and
    /// no lock is held, so `f` may use the store. A relist reports deletions first. If an object is replaced by a different object under the same
    /// key, `f` receives a single change, [`Replaced`](crate::ChangeKind::Replaced), whose `old()` is the former object. `f` must be fast, because
    /// the writer waits for it.
    ///
    /// The changes that one thread writes are reported in the order of its writes. If several threads write, their calls of `f` may overlap each
    /// other and the calls for the initial objects. So use an observer if the receiver (for example, a queue of keys) accepts changes in any order
    /// and more than once, has bounded memory, and needs every state. If `f` itself writes to the store, through a
    /// [`SharedWriter`](crate::SharedWriter), this inner write is reported to every observer before `f` returns. So observers that were registered
    /// after `f` receive the inner write before the outer one. Registering an observer takes O(n) time for n observers, in addition to the calls for
    /// the initial objects. To receive changes at your own pace, use [`subscribe`](Self::subscribe).
    ///
    /// The run future of an informer reports a long list in several pieces, on the thread that polls it. If the future is dropped before it has
    /// reported all pieces, its destructor reports the rest.
    ///
    /// The observation ends when the observer is dropped, or when the store is closed. If `f` holds a writer, the store is not closed when the other
    /// writers are dropped.
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

    /// Registers `f` for later changes only, and returns a snapshot of the objects that it is not called with.
    pub(crate) fn observe_changes(
        &self,
        f: impl Fn(&Change<K, V>) + Send + Sync + 'static,
    ) -> (Snapshot<K, V>, Observer<K, V>) {
        Observer::begin_with_changes(&self.inner, f)
    }

    /// Waits until the [version](Self::version) of the store is `version` or a later one. Returns the version that the store has at that time.
    ///
    /// If the source delivers changes in the order of their versions, as one watch of a Kubernetes API server does, the store then contains every
    /// change up to this version. Otherwise, a newer change of a different object may have raised the version before the change for which you wait
    /// has arrived: only a list or a bookmark guarantees that every change up to its version is stored.
    ///
    /// The write, list or close that ends n waits holds the lock of the store for O(n log n) time.
    ///
    /// # Errors
    /// Returns an error if a relist sets the store back to an earlier version than `version`, or if the store is closed, for example because its
    /// writer is dropped.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let wait = pods.wait_for_version(Version::new(7)); // `.await` it in a task
    /// pods.upsert(("a", 8));
    /// assert_eq!(flyball_sync::block_on(wait)?, Version::new(8)); // the version of the store, at least the requested one
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for_version(
        &self,
        version: Version,
    ) -> impl Future<Output = Result<Version, WaitForError>> + Unpin + use<K, V> {
        WaitForVersion::new(Arc::downgrade(&self.inner), version)
    }

    /// Waits until the store contains the state that a write of `key` with this version has created, or a newer state (read-your-writes). Returns the
    /// object that is stored at that time, or `None` if it was deleted, because a deletion also ends the wait.
    ///
    /// Like [`wait_for_version`](Self::wait_for_version), this method requires that the source delivers changes in the order of their versions. If it does
    /// not, compare the version of the returned object with `version` yourself.
    ///
    /// # Errors
    /// The same as for [`wait_for_version`](Self::wait_for_version).
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    ///
    /// # Examples
    /// A thread that reads its own write; a task awaits the same future:
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version, block_on, block_on_timeout};
    /// use std::time::Duration;
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let readers = pods.store();
    /// let thread = std::thread::spawn(move || block_on(readers.wait_for_key("a", Version::new(7))));
    /// pods.upsert(("a", 7)); // the watch delivers it
    /// assert_eq!(thread.join().unwrap()?.as_deref(), Some(&("a", 7)));
    ///
    /// let later = pods.wait_for_key("a", Version::new(8));
    /// assert_eq!(block_on_timeout(later, Duration::from_millis(1)), None);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn wait_for_key(
        &self,
        key: K,
        version: Version,
    ) -> impl Future<Output = Result<Option<Arc<V>>, WaitForError>> + Unpin + use<K, V> {
        WaitForKey::new(Arc::downgrade(&self.inner), key, version)
    }

    /// Waits until the first list is published and all observers have received it. Any number of tasks may wait, and all of them are woken. An
    /// observer function must not wait for this future, because the future itself waits for the observers.
    ///
    /// # Errors
    /// Returns an error if the store is closed before its first list.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Schema, Store, Version, block_on, block_on_timeout};
    /// use std::time::Duration;
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// pods.upsert(("a", 1)); // no list
    /// assert_eq!(block_on_timeout(pods.synced(), Duration::from_millis(1)), None);
    ///
    /// pods.replace([("a", 1), ("b", 2)], Version::new(2));
    /// assert!(pods.is_synced());
    /// block_on(pods.synced())?; // on a thread; in a task: `pods.synced().await?`
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn synced(&self) -> Result<(), Stopped> {
        self.inner.synced.wait().await
    }

    /// Returns whether the first list is published and all observers have received it. After it has returned `true` once, it always returns `true`,
    /// even after [`close`](crate::Writer::close).
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.inner.synced.is_set()
    }
}
