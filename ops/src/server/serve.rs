//! EDGE. Accepts connections and serves them, within limits.
//!
//! Cancel safety: each connection is a task in a `JoinSet`. Dropping the future drops the set, which aborts the tasks.

use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::connections::{Connection, Connections};
use super::endpoints::Endpoints;

#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) max_connections: usize,
    pub(super) header_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { max_connections: 64, header_timeout: Duration::from_secs(10) }
    }
}

pub(super) async fn serve(
    listener: TcpListener,
    endpoints: Arc<Endpoints>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let (closing, closes) = watch::channel(());
    let open = Connections::default();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            // Frees the memory of connections that have ended.
            Some(_) = connections.join_next() => {}
            // Accepting is never delayed, because a connection in the listener's backlog may be a probe.
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => open.add(peer.ip(), limits.max_connections, |this| {
                    connections.spawn(connection(stream, this, endpoints.clone(), limits.header_timeout, closes.clone()))
                }),
                Err(error) => {
                    tracing::warn!(target: "flyball_ops", %error, "a connection could not be accepted");
                    // The process may have run out of file descriptors, so the server closes one connection, and tries to accept again after a short
                    // wait.
                    open.close_one();
                    sleep(ACCEPT_RETRY).await;
                }
            },
        }
    }
    drop(listener);
    drop(closing);
    let ended = async { while connections.join_next().await.is_some() {} };
    // Connections that are still open after `GRACE` are aborted when the set is dropped.
    let _ = timeout(GRACE, ended).await;
}

async fn connection(
    stream: TcpStream,
    this: Connection,
    endpoints: Arc<Endpoints>,
    header_timeout: Duration,
    mut closes: watch::Receiver<()>,
) {
    let service = service_fn(move |request| {
        this.requested();
        let response = endpoints.respond(&request);
        async move { Ok::<_, Infallible>(response) }
    });
    let mut builder = http1::Builder::new();
    // The timeout is limited, because hyper adds it to the current time, and this addition panics if the result is beyond the clock's range.
    let header_timeout = header_timeout.min(MAX_AGE);
    builder.timer(TokioTimer::new()).header_read_timeout(header_timeout).max_buf_size(MAX_HEADER_BYTES);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // An error is ignored, because its cause is the peer: it has disconnected, or has not sent HTTP.
        _ = connection.as_mut() => return,
        _ = closes.changed() => {}
        () = sleep(MAX_AGE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(GRACE, connection).await;
}

const MAX_AGE: Duration = Duration::from_secs(60);
const GRACE: Duration = Duration::from_secs(5);
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
const MAX_HEADER_BYTES: usize = 16 * 1024;
