//! EDGE. One informer as a controller sees it: its changes become keys, and two signals say how far it is.
//!
//! Cancel safety: nothing is awaited between a change and its keys. The informer itself maps a change when it
//! publishes it, so there is no place in between where one could be lost; whoever reads the new state is named by a key
//! that is added after it was published.

use std::future::Future;
use std::hash::Hash;
use std::pin::Pin;
use std::sync::Arc;

use flyball_informer_cache::{Change, Informer};
use flyball_workqueue::{AddError, Added, Key, Order, Queue, QueueLimiter, TimeMode};

use crate::CacheStatus;
use crate::cache_status::{Probe, Syncing};
use crate::report::ReportCounters;
use crate::run::mapper_retry::{Mapper, RetryMapping};

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// One informer, its types out of sight.
pub(crate) struct WatchedInformer<K, O: Order<K>, L, T> {
    /// The type of its objects.
    pub(crate) object_type: &'static str,
    /// Whether workers wait for it.
    pub(crate) required: bool,
    pub(crate) synced: Syncing,
    /// Without its index, and whether it is required.
    pub(crate) status: Probe,
    /// Done when every change has become keys.
    pub(crate) stopped: BoxFuture<()>,
    #[expect(clippy::type_complexity, reason = "a closure, named dropped else")]
    pub(crate) observe: Box<
        dyn FnOnce(
                Queue<K, O, L, T>,
                AddInitial<K, O, L, T>,
                Arc<KeyFilter<K>>,
                Arc<ReportCounters>,
            ) -> ActiveWatch
            + Send,
    >,
}

/// How a key of an initial object is added.
pub(crate) type AddInitial<K, O, L, T> =
    Arc<dyn Fn(&Queue<K, O, L, T>, K) -> Result<Added, AddError<K>> + Send + Sync>;

/// Which keys are this controller's.
pub(crate) type KeyFilter<K> = dyn Fn(&K) -> bool + Send + Sync;

/// Changes become keys until it is dropped.
pub(crate) struct ActiveWatch {
    pub(crate) _observer: Box<dyn Send>,
    /// What could not be mapped.
    pub(crate) remap: Arc<dyn RetryMapping>,
}

impl<K, O, L, T> WatchedInformer<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: TimeMode,
{
    pub(crate) fn new<OK, V, I>(
        informer: &Informer<OK, V>,
        keys_of: impl Fn(&Change<OK, V>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        OK: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
        I: IntoIterator<Item = K> + 'static,
    {
        let add =
            |queue: &Queue<K, O, L, T>, initial: &AddInitial<K, O, L, T>, change: &Change<OK, V>, key| {
                if change.is_initial() { initial(queue, key) } else { queue.add(key) }
            };
        Self::adding(informer, keys_of, |key| key, add)
    }

    /// With a say in how keys are added.
    pub(crate) fn adding<OK, V, I>(
        informer: &Informer<OK, V>,
        keys_of: impl Fn(&Change<OK, V>) -> I + Send + Sync + 'static,
        key_of: impl Fn(&I::Item) -> &K + Send + Sync + 'static,
        add: impl Fn(
            &Queue<K, O, L, T>,
            &AddInitial<K, O, L, T>,
            &Change<OK, V>,
            I::Item,
        ) -> Result<Added, AddError<K>>
        + Send
        + Sync
        + 'static,
    ) -> Self
    where
        OK: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
        I: IntoIterator + 'static,
    {
        let (syncing, stopping, observed) = (informer.clone(), informer.clone(), informer.clone());
        let probed = informer.clone();
        Self {
            object_type: std::any::type_name::<V>(),
            required: true,
            status: Arc::new(move || {
                let status = probed.status();
                CacheStatus {
                    index: 0,
                    object_type: std::any::type_name::<V>(),
                    required: true,
                    synced: probed.is_synced(),
                    state: status.state,
                    last_error: status.last_error.map(|error| error.message),
                }
            }),
            synced: Arc::new(move || {
                let syncing = syncing.clone();
                Box::pin(async move { syncing.synced().await })
            }),
            stopped: Box::pin(async move { stopping.stopped().await }),
            observe: Box::new(move |queue, initial, only, counters| {
                let counted = counters.clone();
                let map = move |change: &Change<OK, V>| {
                    for key in keys_of(change).into_iter().filter(|key| only(key_of(key))) {
                        if add(&queue, &initial, change, key).is_err() {
                            // It is shut down: a change that was published as this ended.
                            break;
                        }
                        counted.keys_added.count();
                    }
                };
                let mapper = Arc::new(Mapper::new(map, counters));
                let remap = mapper.clone();
                let observer = observed.observe(move |change| mapper.changed(change));
                ActiveWatch { _observer: Box::new(observer), remap }
            }),
        }
    }
}
