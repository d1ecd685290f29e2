//! EDGE. When a controller ends: in order, and at once.
//!
//! Cancel safety: signals are waited for while the controller runs, and no longer.

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, pending, select_all};
use kube::Resource;

use super::Controller;

/// The signals that end a controller. Any of a list will do.
#[derive(Default)]
pub(crate) struct Stopping {
    pub(crate) in_order: Vec<BoxFuture<'static, ()>>,
    pub(crate) at_once: Vec<BoxFuture<'static, ()>>,
}

/// Done when the first of them is; never, if there is none.
pub(crate) fn any(signals: Vec<BoxFuture<'static, ()>>) -> BoxFuture<'static, ()> {
    match signals.is_empty() {
        true => pending().boxed(),
        false => select_all(signals).map(|_| ()).boxed(),
    }
}

/// When it ends.
impl<K: Resource> Controller<K> {
    /// Ends in order when `signal` is done, or any other that was given: changes bring nothing any more, what waits for its turn is
    /// worked off, and running reconciles end. What waits for a later time, retries among it, is left.
    ///
    /// Unlike in kube-runtime, what has waited for its turn until then is still reconciled.
    /// [`Config::shutdown_grace`](crate::Config::shutdown_grace) bounds the time for it.
    pub fn graceful_shutdown_on(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stopping.in_order.push(signal.boxed());
        self
    }

    /// Ends at once when `signal` is done: running reconciles are dropped where they await something.
    pub fn forceful_shutdown_on(mut self, signal: impl Future<Output = ()> + Send + 'static) -> Self {
        self.stopping.at_once.push(signal.boxed());
        self
    }

    /// Ends [in order](Self::graceful_shutdown_on) on Ctrl+C or SIGTERM, and at once on the second of them.
    ///
    /// The signals are caught from when the controller runs on, and for the rest of the process: what else runs in it must
    /// end by itself.
    pub fn shutdown_on_signal(mut self) -> Self {
        let (first, graceful) = tokio::sync::oneshot::channel();
        self.stopping.in_order.push(graceful.map(|_| ()).boxed());
        let signals = async move {
            signal().await;
            tracing::info!("shutting down; press ctrl+c again to end at once");
            // Nobody listens if it is ending already.
            let _ = first.send(());
            signal().await;
            tracing::info!("ending at once");
        };
        self.stopping.at_once.push(signals.boxed());
        self
    }
}

/// The next signal that asks a process to end.
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

/// A signal that cannot be caught is never seen: better than one that is seen at once.
async fn uncaught(caught: std::io::Result<()>) {
    if let Err(error) = caught {
        tracing::warn!(%error, "cannot listen to signals");
        pending().await
    }
}
