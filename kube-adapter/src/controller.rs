//! EDGE. kube-runtime's Controller, over flyball's caches, queue and loop.
//!
//! Cancel safety: nothing runs before the stream of [`Controller::run`] is polled; what dropping it does is told there.

mod engine;
mod requests;
mod run;
mod stopping;
mod trigger;
pub(crate) mod turning;
mod watching;

use std::fmt;
use std::fmt::Debug;
use std::hash::Hash;

use flyball_informer_cache::{Informer, NamespacedName};
use flyball_ratelimit::TokioTimer;
use futures_util::future::BoxFuture;
use futures_util::stream::BoxStream;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;

pub use self::run::Reconciles;
use self::stopping::Stopping;
use self::trigger::Trigger;
use crate::{ApiSource, Config, Monitor, Store, watcher_error};

/// Runs a function for objects of a kind when they, or objects that concern them, change: kube-runtime's `Controller`, with the same
/// functions of the user and the same results, over caches that lose nothing, a queue that starves nobody, and a backoff for each object.
///
/// To come from kube-runtime, change the import; `reconcile` and `error_policy` stay as they are. What differs is in the
/// [crate's documentation](crate#coming-from-kube-runtime).
///
/// # Examples
/// ```
/// # use std::sync::Arc;
/// # use std::time::Duration;
/// use flyball_kube::{Controller, Config};
/// use futures_util::StreamExt;
/// use k8s_openapi::api::core::v1::{ConfigMap, Pod};
/// use kube::runtime::controller::Action;
/// use kube::runtime::watcher;
/// use kube::{Api, ResourceExt};
///
/// async fn reconcile(map: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> {
///     println!("{}", map.name_any());
///     Ok(Action::requeue(Duration::from_secs(3600)))
/// }
///
/// fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<()>) -> Action {
///     Action::requeue(Duration::from_secs(5))
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = flyball_kube::testing::ApiServer::new();
/// # server.register::<ConfigMap>();
/// # server.register::<Pod>();
/// # let client = server.client();
/// # let maps = Api::namespaced(client.clone(), "default");
/// # let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "settings"}}))?;
/// # maps.create(&Default::default(), &map).await?;
/// let mut reconciles = Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
///     .with_config(Config::default().concurrency(4).debounce(Duration::from_millis(10)))
///     .owns(Api::<Pod>::all(client), watcher::Config::default())
///     .shutdown_on_signal()
///     .run(reconcile, error_policy, Arc::new(()));
///
/// let (settings, action) = reconciles.next().await.expect("it goes on until it is shut down")?;
/// assert_eq!((settings.name.as_str(), action), ("settings", Action::requeue(Duration::from_secs(3600))));
/// # Ok(())
/// # }
/// ```
#[must_use = "a controller does nothing until it is run"]
pub struct Controller<K: Resource> {
    main: Informer<NamespacedName, K>,
    dyntype: K::DynamicType,
    config: Config,
    /// The first of them is its own objects.
    triggers: Vec<Box<dyn Trigger>>,
    /// What is asked for from outside.
    requests: Vec<BoxStream<'static, Vec<NamespacedName>>>,
    /// The informers that are this controller's own: they run as long as it does.
    informers: Vec<BoxFuture<'static, ()>>,
    /// What its own informers have to say about their watches.
    troubles: Troubles,
    stopping: Stopping,
    monitor: Monitor,
}

/// Errors of watches, on their way to the stream of results. Bounded: what nobody reads is the newest, and lost.
struct Troubles {
    tell: mpsc::Sender<watcher::Error>,
    told: mpsc::Receiver<watcher::Error>,
}

impl Default for Troubles {
    fn default() -> Self {
        let (tell, told) = mpsc::channel(64);
        Self { tell, told }
    }
}

impl<K> Controller<K>
where
    K: Resource + DeserializeOwned + Debug + Clone + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Send + Sync + Unpin,
{
    /// A controller of the objects that `api` gives, and `config` selects.
    ///
    /// # Panics
    /// Outside a tokio runtime with time enabled: its informer is timed by it. It does not run yet.
    #[track_caller]
    pub fn new(api: Api<K>, config: watcher::Config) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(api, config, K::DynamicType::default())
    }

    /// As [`new`](Self::new), of a kind that is known at run time.
    ///
    /// # Panics
    /// As `new`.
    #[track_caller]
    pub fn new_with(api: Api<K>, config: watcher::Config, dyntype: K::DynamicType) -> Self {
        let (troubles, monitor) = (Troubles::default(), Monitor::default());
        let (main, run) = informer(ApiSource::new(api, config), &troubles, &monitor);
        Self { informers: vec![run], troubles, monitor, ..Self::over_with(&main, dyntype) }
    }
}

impl<K> Controller<K>
where
    K: Resource + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Send + Sync + Unpin,
{
    /// A controller of the objects of an informer: one that others use, too, has indexes, or is fed by a
    /// [`StreamSource`](crate::StreamSource). It runs and ends by itself, before the controller or after it.
    pub fn over(informer: &Informer<NamespacedName, K>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::over_with(informer, K::DynamicType::default())
    }

    /// As [`over`](Self::over), of a kind that is known at run time.
    pub fn over_with(informer: &Informer<NamespacedName, K>, dyntype: K::DynamicType) -> Self {
        Self {
            main: informer.clone(),
            dyntype,
            config: Config::default(),
            triggers: vec![trigger::own(informer, |_| true)],
            requests: Vec::new(),
            informers: Vec::new(),
            troubles: Troubles::default(),
            stopping: Stopping::default(),
            monitor: Monitor::default(),
        }
    }

    /// Replaces the configuration.
    pub fn with_config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// The objects it knows; filled when it runs.
    #[must_use]
    pub fn store(&self) -> Store<K> {
        Store::new(self.main.clone())
    }

    /// What says how it fares, also while it runs: for probes and debug views.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }
}

impl<K: Resource> Debug for Controller<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("main", &self.main)
            .field("config", &self.config)
            .field("triggers", &self.triggers.len())
            .finish_non_exhaustive()
    }
}

/// An informer that begins when its controller does.
#[track_caller]
fn informer<K>(
    source: ApiSource<K>,
    troubles: &Troubles,
    monitor: &Monitor,
) -> (Informer<NamespacedName, K>, BoxFuture<'static, ()>)
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    let tell = troubles.tell.clone();
    let built = source
        .counted_by(monitor.skipping())
        .into_informer()
        .on_error(move |failure| drop(tell.try_send(watcher_error(failure))))
        .timer(TokioTimer::current())
        .build();
    let (informer, run) =
        built.expect("a reflector can run with any configuration of a watcher, and has no index");
    (informer, Box::pin(run))
}
