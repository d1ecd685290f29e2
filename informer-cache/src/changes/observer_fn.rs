//! SHELL. Functions that receive every change, called by the thread that writes it.
//!
//! | | guarded by |
//! |---|---|
//! | the list of observers | the store's `published`; replaced as a whole, so that a writer takes it in the critical section it publishes in, and calls the functions after releasing every lock |
//! | `panics` | itself, an atomic; it counts and publishes nothing |
//! | `gone` | itself, an atomic; set once, when the observer ends. A thread that reads it before that reports one more change |
//! | `over` | itself; set when the [`ObserverFn`] is dropped: no list contains it any more, so no thread calls the function, now or later |
//! | `TELLING` | a thread-local: how deep the thread is in calls of observers |
//!
//! Each call of a function, and its drop, runs without a lock and catches panics by itself. A panic is counted and costs one call; the writer continues.

use std::cell::Cell;
use std::sync::Arc;

use flyball_sync::locks::{AtomicBool, AtomicU64, Ordering, thread_local};
use flyball_sync::panics::caught;

use crate::Change;
use crate::signal::synced::Synced;

/// State shared by an [`Observer`](crate::Observer) and its [`ObserverFn`].
#[derive(Default)]
pub(crate) struct ObserverState {
    pub(crate) panics: AtomicU64,
    pub(crate) gone: AtomicBool,
    pub(crate) over: Synced,
}

thread_local! {
    /// How many calls of observers are nested on this thread.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no `const` block")]
    static TELLING: Cell<usize> = Cell::new(0);
}

/// Marks the current thread as calling observers until dropped.
pub(crate) struct NotifyGuard;

impl NotifyGuard {
    pub(crate) fn begin() -> Self {
        TELLING.with(|depth| depth.set(depth.get() + 1));
        Self
    }

    pub(crate) fn is_here() -> bool {
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
    /// Taken only when the `ObserverFn` is dropped.
    #[expect(clippy::type_complexity, reason = "a function, named nowhere else")]
    pub(crate) function: Option<Box<dyn Fn(&Change<K, V>) + Send + Sync>>,
    pub(crate) fate: Arc<ObserverState>,
}

/// The observer functions of a store, shared so that a notification copies no list.
pub(crate) type ObserverFns<K, V> = Arc<[Arc<ObserverFn<K, V>>]>;

impl<K, V> ObserverFn<K, V> {
    pub(crate) fn call(&self, call: impl FnOnce(&dyn Fn(&Change<K, V>))) {
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

/// Dropping the function runs foreign code, too: the destructors of its captures.
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
