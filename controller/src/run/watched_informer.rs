//! EDGE. An informer that a controller watches: its changes become keys, and two futures complete when it has synced and when it has stopped.
//!
//! Cancel safety: there is no await point between a change and its keys. The informer itself calls the mapper right after it has published a
//! change, so no change is lost in between, and the new state can be read when the keys are added.

use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use flyball_informer_cache::{Change, Informer, Stopped};
use flyball_sync::locks::{AtomicBool, Ordering};
use flyball_workqueue::{
    AddError, AddErrorKind, AddOptions, Added, Key, KeyState, Order, Queue, QueueLimiter, Timer,
};

use futures_util::future::BoxFuture;

use crate::WatchStatus;
use crate::report::ReportCounters;
use crate::run::in_flight::{InFlight, Reconciles};
use crate::run::into_keys::IntoKeys;
use crate::run::mapper::{Mapper, RetryMapping};
use crate::run::watch_options::WatchOptions;

/// A function that returns whether a key belongs to this controller.
pub(crate) type KeyFilter<K> = dyn Fn(&K) -> bool + Send + Sync;

/// The queue to which all watches of a controller add their keys, with the key filter and the counters. Set when the
/// controller runs.
pub(crate) struct KeySink<K, O: Order<K>, L, T> {
    pub(crate) queue: Queue<K, O, L, T>,
    pub(crate) filter_key: Arc<KeyFilter<K>>,
    pub(crate) counters: Arc<ReportCounters>,
    pub(crate) in_flight: Arc<InFlight>,
}

/// A type-erased informer.
pub(crate) struct WatchedInformer {
    informer: Box<dyn AnyInformer>,
    /// Set when the watch is removed or the run ends. A change that is mapped after that adds no key.
    removed: AtomicBool,
}

/// The operations that the controller needs from an informer, for any object type.
trait AnyInformer: Send + Sync {
    fn status(&self) -> WatchStatus;

    /// Completes when the first list is published.
    fn synced(&self) -> BoxFuture<'static, Result<(), Stopped>>;

    /// Completes when the informer has stopped and every change has become keys.
    fn stopped(&self) -> BoxFuture<'static, ()>;
}

impl<OK, V> AnyInformer for Informer<OK, V>
where
    OK: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    fn status(&self) -> WatchStatus {
        let status = self.status();
        WatchStatus {
            index: 0,
            object_type: std::any::type_name::<V>(),
            synced: self.is_synced(),
            state: status.state,
            last_error: status.last_error.map(|error| error.message),
        }
    }

    fn synced(&self) -> BoxFuture<'static, Result<(), Stopped>> {
        let informer = self.clone();
        Box::pin(async move { informer.synced().await })
    }

    fn stopped(&self) -> BoxFuture<'static, ()> {
        let informer = self.clone();
        Box::pin(async move { informer.stopped().await })
    }
}

impl WatchedInformer {
    /// Returns the status of the cache, for the watch with this index.
    pub(crate) fn status(&self, index: usize) -> WatchStatus {
        WatchStatus { index, ..self.informer.status() }
    }

    pub(crate) fn synced(&self) -> BoxFuture<'static, Result<(), Stopped>> {
        self.informer.synced()
    }

    pub(crate) fn stopped(&self) -> BoxFuture<'static, ()> {
        self.informer.stopped()
    }

    pub(crate) fn remove(&self) {
        // Ordering: Relaxed, because the flag publishes no other memory. If a change is published after the removal, its mapping happens after this
        // store, so the load returns `true`.
        self.removed.store(true, Ordering::Relaxed);
    }

    fn is_removed(&self) -> bool {
        // Ordering: Relaxed, see the store in `remove`.
        self.removed.load(Ordering::Relaxed)
    }
}

/// A watch whose changes become keys until `_observer` is dropped.
pub(crate) struct ActiveWatch {
    pub(crate) _observer: Box<dyn Send + Sync>,
    /// The mapper, and the changes at which it panicked.
    pub(crate) mapper: Arc<dyn RetryMapping>,
}

/// A function that starts to map changes. The run future then maps the existing objects.
pub(crate) type Observe = Box<dyn FnOnce() -> ActiveWatch + Send + Sync>;

/// Creates a watched informer, and a function that starts to observe it. `sink` must be set before that function is called.
pub(crate) fn watched<OK, V, R, M, K, O, L, T>(
    informer: &Informer<OK, V>,
    mapper: impl Fn(&Change<OK, V>) -> R + Send + Sync + 'static,
    options: WatchOptions<OK, V, K, O, L, T>,
    sink: &Arc<OnceLock<KeySink<K, O, L, T>>>,
) -> (Arc<WatchedInformer>, Observe)
where
    OK: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    R: IntoKeys<K, M>,
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    let watched =
        Arc::new(WatchedInformer { informer: Box::new(informer.clone()), removed: AtomicBool::new(false) });
    let resync_every = options.resync_every;
    let (observed, sink, shared) = (informer.clone(), sink.clone(), watched.clone());
    let observe = move || {
        let counters = sink.get().expect("the sink is set before changes become keys").counters.clone();
        let resynced = observed.clone();
        let map = move |change: &Change<OK, V>, resync: bool| {
            let Some(sink) = sink.get() else { return };
            if shared.is_removed() || !options.filters.iter().all(|filter| filter(change)) {
                return;
            }
            for key in mapper(change).into_keys().filter(|key| (sink.filter_key)(key)) {
                if shared.is_removed() {
                    break;
                }
                let running = sink.in_flight.get(sink.in_flight.hash(&key));
                let added = match resync {
                    true if sink.queue.state(&key) != KeyState::Absent => continue,
                    true => {
                        sink.queue.add_with(key, AddOptions { priority: i8::MIN, ..AddOptions::default() })
                    }
                    false => options.add(sink, change, key),
                };
                match added {
                    Ok(added) => {
                        sink.counters.keys_added.count();
                        // A leased key that is dirty already, or that waits for a delay, coalesces with the add, so `Added::Dirty` is not enough. If the
                        // key was absent, the reconcile has ended.
                        running.filter(|_| added != Added::New).iter().for_each(Reconciles::supersede);
                    }
                    // The queue is shut down, so it would refuse the other keys of the change, too.
                    Err(refused) if refused.kind() == AddErrorKind::ShutDown => break,
                    // The loop continues, because a refusal concerns only this key: another key of the change may already be in the queue, where the
                    // add coalesces without using capacity.
                    Err(_) => {}
                }
            }
        };
        let mapper = Arc::new(Mapper::new(map, resynced, resync_every, counters));
        let mapped = mapper.clone();
        let (objects, observer) = observed.observe_changes(move |change| mapped.changed(change));
        mapper.set_initial(objects);
        ActiveWatch { _observer: Box::new(observer), mapper }
    };
    (watched, Box::new(observe))
}

impl<OK, V, K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> WatchOptions<OK, V, K, O, L, T> {
    fn add(&self, sink: &KeySink<K, O, L, T>, change: &Change<OK, V>, key: K) -> Result<Added, AddError<K>> {
        if let Some(add) = &self.add {
            return add(&sink.queue, change, key);
        }
        let priority = match change.is_initial() {
            true => self.initial_priority.or(self.priority),
            false => self.priority,
        };
        sink.queue.add_with(key, AddOptions { priority: priority.unwrap_or(0), ..AddOptions::default() })
    }
}
