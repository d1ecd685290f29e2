//! SHELL. Observer functions. They are called with every change, on the thread that writes.
//!
//! | | guarded by |
//! |---|---|
//! | the list of observers | the store's `published` lock; the whole list is replaced, and a writer clones its `Arc` when it commits |
//! | `panics` | itself: it is an atomic counter, and publishes no other memory |
//! | `unsubscribed` | itself: it is an atomic flag, set when the observer is unsubscribed, and never reset |
//! | `ended` | itself: it is a signal, set when the [`ObserverFn`] is dropped; from then on no thread calls the function |
//! | `NOTIFY_DEPTH` | nothing: it is thread-local. It is the nesting depth of observer calls on the thread |
//!
//! A thread holds no lock while it calls or drops an observer function. If a thread has read `unsubscribed` before it was set, the thread still calls
//! the function once more. If the function panics, the panic is caught and counted, and the writer continues with the next call.

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
    pub(crate) unsubscribed: AtomicBool,
    pub(crate) ended: Synced,
}

thread_local! {
    /// How many calls of observers are nested on this thread.
    #[allow(clippy::missing_const_for_thread_local, reason = "loom's macro takes no `const` block")]
    static NOTIFY_DEPTH: Cell<usize> = Cell::new(0);
}

/// A guard: until it is dropped, the current thread is marked as calling observers.
pub(crate) struct NotifyGuard;

impl NotifyGuard {
    pub(crate) fn begin() -> Self {
        NOTIFY_DEPTH.with(|depth| depth.set(depth.get() + 1));
        Self
    }

    pub(crate) fn is_active() -> bool {
        NOTIFY_DEPTH.with(Cell::get) > 0
    }
}

impl Drop for NotifyGuard {
    fn drop(&mut self) {
        NOTIFY_DEPTH.with(|depth| depth.set(depth.get() - 1));
    }
}

/// The function of one observer.
pub(crate) struct ObserverFn<K, V> {
    /// `None` only during the drop of the `ObserverFn`.
    #[expect(clippy::type_complexity, reason = "a function, named nowhere else")]
    pub(crate) function: Option<Box<dyn Fn(&Change<K, V>) + Send + Sync>>,
    pub(crate) state: Arc<ObserverState>,
}

/// The observer functions of a store. Shared, so that a writer clones one reference and not the list.
pub(crate) type ObserverFns<K, V> = Arc<[Arc<ObserverFn<K, V>>]>;

impl<K, V> ObserverFn<K, V> {
    pub(crate) fn call(&self, call: impl FnOnce(&dyn Fn(&Change<K, V>))) {
        let Some(function) = &self.function else { return };
        // Ordering: Relaxed, because the flag publishes no other memory. A call that begins while the flag is being set may still read the old value.
        if !self.state.unsubscribed.load(Ordering::Relaxed) && caught(|| call(function)).is_none() {
            self.panicked();
        }
    }

    fn panicked(&self) {
        // Ordering: Relaxed, because the counter publishes no other memory.
        self.state.panics.fetch_add(1, Ordering::Relaxed);
    }
}

/// Dropping the function also runs user code, namely the destructors of the values that it captured.
impl<K, V> Drop for ObserverFn<K, V> {
    fn drop(&mut self) {
        let function = self.function.take();
        if caught(|| drop(function)).is_none() {
            self.panicked();
        }
        self.state.ended.set();
    }
}

/// Calls every observer with each change, one change after the other. Never panics. The caller must hold no lock.
pub(crate) fn report<K, V>(observer_fns: &ObserverFns<K, V>, changes: &[Change<K, V>]) {
    if observer_fns.is_empty() || changes.is_empty() {
        return;
    }
    let _guard = NotifyGuard::begin();
    for change in changes {
        for observer_fn in &**observer_fns {
            observer_fn.call(|tell| tell(change));
        }
    }
}
