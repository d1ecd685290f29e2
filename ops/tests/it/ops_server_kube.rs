//! `OpsServer` with flyball-kube: controllers, quotas and elections.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{Controller, ThrottleLayer};
use flyball_kube_lease::{Election, ElectionOutcome};
use flyball_kube_testing::{ApiServer, RequestMatcher};
use flyball_ops::OpsServer;
use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::Status;
use kube::runtime::{controller::Action, watcher};
use serde_json::{Value, json};

use crate::http_client::{assert_has_lines, serve};

#[tokio::test]
async fn a_throttle_and_an_election_are_exported_and_shown() {
    let throttle = ThrottleLayer::new(ThrottleLayer::CLIENT_GO_DEFAULT);
    let cluster = ApiServer::new();
    cluster.register::<Lease>();
    let mut election = Election::builder(cluster.client(), "ns", "l", "me").build().unwrap();
    let server = OpsServer::new().throttle("client", &throttle).election("l", &election.status());
    let served = serve(server).await;
    let ended = election.run(pending(), |_| async {
        let (status, metrics) = served.get("/metrics").await;
        assert_eq!(status, 200);
        let lines = [
            "client_throttle_requests_total{name=\"client\"} 0",
            "client_throttle_wait_seconds_total{name=\"client\"} 0.0",
            "leader_election_master_status{name=\"l\"} 1",
            "leader_election_terms_total{name=\"l\"} 1",
        ];
        assert_has_lines(&metrics, &lines);
        let debug: Value = serde_json::from_str(&served.get("/debug").await.1).unwrap();
        assert_eq!(debug["throttles"]["client"]["burst"], 10);
        assert_eq!(debug["elections"]["l"]["leader"], "me");
    });
    assert_eq!(ended.await, ElectionOutcome::Done(()));
    assert_eq!(served.get("/healthz").await.0, 200);
    served.end().await;
}

#[tokio::test]
async fn objects_that_a_controller_could_not_read_are_counted() {
    let cluster = ApiServer::new();
    cluster.register::<ConfigMap>();
    let any = ApiResource::erase::<ConfigMap>(&());
    let raw: Api<DynamicObject> = Api::namespaced_with(cluster.client(), "x", &any);
    for (name, data) in [("a", json!({})), ("b", json!(3))] {
        let object = DynamicObject::new(name, &any).data(json!({"data": data}));
        raw.create(&PostParams::default(), &object).await.unwrap();
    }
    let maps = Api::<ConfigMap>::all(cluster.client());
    let controller = Controller::new(maps, watcher::Config::default());
    let server = OpsServer::new().kube_controller("maps", &controller.monitor(), Duration::from_secs(60));
    let served = serve(server).await;
    assert_eq!(served.get("/readyz").await.0, 503, "the controller does not run yet");
    let mut reconciles = controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, kube::Error>(Action::await_change()),
        |_, _, _| Action::requeue(Duration::ZERO),
        Arc::new(()),
    );
    reconciles.next().await.unwrap().unwrap();
    assert_eq!(served.get("/readyz").await.0, 200);
    let (_, metrics) = served.get("/metrics").await;
    let lines = [
        "controller_reconciles_in_flight{name=\"maps\"} 0",
        "controller_objects_skipped_total{name=\"maps\"} 1",
    ];
    assert_has_lines(&metrics, &lines);
    let debug: Value = serde_json::from_str(&served.get("/debug").await.1).unwrap();
    assert_eq!(debug["queues"]["maps"]["leased"], 0);
    let cache = &debug["caches"]["maps"][0];
    assert_eq!(
        (&cache["kind"], &cache["synced"], &cache["objects"]),
        (&json!("ConfigMap"), &json!(true), &json!(1))
    );
    assert_eq!((&cache["lastError"], &cache["failures"]), (&Value::Null, &json!(0)));
    drop(reconciles);
    served.end().await;
}

