//! A failover of two replicas, against an API server in memory and on virtual time.

use std::cell::RefCell;
use std::error::Error;
use std::future::pending;
use std::time::Duration;

use flyball_kube_lease::{Election, ElectionOutcome};
use flyball_kube_testing::{ApiServer, RequestMatcher};
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use tokio::time::{Instant, sleep, timeout};

#[tokio::main(flavor = "current_thread", start_paused = true)]
async fn main() -> Result<(), Box<dyn Error>> {
    let server = ApiServer::new();
    server.register::<Lease>();
    let (start, log) = (Instant::now(), RefCell::new(Vec::new()));
    let note = |line: String| {
        println!("{:>5.1} s  {line}", start.elapsed().as_secs_f64());
        log.borrow_mut().push((start.elapsed(), line));
    };
    let note = &note;
    let work = |name: &'static str| {
        async move |leadership: flyball_kube_lease::Leadership| {
            note(format!("{name} leads"));
            leadership.lost().await;
            note(format!("{name} stops"));
        }
    };

    let mut a = Election::builder(server.client(), "default", "example", "a").build()?;
    let mut b = Election::builder(server.client(), "default", "example", "b").build()?;
    let status = b.status();
    let stop_b = sleep(Duration::from_secs(90));
    let scenario = async {
        sleep(Duration::from_secs(30)).await;
        // No request is answered, so no candidate can renew the lease: `a` stops within 10 s, and no candidate leads.
        server.hang(RequestMatcher::any().resource::<Lease>());
        sleep(Duration::from_secs(20)).await;
        server.resume();
        sleep(Duration::from_secs(20)).await;
        assert!(status.is_leader(), "b has taken over");
    };
    let first = a.run(pending(), work("a"));
    let second = async {
        sleep(Duration::from_secs(1)).await; // so that `a` is first
        b.run(stop_b, work("b")).await
    };
    let ran = async { tokio::join!(first, second, scenario) };
    let (first, second, ()) = timeout(Duration::from_secs(300), ran).await?;

    assert!(matches!(first, ElectionOutcome::Lost(..)), "{first:?}");
    assert_eq!(second, ElectionOutcome::Done(()));
    let (times, lines): (Vec<Duration>, Vec<String>) = log.take().into_iter().unzip();
    assert_eq!(lines, ["a leads", "a stops", "b leads", "b stops"]);
    assert!(times[2] > times[1], "two candidates must never lead at once");
    // `b` has released the lease, so another replica need not wait for it to expire.
    let lease = Api::<Lease>::default_namespaced(server.client()).get("example").await?;
    assert_eq!(lease.spec.and_then(|spec| spec.holder_identity).as_deref(), Some(""));
    Ok(())
}
