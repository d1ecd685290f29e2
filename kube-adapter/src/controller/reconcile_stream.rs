//! EDGE. The stream of a controller's results, which runs the controller.
//!
//! Cancel safety: dropping the stream stops the controller immediately, as in kube-runtime.

use std::fmt;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, Stream};
use kube::Resource;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::Instrument;

pub(super) type ReconcileResult<K, E, Q> = Result<(ObjectRef<K>, Action), Outcome<E, Q>>;

/// The stream of a controller's results, which [`Controller::run`](crate::Controller::run) and [`applier`](crate::applier) return. Polling the stream
/// runs the controller; dropping it stops the controller.
///
/// # Examples
/// Runs a controller as a task:
/// ```
/// use flyball_kube::{Action, Controller, ReconcileStream};
/// use futures_util::StreamExt;
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, Client, runtime::watcher};
/// use std::sync::Arc;
///
/// fn maps(client: Client) -> ReconcileStream<ConfigMap, kube::Error> {
///     Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default()).run(
///         |_, _| async { Ok(Action::await_change()) },
///         |_, _, _| Action::await_change(),
///         Arc::new(()),
///     )
/// }
///
/// # fn example(client: Client) {
/// let task = tokio::spawn(maps(client).for_each(|result| async move { println!("{result:?}") }));
/// # }
/// ```
#[must_use = "a controller does nothing until its stream is polled"]
pub struct ReconcileStream<K: Resource, E: 'static, Q: 'static = watcher::Error> {
    state: State,
    untaken: mpsc::Receiver<ReconcileResult<K, E, Q>>,
    watch_errors: mpsc::Receiver<Q>,
    /// Whether the last item was an error from `watch_errors`.
    yielded_watch_error: bool,
}

impl<K: Resource, E, Q> ReconcileStream<K, E, Q> {
    /// Creates a stream that starts `run` at its first poll.
    pub(super) fn new(
        run: BoxFuture<'static, ()>,
        untaken: mpsc::Receiver<ReconcileResult<K, E, Q>>,
        watch_errors: mpsc::Receiver<Q>,
    ) -> Self {
        Self { state: State::Begin(run), untaken, watch_errors, yielded_watch_error: false }
    }

    fn poll_watch_error(&mut self, context: &mut Context<'_>) -> Option<ReconcileResult<K, E, Q>> {
        // Even when all senders of errors are dropped, the stream continues until the results end.
        let Poll::Ready(Some(error)) = self.watch_errors.poll_recv(context) else { return None };
        self.yielded_watch_error = true;
        Some(Err(Outcome::QueueError(error)))
    }
}

enum State {
    Begin(BoxFuture<'static, ()>),
    Running(JoinHandle<()>),
    Over,
}

impl<K: Resource, E, Q> Unpin for ReconcileStream<K, E, Q> {}

impl<K: Resource, E, Q> Stream for ReconcileStream<K, E, Q> {
    type Item = ReconcileResult<K, E, Q>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The controller runs in a separate task, so that it continues while the consumer handles the results.
        self.state = match std::mem::replace(&mut self.state, State::Over) {
            State::Begin(run) => State::Running(tokio::spawn(run.in_current_span())),
            state => state,
        };
        // Errors and results alternate while there are both. If one of them always came first, the other would wait as long as the first keeps arriving:
        // a queue of `applier` may return errors without end.
        let results_first = std::mem::take(&mut self.yielded_watch_error);
        if !results_first && let Some(error) = self.poll_watch_error(context) {
            return Poll::Ready(Some(error));
        }
        let result = self.untaken.poll_recv(context);
        if let Poll::Ready(Some(result)) = result {
            return Poll::Ready(Some(result));
        }
        if results_first && let Some(error) = self.poll_watch_error(context) {
            return Poll::Ready(Some(error));
        }
        let _end_of_results: Option<_> = ready!(result);
        // All senders of results are dropped, so the controller is ending. Each worker holds a sender until it is dropped, so no reconcile outlives the
        // stream, even if the controller was stopped immediately while a reconcile was being polled on another thread. An election relies on this: its
        // work ends with the stream, and then the lease is released.
        if let State::Running(task) = &mut self.state {
            let ended = ready!(task.poll_unpin(context));
            self.state = State::Over;
            if let Err(error) = ended
                && error.is_panic()
            {
                resume_unwind(error.into_panic());
            }
        }
        // A stream may have sent an error after the poll above.
        Poll::Ready(self.watch_errors.try_recv().ok().map(|error| Err(Outcome::QueueError(error))))
    }
}

impl<K: Resource, E, Q> Drop for ReconcileStream<K, E, Q> {
    fn drop(&mut self) {
        if let State::Running(task) = &self.state {
            task.abort();
        }
    }
}

impl<K: Resource, E, Q> fmt::Debug for ReconcileStream<K, E, Q> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReconcileStream").field("untaken", &self.untaken.len()).finish_non_exhaustive()
    }
}
