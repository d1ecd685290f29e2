//! Requests through the client that `Client::try_default()` creates, which repeats requests after 429, 503 and 504.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube_lease::{Election, ElectionOutcome, LossReason, single_attempt};
use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
use http::{Request, Response};
use k8s_openapi::api::coordination::v1::Lease;
use kube::client::retry::RetryPolicy;
use kube::client::{Body, ClientBuilder};
use kube::core::Status;
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};
use tower::retry::RetryLayer;
use tower::{BoxError, service_fn};

const SECOND: Duration = Duration::from_secs(1);

/// This test guards `single_attempt`: it fails with a version of kube that copies such a body, too.
#[tokio::test(start_paused = true)]
async fn kubes_retries_repeat_bytes_in_memory_but_no_single_attempt() {
    for code in [429, 503, 504] {
        let log = Arc::new(Mutex::new(Vec::new()));
        let received = log.clone();
        let service = service_fn(move |request: Request<Body>| {
            let received = received.clone();
            async move {
                let bytes = request.into_body().collect_bytes().await?;
                received.lock().push(bytes.to_vec());
                Ok::<_, BoxError>(Response::builder().status(code).body(Body::empty())?)
            }
        });
        let retries = RetryLayer::new(RetryPolicy::server_retry());
        let client = ClientBuilder::new(service, "default").with_layer(&retries).build();
        for text in ["", "text"] {
            let bytes = || Body::from(text.as_bytes().to_vec());
            for (body, attempts) in [(bytes(), 16), (single_attempt(bytes()).await.unwrap(), 1)] {
                let answer = client.send(Request::put("/").body(body).unwrap()).await.unwrap();
                assert_eq!(answer.status(), code);
                assert_eq!(std::mem::take(&mut *log.lock()), vec![text.as_bytes(); attempts]);
            }
        }
    }
}

/// With another length or end, an HTTP client would send the body in chunks, or a `GET` with a body.
#[tokio::test]
async fn a_single_attempt_has_the_length_and_the_end_of_its_bytes() {
    use http_body::Body as _;
    for text in ["", "text"] {
        let body = single_attempt(Body::from(text.as_bytes().to_vec())).await.unwrap();
        assert_eq!(body.size_hint().exact(), Some(text.len() as u64));
        assert_eq!(body.is_end_stream(), text.is_empty());
    }
}

fn etcd_is_down() -> Status {
    Status::failure("etcd is down", "ServiceUnavailable").with_code(503)
}

fn server() -> ApiServer {
    let server = ApiServer::new();
    server.register::<Lease>();
    server
}

fn candidate(server: &ApiServer) -> Election {
    Election::builder(server.client(), "default", "l", "a").seed(7).build().unwrap()
}

/// A candidate waits for 2 s to 4.4 s between two attempts, so it sends 14 to 31 requests in a minute.
#[tokio::test(start_paused = true)]
async fn a_candidate_sends_one_request_per_retry_period_to_a_failing_server() {
    let server = server();
    server.fail_next(RequestMatcher::any(), u32::MAX, etcd_is_down());
    let mut election = candidate(&server);
    let status = election.status();
    assert!(timeout(60 * SECOND, election.run(pending(), async |_| ())).await.is_err());
    let requests = server.requests().len();
    assert!((14..=31).contains(&requests), "{requests}");
    let error = status.last_error().unwrap();
    assert!(error.contains("etcd is down"), "{error}");
}

/// A leader renews every 2 s, until 10 s after its last renewal.
#[tokio::test(start_paused = true)]
async fn a_leader_sends_one_request_per_retry_period_to_a_failing_server() {
    let server = server();
    let mut election = candidate(&server);
    let status = election.status();
    let outcome = election
        .run(pending(), async |leadership| {
            sleep(3 * SECOND).await;
            server.clear_requests();
            server.fail_next(RequestMatcher::any(), u32::MAX, etcd_is_down());
            sleep(4 * SECOND).await;
            let error = status.last_error().unwrap();
            assert!(error.contains("etcd is down"), "{error}");
            leadership.lost().await;
            server.requests_matching(&RequestMatcher::verb(Verb::Update)).len()
        })
        .await;
    let ElectionOutcome::Lost(LossReason::NotRenewed, Some(renewals)) = outcome else {
        panic!("{outcome:?}");
    };
    assert!((3..=5).contains(&renewals), "{renewals}");
}

/// A role may allow to read Leases, but not to create one. The candidate repeats the creation only after a lease duration, and reads in between.
#[tokio::test(start_paused = true)]
async fn the_error_of_a_creation_is_kept_while_the_candidate_waits_to_repeat_it() {
    let server = server();
    let forbidden = Status::failure("leases is forbidden", "Forbidden").with_code(403);
    server.fail_next(RequestMatcher::verb(Verb::Create), u32::MAX, forbidden);
    let mut election = candidate(&server);
    let status = election.status();
    let watched = async {
        for second in 1..=60 {
            sleep(SECOND).await;
            let error = status.last_error().unwrap_or_else(|| panic!("no error after {second} s"));
            assert!(error.contains("forbidden"), "{error}");
        }
    };
    tokio::select! {
        () = watched => {}
        outcome = election.run(pending(), async |_| ()) => panic!("{outcome:?}"),
    }
    let creations = server.requests_matching(&RequestMatcher::verb(Verb::Create)).len();
    assert!((3..=5).contains(&creations), "{creations}");
}
