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
//! The function and its drop run without a lock and by themselves. A panic in one of them is counted, and costs one call; the writer goes on.

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
    /// How deep this thread is in calls of observers.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no `const` block")]
    static TELLING: Cell<usize> = Cell::new(0);
}

/// While it lives, this thread is calling observers.
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
    /// Taken out when this is dropped, and only then.
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
