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
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::answer::Asked;

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
    let seats = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        // A seat first: who finds none waits in the listener's own line.
        let accepted = async {
            let seat = seats.clone().acquire_owned().await;
            (seat, listener.accept().await)
        };
        tokio::select! {
            () = &mut shutdown => break,
            // Only so that those that have ended do not pile up.
            Some(_) = connections.join_next() => {}
            (seat, stream) = accepted => match stream {
                Ok((stream, _)) => {
                    let (asked, closes) = (asked.clone(), closes.clone());
                    connections.spawn(async move {
                        connection(stream, asked, limits.head, closes).await;
                        drop(seat);
                    });
                }
                Err(error) => {
                    tracing::warn!(target: "flyball_kube", %error, "a connection could not be accepted");
                    // No file descriptors are left, for one: there may be some soon.
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

async fn connection(stream: TcpStream, asked: Arc<Asked>, head: Duration, mut closes: watch::Receiver<()>) {
    let service = service_fn(move |request| {
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
