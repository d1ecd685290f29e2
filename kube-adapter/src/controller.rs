//! EDGE. A drop-in replacement for kube-runtime's `Controller`, over flyball's caches, queue and controller loop.
//!
//! Cancel safety: nothing runs before the stream of [`Controller::run`] is polled; the docs of `run` describe the effect of dropping the
//! stream.

mod action;
mod applier;
pub(crate) mod caches;
mod deleted_keys;
mod engine;
mod filtered;
mod in_flight;
mod key_streams;
mod kube_mirror;
mod mapped;
mod monitor;
mod objects;
mod own_informers;
pub(crate) mod reconcile_failed;
mod reconcile_reasons;
mod reconcile_stream;
mod run;
mod shutdown;
mod store;
mod stream_triggers;
pub(crate) mod trigger;
mod trigger_backoff;
mod watches;

use std::fmt;
use std::fmt::Debug;
use std::hash::Hash;

use flyball_informer_cache::{Informer, NamespacedName, Stopped};
use futures_util::future::BoxFuture;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

/// The `tracing` target of the spans and events of controllers. It is the same as in kube-runtime, so that filters such as `kube=warn` match.
pub(crate) const TARGET: &str = "kube_runtime::controller";

pub(crate) use self::action::read_duration;
pub use self::action::{UnknownAction, action_delay};
pub use self::applier::applier;
pub use self::caches::{CacheStatus, WatchFailure};
use self::key_streams::StreamTrigger;
pub use self::monitor::Monitor;
use self::objects::Objects;
use self::own_informers::{OwnInformer, WatchErrors, informer};
pub use self::reconcile_reasons::ReconcileInFlight;
pub use self::reconcile_stream::ReconcileStream;
use self::shutdown::ShutdownSignals;
pub use self::store::ControllerStore;
use self::trigger::Trigger;
use self::trigger_backoff::TriggerBackoff;
use crate::{ApiSource, Config};
use flyball_kube_lease::Leadership;

/// Calls a function for each object of a kind whenever the object, or a related object, changes. It replaces kube-runtime's `Controller`: the user
/// functions and the results are the same, but the caches lose no change and the queue starves no object.
///
/// To migrate from kube-runtime, change the import; `reconcile` and `error_policy` stay as they are. The delay of the error policy, the
/// number of concurrent reconciles, and the reconciles that a shutdown waits for are the same as in kube-runtime. [`Config::recommended`]
/// sets options that are better than these defaults for most programs. The [crate's documentation](crate#coming-from-kube-runtime) lists
/// the differences.
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
/// # let server = flyball_kube_testing::ApiServer::new();
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
/// let (settings, action) = reconciles.next().await.expect("the stream ends only at a shutdown")?;
/// assert_eq!((settings.name.as_str(), action), ("settings", Action::requeue(Duration::from_secs(3600))));
/// # Ok(())
/// # }
/// ```
#[must_use = "a controller does nothing until it is run"]
pub struct Controller<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    main: Objects<K>,
    dyntype: K::DynamicType,
    config: Config,
    /// The trigger of the controller's own objects, if they come from an informer.
    own: Option<Box<dyn Trigger>>,
    /// The triggers of related objects.
    triggers: Vec<Box<dyn Trigger>>,
    /// For each shared cache that reconciles read, a future that completes when the cache has synced. The controller's own cache has no future here.
    required: Vec<BoxFuture<'static, Result<(), Stopped>>>,
    /// The triggers that are streams of objects or of reconcile requests.
    streams: Vec<StreamTrigger>,
    /// The informers that this controller owns. They run as long as the controller runs.
    informers: Vec<OwnInformer>,
    /// The errors of the controller's own informers and streams.
    watch_errors: WatchErrors,
    /// The backoff of the controller's own informers and streams, if the program sets one.
    backoff: Option<TriggerBackoff>,
    shutdown: ShutdownSignals,
    /// If this is set, the controller reconciles only while this replica is the leader.
    leadership: Option<Leadership>,
    monitor: Monitor,
}

