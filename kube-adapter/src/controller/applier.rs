//! EDGE. A replacement for kube-runtime's `applier`: a controller that reconciles the requests of a stream, over a store of the program.
//!
//! Cancel safety: see [`ReconcileStream`].

use std::error::Error;
use std::hash::Hash;
use std::sync::{Arc, OnceLock};

use flyball_informer_cache::NamespacedName;
use futures_util::{TryFuture, TryStream, TryStreamExt};
use kube::Resource;
use kube::runtime::controller::{Action, ReconcileRequest};
use kube::runtime::reflector;
use tokio::sync::mpsc;

use super::key_streams::reporting;
use super::objects::Objects;
use super::own_informers::MAX_BUFFERED_ERRORS;
use super::reconcile_reasons::Reason;
use super::run::RunSetup;
use super::shutdown::ShutdownSignals;
use super::watches::named;
use super::{Monitor, ReconcileStream, TARGET};
use crate::Config;
use crate::keys::reference_key;

/// Reconciles the objects that the requests of `queue` name, and reads these objects from a kube-runtime store. It replaces kube-runtime's `applier`,
/// and uses the work queue and the loop of a [`Controller`](crate::Controller).
///
/// Use this function in a program that merges its triggers itself. It behaves like [`Controller::run`](crate::Controller::run) of a [controller over
/// a stream](crate::Controller::for_stream). Reconciles start when the store is ready. The stream of results yields an error of `queue` as a
/// [`QueueError`](kube::runtime::controller::Error::QueueError), and `queue` is polled again without a wait; while there are both, errors and results
/// alternate. For a request whose object is not in the
/// store, it yields an [`ObjectNotFound`](kube::runtime::controller::Error::ObjectNotFound). When `queue` has ended, the objects requested so far are
/// reconciled, and then the stream of results ends; delayed requeues that reconciles returned are dropped. The reason of a request is the field
/// `object.reason` of the reconcile's [span](crate::Controller::run), and [`Monitor::in_flight`](crate::Monitor::in_flight) lists it.
///
/// All requests must be for the same kind as the first request, because a store holds only one kind. A request for a different kind is logged and
/// dropped.
///
/// `config` is a [`Config`], or kube-runtime's own configuration.
///
/// # Panics
/// The stream of results panics if it is polled for the first time outside a tokio runtime, or if `queue` panics.
///
/// # Cancel safety
/// Dropping the stream stops the controller immediately.
///
/// # Examples
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// use flyball_kube::{Action, Config, applier, trigger_self};
/// use futures_util::{StreamExt, stream};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::runtime::{WatchStreamExt, reflector, watcher};
/// use kube::{Api, ResourceExt};
///
/// async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
///     println!("{}", map.name_any());
///     Ok(Action::await_change())
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = flyball_kube_testing::ApiServer::new();
/// # server.register::<ConfigMap>();
/// # let client = server.client();
/// # let maps = Api::<ConfigMap>::namespaced(client.clone(), "default");
/// # let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "settings"}}))?;
/// # maps.create(&Default::default(), &map).await?;
/// let (store, writer) = reflector::store::<ConfigMap>();
/// let maps = watcher(Api::<ConfigMap>::all(client), watcher::Config::default()).reflect(writer);
/// let queue = Box::pin(trigger_self(maps.applied_objects(), ()));
/// let policy = |_: Arc<ConfigMap>, _: &kube::Error, _: Arc<()>| Action::requeue(Duration::from_secs(5));
/// let mut reconciles = applier(reconcile, policy, Arc::new(()), store, queue, Config::default());
///
/// let (settings, _) = reconciles.next().await.expect("the stream ends only with its queue")?;
/// assert_eq!(settings.name, "settings");
/// # Ok(())
/// # }
/// ```
pub fn applier<K, QueueStream, ReconcilerFut, Ctx>(
    reconciler: impl FnMut(Arc<K>, Arc<Ctx>) -> ReconcilerFut + Send + 'static,
    error_policy: impl Fn(Arc<K>, &ReconcilerFut::Error, Arc<Ctx>) -> Action + Send + Sync + 'static,
    context: Arc<Ctx>,
    store: reflector::Store<K>,
    queue: QueueStream,
    config: impl Into<Config>,
) -> ReconcileStream<K, ReconcilerFut::Error, QueueStream::Error>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    ReconcilerFut: TryFuture<Ok = Action> + Send + 'static,
    ReconcilerFut::Error: Error + Send + 'static,
    QueueStream: TryStream + Send + 'static,
    QueueStream::Ok: Into<ReconcileRequest<K>>,
    QueueStream::Error: Error + Send + 'static,
    Ctx: Send + Sync + 'static,
{
    let main = Objects::of_kube(store);
    let Objects::Kube { dyntype, .. } = &main else { unreachable!("the objects come from a store") };
    let dyntype = dyntype.clone();
    let (errors, watch_errors) = mpsc::channel(MAX_BUFFERED_ERRORS);
    let requested = requested(main.clone(), dyntype);
    let keys =
        reporting(queue.into_stream(), errors, move |request: QueueStream::Ok| requested(request.into()));
    let setup = RunSetup {
        kind: named::<K>().to_owned(),
        main,
        config: config.into(),
        triggers: Vec::new(),
        required: Vec::new(),
        streams: vec![Box::new(move |_| keys)],
        informers: Vec::new(),
        backoff: None,
        shutdown: ShutdownSignals::default(),
        leadership: None,
        monitor: Monitor::default(),
        watch_errors,
        // Objects of kube's stores are never unreadable.
        unreadable: |_| None,
    };
    setup.run(reconciler, error_policy, context)
}

/// Returns a function that maps a request to its key and its reason.
fn requested<K>(
    main: Objects<K>,
    kind: Arc<OnceLock<K::DynamicType>>,
) -> impl Fn(ReconcileRequest<K>) -> (Vec<NamespacedName>, Reason)
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    move |ReconcileRequest { obj_ref, reason }| {
        let key = match kind.get_or_init(|| obj_ref.dyntype.clone()) == &obj_ref.dyntype {
            true => reference_key(&obj_ref).ok(),
            false => {
                tracing::error!(target: TARGET, object = %obj_ref, "a request for another kind than that of the store is dropped");
                None
            }
        };
        (key.map(|key| main.resolve(key)).into_iter().collect(), Reason::Given(reason))
    }
}
