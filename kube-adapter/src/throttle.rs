//! EDGE. How many requests a client may send: client-go's `QPS` and `Burst`, on a bucket.
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
use tower_layer::Layer;

use service::SharedService;
use stats::StatsCounters;
pub use stats::ThrottleStats;
pub use throttled::{Throttled, ThrottledFuture};

/// A rate and a burst for the requests of a client: a tower layer for
/// [`ClientBuilder::with_layer`](kube::client::ClientBuilder::with_layer), and the handle by which it is watched and changed.
///
/// kube has no limit of its own. client-go has one for every client, [`CLIENT_GO_DEFAULT`](Self::CLIENT_GO_DEFAULT) if nothing is said; controller-runtime has switched it
/// off, as an API server has priority and fairness. It still protects a server from a mistake in a controller, and one part of a
/// program from another. So here it is a choice, and its numbers must be said.
///
/// A request costs one token when it is called, however long its answer takes: a watch costs one, as in client-go. What comes before this layer
/// in the stack, such as kube's retry of a request, is not seen: put the layer on last, so that it is the outermost.
///
/// **First come, first served**, over all clients that share it: clones are handles to the same bucket. **Exact**: in no span of `d`
/// are more than `burst` + rate × `d` requests sent. **Nothing herds**: a request that waits is woken once, with its token. A request that need
/// not wait takes one atomic compare-and-exchange.
///
/// # Events
/// Target `flyball_kube`. A request that had to wait for 50 ms or more: debug; for a second or more: warn, at most one
/// in ten seconds, as there is then more to ask of the server than the quota grants.
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
/// // In a program: `ClientBuilder::try_from(Config::infer().await?)?`.
/// let client = ClientBuilder::new(stack, "default").with_layer(&throttle).build();
///
/// for _ in 0..150 {
///     client.request_text(http::Request::get("/version").body(Vec::new()).unwrap()).await?;
/// }
/// assert_eq!(throttle.stats().requests, 150);
/// assert_eq!(throttle.stats().delayed, 50);
/// throttle.set_quota(Quota::per_second(HUNDRED)); // also for those who wait
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
    /// What client-go grants a client that does not say what it wants: 5 a second, and 10 at once after a rest.
    pub const CLIENT_GO_DEFAULT: Quota =
        Quota::per_second(NonZeroU32::new(5).unwrap()).allow_burst(NonZeroU32::new(10).unwrap());

    /// A wait that is worth a line of debug, as in client-go.
    const LONG: Duration = Duration::from_millis(50);

    /// A wait that is worth a warning, as in client-go.
    const TOO_LONG: Duration = Duration::from_secs(1);

    /// A full bucket, for the clients that it is layered on.
    ///
    /// # Panics
    /// Outside a tokio runtime, whose clock it uses. A client panics there, too.
    #[must_use]
    #[track_caller]
    pub fn new(quota: Quota) -> Self {
        let bucket = RateLimiter::with_timer(quota, TokioTimer::current());
        Self { shared: Arc::new(Shared { bucket, tally: StatsCounters::default() }) }
    }

    /// Changes rate and burst from now on, also for the requests that wait.
    pub fn set_quota(&self, quota: Quota) {
        self.shared.bucket.set_quota(quota);
    }

    /// The quota in force.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.shared.bucket.quota()
    }

    /// How many requests wait now.
    #[must_use]
    pub fn waiters(&self) -> usize {
        self.shared.bucket.waiters()
    }

    /// The waits so far.
    #[must_use]
    pub fn stats(&self) -> ThrottleStats {
        self.shared.tally.read()
    }

    /// Takes a token, or joins the wait queue at once: tokens are granted in the order of the calls, not of the first polls.
    fn join(&self) -> Option<Waiting> {
        let bucket = self.shared.bucket.clone();
        if bucket.try_acquire().is_ok() {
            self.shared.tally.passed();
            return None;
        }
        let since = bucket.now();
        let mut token: Token = Box::pin(async move { bucket.acquire().await });
        // The first poll joins the wait queue, unless it yields to other tasks: then the second one does. The no-op waker is replaced by
        // the next poll, which passes the task's.
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

/// A place in the line; dropping it leaves.
struct Waiting {
    throttle: ThrottleLayer,
    since: Nanos,
    /// `None` if it came at once, after all.
    token: Option<Token>,
}

impl Waiting {
    fn poll_over(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let Some(token) = &mut self.token {
            ready!(token.as_mut().poll(context));
        }
        self.tell();
        Poll::Ready(())
    }

    fn tell(&self) {
        let Shared { bucket, tally } = &*self.throttle.shared;
        let now = bucket.now();
        let waited = now.since(self.since);
        let warns = tally.waited(waited, now);
        let waiting = || bucket.waiters();
        if warns {
            tracing::warn!(target: "flyball_kube", ?waited, waiting = waiting(), "a request has waited for the client's quota; those of the next 10 s are not told");
        } else if waited >= ThrottleLayer::LONG {
            tracing::debug!(target: "flyball_kube", ?waited, waiting = waiting(), "a request has waited for the client's quota");
        }
    }
}
