//! EDGE. The shutdown of a controller: graceful, and immediate.
//!
//! Cancel safety: dropping the stream of results drops the signals, which are awaited only while the controller runs.

use std::hash::Hash;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, select_all};
use kube::Resource;

use super::Controller;
use flyball_kube_lease::Leadership;

/// The signals that shut a controller down. One signal of either list suffices.
#[derive(Default)]
pub(crate) struct ShutdownSignals {
    pub(crate) graceful: Vec<BoxFuture<'static, ()>>,
    pub(crate) forceful: Vec<BoxFuture<'static, ()>>,
}

/// Returns a future that completes when the first of the signals completes. It never completes if there is no signal.
pub(crate) fn any(signals: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'static, ()> {
    match signals.is_empty() {
        true => pending().boxed(),
        false => select_all(signals).map(|_| ()).boxed(),
    }
}

/// Settings for shutdown.
impl<K> Controller<K>
where
    K: Resource + 'static,
    K::DynamicType: Eq + Hash,
{
    /// Shuts down gracefully when `signal`, or any other signal that was added, completes. As in kube-runtime, changes
    /// then add no keys, reconciles in flight run to their end, and queued objects are not reconciled.
    ///
    /// [`Config::shutdown_grace`](crate::Config::shutdown_grace) limits how long the reconciles in flight may run. With
    /// [`Config::drain_on_shutdown`](crate::Config::drain_on_shutdown) queued objects are reconciled, too.
    pub fn graceful_shutdown_on(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown.graceful.push(signal.boxed());
        self
    }

    /// Stops immediately when `signal` completes: running reconciles are dropped at an await point. The stream ends when all of them are dropped, so in
    /// the work of an election, no reconcile runs after the lease has been released. A reconcile that blocks its thread delays the end.
    ///
    /// # Examples
    /// Reconciles may continue for at most an hour after a graceful shutdown begins:
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// use flyball_kube::{Action, Controller};
    /// use futures_util::StreamExt;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, runtime::watcher};
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tokio::time::{Instant, sleep};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = ApiServer::new();
    /// # server.register::<ConfigMap>();
    /// # let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "settings"}}))?;
    /// # server.put(&map);
    /// # let client = server.client();
    /// let began = Instant::now();
    /// let reconciles = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
    ///     .graceful_shutdown_on(sleep(Duration::from_secs(60)))
    ///     .forceful_shutdown_on(sleep(Duration::from_secs(3660)))
    ///     .run(
    ///         |_, _| async { std::future::pending::<Result<Action, kube::Error>>().await },
    ///         |_, _, _| Action::await_change(),
    ///         Arc::new(()),
    ///     );
    /// assert_eq!(reconciles.count().await, 0);
    /// assert_eq!(began.elapsed().as_secs(), 3660);
    /// # Ok(())
    /// # }
    /// ```
    pub fn forceful_shutdown_on(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.shutdown.forceful.push(signal.boxed());
        self
    }

    /// Reconciles only while this process is the leader. The caches sync without waiting for the election, and the controller is
    /// [ready](crate::Monitor::ready) once they have synced. When this process is elected, all objects are reconciled, except those whose addition
    /// [`filter_changes`](Self::filter_changes) rejects; when the election is stopped, or the leadership is lost, the controller [shuts
    /// down](Self::graceful_shutdown_on). No reconcile starts after the [renew deadline](flyball_kube_lease::ElectionBuilder::renew_deadline) of the
    /// lease, even if objects are queued.
    ///
    /// The clock is read immediately before each poll of a reconcile. Once the term and the [stop
    /// grace](flyball_kube_lease::ElectionBuilder::stop_grace) are over, the reconcile is dropped instead, and has no result in the stream. So a process
    /// that was stopped (SIGSTOP, a frozen container) while another process became the leader continues no reconcile.
    /// [What a lease cannot prevent](flyball_kube_lease#what-a-lease-cannot-prevent) lists the rest.
    ///
    /// Call this method in the work function of [`Election::run`](flyball_kube_lease::Election::run), with a
    /// [standby](flyball_kube_lease::ElectionBuilder::standby) or without. Requests of [`reconcile_on`](Self::reconcile_on), and the items of other streams, that arrive before this process is
    /// elected are kept, deduplicated, and reconciled after the election. If this method is called again, the new `leadership` replaces the earlier
    /// one.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::{Action, Controller};
    /// # use futures_util::StreamExt;
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # use kube::{Api, Client, runtime::watcher};
    /// # use std::sync::Arc;
    /// use flyball_kube_lease::{Election, unique_identity};
    ///
    /// # async fn sigterm() {}
    /// # async fn reconcile(_: Arc<ConfigMap>, _: Arc<()>) -> Result<Action, kube::Error> { Ok(Action::await_change()) }
    /// # fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<()>) -> Action { Action::await_change() }
    /// # async fn example(client: Client) -> Result<(), Box<dyn std::error::Error>> {
    /// let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
    /// let election = Election::builder(client.clone(), "kube-system", "my-controller", identity);
    /// let outcome = election
    ///     .standby(true)
    ///     .build()?
    ///     .run(sigterm(), async |leadership| {
    ///         Controller::new(Api::<ConfigMap>::all(client.clone()), watcher::Config::default())
    ///             .with_leadership(&leadership)
    ///             .run(reconcile, error_policy, Arc::new(()))
    ///             .for_each(|result| async move { println!("{result:?}") })
    ///             .await;
    ///     })
    ///     .await;
    /// println!("{outcome:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn with_leadership(mut self, leadership: &Leadership) -> Self {
        self.leadership = Some(leadership.clone());
        self
    }

    /// [Shuts down gracefully](Self::graceful_shutdown_on) on the first Ctrl+C or SIGTERM, and stops immediately on the
    /// second.
    ///
    /// From the start of the controller until the process exits, these signals no longer end the process. The other parts of the program must handle
    /// the signals themselves.
    pub fn shutdown_on_signal(mut self) -> Self {
        let (first, graceful) = tokio::sync::oneshot::channel();
        self.shutdown.graceful.push(graceful.map(|_| ()).boxed());
        let signals = async move {
            signal().await;
            tracing::info!(target: super::TARGET, "shutting down; press ctrl+c again to end at once");
            // `send` fails only if the controller is already shutting down.
            let _ = first.send(());
            signal().await;
            tracing::info!(target: super::TARGET, "ending at once");
        };
        self.shutdown.forceful.push(signals.boxed());
        self
    }
}

/// Waits for the next Ctrl+C or SIGTERM.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! {
                _ = terminate.recv() => return,
                caught = tokio::signal::ctrl_c() => return uncaught(caught).await,
            }
        }
    }
    uncaught(tokio::signal::ctrl_c().await).await;
}

/// If the signal cannot be caught, waits forever, because a return would shut the controller down without a signal.
async fn uncaught(caught: std::io::Result<()>) {
    if let Err(error) = caught {
        tracing::warn!(target: super::TARGET, %error, "cannot listen to signals");
        pending().await
    }
}
