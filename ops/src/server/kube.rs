//! EDGE. The part of the server for flyball-kube: its controllers, client quotas and leader elections.
//!
//! Cancel safety: nothing here waits.

use std::time::Duration;

use flyball_kube::{CacheStatus, Monitor, ReconcileInFlight, ThrottleLayer};
use flyball_kube_lease::LeaderStatus;
use serde_json::{Value, json};

use super::debug_view::{self, seconds};
use super::ops_server::OpsServer;

/// How long the work of a leader may continue after its lease has expired, before the liveness check fails.
const ELECTION_TOLERANCE: Duration = Duration::from_secs(5);

impl OpsServer {
    /// Adds a controller of flyball-kube: its metrics, and in `/debug` its queue under `queues`, the list of its own caches under `caches`, and its
    /// running reconciles with their reasons under `reconciles`. Unless a `tracing` subscriber enables the span of reconciles, reasons are recorded
    /// only after the first request of `/debug`; see [`Monitor::in_flight`].
    ///
    /// The readiness check is [`Monitor::ready`]. The liveness check is [`Monitor::live`], which fails if an object has been reconciled for
    /// longer than `max_lease`.
    ///
    /// This method does not add the metrics of the queue (`workqueue_…`) and of the reconciles (`controller_runtime_…`). To export them, pass a
    /// [`PrometheusQueues`](crate::PrometheusQueues) to [`Config::queue_metrics`](flyball_kube::Config::queue_metrics) and a
    /// [`PrometheusControllers`](crate::PrometheusControllers) to
    /// [`Config::controller_metrics`](flyball_kube::Config::controller_metrics), and their registry to [`registry`](Self::registry).
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::{Controller, ThrottleLayer};
    /// use flyball_kube_lease::Election;
    /// use flyball_ops::OpsServer;
    /// use flyball_ratelimit::Quota;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, client::ClientBuilder, runtime::watcher};
    /// use std::time::Duration;
    /// # use flyball_kube_testing::ApiServer;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let cluster = ApiServer::new();
    /// # cluster.register::<ConfigMap>();
    /// let throttle = ThrottleLayer::new(Quota::per_second(50.try_into()?));
    /// // In a program: `throttle.client(Config::infer().await?)?`.
    /// let client = ClientBuilder::new(cluster.clone(), "default").with_layer(&throttle).build();
    /// let election = Election::builder(client.clone(), "default", "example", "a").build()?;
    /// let controller = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default());
    /// let server = OpsServer::new()
    ///     .kube_controller("configmaps", &controller.monitor(), Duration::from_secs(600))
    ///     .throttle("api", &throttle)
    ///     .election("example", &election.status());
    /// # drop(server);
    /// # Ok(())
    /// # }
    /// ```
    pub fn kube_controller(mut self, name: &str, monitor: &Monitor, max_lease: Duration) -> Self {
        self.kube.controllers.push((name.to_owned(), monitor.clone()));
        let (shown, ready, live) = (monitor.clone(), monitor.clone(), monitor.clone());
        self.debug.add("queues", name, move || debug_view::queue(shown.stats()));
        let caches = monitor.clone();
        self.debug.add("caches", name, move || caches.caches().iter().map(cache).collect());
        let running = monitor.clone();
        self.debug.add("reconciles", name, move || reconciles(&running.in_flight()));
        self.readiness_check(name, move || ready.ready()).liveness_check(name, move || live.live(max_lease))
    }

    /// Adds the quota of a client: its metrics, and a section of `/debug` under `throttles`.
    pub fn throttle(mut self, name: &str, throttle: &ThrottleLayer) -> Self {
        self.kube.throttles.push((name.to_owned(), throttle.clone()));
        let throttle = throttle.clone();
        self.debug.add("throttles", name, move || {
            let (stats, quota) = (throttle.stats(), throttle.quota());
            json!({
                "tokens": quota.tokens(),
                "periodSeconds": seconds(quota.period()),
                "burst": quota.burst_size(),
                "waiting": throttle.waiters(),
                "requests": stats.requests,
                "delayed": stats.delayed,
                "waitedSeconds": seconds(stats.total_wait),
                "longestWaitSeconds": seconds(stats.longest_wait),
            })
        });
        self
    }

    /// Adds a leader election: its metrics, a section of `/debug` under `elections`, and a liveness check. The check
    /// fails if the leader's work continues for more than 5 seconds after the lease has expired. There is no readiness
    /// check, because a candidate that does not lead is ready, too.
    pub fn election(mut self, name: &str, status: &LeaderStatus) -> Self {
        self.kube.elections.push((name.to_owned(), status.clone()));
        let shown = status.clone();
        self.debug.add("elections", name, move || {
            json!({
                "leads": shown.is_leader(),
                "leader": shown.leader().as_deref(),
                "terms": shown.times_elected(),
                "renewedSecondsAgo": shown.since_last_renewal().map(seconds),
                "lastError": shown.last_error().as_deref(),
            })
        });
        let status = status.clone();
        self.liveness_check(name, move || status.live(ELECTION_TOLERANCE))
    }
}

fn cache(cache: &CacheStatus) -> Value {
    let informer = cache.informer.as_ref();
    let mut shown = match informer {
        Some(status) => debug_view::informer(status, cache.synced, cache.objects),
        None => json!({"synced": cache.synced}),
    };
    shown["kind"] = json!(cache.kind);
    shown["failures"] = json!(cache.failures);
    // This failure is shown until the cache is up to date again, unlike the error in the status of the informer.
    if let Some(failure) = &cache.failure {
        shown["lastError"] = json!(failure.message);
        shown["failingSeconds"] = json!(seconds(failure.failing_for));
    }
    shown
}

fn reconciles(running: &[ReconcileInFlight]) -> Value {
    let shown = |reconcile: &ReconcileInFlight| {
        json!({
            "object": reconcile.object.as_str(),
            "reason": reconcile.reason,
            "reasons": reconcile.reasons,
            "runningSeconds": seconds(reconcile.running_for),
        })
    };
    running.iter().map(shown).collect()
}
