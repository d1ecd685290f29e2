//! EDGE. The state of a controller, for code outside the controller.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flyball_controller::{Health, NotLive, NotReady};
use flyball_workqueue::QueueStats;

use crate::UnreadableCounter;
use crate::controller::CacheStatus;
use crate::controller::caches::Caches;
use crate::controller::reconcile_reasons::{Reasons, ReconcileInFlight};
use crate::controller::trigger::{Keys, OrderedLoop};

/// Reports the state of a controller, for probes and debug views. [`Controller::monitor`](crate::Controller::monitor) creates it before the
/// controller runs. Until then, the monitor reports that the controller is alive and not ready. Cloning increments a reference count.
///
/// # Examples
/// ```
/// # use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
/// use flyball_kube::{Action, CacheStatus, Controller, WatchFailure};
/// use futures_util::StreamExt;
/// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
/// use kube::{Api, core::Status, runtime::watcher};
/// use std::sync::Arc;
/// use std::time::Duration;
///
/// fn line(cache: &CacheStatus) -> String {
///     let CacheStatus { kind, synced, failures, .. } = cache;
///     match &cache.failure {
///         Some(WatchFailure { request, message, .. }) => format!("{kind}: {request} fails: {message}"),
///         None => format!("{kind}: synced: {synced}, {failures} failures"),
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = ApiServer::new();
/// # server.register::<ConfigMap>().register::<Secret>();
/// # let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "settings"}}))?;
/// # server.put(&map);
/// # let forbidden = Status::failure("secrets is forbidden", "Forbidden").with_code(403);
/// # server.fail_next(RequestMatcher::verb(Verb::List).resource::<Secret>(), 100, forbidden);
/// # let client = server.client();
/// let config = watcher::Config::default();
/// let controller = Controller::new(Api::<ConfigMap>::all(client.clone()), config.clone())
///     .owns(Api::<Secret>::all(client), config); // which the server does not let it list
/// let monitor = controller.monitor();
/// assert!(monitor.ready().is_err() && monitor.stats().is_none());
///
/// let mut reconciles = controller.run(
///     |_, _| async { Ok::<_, kube::Error>(Action::await_change()) },
///     |_, _, _| Action::await_change(),
///     Arc::new(()),
/// );
/// // One object was reconciled, and one list failed, in any order.
/// let _ = (reconciles.next().await, reconciles.next().await);
///
/// monitor.ready()?;
/// monitor.live(Duration::from_secs(600))?;
/// assert_eq!(monitor.stats().expect("the controller runs").ready, 0);
/// assert_eq!(monitor.unreadable_count(), 0);
/// let [maps, secrets] = &monitor.caches()[..] else { panic!("two caches") };
/// assert_eq!(line(maps), "ConfigMap: synced: true, 0 failures");
/// assert!(line(secrets).starts_with("Secret: list fails: "));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
pub struct Monitor {
    /// The running controller; set when the run starts.
    watched: Arc<OnceLock<Watched>>,
    unreadable: UnreadableCounter,
    caches: Caches,
    reasons: Arc<Reasons>,
}

struct Watched {
    health: Health,
    stats: Box<dyn Fn() -> QueueStats + Send + Sync>,
}

impl Monitor {
    pub(crate) fn watch<O: OrderedLoop>(&self, queue: &Keys<O>, health: Health) {
        let queue = queue.clone();
        let watched = Watched { health, stats: Box::new(move || queue.stats()) };
        // `set` cannot fail, because a controller runs once.
        let _ = self.watched.set(watched);
    }

    /// Returns `Ok` if the caches that the controller [waits for](crate::Config::wait_for_all_caches) have synced, no cache has ended and the
    /// controller is not shutting down: it reconciles, or waits to become the [leader](crate::Controller::with_leadership). While it waits to become
    /// the leader, it is ready only when all of its caches have synced. [`caches`](Self::caches) also reports the caches that the controller does not
    /// wait for.
    ///
    /// # Errors
    /// Returns the reason why the controller is not ready.
    pub fn ready(&self) -> Result<(), NotReady> {
        self.watched.get().map_or(Err(NotReady::NotStarted), |watched| watched.health.ready())
    }

    /// Returns `Ok` if the controller can make progress: no reconcile has been running for longer than `longest`, no cache has ended, and the run is
    /// not over.
    ///
    /// # Errors
    /// Returns the reason why the controller is not alive.
    pub fn live(&self, longest: Duration) -> Result<(), NotLive> {
        self.watched.get().map_or(Ok(()), |watched| watched.health.live(longest))
    }

    /// Returns the statistics of the queue: how many objects are ready, delayed and being reconciled, how long the oldest ready object has been
    /// ready, and how long the oldest running reconcile has been running. Returns `None` before the controller runs.
    #[must_use]
    pub fn stats(&self) -> Option<QueueStats> {
        self.watched.get().map(|watched| (watched.stats)())
    }

    /// Returns the running reconciles with their reasons, the longest-running first. For debug views.
    ///
    /// The first call of this method turns on the recording of reasons. Before that, reasons are recorded only while a `tracing` subscriber enables
    /// the span of reconciles. A reconcile has the reason "unknown" if its key was queued before the recording began; it is not listed if it started
    /// before the recording began.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::{Monitor, ReconcileInFlight};
    /// use std::time::Duration;
    ///
    /// fn slow(monitor: &Monitor) -> Vec<ReconcileInFlight> {
    ///     let mut all = monitor.in_flight();
    ///     all.retain(|reconcile| reconcile.running_for > Duration::from_secs(60));
    ///     all
    /// }
    ///
    /// # fn example(monitor: &Monitor) {
    /// for reconcile in slow(monitor) {
    ///     println!("{}: {}, for {:?}", reconcile.object, reconcile.reason, reconcile.running_for);
    /// }
    /// # }
    /// ```
    #[must_use]
    pub fn in_flight(&self) -> Vec<ReconcileInFlight> {
        self.reasons.in_flight()
    }

    /// Returns how many objects the controller's own caches could not decode so far; see [`ApiSource`](crate::ApiSource). The same object is counted
    /// again each time that it is listed, and at each of its watch events.
    #[must_use]
    pub fn unreadable_count(&self) -> u64 {
        self.unreadable.get()
    }

    /// Returns the status of each of the controller's own caches: whether it has synced, whether its lists or watches fail, and why. The cache of the
    /// reconciled objects is the first, if the controller owns it. Kinds that the controller has no permission to list are included.
    #[must_use]
    pub fn caches(&self) -> Vec<CacheStatus> {
        self.caches.states()
    }

    pub(crate) const fn reasons(&self) -> &Arc<Reasons> {
        &self.reasons
    }

    pub(crate) const fn own_caches(&self) -> &Caches {
        &self.caches
    }

    /// Returns the counter that the controller's own caches use.
    pub(crate) const fn unreadable_counter(&self) -> &UnreadableCounter {
        &self.unreadable
    }
}

impl fmt::Debug for Monitor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Monitor").field("ready", &self.ready()).field("stats", &self.stats()).finish()
    }
}
