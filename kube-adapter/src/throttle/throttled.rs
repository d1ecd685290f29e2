//! EDGE. The service that a throttle layer returns.
//!
//! # Tower's contract
//! A request polls the inner service for readiness and calls it in the same poll, with exclusive access to the service. So the service that is called
//! is always the one whose `poll_ready` returned `Ready`. The token is not taken in [`poll_ready`](Service::poll_ready) for three reasons. First, if
//! a request were dropped after `poll_ready`, its token would remain, and could be spent later in addition to a full burst. Second, a request would
//! hold a reservation in the inner service while it waits for its token. Third, all requests of a kube client pass through the single task of a
//! `Buffer`, so the client would be a single waiter, however many of its requests wait.
//!
//! # Cancel safety
//! A request that is dropped while it waits leaves the wait queue, and takes no token; the waiters behind it move up. A request that is kept but
//! never polled again uses up one token, and has no other effect on the other requests.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use pin_project_lite::pin_project;
use tower_service::Service;

use super::service::SharedService;
use super::{ThrottleLayer, Waiting};

/// A service whose requests wait for the tokens of a [`ThrottleLayer`].
///
/// The service is always ready. The future of a call waits: first for its token, in the order of the calls, and then until the inner service is
/// ready. So a layer that limits the number of requests in flight must be outside this layer. Clones share the inner service, which need not be
/// `Clone`.
///
/// # Cancel safety
/// A request that is dropped while it waits for its token takes no token. A request that is kept but never polled uses up one token, and has no other
/// effect on the other requests.
///
/// # Examples
/// ```
/// use flyball_kube::{ThrottleLayer, Throttled, ThrottledFuture};
/// use flyball_ratelimit::Quota;
/// use std::convert::Infallible;
/// use std::num::NonZeroU32;
/// use tower::{Layer, Service, service_fn};
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)]
/// # async fn main() -> Result<(), Infallible> {
/// let one_per_second = Quota::per_second(NonZeroU32::MIN);
/// let throttle = ThrottleLayer::new(one_per_second);
/// let mut service: Throttled<_> = throttle.layer(service_fn(async |text: &'static str| Ok::<_, Infallible>(text.len())));
///
/// assert_eq!(service.call("first").await?, 5);
/// let second: ThrottledFuture<_, _> = service.call("second");
/// assert_eq!((throttle.waiters(), throttle.quota()), (1, one_per_second));
/// assert_eq!(second.await?, 6);
/// assert_eq!(throttle.stats().total_wait.as_secs(), 1);
/// # Ok(())
/// # }
/// ```
pub struct Throttled<S> {
    pub(super) throttle: ThrottleLayer,
    pub(super) inner: Arc<SharedService<S>>,
}

impl<R, S> Service<R> for Throttled<S>
where
    S: Service<R>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = ThrottledFuture<S, R>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: R) -> ThrottledFuture<S, R> {
        ThrottledFuture {
            waiting: self.throttle.join(),
            inner: self.inner.clone(),
            request: Some(request),
            response: None,
        }
    }
}

pin_project! {
    /// A request to a [`Throttled`] service. The future allocates only if it must wait for its token or for the inner service.
    ///
    /// # Panics
    /// Panics if it is polled again after the inner service returned an error or panicked.
    ///
    /// # Cancel safety
    /// A request that is dropped while it waits for its token takes no token.
    #[must_use = "futures do nothing unless awaited"]
    pub struct ThrottledFuture<S, R>
    where
        S: Service<R>,
    {
        waiting: Option<Waiting>,
        inner: Arc<SharedService<S>>,
        // `None` once the inner service is called.
        request: Option<R>,
        #[pin]
        response: Option<S::Future>,
    }
}

impl<R, S: Service<R>> Future for ThrottledFuture<S, R> {
    type Output = Result<S::Response, S::Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut this = self.project();
        if let Some(waiting) = this.waiting {
            ready!(waiting.poll_over(context));
            *this.waiting = None;
        }
        loop {
            if let Some(response) = this.response.as_mut().as_pin_mut() {
                return response.poll(context);
            }
            match this.inner.poll_call(this.request, context.waker()) {
                Poll::Ready(Some(called)) => this.response.set(Some(called?)),
                Poll::Ready(None) => {
                    panic!("polled after the inner service has refused the request, or panicked")
                }
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}

impl<S: Service<R>, R> fmt::Debug for ThrottledFuture<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (waits, called) = (self.waiting.is_some(), self.request.is_none());
        f.debug_struct("ThrottledFuture")
            .field("waits", &waits)
            .field("called", &called)
            .finish_non_exhaustive()
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
