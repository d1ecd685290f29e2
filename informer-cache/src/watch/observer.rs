//! SHELL. A function that is called with every change, from its registration until it is unsubscribed. The code that calls it is in
//! [`changes::observer_fn`](crate::changes::observer_fn).
//!
//! An observer is registered, and the snapshot of the initial objects is taken, in one critical section of the lock `published`. So a change that was
//! published before this section is in the snapshot, and a writer that publishes a change after it finds the observer in the list of observers. Each
//! change is therefore reported exactly once.

use std::fmt;
use std::sync::{Arc, Weak};

use flyball_sync::locks::Ordering;

use crate::changes::observer_fn::{NotifyGuard, ObserverFn, ObserverState};
use crate::store::inner::StoreInner;
use crate::table::Table;
use crate::{Change, ChangeKind, Snapshot};

/// A handle to an observer function, which is called with every change. [`Store::observe`](crate::Store::observe) creates it.
///
/// Dropping it [unsubscribes](Self::unsubscribe). The function is dropped when it is unsubscribed or the store is closed. If calls are in progress at
/// that time, it is dropped after the last of these calls. [`unsubscribed`](Self::unsubscribed) waits until the function is dropped.
#[must_use = "dropping it ends the observation"]
pub struct Observer<K, V> {
    /// The reference is weak, so that an observer does not keep the objects of a store alive.
    store: Weak<StoreInner<K, V>>,
    state: Arc<ObserverState>,
}

impl<K, V> Observer<K, V> {
    /// Returns the number of calls that panicked.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Observer, Schema, Store, Version};
    ///
    /// let mut pods = Store::builder(Schema::new(|pod: &(&str, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let observer: Observer<&str, _> = pods.observe(|change| assert_ne!(*change.key(), "b", "no handler for this one"));
    /// pods.upsert(("a", 1));
    /// pods.upsert(("b", 2)); // stored nevertheless
    /// assert_eq!((observer.panic_count(), pods.len()), (1, 2));
    /// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
    /// ```
    #[must_use]
    pub fn panic_count(&self) -> u64 {
        // Ordering: Relaxed, because the counter publishes no other memory.
        self.state.panics.load(Ordering::Relaxed)
    }

    /// Stops the calls of the function. This method does not wait for calls that are in progress, and a call that another thread is about to make may
    /// still begin. Idempotent.
    pub fn unsubscribe(&self) {
        // Ordering: Relaxed, because the flag publishes no other memory. A thread always reads at least the value that it has stored itself. So when
        // a function has unsubscribed its own observer, the same thread does not call the function again.
        self.state.unsubscribed.store(true, Ordering::Relaxed);
        let Some(store) = self.store.upgrade() else { return };
        let mut published = store.published.write_lists();
        let staying =
            published.observer_fns.iter().filter(|observer_fn| !Arc::ptr_eq(&observer_fn.state, &self.state));
        let staying = staying.cloned().collect();
        let left = std::mem::replace(&mut published.observer_fns, staying);
        drop(published);
        // The old list is dropped after the lock is released, because it may have the last reference to the function.
        drop(left);
    }

    /// Waits until the observer has ended, because of [`unsubscribe`](Self::unsubscribe) or because the store was closed. At that time, no call is in
    /// progress, no call will begin any more, and the function has been dropped. Any number of tasks may wait, and all of them are woken.
    ///
    /// Within a call of an observer function, this method returns immediately, because otherwise it might wait for the end of that call. While an
    /// informer reports a long list in several pieces, it keeps a reference to the function, even between two pieces. So the task that polls the run
    /// future of the informer must not wait for `unsubscribed` at the same time.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    ///
    /// # Examples
    /// ```
    /// # use flyball_informer_cache::{Schema, Store, Version};
    /// # use std::sync::Arc;
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let mut store = Store::builder(Schema::new(|pod: &(u8, u64)| pod.0, |pod| Version::new(pod.1))).build()?;
    /// let log = Arc::new("what the function holds");
    /// let held = log.clone();
    /// let observer = store.observe(move |change| println!("{held}: {}", change.key()));
    /// observer.unsubscribe();
    /// observer.unsubscribed().await;
    /// assert_eq!(Arc::strong_count(&log), 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(()) })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn unsubscribed(&self) {
        if !NotifyGuard::is_active() {
            // `wait` does not return an error here, because this signal is always set in the end and never fails.
            let _ = self.state.ended.wait().await;
        }
    }

    /// Registers the function and calls it with each stored object.
    pub(crate) fn begin(
        store: &Arc<StoreInner<K, V>>,
        function: impl Fn(&Change<K, V>) + Send + Sync + 'static,
    ) -> Self {
        let (observer, observer_fn) = Self::new(store, function);
        let table = store.register(&observer_fn);
        let _guard = NotifyGuard::begin();
        for (_, record) in table.rows.iter() {
            let change = Change::of(record.name.clone(), ChangeKind::Initial, None, record.object.clone());
            observer_fn.call(|tell| tell(&change));
        }
        observer
    }

    /// Registers the function for later changes. Returns a snapshot of the objects that it is not called with.
    pub(crate) fn begin_with_changes(
        store: &Arc<StoreInner<K, V>>,
        function: impl Fn(&Change<K, V>) + Send + Sync + 'static,
    ) -> (Snapshot<K, V>, Self) {
        let (observer, observer_fn) = Self::new(store, function);
        let table = store.register(&observer_fn);
        (Snapshot { table, reader: store.reader }, observer)
    }

    /// The caller creates the `Observer` before it registers the function. So if the drop of an old object panics while the function is registered, the
    /// `Observer` is dropped, which ends the observation.
    fn new(
        store: &Arc<StoreInner<K, V>>,
        function: impl Fn(&Change<K, V>) + Send + Sync + 'static,
    ) -> (Self, Arc<ObserverFn<K, V>>) {
        let state = Arc::new(ObserverState::default());
        let observer_fn = Arc::new(ObserverFn { function: Some(Box::new(function)), state: state.clone() });
        (Self { store: Arc::downgrade(store), state }, observer_fn)
    }
}

impl<K, V> Drop for Observer<K, V> {
    fn drop(&mut self) {
        self.unsubscribe();
    }
}

impl<K, V> fmt::Debug for Observer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observer").field("panics", &self.panic_count()).finish_non_exhaustive()
    }
}

impl<K, V> StoreInner<K, V> {
    /// Registers an observer function. Returns the table whose objects have to be reported first.
    fn register(&self, observer_fn: &Arc<ObserverFn<K, V>>) -> Arc<Table<K, V>> {
        let mut published = self.published.write_lists();
        if !published.closed {
            // The new list contains all functions of the old one, so no function is dropped here, under the lock.
            published.observer_fns = published.observer_fns.iter().chain([observer_fn]).cloned().collect();
        }
        published.table.clone()
    }
}
