//! EDGE. Runs one call of user code, and returns its result, error, panic or timeout as a value.
//!
//! Cancel safety: dropping this future drops the user's future, and catches a panic of that drop.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::time::Duration;

use crate::ReconcileError;
use crate::run::reconciler::UserCall;
use crate::run::runtime::Runtime;
use crate::run::span::ReconcileSpan;
use flyball_sync::panics;

/// Runs one call on the worker's own task. `start` starts the call. It, the polls and the drop of the user's future run within the span. The future is
/// dropped when `attempt` completes or is dropped.
///
/// A separate task for each call would also catch panics, but would cost an allocation and a context switch per key.
pub(crate) async fn attempt<X, U, A>(
    runtime: &X,
    span: &ReconcileSpan,
    call: &mut U,
    start: impl FnOnce(&mut U),
    limit: Option<Duration>,
) -> Result<A, ReconcileError>
where
    X: Runtime,
    U: UserCall<A> + ?Sized,
    A: Send,
{
    let mut running = Running { call, span, ended: false, result: PhantomData };
    panics::attempt(|| span.scope(|| start(running.call))).map_err(ReconcileError::Panic)?;
    let done = poll_fn(|cx| {
        let polled = panics::attempt(|| span.scope(|| running.call.poll(cx)));
        polled.unwrap_or_else(|message| Err(ReconcileError::Panic(message)).into())
    });
    let outcome = match limit {
        None => done.await,
        Some(limit) => runtime.timeout(limit, done).await.unwrap_or(Err(ReconcileError::Timeout(limit))),
    };
    match running.end() {
        Ok(()) => outcome,
        Err(message) => {
            // A panic in the drop of what the call has returned must not hide this one.
            panics::caught(|| drop(outcome));
            Err(ReconcileError::Panic(message))
        }
    }
}

/// Ends the call when it is dropped, so that a panic in the drop of the user's future is caught like a panic in a poll, even if the worker is aborted.
struct Running<'a, U: UserCall<A> + ?Sized, A> {
    call: &'a mut U,
    span: &'a ReconcileSpan,
    ended: bool,
    result: PhantomData<fn() -> A>,
}

impl<U: UserCall<A> + ?Sized, A> Running<'_, U, A> {
    fn end(&mut self) -> Result<(), String> {
        self.ended = true;
        panics::attempt(|| self.span.scope(|| self.call.end()))
    }
}

impl<U: UserCall<A> + ?Sized, A> Drop for Running<'_, U, A> {
    fn drop(&mut self) {
        // The call has not ended only if it could not start, or if the worker is aborted. Then a panic of the drop is not reported, because the key is
        // a leftover.
        if !self.ended {
            let _ = self.end();
        }
    }
}
