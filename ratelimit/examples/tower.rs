//! A tower layer that limits the request rate of a client. All clones of the service share one token bucket and are served in FIFO order.
//!
//! `cargo run -p flyball-ratelimit --features tokio --example tower`. The example pauses tokio's clock, so its waits take no real time.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::mem;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use flyball_ratelimit::{Quota, RateLimiter, TokioTimer};
use tokio::time::{Instant, timeout};
use tower::{Layer, Service, ServiceExt};

// === the layer ===

/// Limits the services that it wraps with one shared token bucket.
#[derive(Clone)]
struct RateLimit {
    bucket: RateLimiter<TokioTimer>,
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        RateLimited { inner, bucket: self.bucket.clone(), token: Token::None }
    }
}

/// A rate-limited service. The service is ready only while it has a token.
struct RateLimited<S> {
    inner: S,
    bucket: RateLimiter<TokioTimer>,
    token: Token,
}

enum Token {
    None,
    /// The service waits in the bucket's wait queue. [`RateLimiter::acquire`] borrows the limiter, so the future owns a clone of the limiter.
    Waiting(Pin<Box<dyn Future<Output = ()> + Send>>),
    Taken,
}

impl<R, S: Service<R>> Service<R> for RateLimited<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    /// Dropping a waiting service removes it from the wait queue and gives back a token that was already granted to it.
    /// A token that the service took but did not use is lost, so the rate can fall below the quota, but never exceeds it.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        loop {
            match &mut self.token {
                Token::None => {
                    let bucket = self.bucket.clone();
                    self.token = match bucket.try_acquire() {
                        Ok(()) => Token::Taken,
                        Err(_) => Token::Waiting(Box::pin(async move { bucket.acquire().await })),
                    };
                }
                Token::Waiting(waiter) => {
                    ready!(waiter.as_mut().poll(context));
                    self.token = Token::Taken;
                }
                // The token is kept until `call`, even if the inner service takes long to become ready.
                Token::Taken => return self.inner.poll_ready(context),
            }
        }
    }

    fn call(&mut self, request: R) -> S::Future {
        let token = mem::replace(&mut self.token, Token::None);
        assert!(matches!(token, Token::Taken), "`call` before `poll_ready` returned `Ready`");
        self.inner.call(request)
    }
}

/// A clone shares the bucket but not the token: each clone becomes ready on its own.
impl<S: Clone> Clone for RateLimited<S> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), bucket: self.bucket.clone(), token: Token::None }
    }
}

// === a client ===

/// A service that answers each request with the request itself and its time of arrival.
#[derive(Clone)]
struct Server {
    start: Instant,
}

impl Service<char> for Server {
    type Response = (char, u128);
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: char) -> Self::Future {
        ready(Ok((request, self.start.elapsed().as_millis())))
    }
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Infallible> {
    const QPS: NonZeroU32 = NonZeroU32::new(10).unwrap();
    const BURST: NonZeroU32 = NonZeroU32::new(3).unwrap();
    let bucket = RateLimiter::with_timer(Quota::per_second(QPS).allow_burst(BURST), TokioTimer::current());
    let client = RateLimit { bucket: bucket.clone() }.layer(Server { start: Instant::now() });

    // The three requests of the burst run immediately, the others 100 ms apart, in FIFO order across all clones.
    let requests = ['a', 'b', 'c', 'd', 'e', 'f'].map(|name| tokio::spawn(client.clone().oneshot(name)));
    tokio::task::yield_now().await;
    // This request times out: it leaves the wait queue and does not delay the requests behind it.
    let impatient = timeout(Duration::from_millis(50), client.clone().oneshot('x'));
    let last = tokio::spawn(client.clone().oneshot('g'));
    assert!(impatient.await.is_err());

    let mut answers = Vec::new();
    for request in requests.into_iter().chain([last]) {
        answers.push(request.await.expect("no task panics")?);
    }
    println!("{answers:?}");
    let at = [('a', 0), ('b', 0), ('c', 0), ('d', 100), ('e', 200), ('f', 300), ('g', 400)];
    assert!(answers.iter().zip(at).all(|(answer, at)| answer.0 == at.0 && answer.1.abs_diff(at.1) <= 1));
    assert_eq!(bucket.waiters(), 0);
    Ok(())
}
