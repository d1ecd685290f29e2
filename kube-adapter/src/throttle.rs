//! EDGE. A rate limit for the requests of a client, like client-go's `QPS` and `Burst`, with a token bucket.
//!
//! Cancel safety: see [`Throttled`].

mod service;
mod stats;
mod throttled;

use std::fmt;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use flyball_ratelimit::{Quota, RateLimiter};
use flyball_sync::{Nanos, TokioTimer};
use kube::client::ClientBuilder;
use kube::client::retry::RetryPolicy;
use tower::retry::RetryLayer;
use tower_layer::Layer;

use service::SharedService;
use stats::StatsCounters;
pub use stats::ThrottleStats;
pub use throttled::{Throttled, ThrottledFuture};

/// Limits the rate and the burst of a client's requests. It is a tower layer for
/// [`ClientBuilder::with_layer`](kube::client::ClientBuilder::with_layer), and also a handle to read and change the limit.
///
/// kube itself has no such limit. client-go limits every client, by default to [`CLIENT_GO_DEFAULT`](Self::CLIENT_GO_DEFAULT). controller-runtime
/// turns this limit off, because API servers have "API Priority and Fairness". But a limit still protects a server from a bug in a controller, and
/// prevents one part of a program from slowing down the others. So this layer is opt-in, and its quota must be set explicitly.
///
/// Each call costs one token, however long the response takes: a watch costs one token, as in client-go. [`client`](Self::client) creates a client in
/// which each attempt of kube's retries is a call, so the server receives no more requests than the quota allows. A retry layer inside this layer, such
/// as that of `ClientBuilder::try_from(config)` unless [`default_retry`](kube::Config::default_retry) is off, would repeat refused requests without
/// tokens, up to fifteen times each. The requests of the caches and elections of this family are never repeated by a layer.
///
/// **FIFO**: tokens are granted in the order of the calls, over all clients that share the layer. Clones of the layer share one bucket. **Exact**: no
/// interval of length `d` contains more than `burst` + rate × `d` requests. **No thundering herd**: a waiting request is woken once, with its token.
/// A request that does not have to wait costs one atomic compare-and-exchange and one atomic increment.
///
/// # Events
/// Target `flyball_kube`. A request that waited for 50 ms or more is logged at the level debug. A request that waited for a second or more is logged
/// as a warning, at most once in ten seconds: such waits show that the demand exceeds the quota.
///
/// # Examples
/// ```
/// use flyball_kube::ThrottleLayer;
/// use flyball_ratelimit::Quota;
/// use kube::client::{Body, ClientBuilder};
/// use std::num::NonZeroU32;
///
/// # #[tokio::main(flavor = "current_thread", start_paused = true)] async fn main() -> Result<(), kube::Error> {
/// const FIFTY: NonZeroU32 = NonZeroU32::new(50).unwrap();
/// const HUNDRED: NonZeroU32 = NonZeroU32::new(100).unwrap();
/// let throttle = ThrottleLayer::new(Quota::per_second(FIFTY).allow_burst(HUNDRED));
/// # let stack = tower::service_fn(async |_: http::Request<Body>| Ok::<_, std::convert::Infallible>(http::Response::new(Body::empty())));
/// // In a program: `throttle.client(Config::infer().await?)?`.
/// let client = ClientBuilder::new(stack, "default").with_layer(&throttle).build();
///
/// for _ in 0..150 {
///     client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await?;
/// }
/// assert_eq!(throttle.stats().requests, 150);
/// assert_eq!(throttle.stats().delayed, 50);
/// throttle.set_quota(Quota::per_second(HUNDRED)); // also for waiting requests
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct ThrottleLayer {
    shared: Arc<Shared>,
}

struct Shared {
    bucket: RateLimiter<TokioTimer>,
    tally: StatsCounters,
}

// === impl ThrottleLayer ===

impl ThrottleLayer {
    /// client-go's default quota: 5 requests per second, with a burst of 10.
    pub const CLIENT_GO_DEFAULT: Quota =
        Quota::per_second(NonZeroU32::new(5).unwrap()).allow_burst(NonZeroU32::new(10).unwrap());

    /// The shortest wait that is logged at the level debug, as in client-go.
    const LONG: Duration = Duration::from_millis(50);

    /// The shortest wait that is logged as a warning, as in client-go.
    const TOO_LONG: Duration = Duration::from_secs(1);

