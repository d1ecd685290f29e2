//! EDGE. Requests that are sent once, whatever layers the client has.
//!
//! Unless `kube::Config::default_retry` is off, kube's client answers 429, 503 and 504 by up to 15 attempts of its own, which take minutes. The caller
//! sees neither these answers nor the attempts: an election would send several times as many requests as its retry period says, and the first error
//! that it reports would be its own timeout. A retry layer can repeat a request only if it can copy the body, and kube copies only bodies that are
//! bytes in memory. The body of a response is none of these, so the bytes are sent through an [`Echo`] first.
//!
//! Cancel safety: dropping the future drops the request.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use tower_service::Service;

/// Returns a body with the same bytes that no layer of a client can copy, so that the request is not repeated. It has the same length and the same end.
///
/// # Errors
/// None in practice: the errors of a kube client.
///
/// # Panics
/// Panics outside a tokio runtime, because a kube client spawns a task.
#[doc(hidden)]
pub async fn single_attempt(body: Body) -> kube::Result<Body> {
    Ok(Client::new(Echo, "").send(Request::new(body)).await?.into_body())
}

/// Returns a client that sends each request once, with `client`.
///
/// # Panics
/// Panics outside a tokio runtime.
pub(crate) fn single_attempts(client: Client) -> Client {
    Client::new(SingleAttempts(client), "")
}

/// Answers a request with its body. `Body::wrap_body` is private to kube, but a client applies it to each response.
struct Echo;

impl Service<Request<Body>> for Echo {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        ready(Ok(Response::new(request.into_body())))
    }
}

struct SingleAttempts(Client);

impl Service<Request<Body>> for SingleAttempts {
    type Response = Response<Body>;
    type Error = kube::Error;
    type Future = Pin<Box<dyn Future<Output = kube::Result<Response<Body>>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let client = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let body = single_attempt(body).await?;
            client.send(Request::from_parts(head, body)).await
        })
    }
}
