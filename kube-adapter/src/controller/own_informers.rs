//! EDGE. The informers that a controller owns: they start and end with the controller.
//!
//! Cancel safety: dropping the run future of an informer ends the informer.

use std::sync::{Arc, OnceLock};

use flyball_informer_cache::{Informer, InformerBuilder, NamespacedName, Source};
use flyball_sync::TokioTimer;
use futures_util::future::BoxFuture;
use kube::Resource;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

use super::mapped::{MappedKeys, MappedObject, MappedSource};
use super::monitor::Monitor;
use super::trigger_backoff::{BackoffHandle, TriggerBackoff};
use crate::source::api_error::watcher_error;
use crate::{ApiSource, Config, reflector_config};

/// The maximum number of watch errors that are buffered for the stream of results.
pub(super) const MAX_BUFFERED_ERRORS: usize = 64;

/// A function that takes the configuration and the backoff of the controller, and returns a future that runs the informer.
pub(super) type OwnInformer =
    Box<dyn FnOnce(&Config, Option<&TriggerBackoff>) -> BoxFuture<'static, ()> + Send>;

/// The channel of watch errors for the stream of results. The channel is bounded. While it is full, new errors of informers are dropped, but errors
/// of streams are not: a stream that has returned an error is not polled until the channel has capacity for this error.
pub(super) struct WatchErrors {
    pub(super) sender: mpsc::Sender<watcher::Error>,
    pub(super) receiver: mpsc::Receiver<watcher::Error>,
}

impl Default for WatchErrors {
    fn default() -> Self {
        let (sender, receiver) = mpsc::channel(MAX_BUFFERED_ERRORS);
        Self { sender, receiver }
    }
}

/// Creates an informer that starts with its controller.
#[track_caller]
pub(super) fn informer<K>(
    source: ApiSource<K>,
    kind: String,
    watch_errors: &WatchErrors,
    monitor: &Monitor,
) -> (Informer<NamespacedName, K>, OwnInformer)
where
    K: Resource + DeserializeOwned + Clone + Send + Sync + 'static,
{
    let handle = SharedHandle::default();
    let arrived = handle.clone();
    let source = source.counted_by(monitor.unreadable_counter()).on_object(move || requested(&arrived));
    own(source.into_informer(), kind, watch_errors, monitor, handle)
}

/// Creates an informer that stores, for each object of `source`, the keys that `map` returns. The objects are not kept.
#[track_caller]
pub(super) fn rows<K>(
    source: ApiSource<K>,
    kind: String,
    map: impl Fn(K) -> MappedKeys + Send + Sync + 'static,
    watch_errors: &WatchErrors,
    monitor: &Monitor,
) -> (Informer<NamespacedName, MappedObject>, OwnInformer)
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    let (reflector, handle) = (reflector_config(source.config()), SharedHandle::default());
    let mapped = handle.clone();
    let map = move |object| {
        let row = map(object);
        if !row.keys.is_empty() {
            requested(&mapped);
        }
        row
    };
    let source = MappedSource::new(source.counted_by(monitor.unreadable_counter()), map);
    let stored = source.stored();
    let builder = Informer::builder(MappedObject::schema(), source).reflector_config(reflector);
    own(builder.on_build(move |store| _ = stored.set(store.clone())), kind, watch_errors, monitor, handle)
}

/// The backoff of the controller, if it has one. Set when the informer starts.
type SharedHandle = Arc<OnceLock<BackoffHandle>>;

/// Called when an object arrives that maps to an object of the controller.
fn requested(handle: &SharedHandle) {
    if let Some(handle) = handle.get() {
        handle.requested();
    }
}

#[track_caller]
fn own<V, S>(
    builder: InformerBuilder<NamespacedName, V, S>,
    kind: String,
    watch_errors: &WatchErrors,
    monitor: &Monitor,
    shared: SharedHandle,
) -> (Informer<NamespacedName, V>, OwnInformer)
where
    V: Send + Sync + 'static,
    S: Source<Object = V>,
{
    let (sender, cache) = (watch_errors.sender.clone(), monitor.own_caches().add(kind));
    let failing = cache.clone();
    let built = builder
        .on_error(move |failure| {
            let error = watcher_error(failure);
            failing.failed(failure, &error);
            // If the channel is full, because the consumer does not read the stream of results fast enough, the error is dropped.
            let _ = sender.try_send(error);
        })
        .timer(TokioTimer::current())
        .prepare();
    let (informer, prepared) =
        built.expect("a reflector can run with any configuration of a watcher, and has no index");
    cache.watch(&informer);
    let run = move |config: &Config, backoff: Option<&TriggerBackoff>| {
        let reflector = config.reflector(prepared.reflector_config());
        let prepared = prepared.with_reflector_config(reflector);
        let prepared = prepared.expect("every setting of a controller is valid for a reflector");
        let prepared = match backoff {
            Some(backoff) => {
                // `set` cannot fail, because an informer starts once.
                let _ = shared.set(backoff.handle());
                prepared.with_backoff(backoff.handle())
            }
            None => prepared,
        };
        Box::pin(prepared.run()) as BoxFuture<'static, _>
    };
    (informer, Box::new(run))
}
