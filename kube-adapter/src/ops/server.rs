//! EDGE. What can be asked, put together.
//!
//! Cancel safety: see [`Server::serve`].

use std::fmt::{self, Display};
use std::future::Future;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::Health;
use flyball_informer_cache::Informer;
use flyball_workqueue::{Ages, Counts};
use prometheus_client::registry::Registry;
use serde_json::Value;
use tokio::net::TcpListener;

use super::answer::{Asked, Debugged};
use super::check::Checks;
use super::figures::{Cache, Figures, Known};
use super::serve::{Limits, serve};
use crate::leader::Standing;
use crate::{Monitor, Throttle};

/// Answers what a process in production is asked over HTTP, from handles that are registered by name.
///
/// | | |
/// |---|---|
/// | `/metrics` | the [registry](Self::registry) and what is registered here, in OpenMetrics text |
/// | `/healthz`, `/livez` | the live checks: 200, or 503 and a line for each that fails; `?verbose` lists all |
/// | `/readyz` | the ready checks, in the same way |
/// | `/debug` | everything registered, as JSON |
///
/// Everything is read at the moment it is asked for. Checks must not block; one that panics has failed. HTTP/1.1, `GET` and `HEAD`: 405 for other methods, 404 for other
/// paths. At most 64 connections at a time. One more closes another: of the peer that has most of them, the one whose last request is the oldest. So no probe waits for
/// connections that are idle or slow. Each connection has 10 seconds for the head of a request, and ends after a minute. There is no
/// TLS and no authentication: that is for what is in front of it, as for the probes of a kubelet.
///
/// # Metrics
/// Label `name`, as it was registered.
///
/// | of | |
/// |---|---|
/// | informers | `informer_objects`, `informer_synced`, `informer_over`, `informer_version`, `informer_relists_total`, `informer_watch_restarts_total` |
/// | controllers of this crate | `controller_objects_skipped_total`, `controller_watch_failures_total`, `controller_caches_failing`, `controller_caches_unfilled`, `controller_reconciles_in_flight` |
/// | throttles | `client_throttle_requests_total`, `client_throttle_delayed_total`, `client_throttle_wait_seconds_total`, `client_throttle_waiting` |
/// | elections | `leader_election_master_status` (client-go's name), `leader_election_terms_total` |
/// | queues | client-go's names, by `flyball_ops::PrometheusQueues` in the registry |
///
/// # Examples
/// ```
/// use flyball_kube::ops::Server;
/// use prometheus_client::registry::Registry;
/// use tokio::net::TcpListener;
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// let server = Server::new()
///     .registry(Registry::default())
///     .live("disk", || Ok::<_, &str>(()))
///     .ready("warm", || Err("still cold"));
/// let listener = TcpListener::bind("127.0.0.1:0").await?; // in a pod "[::]:8080"
/// # let shutdown = std::future::ready(());
/// server.serve(listener, shutdown).await
/// # }
/// ```
#[derive(Default)]
#[must_use]
pub struct Server {
    registry: Registry,
    live: Checks,
    ready: Checks,
    debug: Vec<(&'static str, String, Debugged)>,
    known: Known,
    limits: Limits,
}

// === impl Server ===

impl Server {
    /// One that knows nothing yet: it is alive and ready.
    pub fn new() -> Self {
        Self::default()
    }

    /// What the program measures itself: queues by `flyball_ops::PrometheusQueues`, for one.
    pub fn registry(mut self, registry: Registry) -> Self {
        self.registry = registry;
        self
    }

    /// A check of `/healthz`: a process that fails it is beyond hope, and will be started anew.
    pub fn live<E: Display>(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.live.add(name, check);
        self
    }

    /// A check of `/readyz`: a process that fails it is not done with its preparations, or ends.
    pub fn ready<E: Display>(
        mut self,
        name: &str,
        check: impl Fn() -> Result<(), E> + Send + Sync + 'static,
    ) -> Self {
        self.ready.add(name, check);
        self
    }

    /// A part of `/debug`, under `custom`.
    pub fn debug(mut self, name: &str, view: impl Fn() -> Value + Send + Sync + 'static) -> Self {
        self.debug.push(("custom", name.to_owned(), Box::new(view)));
        self
    }

