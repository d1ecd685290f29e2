//! EDGE. The server, with the methods that register its sources and the method that serves them.
//!
//! Cancel safety: see [`OpsServer::serve`].

use std::fmt::{self, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::Health;
use flyball_informer_cache::Informer;
use flyball_workqueue::{Key, Order, Queue, QueueLimiter, Timer};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::net::TcpListener;

use super::checks::Checks;
use super::debug_view::{self, DebugView};
use super::endpoints::Endpoints;
use super::gauges::{InformerGauges, InformerView};
#[cfg(feature = "kube")]
use super::kube_gauges::KubeGauges;
use super::serve::{Limits, serve};

/// Serves metrics, probes and a debug view over HTTP, from handles that are registered by name.
///
/// | path | response |
/// |---|---|
/// | `/metrics` | the metrics of the [registry](Self::registry) and the metrics below, as OpenMetrics text |
/// | `/healthz`, `/livez` | the liveness checks: 200, or 503 with a line for each failed check; `?verbose` lists all checks |
/// | `/readyz` | the readiness checks, in the same way |
/// | `/debug` | all registered handles, as JSON |
///
/// Nothing is cached: every request reads the handles or runs the checks for its path. Checks must not block; a check that panics counts as failed.
/// The server supports HTTP/1.1 and the methods `GET` and `HEAD`; it answers other methods with 405 and other paths with 404. It has no TLS and no
/// authentication, and the probes of a kubelet need neither. If you need TLS or authentication, put a proxy in front of the server.
///
/// At most 64 connections are open ([`max_connections`](Self::max_connections)). When a further connection arrives, the server closes the least
/// recently used connection of the peer with the most connections, so no probe waits for idle or slow connections. The server closes a connection
/// that takes more than 10 seconds to send the header of a request ([`header_timeout`](Self::header_timeout)), and closes every connection after one
/// minute.
///
/// # Metrics
/// All metrics have the label `name`. Its value is the name under which the handle was registered.
///
/// | source | names |
/// |---|---|
/// | informers | `informer_objects`, `informer_synced`, `informer_over`, `informer_version`, `informer_relists_total`, `informer_withheld_deletions`, `informer_watch_restarts_total` |
/// | controllers of flyball-kube | `controller_objects_skipped_total`, `controller_watch_failures_total`, `controller_caches_failing`, `controller_caches_unfilled`, `controller_reconciles_in_flight` |
/// | throttles of flyball-kube | `client_throttle_requests_total`, `client_throttle_delayed_total`, `client_throttle_wait_seconds_total`, `client_throttle_waiting` |
/// | elections of flyball-kube-lease | `leader_election_master_status` (client-go's name), `leader_election_terms_total` |
///
/// The metrics of queues and controllers are not in this table: queues report to [`PrometheusQueues`](crate::PrometheusQueues) and controllers report
/// to [`PrometheusControllers`](crate::PrometheusControllers), which you add to the registry.
///
/// # Examples
/// ```
/// use flyball_ops::{OpsServer, PrometheusQueues};
/// use prometheus_client::registry::Registry;
/// use tokio::net::TcpListener;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(PrometheusQueues::new()));
/// let server = OpsServer::new()
///     .registry(registry)
///     .liveness_check("disk", || Ok::<_, &str>(()))
///     .readiness_check("warm", || Err("still cold"));
/// let listener = TcpListener::bind("127.0.0.1:0").await?; // in a pod "[::]:8080"
/// # let shutdown = std::future::ready(());
/// server.serve(listener, shutdown).await
/// # }
/// ```
#[derive(Default)]
#[must_use]
pub struct OpsServer {
    registry: Registry,
    liveness: Checks,
    readiness: Checks,
    pub(super) debug: DebugView,
    informers: InformerGauges,
    #[cfg(feature = "kube")]
    pub(super) kube: KubeGauges,
    limits: Limits,
}

impl OpsServer {
    /// Creates a server without checks. Until a check is added, the server reports that the process is alive and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// Serves this registry on `/metrics`, for example a registry with [`PrometheusQueues`](crate::PrometheusQueues).
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// Adds a check to `/healthz` and `/livez`. The check should fail only if a restart of the process helps.
    pub fn liveness_check<E: Display>(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.liveness.add(name, check);
        self
    }

    /// Adds a check to `/readyz`. The check should fail while the process starts, and while it shuts down.
    pub fn readiness_check<E: Display>(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.readiness.add(name, check);
        self
    }

    /// Adds a section to `/debug`, under `custom`.
    pub fn debug_section(mut self, name: &str, view: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        self.debug.add("custom", name, view);
        self
    }

    /// Adds an informer: its metrics, a section of `/debug` under `caches`, a readiness check that fails until the
    /// informer has synced, and a liveness check that fails once the informer has ended.
    pub fn informer<K, V>(mut self, name: &str, informer: &Informer<K, V>) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let view: Arc<dyn InformerView> = Arc::new(informer.clone());
        self.informers.0.push((name.to_owned(), view.clone()));
        let shown = view.clone();
        self.debug.add("caches", name, move || {
            debug_view::informer(&shown.status(), shown.is_synced(), shown.objects())
        });
        let ready = view.clone();
        self.readiness_check(
            name,
            move || {
                if ready.is_synced() { Ok(()) } else { Err("the cache has not synced") }
            },
        )
        .liveness_check(name, move || if view.is_stopped() { Err("the cache has ended") } else { Ok(()) })
    }

    /// Adds a queue to `/debug`, under `queues`: the number of keys in each state, the age of the oldest Ready key, and the age of the
    /// oldest lease. The server does not keep the queue alive; a dropped queue is shown as `null`.
    ///
    /// Ages are shown only if the queue [tracks](Queue::track_ages) them. To export the metrics of the queue, build the
    /// queue with a sink from [`PrometheusQueues`](crate::PrometheusQueues).
    pub fn queue<K, O, L, T>(mut self, name: &str, queue: &Queue<K, O, L, T>) -> Self
    where
        K: Key,
        O: Order<K>,
        L: QueueLimiter<K>,
        T: Timer,
    {
        let reader = queue.stats_reader();
        self.debug.add("queues", name, move || debug_view::queue(reader.read()));
        self
    }

    /// Adds the readiness check [`Health::ready`] and the liveness check [`Health::live`] of a controller.
    ///
    /// The liveness check fails if a key has been leased for longer than `max_lease`, or if the controller or one of its caches has ended.
    pub fn controller(self, name: &str, health: &Health, max_lease: Duration) -> Self {
        let (ready, live) = (health.clone(), health.clone());
        self.readiness_check(name, move || ready.ready()).liveness_check(name, move || live.live(max_lease))
    }

    /// Sets how long a connection may take to send the header of a request before it is closed. The default is 10 seconds.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.limits.header_timeout = timeout;
        self
    }

    /// Sets the maximum number of open connections. The default is 64; 0 is treated as 1.
    pub fn max_connections(mut self, max: usize) -> Self {
        self.limits.max_connections = max;
        self
    }

    /// Serves until `shutdown` completes. Then the server accepts no further connections and gives open connections five seconds to end.
    ///
    /// # Errors
    /// At present, no error is returned. An error on a connection ends only that connection. If `listener` returns an error, the server logs it and
    /// tries to accept again.
    ///
    /// # Cancel safety
    /// Dropping the future closes all connections.
    ///
    /// # Examples
    /// The responses to a kubelet:
    /// ```
    /// use flyball_informer_cache::testing::TestServer;
    /// use flyball_informer_cache::{Informer, Schema, Version};
    /// use flyball_ops::OpsServer;
    /// use std::time::Duration;
    /// use tokio::io::{AsyncReadExt, AsyncWriteExt};
    /// use tokio::net::{TcpListener, TcpStream};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
    /// let numbers = Informer::builder(NUMBERS, TestServer::new(NUMBERS, |_, _, _| {})).start()?;
    /// let server = OpsServer::new()
    ///     .informer("numbers", &numbers)
    ///     .debug_section("build", || serde_json::json!({"revision": "4f25a4a"}))
    ///     .header_timeout(Duration::from_secs(5))
    ///     .max_connections(16);
    /// let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// let address = listener.local_addr()?;
    /// let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    /// let serving = tokio::spawn(server.serve(listener, async { drop(stopped.await) }));
    ///
    /// numbers.synced().await?;
    /// for (path, expected) in [("/readyz", "200 OK"), ("/debug", "4f25a4a"), ("/elsewhere", "404 Not Found")] {
    ///     let mut connection = TcpStream::connect(address).await?;
    ///     let request = format!("GET {path} HTTP/1.1\r\nHost: pod\r\nConnection: close\r\n\r\n");
    ///     connection.write_all(request.as_bytes()).await?;
    ///     let mut answer = String::new();
    ///     connection.read_to_string(&mut answer).await?;
    ///     assert!(answer.contains(expected), "{answer}");
    /// }
    /// drop(stop);
    /// serving.await??;
    /// # Ok(())
    /// # }
    /// ```
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let mut registry = self.registry;
        registry.register_collector(Box::new(self.informers));
        #[cfg(feature = "kube")]
        registry.register_collector(Box::new(self.kube));
        let endpoints =
            Endpoints { registry, liveness: self.liveness, readiness: self.readiness, debug: self.debug };
        serve(listener, Arc::new(endpoints), self.limits, shutdown).await;
        Ok(())
    }
}

impl fmt::Debug for OpsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpsServer").field("registry", &self.registry).finish_non_exhaustive()
    }
}
