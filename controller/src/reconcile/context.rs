//! EDGE. The context of a reconcile.
//!
//! Cancel safety: a context only reads the state of the controller; dropping [`Context::shutdown_started`],
//! [`Context::cancelled`] or [`Context::superseded`] ends the wait and changes nothing else.

use std::sync::Arc;

use crate::run::in_flight::Reconcile;
use flyball_sync::panics;
use tokio::sync::watch;

/// The context that a reconcile receives in addition to its key. A clone costs a reference count.
///
/// # Examples
/// ```
/// # use flyball_controller::{Action, Context, Controller, TokioTimer};
/// # use flyball_workqueue::Queue;
/// use std::time::Duration;
/// use tokio::time::sleep;
///
/// /// Waits for a long operation, and drops it at a shutdown.
/// async fn reconcile(_key: u32, context: Context) -> Result<Action, String> {
///     tokio::select! {
///         () = sleep(Duration::from_secs(3600)) => Ok(Action::await_change()),
///         () = context.shutdown_started() => {
///             assert!(context.is_shutting_down() && !context.is_cancelled()); // time to clean up
///             Err("not done before the shutdown".into())
///         }
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
/// queue.add(7)?;
/// let signal = sleep(Duration::from_secs(1));
/// let report = Controller::new(queue).graceful_shutdown_on(signal).run(reconcile).await?;
/// assert_eq!(report.errors, 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Context {
    stage: Arc<watch::Sender<ShutdownStage>>,
    /// `None` in the context of the run, from which the contexts of the reconciles are made.
    reconcile: Option<Reconcile>,
}

/// The stage of a controller's shutdown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ShutdownStage {
    #[default]
    Running,
    ShuttingDown,
    Cancelled,
}

impl Context {
    pub(crate) fn new() -> Self {
        Self { stage: Arc::default(), reconcile: None }
    }

    /// Returns the context of a reconcile.
    pub(crate) fn of(&self, reconcile: &Reconcile) -> Self {
        Self { stage: self.stage.clone(), reconcile: Some(reconcile.clone()) }
    }

    pub(crate) fn enter(&self, stage: ShutdownStage) {
        // A waker of the user that panics must neither prevent the rest of a shutdown nor the other drops of the run.
        panics::caught(|| self.stage.send_replace(stage));
    }

    /// Returns a guard that cancels the context when it is dropped.
    pub(crate) fn cancel_on_drop(&self) -> CancelOnDrop {
        CancelOnDrop(self.clone())
    }

    /// Returns whether the controller is shutting down, or has ended. From then on changes are no longer mapped, and no further
    /// reconcile starts, unless the controller [drains](crate::ControllerConfig::drain_on_shutdown) its queue.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        *self.stage.borrow() >= ShutdownStage::ShuttingDown
    }

    /// Waits until the controller begins to shut down, or its run ends in a different way: with an error, or because the future of the run is
    /// dropped. Use this in long reconciles that can return early at shutdown.
    ///
    /// # Cancel safety
    /// Cancel-safe: dropping the future has no effect other than ending the wait.
    pub async fn shutdown_started(&self) {
        self.reached(ShutdownStage::ShuttingDown).await;
    }

    /// Returns whether the [grace](crate::ControllerConfig::shutdown_grace) of the shutdown is over, or the run has ended. A reconcile that does not
    /// return [soon](crate::ControllerConfig::abort_after) after the grace is dropped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        *self.stage.borrow() >= ShutdownStage::Cancelled
    }

    /// Waits until the [grace](crate::ControllerConfig::shutdown_grace) of the shutdown is over, or the run has ended, in whichever way. Use this in a
    /// reconcile that must not be dropped at an arbitrary await point: such a reconcile should return when the wait completes.
    ///
    /// A reconcile may also pass a clone of its context to a task that it spawns, so that the task ends with the run.
    ///
    /// # Cancel safety
    /// Cancel-safe: dropping the future has no effect other than ending the wait.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Context};
    /// # async fn upload(part: usize) {}
    /// async fn reconcile(key: u32, context: Context) -> Result<Action, std::io::Error> {
    ///     for part in 0..100 {
    ///         tokio::select! {
    ///             () = upload(part) => {}
    ///             () = context.cancelled() => return Err(std::io::ErrorKind::Interrupted.into()),
    ///         }
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// # let _ = reconcile;
    /// ```
    pub async fn cancelled(&self) {
        self.reached(ShutdownStage::Cancelled).await;
    }

    /// Returns whether a change has added the key again since this reconcile began, so the state that the reconcile has read may be out of date. The
    /// key is reconciled again in any case.
    ///
    /// Only changes of the informers that the controller [watches](crate::Controller::watches) count, and not adds of other code. In a
    /// [batch](crate::Controller::run_batches), this returns whether any key of the batch was added again. Two keys with the same hash are not
    /// distinguished.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Context};
    /// # async fn upload(part: usize) {}
    /// async fn reconcile(key: u32, context: Context) -> Result<Action, std::io::Error> {
    ///     for part in 0..100 {
    ///         if context.is_superseded() {
    ///             break; // the next reconcile, which follows at once, uploads the new state
    ///         }
    ///         upload(part).await;
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// # let _ = reconcile;
    /// ```
    #[must_use]
    pub fn is_superseded(&self) -> bool {
        self.reconcile.as_ref().is_some_and(Reconcile::is_superseded)
    }

    /// Waits until a change adds the key again, as [`is_superseded`](Self::is_superseded) describes. Use this in a long reconcile that waits for
    /// something that a change may make obsolete. After the reconcile has ended, the wait may complete for no reason, or never.
    ///
    /// # Cancel safety
    /// Cancel-safe: dropping the future has no effect other than ending the wait.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Context};
    /// # async fn roll_out(key: u32) {}
    /// async fn reconcile(key: u32, context: Context) -> Result<Action, std::io::Error> {
    ///     tokio::select! {
    ///         () = roll_out(key) => {}
    ///         () = context.superseded() => {} // the next reconcile, which follows at once, reads the new state
    ///     }
    ///     Ok(Action::await_change())
    /// }
    /// # let _ = reconcile;
    /// ```
    pub async fn superseded(&self) {
        match &self.reconcile {
            Some(reconcile) => reconcile.superseded().await,
            None => std::future::pending().await,
        }
    }

    async fn reached(&self, stage: ShutdownStage) {
        // The wait cannot fail, because `self` holds the sender.
        let _ = self.stage.subscribe().wait_for(|now| *now >= stage).await;
    }
}

/// Cancels the context of a run when it is dropped: at the end of the run, or when the future of the run is dropped.
pub(crate) struct CancelOnDrop(Context);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.enter(ShutdownStage::Cancelled);
    }
}