impl<K> Controller<K>
where
    K: Resource + DeserializeOwned + Debug + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Creates a controller of the objects that `api` lists and `config` selects.
    ///
    /// # Panics
    /// Panics outside a tokio runtime with time enabled, because the informer needs its timer. The informer starts when the controller runs.
    #[track_caller]
    pub fn new(api: Api<K>, config: watcher::Config) -> Self
    where
        K::DynamicType: Default,
    {
        Self::new_with(api, config, K::DynamicType::default())
    }

    /// Like [`new`](Self::new), for a kind that is known at run time.
    ///
    /// # Panics
    /// Like `new`.
    ///
    /// # Examples
    /// Custom resources for which the program has no Rust type:
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// use flyball_kube::{Action, Controller};
    /// use futures_util::StreamExt;
    /// use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind};
    /// use kube::runtime::{reflector::ObjectRef, watcher};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let kind = |name| ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", name));
    /// let [site, page, theme] = ["Site", "Page", "Theme"].map(kind);
    /// # let server = ApiServer::new();
    /// # for kind in [&site, &page, &theme] {
    /// #     server.register_dynamic(kind.clone(), true);
    /// # }
    /// # let client = server.client();
    /// # let sites = Api::<DynamicObject>::default_namespaced_with(client.clone(), &site);
    /// # sites.create(&Default::default(), &DynamicObject::new("home", &site)).await?;
    /// let api = |kind| Api::<DynamicObject>::all_with(client.clone(), kind);
    /// let (sites, pages, themes) = (api(&site), api(&page), api(&theme));
    /// let config = watcher::Config::default();
    ///
    /// let kind = site.clone();
    /// let site_of_theme = move |theme: DynamicObject| {
    ///     let name = theme.data["spec"]["site"].as_str()?;
    ///     Some(ObjectRef::new_with(name, kind.clone()).within("default"))
    /// };
    /// let mut reconciles = Controller::new_with(sites, config.clone(), site)
    ///     .owns_with(pages, page, config.clone())
    ///     .watches_with(themes, theme, config, site_of_theme)
    ///     .run(
    ///         |_, _| async { Ok::<_, kube::Error>(Action::await_change()) },
    ///         |_, _, _| Action::await_change(),
    ///         Arc::new(()),
    ///     );
    ///
    /// let (home, _) = reconciles.next().await.expect("the stream ends only at a shutdown")?;
    /// assert_eq!(home.name, "home");
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn new_with(api: Api<K>, config: watcher::Config, dyntype: K::DynamicType) -> Self {
        let (watch_errors, monitor) = (WatchErrors::default(), Monitor::default());
        let kind = K::kind(&dyntype).into_owned();
        let (main, run) = informer(ApiSource::new(api, config), kind, &watch_errors, &monitor);
        Self { informers: vec![run], watch_errors, monitor, ..Self::for_shared_with(&main, dyntype) }
    }
}

