//! EDGE. The settings for failures: which results count as a failure, and what happens to the key.
//!
//! Cancel safety: nothing here waits.

use std::error::Error;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use flyball_workqueue::{Key, Order, QueueLimiter, Timer};

use crate::{Action, Context, Controller, FailureClass, ReconcileError};

/// Settings for failures: which results count as a failure, and what happens to the key.
impl<K, O, L, T> Controller<K, O, L, T>
where
    K: Key,
    O: Order<K>,
    L: QueueLimiter<K>,
    T: Timer,
{
    /// Calls `on_give_up` with the key and its last error when a key is given up: after the last of its
    /// [attempts](crate::ControllerConfig::max_attempts), after a [permanent](FailureClass::Permanent) failure, or when the queue's limiter gives it up, such as a
    /// [`MaxElapsed`](flyball_ratelimit::MaxElapsed).
    ///
    /// The worker calls `on_give_up` while the key is still leased; a panic in the function is caught.
    pub fn on_give_up(mut self, on_give_up: impl Fn(&K, &ReconcileError) + Send + Sync + 'static) -> Self {
        self.setup.config.on_give_up = Some(Box::new(on_give_up));
        self
    }

    /// Runs `finally` after every reconcile, including those that returned an error, panicked, or timed out. Use
    /// `finally` for writes that must happen in every case, such as a status that holds the reason for the failure.
    ///
    /// `finally` receives the key and the result of the reconcile, and runs while the key is still leased. The
    /// [`reconcile_timeout`](crate::ControllerConfig::reconcile_timeout) also limits `finally`, as a separate call. If `finally` fails after a successful reconcile, the
    /// reconcile counts as failed. If the reconcile itself failed, its failure determines what happens to the key, even if `finally` also fails.
    /// `finally` is not called for a reconcile that is dropped with its worker.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller};
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_controller::TokioTimer;
    /// # use flyball_workqueue::Queue;
    /// # use std::collections::BTreeMap;
    /// # use std::io::{Error, ErrorKind};
    /// # use std::sync::{Arc, Mutex};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    /// # queue.add("web")?;
    /// # queue.shut_down();
    /// # type Statuses = Mutex<BTreeMap<&'static str, String>>;
    /// let statuses = Arc::new(Statuses::default());
    /// let written = statuses.clone();
    /// Controller::new(queue)
    ///     .finally(move |key, ended, _context| {
    ///         let statuses = written.clone();
    ///         async move {
    ///             let status = ended.map_or_else(|failure| failure.to_string(), |_| "Ready".to_owned());
    ///             statuses.lock().unwrap().insert(key, status); // most programs write to the cluster here
    ///             Ok::<_, Error>(())
    ///         }
    ///     })
    ///     .run(|_, _| async { Err::<Action, _>("no image of that name") })
    ///     .await?;
    /// assert_eq!(statuses.lock().unwrap()["web"], "no image of that name");
    /// # Ok(())
    /// # }
    /// ```
    pub fn finally<F, R, E>(mut self, finally: F) -> Self
    where
        F: Fn(K, Result<Action, Arc<ReconcileError>>, Context) -> R + Send + Sync + 'static,
        R: Future<Output = Result<(), E>> + Send + 'static,
        E: Into<Box<dyn Error + Send + Sync>>,
    {
        self.setup.config.finally = Some(Box::new(move |key, ended, context| {
            let done = finally(key, ended, context);
            Box::pin(async move { done.await.map_err(Into::into) })
        }));
        self
    }

    /// Runs every reconcile, and its [`finally`](Self::finally), within a `tracing` span. The span has the name `reconcile`, the level `INFO`, the
    /// target `flyball_controller`, and the fields `controller` (the argument), `key` and `outcome`. The outcome is recorded when the reconcile
    /// has ended.
    ///
    /// A [batch](Self::run_batches) runs within a span `reconcile_batch`, with the number of its keys in the field `keys`; after the batch, each key
    /// gets its own span `reconcile`. If the `tracing` subscriber or the `Debug` formatting of a key panics, at most the reconcile or the batch of
    /// that span fails.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller, TokioTimer};
    /// # use flyball_workqueue::Queue;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).timer(TokioTimer::current()).build();
    /// # queue.add("a")?;
    /// # queue.shut_down();
    /// Controller::new(queue)
    ///     .with_tracing("pods")
    ///     .run(|_, _| async {
    ///         tracing::info!("working"); // INFO reconcile{controller="pods" key="a"}: working
    ///         Ok::<_, String>(Action::await_change())
    ///     })
    ///     .await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "tracing")]
    pub fn with_tracing(mut self, controller: impl Into<String>) -> Self
    where
        K: std::fmt::Debug,
    {
        self.setup.config.spans = crate::run::span::ReconcileSpans::new(controller.into());
        self
    }

    /// Classifies failures. By default all failures are [transient](FailureClass::Transient). If `of` panics, the failure counts as transient.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, FailureClass, Controller, ReconcileError};
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_controller::TokioTimer;
    /// # use flyball_workqueue::Queue;
    /// # use std::io::{Error, ErrorKind};
    /// # use std::time::Duration;
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    /// queue.add("an invalid name")?;
    /// queue.shut_down();
    /// let report = Controller::new(queue)
    ///     .classify(|failure| match failure.downcast_ref::<Error>().map(Error::kind) {
    ///         Some(ErrorKind::AlreadyExists) => FailureClass::Conflict,
    ///         Some(ErrorKind::InvalidInput) => FailureClass::Permanent,
    ///         _ => FailureClass::Transient,
    ///     })
    ///     .on_give_up(|key, failure| eprintln!("{key}: {failure}"))
    ///     .run(|_, _| async { Err::<Action, _>(Error::from(ErrorKind::InvalidInput)) })
    ///     .await?;
    /// assert_eq!((report.given_up, report.retries()), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    pub fn classify(mut self, of: impl Fn(&ReconcileError) -> FailureClass + Send + Sync + 'static) -> Self {
        self.setup.config.failure_policy.classify = Some(Box::new(of));
        self
    }

    /// Sets a minimum wait after a [transient](FailureClass::Transient) failure. Use this, for example, if a server specifies the delay before a
    /// retry. The key waits for the longer of this minimum and the limiter's delay. If `of` returns `None` or panics, there is no minimum. The minimum
    /// itself has no upper limit, so bound a delay that a server specifies.
    ///
    /// The worker that has leased the key calls `of` once for each transient failure. If a change adds the key again, the wait still ends early,
    /// unless the queue's backoff is [strict](flyball_workqueue::QueueBuilder::strict_backoff).
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::{Action, Controller};
    /// # use flyball_ratelimit::Exponential;
    /// # use flyball_controller::TokioTimer;
    /// # use flyball_workqueue::Queue;
    /// # use std::time::Duration;
    /// # #[derive(Debug)]
    /// # struct Busy { retry_after: Duration }
    /// # impl std::fmt::Display for Busy {
    /// #     fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result { f.write_str("busy") }
    /// # }
    /// # impl std::error::Error for Busy {}
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    /// # queue.add("a")?;
    /// # queue.shut_down();
    /// let report = Controller::new(queue)
    ///     .retry_after_at_least(|_key, failure| failure.downcast_ref::<Busy>().map(|busy| busy.retry_after))
    ///     .run(|_, _| async { Err::<Action, _>(Busy { retry_after: Duration::from_secs(30) }) })
    ///     .await?;
    /// assert_eq!(report.retries(), 1);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retry_after_at_least(
        mut self,
        of: impl Fn(&K, &ReconcileError) -> Option<Duration> + Send + Sync + 'static,
    ) -> Self {
        self.setup.config.failure_policy.minimum_wait = Some(Box::new(of));
        self
    }
}