    /// An informer: ready once it has synced, alive until it has failed; its figures, and how it fares.
    pub fn informer<K, V>(mut self, name: &str, informer: &Informer<K, V>) -> Self
    where
        K: Clone + Eq + Hash + Send + Sync + 'static,
        V: Send + Sync + 'static,
    {
        let handle = || informer.clone();
        let (status, len, synced) = (handle(), handle(), handle());
        let cache = Cache {
            status: Box::new(move || status.status()),
            len: Box::new(move || len.store().len()),
            synced: Box::new(move || synced.is_synced()),
        };
        self.known.caches.push((name.to_owned(), cache));
        let (ready, live) = (handle(), handle());
        self.ready(name, move || if ready.is_synced() { Ok(()) } else { Err("the cache has not synced") })
            .live(name, move || if live.is_over() { Err("the cache has ended") } else { Ok(()) })
    }

    /// A queue, for `/debug`: `move || (queue.counts(), queue.ages())`.
    pub fn queue(
        mut self,
        name: &str,
        look: impl Fn() -> (Counts, Option<Ages>) + Send + Sync + 'static,
    ) -> Self {
        self.debug.push((
            "queues",
            name.to_owned(),
            Box::new(move || {
                let (counts, ages) = look();
                super::answer::queue(Some(counts), ages)
            }),
        ));
        self
    }

    /// A controller of this crate: ready while it works, alive unless an object has been worked on for longer than `longest`; its queue, and how many
    /// objects it could not read.
    pub fn controller(mut self, name: &str, monitor: &Monitor, longest: Duration) -> Self {
        let view = monitor.clone();
        self.debug.push((
            "queues",
            name.to_owned(),
            Box::new(move || super::answer::queue(view.counts(), view.ages())),
        ));
        self.known.controllers.push((name.to_owned(), monitor.clone()));
        let (ready, live) = (monitor.clone(), monitor.clone());
        self.ready(name, move || ready.ready()).live(name, move || live.live(longest))
    }

    /// A controller of [`flyball_controller`]: ready while it works, alive unless a key has been worked on for longer than `longest`.
    pub fn health(self, name: &str, health: &Health, longest: Duration) -> Self {
        let (ready, live) = (health.clone(), health.clone());
        self.ready(name, move || ready.ready()).live(name, move || live.live(longest))
    }

    /// A client's quota: its figures.
    pub fn throttle(mut self, name: &str, throttle: &Throttle) -> Self {
        self.known.throttles.push((name.to_owned(), throttle.clone()));
        self
    }

    /// An election: alive unless its work goes on when others may lead; its figures, and who leads. It has no part in being ready: a candidate that
    /// does not lead is.
    pub fn election(mut self, name: &str, standing: &Standing) -> Self {
        self.known.elections.push((name.to_owned(), standing.clone()));
        let standing = standing.clone();
        self.live(name, move || standing.live(Duration::from_secs(5)))
    }

    /// How long the head of a request may take, for tests.
    #[doc(hidden)]
    pub fn head_timeout(mut self, limit: Duration) -> Self {
        self.limits.head = limit;
        self
    }

    /// How many connections there may be, for tests.
    #[doc(hidden)]
    pub fn connections(mut self, most: usize) -> Self {
        self.limits.connections = most;
        self
    }

    /// Serves until `shutdown` is done; then no connection is accepted, and those that there are have five seconds to end.
    ///
    /// # Errors
    /// Never for one connection; what the listener says when it cannot accept any more is logged, and tried again.
    ///
    /// # Cancel safety
    /// Dropping the future closes all connections.
    pub async fn serve(
        self,
        listener: TcpListener,
        shutdown: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let Self { mut registry, live, ready, debug, known, limits } = self;
        let known = Arc::new(known);
        registry.register_collector(Box::new(Figures(known.clone())));
        let asked = Asked { registry, live, ready, debug, known };
        serve(listener, Arc::new(asked), limits, shutdown).await;
        Ok(())
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("registry", &self.registry).finish_non_exhaustive()
    }
}
