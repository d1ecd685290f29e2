//! EDGE. Runs one user future, and returns its result, error, panic or timeout as a value.
//!
//! Cancel safety: dropping this future drops the user future, and catches a panic of that drop.

use std::error::Error;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::time::Duration;

use crate::ReconcileError;
use crate::run::runtime::Runtime;
use flyball_sync::panics;

/// Runs one user future on the worker's own task. The user future is dropped when `attempt` completes or is dropped.
///
/// A separate task for each call would also catch panics, but would cost an allocation and a context switch per key.
pub(crate) async fn attempt<X, R, A, E>(
    runtime: &X,
    start: impl FnOnce() -> R,
    limit: Option<Duration>,
) -> Result<A, ReconcileError>
where
    X: Runtime,
    A: Send,
    R: Future<Output = Result<A, E>> + Send,
    E: Into<Box<dyn Error + Send + Sync>>,
{
    let future = pin!(Some(panics::attempt(start).map_err(ReconcileError::Panic)?));
    let mut running = Running(future);
    let done = poll_fn(|context| {
        let polled = panics::attempt(|| {
            let future =
                running.0.as_mut().as_pin_mut().expect("the future is taken out only after its last poll");
            future.poll(context).map_err(|error| ReconcileError::of(error.into()))
        });
        polled.unwrap_or_else(|message| Err(ReconcileError::Panic(message)).into())
    });
    let outcome = match limit {
        None => done.await,
        Some(limit) => runtime.timeout(limit, done).await.unwrap_or(Err(ReconcileError::Timeout(limit))),
    };
    running.end().map_err(ReconcileError::Panic)?;
    outcome
}

/// The user future in an `Option`, so that a panic in its drop is caught like a panic in a poll, even if the worker is aborted.
struct Running<'a, R>(Pin<&'a mut Option<R>>);

impl<R> Running<'_, R> {
    fn end(&mut self) -> Result<(), String> {
        panics::attempt(|| self.0.set(None))
    }
}

impl<R> Drop for Running<'_, R> {
    fn drop(&mut self) {
        // The `Option` still holds the future only if the worker is aborted. Then a panic of the drop is not reported, because the key is a leftover.
        let _ = self.end();
    }
}
