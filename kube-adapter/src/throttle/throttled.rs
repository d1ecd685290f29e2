//! EDGE. The service that a throttle makes of another.
//!
//! # Tower's contract
//! The inner service that was polled ready is the one that is called: both happen in one poll of a request, which has the service to itself meanwhile.
//! Not in [`poll_ready`](Service::poll_ready), where a token taken for a request that is then dropped would be kept, and spent at some later time on top of a full
//! burst; where a request would hold a place in the inner service while it waits for its token; and where a client, which is one `Buffer` with one
//! task behind it, would be one in the line, however many of its requests wait.
//!
//! # Cancel safety
//! A request that is dropped while it waits leaves the line, and takes no token; those behind it move up. One that is kept and never polled again costs
//! the others its token, and nothing else.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use tower_service::Service;

use super::Throttle;
use super::service::SharedService;

/// A service whose requests wait for the tokens of a [`Throttle`].
///
/// It is always ready: a request waits after the call, first for its token, in the order of the calls, then for the inner service to be
/// ready. So whoever bounds the requests under way should do so before this layer. Clones share the inner service, which need not be `Clone`.
///
/// # Cancel safety
/// A request that is dropped while it waits takes no token. One that is kept and never polled costs the others its token, and nothing else.
pub struct Throttled<S> {
    pub(super) throttle: Throttle,
    pub(super) inner: Arc<SharedService<S>>,
}

impl<R, S> Service<R> for Throttled<S>
where
    R: Send + 'static,
    S: Service<R> + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> Self::Future {
        let waiting = self.throttle.join();
        let inner = self.inner.clone();
        let mut request = Some(request);
        Box::pin(async move {
            if let Some(waiting) = waiting {
                waiting.over().await;
            }
            let called = poll_fn(|context| match inner.poll_call(&mut request, context.waker()) {
                Poll::Ready(Some(called)) => Poll::Ready(called),
                // It is called once.
                Poll::Ready(None) | Poll::Pending => Poll::Pending,
            });
            let response = called.await?;
            response.await
        })
    }
}

impl<S> Clone for Throttled<S> {
    fn clone(&self) -> Self {
        Self { throttle: self.throttle.clone(), inner: self.inner.clone() }
    }
}

impl<S> fmt::Debug for Throttled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Throttled").field("throttle", &self.throttle).finish_non_exhaustive()
    }
}
