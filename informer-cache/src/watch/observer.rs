//! SHELL. Functions that are told every change, by whoever makes it.
//!
//! | | guarded by |
//! |---|---|
//! | the list of listeners | the store's `published`; replaced as a whole, so that a writer takes it in the critical section it publishes in, and tells it after unlocking everything |
//! | `panics` | itself, an atomic; it counts and publishes nothing |
//! | `gone` | itself, an atomic; set once, when the observer ends. Who reads it too early tells one change more |
//! | `over` | itself; set when the listener is dropped: it is in no list any more, so nobody is calling the function or will |
//! | `TELLING` | nobody else has it: the calls that this thread is in |
//!
//! Registering takes its snapshot under `published`, too. So a change that was published before is in the snapshot, and whoever publishes
//! one after finds the listener in the list: each is told, and told once.
//!
//! The function and its drop run without a lock and by themselves. A panic in one of them is counted, and costs one call; the writer goes on.

use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, Weak};

use flyball_sync::locks::{AtomicBool, AtomicU64, Ordering, thread_local};
use flyball_sync::panics::caught;

use crate::signal::synced::Synced;
use crate::store::inner::StoreInner;
use crate::table::Table;
use crate::{Change, ChangeKind};

/// A registered observer function, called with every change; made by [`Store::observe`](crate::Store::observe).
///
/// Dropping it [unsubscribes](Self::unsubscribe). The function is dropped at that point, when the store is closed, or after the last call in progress;
/// [`unsubscribed`](Self::unsubscribed) waits for that.
#[must_use = "dropping it ends the observation"]
pub struct Observer<K, V> {
    /// Weak, so that a forgotten observer keeps no objects.
    store: Weak<StoreInner<K, V>>,
    fate: Arc<ObserverState>,
}

/// State shared by an [`Observer`] and its [`ObserverFn`].
#[derive(Default)]
struct ObserverState {
    panics: AtomicU64,
    gone: AtomicBool,
    over: Synced,
}

thread_local! {
    /// How deep this thread is in calls of observers.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no `const` block")]
    static TELLING: Cell<usize> = Cell::new(0);
}

/// While it lives, this thread is calling observers.
struct NotifyGuard;

impl NotifyGuard {
    fn begin() -> Self {
        TELLING.with(|depth| depth.set(depth.get() + 1));
        Self
    }

    fn is_here() -> bool {
        TELLING.with(Cell::get) > 0
    }
}

impl Drop for NotifyGuard {
    fn drop(&mut self) {
        TELLING.with(|depth| depth.set(depth.get() - 1));
    }
}

/// The function of one observer.
pub(crate) struct ObserverFn<K, V> {
    /// Taken out when this is dropped, and only then.
    #[expect(clippy::type_complexity, reason = "a function, named nowhere else")]
    function: Option<Box<dyn Fn(&Change<K, V>) + Send + Sync>>,
    fate: Arc<ObserverState>,
}

/// The observer functions of a store, shared so that a notification copies no list.
pub(crate) type ObserverFns<K, V> = Arc<[Arc<ObserverFn<K, V>>]>;

impl<K, V> Observer<K, V> {
    /// The number of calls that panicked.
    #[must_use]
    pub fn panic_count(&self) -> u64 {
        // Ordering: Relaxed, it counts and publishes nothing.
        self.fate.panics.load(Ordering::Relaxed)
    }

    /// Stops the calls. One that another thread is about to make still begins, and calls in progress are not waited for. Idempotent.
    pub fn unsubscribe(&self) {
        // Ordering: Relaxed, it publishes nothing. A function that ends its own observer is not called again by that thread.
        self.fate.gone.store(true, Ordering::Relaxed);
        let Some(store) = self.store.upgrade() else { return };
        let mut published = store.published.write();
        let staying =
            published.observer_fns.iter().filter(|observer_fn| !Arc::ptr_eq(&observer_fn.fate, &self.fate));
        let staying = staying.cloned().collect();
        let left = std::mem::replace(&mut published.observer_fns, staying);
        drop(published);
        // After unlocking, as the function may go with it.
        drop(left);
    }

    /// Waits until the observer has ended, by [`unsubscribe`](Self::unsubscribe) or because the store was closed: every writer that was calling observers has
    /// finished, no call will begin, and the function is dropped. Any number of tasks may wait; all are woken.
    ///
    /// Within a call of an observer this returns immediately, as that call may be the one it would wait for. An informer that reports a long list holds the function until
    /// the list is reported, also between two pieces: the task that polls its run future must not wait for this beside it.
    ///
    /// # Cancel safety
    /// Dropping the future forgets the wait and nothing else.
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
        if !NotifyGuard::is_here() {
            // Never an error: this signal is always given.
            let _ = self.fate.over.wait().await;
        }
    }

    /// Registers the function and calls it with each stored object.
    pub(crate) fn begin(
        store: &Arc<StoreInner<K, V>>,
        function: impl Fn(&Change<K, V>) + Send + Sync + 'static,
    ) -> Self {
        let fate = Arc::new(ObserverState::default());
        let observer_fn = Arc::new(ObserverFn { function: Some(Box::new(function)), fate: fate.clone() });
        // Before it is registered, so that a panic in the drop of an old object below ends the observation.
        let observer = Self { store: Arc::downgrade(store), fate };
        let table = store.listen(&observer_fn);
        let _telling = NotifyGuard::begin();
        for (_, record) in table.rows.iter() {
            let change = Change::of(record.name.clone(), ChangeKind::Initial, None, record.object.clone());
            observer_fn.call(|tell| tell(&change));
        }
        observer
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
    /// Registers a listener; the objects it has to be told first.
    fn listen(&self, observer_fn: &Arc<ObserverFn<K, V>>) -> Arc<Table<K, V>> {
        let mut published = self.published.write();
        if !published.closed {
            // All of the old list are in the new one: no function is dropped here.
            published.observer_fns = published.observer_fns.iter().chain([observer_fn]).cloned().collect();
        }
        published.table.clone()
    }
}

impl<K, V> ObserverFn<K, V> {
    fn call(&self, call: impl FnOnce(&dyn Fn(&Change<K, V>))) {
        let Some(function) = &self.function else { return };
        // Ordering: Relaxed, see where it is set.
        if !self.fate.gone.load(Ordering::Relaxed) && caught(|| call(function)).is_none() {
            self.panicked();
        }
    }

    fn panicked(&self) {
        // Ordering: Relaxed, it counts and publishes nothing.
        self.fate.panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// What the function holds is foreign code as the function is.
impl<K, V> Drop for ObserverFn<K, V> {
    fn drop(&mut self) {
        let function = self.function.take();
        if caught(|| drop(function)).is_none() {
            self.panicked();
        }
        self.fate.over.set();
    }
}

/// Reports changes to observers, one after the other. Never panics. The caller holds no lock.
pub(crate) fn report<K, V>(observer_fns: &ObserverFns<K, V>, changes: &[Change<K, V>]) {
    if observer_fns.is_empty() || changes.is_empty() {
        return;
    }
    let _telling = NotifyGuard::begin();
    for change in changes {
        for observer_fn in &**observer_fns {
            observer_fn.call(|tell| tell(change));
        }
    }
}
