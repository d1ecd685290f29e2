//! A proxy between one client and the API server. A test can read the recorded requests, and can hold requests or responses back.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, HOST};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// A request, and the time and status of its response.
#[derive(Debug, Clone)]
pub(crate) struct Exchange {
    pub(crate) method: Method,
    /// The path and the query.
    pub(crate) target: String,
    pub(crate) begun: Instant,
    /// The time and the status of the response; `None` if there is no response yet.
    pub(crate) answered: Option<(Instant, u16)>,
}

impl Exchange {
    pub(crate) fn is(&self, method: &Method, part: &str) -> bool {
        self.method == *method && self.target.contains(part)
    }

    pub(crate) fn status(&self) -> Option<u16> {
        self.answered.map(|(_, status)| status)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Request,
    Response,
}

/// Selects the requests that are held back until [`Proxy::release`]: the requests that have the method `method`, and `part` in their path and query.
/// The first `passes` of these requests are not held back.
#[derive(Debug, Clone)]
pub(crate) struct Hold {
    stage: Stage,
    method: Method,
    part: &'static str,
    passes: usize,
}

impl Hold {
    /// Holds requests back before the server receives them.
    pub(crate) fn requests(method: Method, part: &'static str, passes: usize) -> Self {
        Self { stage: Stage::Request, method, part, passes }
    }

    /// Holds responses back: the server executes the requests, but the client does not receive the responses until the release.
    pub(crate) fn responses(method: Method, part: &'static str, passes: usize) -> Self {
        Self { stage: Stage::Response, method, part, passes }
    }

    /// Returns whether the request of `exchange`, or its response, must be held back at `stage`. If a matching request passes, one fewer request may
    /// pass after it.
    fn holds(&mut self, stage: Stage, exchange: &Exchange) -> bool {
        if self.stage != stage || !exchange.is(&self.method, self.part) {
            return false;
        }
        match self.passes.checked_sub(1) {
            Some(passes) => self.passes = passes,
            None => return true,
        }
        false
    }
}

/// A running proxy. Dropping this value closes the proxy and its connections.
pub(crate) struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

struct Shared {
    client: Client,
    page_size: Option<usize>,
    exchanges: Mutex<Vec<Exchange>>,
    hold: Mutex<Option<Hold>>,
    held: Mutex<usize>,
    released: watch::Sender<bool>,
}

impl Proxy {
    /// Starts a proxy that forwards requests to the server of `client`, with the credentials of `client`.
    pub(crate) async fn start(client: Client, hold: Option<Hold>) -> Self {
        Self::with_pages(client, None, hold).await
    }

    /// Like [`start`](Self::start), but replaces the page size of each list request with `page_size`, so that even a short list is sent in several
    /// pages.
    pub(crate) async fn with_page_size(client: Client, page_size: usize, hold: Option<Hold>) -> Self {
        Self::with_pages(client, Some(page_size), hold).await
    }

    async fn with_pages(client: Client, page_size: Option<usize>, hold: Option<Hold>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared {
            client,
            page_size,
            exchanges: Mutex::default(),
            hold: Mutex::new(hold),
            held: Mutex::default(),
            released: watch::Sender::new(false),
        });
        let accepting = tokio::spawn(accept(listener, shared.clone()));
        Self { address, shared, accepting }
    }

    pub(crate) fn port(&self) -> u16 {
        self.address.port()
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns all requests so far, in the order of arrival.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        self.shared.exchanges.lock().clone()
    }

    /// Returns the number of requests or responses that are held back now.
    pub(crate) fn held(&self) -> usize {
        *self.shared.held.lock()
    }

    /// Forwards the requests and responses that are held back. Later requests and responses are not held back.
    pub(crate) fn release(&self) {
        *self.shared.hold.lock() = None;
        self.shared.released.send_replace(true);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    loop {
        let (connection, _) = listener.accept().await.expect("connections are accepted");
        let shared = shared.clone();
        let service = service_fn(move |request| {
            let shared = shared.clone();
            async move { shared.forward(request).await }
        });
        // A connection fails if the client was killed or the server is down. The error is ignored here; a test can see it, because the recorded
        // exchange has no response.
        connections.spawn(
            hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(connection), service),
        );
    }
}

impl Shared {
    /// Forwards a request to the server. If this fails, the connection of the client is closed without a response.
    async fn forward(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Body>, Box<dyn Error + Send + Sync>> {
        let (mut parts, body) = request.into_parts();
        let target = parts.uri.path_and_query().map(ToString::to_string).unwrap_or_default();
        let exchange =
            Exchange { method: parts.method.clone(), target, begun: Instant::now(), answered: None };
        let number = {
            let mut exchanges = self.exchanges.lock();
            exchanges.push(exchange.clone());
            exchanges.len() - 1
        };
        let body = body.collect().await?.to_bytes();
        self.pass(Stage::Request, &exchange).await;
        // These two headers apply only to the connection between the client and the proxy. The connection between the proxy and the server gets
        // headers of its own.
        parts.headers.remove(HOST);
        parts.headers.remove(CONNECTION);
        parts.uri = self.resized(&exchange.target).parse()?;
        let response = self.client.send(Request::from_parts(parts, Body::from(body))).await?;
        self.exchanges.lock()[number].answered = Some((Instant::now(), response.status().as_u16()));
        self.pass(Stage::Response, &exchange).await;
        Ok(response)
    }

    fn resized(&self, target: &str) -> String {
        let Some(page_size) = self.page_size else { return target.to_owned() };
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let pairs = query.split('&').map(|pair| match pair.starts_with("limit=") {
            true => format!("limit={page_size}"),
            false => pair.to_owned(),
        });
        format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
    }

    /// Waits while the request or its response is held back.
    async fn pass(&self, stage: Stage, exchange: &Exchange) {
        if !self.hold.lock().as_mut().is_some_and(|hold| hold.holds(stage, exchange)) {
            return;
        }
        let _held = Counted::new(&self.held);
        // The wait cannot fail, because `self` owns the sender.
        let _ = self.released.subscribe().wait_for(|released| *released).await;
    }
}

/// Counts one request or response as held back until this value is dropped. If the client closes the connection, hyper drops the future of the
/// request, and with it this value.
struct Counted<'a>(&'a Mutex<usize>);

impl<'a> Counted<'a> {
    fn new(counter: &'a Mutex<usize>) -> Self {
        *counter.lock() += 1;
        Self(counter)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        *self.0.lock() -= 1;
    }
}
