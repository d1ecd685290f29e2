//! Fencing: a storage outside the cluster rejects the late write of an earlier leader, because the token of its term is stale.

use std::error::Error;
use std::fmt;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube_lease::{Election, ElectionOutcome, Leadership, LossReason};
use flyball_kube_testing::ApiServer;
use k8s_openapi::api::coordination::v1::Lease;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

/// A storage outside the cluster. It accepts a write only if no write with a greater token was accepted before.
#[derive(Clone, Default)]
struct Storage(Arc<Mutex<Stored>>);

#[derive(Default)]
struct Stored {
    token: u64,
    value: &'static str,
}

impl Storage {
    fn write(&self, token: u64, value: &'static str) -> Result<(), StaleToken> {
        let mut stored = self.0.lock();
        if token < stored.token {
            println!("{value:<22} rejected");
            return Err(StaleToken);
        }
        println!("{value:<22} accepted");
        *stored = Stored { token, value };
        Ok(())
    }
}

#[derive(Debug, PartialEq)]
struct StaleToken;

impl fmt::Display for StaleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a later leader has written")
    }
}

impl Error for StaleToken {}

/// Returns the token of a term that has begun.
fn token(leadership: &Leadership) -> u64 {
    leadership.token().expect("the versions of this API server are numbers")
}

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::new();
    server.register::<Lease>();
    let candidate = |name: &str| Election::builder(server.client(), "default", "example", name).build();
    let storage = Storage::default();

    // `a` leads, and is killed while one of its writes is in flight: the write arrives a minute after it was sent.
    let mut a = candidate("a")?;
    let (sent, received) = tokio::sync::oneshot::channel();
    let work = async |leadership: Leadership| {
        let token = token(&leadership);
        storage.write(token, "first write of a").expect("no other candidate has written");
        let storage = storage.clone();
        let in_flight = tokio::spawn(async move {
            sleep(Duration::from_secs(60)).await;
            storage.write(token, "late write of a")
        });
        sent.send(in_flight).expect("the receiver is not dropped");
        pending::<()>().await;
    };
    timeout(Duration::from_secs(5), a.run(pending(), work)).await.expect_err("a never ends by itself");

    // `b` takes over when the lease has expired, and the late write of `a` arrives after the write of `b`.
    let mut b = candidate("b")?;
    let work = async |leadership: Leadership| {
        storage.write(token(&leadership), "write of b").expect("b leads");
        assert_eq!(received.await.expect("a has sent it").await.expect("it does not panic"), Err(StaleToken));
        // An operator deletes the Lease by hand. `b` stops at its next renewal.
        assert!(server.delete::<Lease>("default", "example"));
        pending::<()>().await;
    };
    assert_eq!(b.run(pending(), work).await, ElectionOutcome::Lost(LossReason::Deleted, None));

    // The number of transitions in the new Lease is 0 again, but the token of `c` is greater than all earlier ones.
    let mut c = candidate("c")?;
    c.run(pending(), async |leadership| storage.write(token(&leadership), "write of c").expect("c leads"))
        .await;
    let lease = server.get::<Lease>("default", "example").and_then(|lease| lease.spec).unwrap_or_default();
    assert_eq!(lease.lease_transitions, Some(0));
    assert_eq!(storage.0.lock().value, "write of c");
    Ok(())
}
