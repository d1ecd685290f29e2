//! EDGE. What a controller tells of its reconciles as they happen.
//!
//! Cancel safety: nothing here waits. A reconcile that is dropped with its worker is told as dropped, by a guard.

use std::sync::Arc;
use std::time::Duration;

use crate::{Class, Outcome};
use flyball_sync::panics;

/// What a controller tells of its reconciles as they happen: a sink, given to [`Controller::metrics`](crate::Controller::metrics).
///
/// Every method has an empty body; implement those you need. They are called by the workers, so they should be quick. They
/// decide nothing: a panic in one is caught and [counted](crate::Report::hook_panics). No key is told, as a label it would
/// make a series of each.
///
/// What is queued, and for how long, the queue tells: see its [metrics](flyball_workqueue::QueueBuilder::metrics).
///
/// # Examples
/// Failures per kind, and how long the slowest reconcile took:
/// ```
/// # use flyball_controller::{Action, Controller, Metrics, Outcome};
/// # use flyball_ratelimit::Exponential;
/// # use flyball_controller::TokioTimer;
/// # use flyball_workqueue::Queue;
/// # use std::collections::BTreeMap;
/// # use std::sync::{Arc, Mutex};
/// # use std::time::Duration;
/// #[derive(Default)]
/// struct Seen(Mutex<BTreeMap<&'static str, (u32, Duration)>>);
///
/// impl Metrics for Seen {
///     fn ended(&self, outcome: Outcome, took: Duration) {
///         let mut seen = self.0.lock().unwrap();
///         let (count, slowest) = seen.entry(outcome.label()).or_default();
///         (*count, *slowest) = (*count + 1, took.max(*slowest));
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
/// # let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
/// let seen = Arc::new(Seen::default());
/// queue.add_many([1, 2, 3]);
/// queue.shut_down();
/// Controller::new(queue)
///     .metrics(seen.clone())
///     .run(|key, _| async move { if key == 3 { Err("no luck") } else { Ok(Action::await_change()) } })
///     .await?;
/// let seen = seen.0.lock().unwrap();
/// assert_eq!((seen["success"].0, seen["error"].0), (2, 1));
/// # Ok(())
/// # }
/// ```
pub trait Metrics: Send + Sync + 'static {
    /// The controller begins, and will have so many workers at most. Not called if there is no bound.
    fn most_workers(&self, workers: usize) {
        let _ = workers;
    }

    /// A worker comes: from the start on, or [as all others are busy](crate::Controller::workers_between).
    fn worker_came(&self) {}

    /// A worker went: he had nothing to do, or the controller ends.
    fn worker_went(&self) {}

    /// A reconcile begins.
    fn started(&self) {}

    /// A batch of so many keys begins. Each of them is told as a reconcile of its own, too.
    fn batch(&self, keys: usize) {
        let _ = keys;
    }

    /// A reconcile has ended, so long after its key was handed out. The lease of its key ends with it or, after a success, right after
    /// this call, in the step in which the worker takes its next key.
    fn ended(&self, outcome: Outcome, took: Duration) {
        let _ = (outcome, took);
    }

    /// A reconcile was dropped with its worker: the controller was, or the grace of its shutdown was over.
    fn dropped(&self) {}

    /// A key succeeded that had failed so often before, conflicts included. Told before its end.
    fn recovered(&self, failures: u32) {
        let _ = failures;
    }

    /// A key was given up, after a failure of this class. Told before its end.
    fn gave_up(&self, class: Class) {
        let _ = class;
    }
}

/// Tells nobody: for the [times](crate::Report::times) in the report alone.
impl Metrics for () {}

/// For a sink of which the caller keeps a handle.
impl<M: Metrics + ?Sized> Metrics for Arc<M> {
    fn most_workers(&self, workers: usize) {
        (**self).most_workers(workers);
    }

    fn worker_came(&self) {
        (**self).worker_came();
    }

    fn worker_went(&self) {
        (**self).worker_went();
    }

    fn started(&self) {
        (**self).started();
    }

    fn batch(&self, keys: usize) {
        (**self).batch(keys);
    }

    fn ended(&self, outcome: Outcome, took: Duration) {
        (**self).ended(outcome, took);
    }

    fn dropped(&self) {
        (**self).dropped();
    }

    fn recovered(&self, failures: u32) {
        (**self).recovered(failures);
    }

    fn gave_up(&self, class: Class) {
        (**self).gave_up(class);
    }
}

/// A worker of whom it was told that he came.
pub(crate) struct OnDuty<'a>(pub(crate) Option<&'a dyn Metrics>);

impl Drop for OnDuty<'_> {
    fn drop(&mut self) {
        if let Some(sink) = self.0 {
            // Perhaps nobody is left to count a panic.
            panics::caught(|| sink.worker_went());
        }
    }
}

/// A reconcile of which the start was told, and of which the end is owed.
pub(crate) struct Owed<'a>(Option<&'a dyn Metrics>);

impl<'a> Owed<'a> {
    pub(crate) fn new(sink: Option<&'a dyn Metrics>) -> Self {
        Self(sink)
    }

    /// It has ended, which is told by somebody else.
    pub(crate) fn paid(mut self) {
        self.0 = None;
    }
}

impl Drop for Owed<'_> {
    fn drop(&mut self) {
        if let Some(sink) = self.0 {
            // Nobody is left to count a panic.
            panics::caught(|| sink.dropped());
        }
    }
}