#[tokio::test]
async fn the_debug_view_contains_the_error_of_a_cache() {
    // The kind is not registered, so every list fails.
    let controller =
        Controller::new(Api::<ConfigMap>::all(ApiServer::new().client()), watcher::Config::default());
    let server = OpsServer::new().kube_controller("maps", &controller.monitor(), Duration::from_secs(60));
    let served = serve(server).await;
    let mut reconciles = controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, kube::Error>(Action::await_change()),
        |_, _, _| Action::requeue(Duration::ZERO),
        Arc::new(()),
    );
    assert!(reconciles.next().await.unwrap().is_err());
    let debug: Value = serde_json::from_str(&served.get("/debug").await.1).unwrap();
    let cache = &debug["caches"]["maps"][0];
    assert_eq!((&cache["synced"], &cache["failures"]), (&json!(false), &json!(1)), "{cache}");
    assert!(cache["lastError"].as_str().is_some_and(|error| error.contains("404")), "{cache}");
    assert!(cache["failingSeconds"].is_f64(), "{cache}");
    drop(reconciles);
    served.end().await;
}

/// The client repeats such requests, but not those of a cache.
#[tokio::test]
async fn the_debug_view_contains_the_answer_of_an_unavailable_server() {
    let cluster = ApiServer::new();
    cluster.register::<ConfigMap>();
    let down = Status::failure("etcd is down", "ServiceUnavailable").with_code(503);
    cluster.fail_next(RequestMatcher::any(), u32::MAX, down);
    let controller = Controller::new(Api::<ConfigMap>::all(cluster.client()), watcher::Config::default());
    let server = OpsServer::new().kube_controller("maps", &controller.monitor(), Duration::from_secs(60));
    let served = serve(server).await;
    let mut reconciles = controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, kube::Error>(Action::await_change()),
        |_, _, _| Action::requeue(Duration::ZERO),
        Arc::new(()),
    );
    assert!(reconciles.next().await.unwrap().is_err());
    assert_eq!(cluster.requests().len(), 1);
    let debug: Value = serde_json::from_str(&served.get("/debug").await.1).unwrap();
    let cache = &debug["caches"]["maps"][0];
    assert!(cache["lastError"].as_str().is_some_and(|error| error.contains("etcd is down")), "{cache}");
    drop(reconciles);
    served.end().await;
}

#[tokio::test]
async fn the_debug_view_contains_running_reconciles_and_reasons() {
    let cluster = ApiServer::new();
    cluster.register::<ConfigMap>();
    let controller = Controller::new(Api::<ConfigMap>::all(cluster.client()), watcher::Config::default());
    let server = OpsServer::new().kube_controller("maps", &controller.monitor(), Duration::from_secs(60));
    let served = serve(server).await;
    let debug = async || serde_json::from_str::<Value>(&served.get("/debug").await.1).unwrap();
    assert_eq!(debug().await["reconciles"]["maps"], json!([]));
    let (begin, begun) = tokio::sync::oneshot::channel();
    let begin = Arc::new(std::sync::Mutex::new(Some(begin)));
    let reconciles = controller.run(
        async |_: Arc<ConfigMap>, begin: Arc<std::sync::Mutex<Option<tokio::sync::oneshot::Sender<()>>>>| {
            drop(begin.lock().unwrap().take());
            pending().await
        },
        |_, _: &kube::Error, _| Action::requeue(Duration::ZERO),
        begin,
    );
    let running = tokio::spawn(reconciles.for_each(async |_| {}));
    let object: ConfigMap =
        serde_json::from_value(json!({"metadata": {"name": "a", "namespace": "x"}})).unwrap();
    cluster.put(&object);
    let _ = begun.await;
    let shown = &debug().await["reconciles"]["maps"];
    assert_eq!((&shown[0]["object"], &shown[0]["reason"]), (&json!("x/a"), &json!("object updated")));
    assert!(shown[0]["reasons"] == 1 && shown[0]["runningSeconds"].is_f64(), "{shown}");
    running.abort();
    served.end().await;
}