impl<K> Controller<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Creates a controller of the objects of an existing informer, for example an informer that is shared with other code, that has indexes, or
    /// whose source is a [`StreamSource`](crate::StreamSource). The informer runs and ends independently of the controller.
    ///
    /// # Examples
    /// Informers that the program also reads:
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// use flyball_kube::{Action, Controller, informer};
    /// use futures_util::StreamExt;
    /// use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
    /// use kube::runtime::{reflector::ObjectRef, watcher};
    /// use kube::{Api, ResourceExt};
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = ApiServer::new();
    /// # server.register::<ConfigMap>().register::<Pod>().register::<Secret>();
    /// # let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "settings"}}))?;
    /// # server.put(&map);
    /// # let client = server.client();
    /// let config = watcher::Config::default();
    /// let maps = informer(Api::<ConfigMap>::all(client.clone()), config.clone()).start()?;
    /// let pods = informer(Api::<Pod>::all(client.clone()), config.clone()).start()?;
    /// let secrets = informer(Api::<Secret>::all(client), config).start()?;
    ///
    /// let map_of_secret = |secret: &Arc<Secret>| {
    ///     Some(ObjectRef::new(secret.labels().get("map")?).within(&secret.namespace()?))
    /// };
    /// let mut reconciles = Controller::for_shared(&maps)
    ///     .owns_shared(&pods)
    ///     .watches_shared(&secrets, map_of_secret)
    ///     .run(
    ///         |_, _| async { Ok::<_, kube::Error>(Action::await_change()) },
    ///         |_, _, _| Action::await_change(),
    ///         Arc::new(()),
    ///     );
    ///
    /// let (settings, _) = reconciles.next().await.expect("the stream ends only at a shutdown")?;
    /// assert_eq!(settings.name, "settings");
    /// assert_eq!(maps.store().len(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_shared(informer: &Informer<NamespacedName, K>) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_shared_with(informer, K::DynamicType::default())
    }

    /// Like [`for_shared`](Self::for_shared), for a kind that is known at run time.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::{Controller, informer};
    /// use kube::api::{Api, ApiResource, DynamicObject};
    /// use kube::{Client, runtime::watcher};
    ///
    /// fn controller_of(kind: ApiResource, client: Client) -> Result<Controller<DynamicObject>, Box<dyn std::error::Error>> {
    ///     let api = Api::<DynamicObject>::all_with(client, &kind);
    ///     let objects = informer(api, watcher::Config::default()).start()?;
    ///     Ok(Controller::for_shared_with(&objects, kind))
    /// }
    /// ```
    pub fn for_shared_with(informer: &Informer<NamespacedName, K>, dyntype: K::DynamicType) -> Self {
        let mut controller = Self::over(Objects::of_informer(informer, dyntype.clone()), dyntype);
        controller.own = Some(trigger::own(informer, |_| true));
        controller
    }

    /// Creates a controller of the objects `main`, without any triggers.
    fn over(main: Objects<K>, dyntype: K::DynamicType) -> Self {
        if let Objects::Kube { dyntype: known, .. } = &main {
            let _ = known.set(dyntype.clone());
        }
        Self {
            main,
            dyntype,
            config: Config::default(),
            own: None,
            triggers: Vec::new(),
            required: Vec::new(),
            streams: Vec::new(),
            informers: Vec::new(),
            watch_errors: WatchErrors::default(),
            backoff: None,
            shutdown: ShutdownSignals::default(),
            leadership: None,
            monitor: Monitor::default(),
        }
    }

    /// Returns a handle of the store that the controller reads. The store is filled while the controller runs. [`to_kube`](ControllerStore::to_kube)
    /// returns the same store for all handles.
    #[must_use]
    pub fn store(&self) -> ControllerStore<K> {
        ControllerStore::new(self.main.clone())
    }
}

/// The configuration of the controller.
impl<K> Controller<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    /// Replaces the configuration with a [`Config`], or with kube-runtime's configuration. Because of this choice, the compiler cannot infer the type of
    /// `Default::default()`: omit this call, or name the type.
    pub fn with_config(mut self, config: impl Into<Config>) -> Self {
        self.config = config.into();
        self
    }

    /// Returns a monitor that reports the state of the controller while it runs, for probes and debug views.
    #[must_use]
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }
}

impl<K> Debug for Controller<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Controller")
            .field("main", &self.main)
            .field("config", &self.config)
            .field("triggers", &self.triggers.len())
            .field("streams", &self.streams.len())
            .finish_non_exhaustive()
    }
}

/// Waits until an informer has synced.
pub(crate) fn until_synced<V: Send + Sync + 'static>(
    informer: &Informer<NamespacedName, V>,
) -> BoxFuture<'static, Result<(), Stopped>> {
    let informer = informer.clone();
    Box::pin(async move { informer.synced().await })
}
