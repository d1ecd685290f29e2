//! EDGE. Connections, and their bounds.
//!
//! Cancel safety: connections are tasks of a set that ends with the future.

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

use super::answer::Asked;
use super::open::{Connection, Open};

#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) connections: usize,
    pub(super) head: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { connections: 64, head: Duration::from_secs(10) }
    }
}

pub(super) async fn serve(
    listener: TcpListener,
    asked: Arc<Asked>,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let (closing, closes) = watch::channel(());
    let open = Open::default();
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            // Only so that those that have ended do not pile up.
            Some(_) = connections.join_next() => {}
            // Always: one that waits in the listener's own queue might be a probe.
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => open.add(peer.ip(), limits.connections, |this| {
                    connections.spawn(connection(stream, this, asked.clone(), limits.head, closes.clone()))
                }),
                Err(error) => {
                    tracing::warn!(target: "flyball_kube", %error, "a connection could not be accepted");
                    // No file descriptors are left, for one: here is one, and there may be more soon.
                    open.close_one();
                    sleep(PAUSE).await;
                }
            },
        }
    }
    drop(listener);
    drop(closing);
    let ended = async { while connections.join_next().await.is_some() {} };
    // Those that are left are dropped with the set.
    let _ = timeout(LAST_WORDS, ended).await;
}

async fn connection(
    stream: TcpStream,
    this: Connection,
    asked: Arc<Asked>,
    head: Duration,
    mut closes: watch::Receiver<()>,
) {
    let service = service_fn(move |request| {
        this.asked();
        let answer = asked.answer(&request);
        async move { Ok::<_, Infallible>(answer) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head).max_buf_size(LONGEST_HEAD);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    tokio::select! {
        // Its errors are the peer's: it went away, or said what is no HTTP.
        _ = connection.as_mut() => return,
        _ = closes.changed() => {}
        () = sleep(LIFE) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = timeout(LAST_WORDS, connection).await;
}

const LIFE: Duration = Duration::from_secs(60);
const LAST_WORDS: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(100);
const LONGEST_HEAD: usize = 16 * 1024;