    /// Creates a layer with a full bucket. Add it to the clients that it must limit.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, because the layer uses the runtime's clock. Building a kube client outside a runtime also panics.
    #[must_use]
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        let bucket = RateLimiter::with_timer(quota, TokioTimer::current());
        Self { shared: Arc::new(Shared { bucket, tally: StatsCounters::default() }) }
    }

    /// Creates the client that [`Client::try_from`](kube::Client) creates from this configuration, with this layer between the retries and the server:
    /// every attempt costs a token.
    ///
    /// For a client with further layers, turn off [`default_retry`](kube::Config::default_retry), add this layer, and then a
    /// [`RetryLayer`](tower::retry::RetryLayer) with kube's [`RetryPolicy`].
    ///
    /// # Errors
    /// Returns the error of kube's client if it cannot be created from this configuration.
    ///
    /// # Panics
    /// Panics outside a tokio runtime, like every creation of a kube client.
    ///
    /// # Examples
    /// ```no_run
    /// use flyball_kube::{Quota, ThrottleLayer};
    /// use kube::Config;
    /// use std::num::NonZeroU32;
    ///
    /// # async fn run() -> Result<(), Box<dyn std::error::Error>> {
    /// const FIFTY: NonZeroU32 = NonZeroU32::new(50).unwrap();
    /// let client = ThrottleLayer::new(Quota::per_second(FIFTY)).client(Config::infer().await?)?;
    /// # Ok(()) }
    /// ```
    pub fn client(&self, mut config: kube::Config) -> kube::Result<kube::Client> {
        let retries = config.default_retry.then(|| RetryLayer::new(RetryPolicy::server_retry()));
        config.default_retry = false;
        let attempts = ClientBuilder::try_from(config)?.with_layer(self);
        Ok(match retries {
            Some(retries) => attempts.with_layer(&retries).build(),
            None => attempts.build(),
        })
    }

    /// Changes the rate and the burst immediately, including for requests that already wait.
    pub fn set_quota(&self, quota: Quota) {
        self.shared.bucket.set_quota(quota);
    }

    /// Returns the current quota.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.shared.bucket.quota()
    }

    /// Returns how many requests are waiting.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.shared.bucket.waiters()
    }

    /// Returns statistics of the requests and of their waits so far.
    #[must_use]
    pub fn stats(&self) -> ThrottleStats {
        self.shared.tally.read()
    }

    /// Takes a token and returns `None`, or joins the wait queue immediately. So tokens are granted in the order of the calls, not in the order of
    /// the first polls.
    fn join(&self) -> Option<Waiting> {
        let bucket = self.shared.bucket.clone();
        if bucket.try_acquire().is_ok() {
            self.shared.tally.count_request();
            return None;
        }
        let since = bucket.now();
        let mut token: Token = Box::pin(async move { bucket.acquire().await });
        // The first poll joins the wait queue. If the first poll yields because the task's budget is used up, the second poll joins.
        // The no-op waker is replaced by the next poll, which passes the task's waker.
        let mut poll = || token.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
        let come = poll() || poll();
        Some(Waiting { throttle: self.clone(), since, token: (!come).then_some(token) })
    }
}

impl<S> Layer<S> for ThrottleLayer {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Throttled<S> {
        Throttled { throttle: self.clone(), inner: Arc::new(SharedService::new(inner)) }
    }
}

impl fmt::Debug for ThrottleLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quota, waiting) = (self.quota(), self.waiters());
        f.debug_struct("ThrottleLayer")
            .field("quota", &quota)
            .field("waiting", &waiting)
            .finish_non_exhaustive()
    }
}

type Token = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A position in the wait queue. Dropping this value leaves the queue.
struct Waiting {
    throttle: ThrottleLayer,
    since: Nanos,
    /// `None` if the token was granted without a wait.
    token: Option<Token>,
}

impl Waiting {
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(token) = &mut self.token {
            ready!(token.as_mut().poll(context));
        }
        self.log_wait();
        Poll::Ready(())
    }

    fn log_wait(&self) {
        let Shared { bucket, tally } = &*self.throttle.shared;
        let now = bucket.now();
        let waited = now.since(self.since);
        let warns = tally.waited(waited, now);
        let waiting = || bucket.waiters();
        if warns {
            tracing::warn!(target: "flyball_kube", ?waited, waiting = waiting(), "a request has waited for the client's quota; such waits are not logged for the next 10 s");
        } else if waited >= ThrottleLayer::LONG {
            tracing::debug!(target: "flyball_kube", ?waited, waiting = waiting(), "a request has waited for the client's quota");
        }
    }
}
