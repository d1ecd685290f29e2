//! EDGE. A reconcile function behind a trait object.
//!
//! Every reconcile function has a type of its own, and so has the future that it returns. Behind a trait object, the rest of a run is compiled once
//! for each type of queue, and not for each function. With generics, the tests of this crate, which have 146 functions, took more than twice as long
//! to compile. The future is stored in an allocation of its worker, so a call allocates nothing; a `Box` for each future would cost an allocation for
//! each key.
//!
//! Cancel safety: dropping the reconciler drops its future.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task;
use std::task::Poll;

use crate::run::run_config::BoxError;
use crate::{Context, ReconcileError};
use futures_util::future::BoxFuture;

/// A call of user code that returned a future.
pub(crate) trait UserCall<A>: Send {
    /// Polls the future.
    ///
    /// # Panics
    /// Panics if the future panics, or if it has ended.
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<A, ReconcileError>>;

    /// Drops the future, if there is one.
    fn end(&mut self);
}

/// A reconcile function with the input `I`, and the future of its current call.
pub(crate) trait Reconciler<I, A>: UserCall<A> {
    /// Calls the function. The previous call must have ended.
    fn start(&mut self, input: I, context: Context);
}

/// The reconciler of one worker.
pub(crate) struct WorkerReconciler<F, R: Future, A> {
    function: Arc<F>,
    future: Pin<Box<Option<R>>>,
    convert: fn(R::Output) -> Result<A, ReconcileError>,
}

impl<F, R: Future, A> WorkerReconciler<F, R, A> {
    pub(crate) fn new(function: Arc<F>, convert: fn(R::Output) -> Result<A, ReconcileError>) -> Self {
        Self { function, future: Box::pin(None), convert }
    }
}

impl<F, R, A> UserCall<A> for WorkerReconciler<F, R, A>
where
    F: Send + Sync,
    R: Future + Send,
{
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<A, ReconcileError>> {
        self.future.as_mut().as_pin_mut().expect("a call has started").poll(cx).map(self.convert)
    }

    fn end(&mut self) {
        self.future.set(None);
    }
}

impl<F, R, I, A> Reconciler<I, A> for WorkerReconciler<F, R, A>
where
    F: Fn(I, Context) -> R + Send + Sync,
    R: Future + Send,
{
    fn start(&mut self, input: I, context: Context) {
        let future = (self.function)(input, context);
        self.future.set(Some(future));
    }
}

/// A call whose future is in a `Box` of its own.
pub(crate) struct BoxedCall<A>(pub(crate) Option<BoxFuture<'static, Result<A, BoxError>>>);

impl<A> UserCall<A> for BoxedCall<A> {
    fn poll(&mut self, cx: &mut task::Context<'_>) -> Poll<Result<A, ReconcileError>> {
        let future = self.0.as_mut().expect("a call has started");
        future.as_mut().poll(cx).map_err(ReconcileError::of)
    }

    fn end(&mut self) {
        self.0 = None;
    }
}
