//! Several processes of one program: which process reconciles, and how a process ends. The tests of the election itself are in
//! `flyball-kube-lease`.

use std::time::Duration;

use clap::Parser;
use example_controllers::endpointslice;
use example_controllers::program::{self, LeadershipLost, Options, Probes, Term, as_leader, drive};
use flyball_kube::Controller;
use flyball_kube_lease::{Leadership, LossReason};
use flyball_kube_testing::{RequestMatcher, Verb};
use futures::FutureExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::ResourceExt;
use serde_json::{from_value, json};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

use crate::cluster::Cluster;

const LEASE: &str = "flyball-example-endpointslice";

async fn start() -> Cluster {
    let cluster = Cluster::new().await;
    cluster.server.register::<Lease>();
    cluster
}

/// One process, which shuts down when `stop` is dropped. `begun` resolves when the process leads, and `ended` when the process has ended.
struct Process {
    stop: Option<oneshot::Sender<()>>,
    begun: oneshot::Receiver<Begun>,
    ended: JoinHandle<Result<(), LeadershipLost>>,
}

#[derive(Clone, Copy)]
struct Begun {
    at: Instant,
    slices: usize,
}

fn process(cluster: &Cluster) -> Process {
    let (server, client, pods) = (cluster.server.clone(), cluster.client.clone(), cluster.pods.clone());
    let election =
        program::election(&client, "endpointslice", &Options::parse_from(["endpointslice"])).unwrap();
    let (begins, begun) = oneshot::channel();
    let (stop, stopped) = oneshot::channel::<()>();
    let work = async move |leadership: Leadership| {
        let elected = leadership.elected();
        let (services, slices) = (program::services(&client), program::slices(&client));
        let controller =
            Term::new(Some(leadership), Probes::default()).bound(Controller::for_shared(&services));
        let begins = async {
            elected.await;
            let _ = begins.send(Begun { at: Instant::now(), slices: server.list::<EndpointSlice>().len() });
        };
        tokio::join!(begins, drive(endpointslice::run(controller, client, &pods, &services, &slices)));
    };
    let ended = tokio::spawn(as_leader(election, stopped.map(drop), work));
    Process { stop: Some(stop), begun, ended }
}

impl Process {
    /// Waits until the process has ended, for at most ten minutes of virtual time.
    async fn end(&mut self) -> Result<(), LeadershipLost> {
        timeout(Duration::from_secs(600), &mut self.ended).await.expect("the process does not end").unwrap()
    }
}

fn put_services(cluster: &Cluster, names: impl IntoIterator<Item = String>) {
    for name in names {
        let spec = json!({"selector": {"app": name}, "clusterIP": "10.1.0.1", "ipFamilies": ["IPv4"], "ports": [{"port": 80}]});
        let service = json!({"metadata": {"name": name, "namespace": "default"}, "spec": spec});
        cluster.server.put::<Service>(&from_value(service).unwrap());
    }
}

fn has_slice(cluster: &Cluster, service: &str) -> bool {
    let slices = cluster.server.list::<EndpointSlice>();
    slices.iter().any(|slice| slice.labels()["kubernetes.io/service-name"] == service)
}

fn holder(cluster: &Cluster) -> String {
    let lease = cluster.server.get::<Lease>("default", LEASE);
    lease.and_then(|lease| lease.spec?.holder_identity).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_leader_releases_the_lease_after_its_work() {
    let cluster = start().await;
    let mut first = process(&cluster);
    (&mut first.begun).await.unwrap();
    let mut second = process(&cluster);
    cluster.rest().await;
    assert!(second.begun.try_recv().is_err(), "the second process works, but does not lead");

    cluster
        .server
        .set_latency(RequestMatcher::verb(Verb::Create).resource::<EndpointSlice>(), Duration::from_secs(3));
    put_services(&cluster, (0..5).map(|n| format!("web{n}")));
    cluster.until(|_| cluster.requests::<EndpointSlice>(Verb::Create) > 0).await;
    assert_eq!(
        cluster.server.list::<EndpointSlice>().len(),
        0,
        "the first process has done its work already"
    );
    first.stop.take();
    assert_eq!(first.end().await, Ok(()));
    let given_away = Instant::now();
    assert_eq!(holder(&cluster), "");
    let begun = timeout(Duration::from_secs(600), second.begun).await.expect("no process works").unwrap();
    assert_eq!(begun.slices, 5, "the second process began before the first one had done its work");
    let waited = begun.at - given_away;
    assert!(waited <= Duration::from_millis(4400), "{waited:?}: longer than 2.2 retry periods");
}

#[tokio::test(start_paused = true)]
async fn standby_shuts_down_without_work() {
    let cluster = start().await;
    let first = process(&cluster);
    first.begun.await.unwrap();
    let leader = holder(&cluster);
    let mut second = process(&cluster);
    cluster.rest().await;
    second.stop.take();
    assert_eq!(second.end().await, Ok(()));
    assert!(second.begun.await.is_err(), "the second process has led");
    assert_eq!(holder(&cluster), leader);
    drop(first.stop);
}

#[tokio::test(start_paused = true)]
async fn lost_leader_exits_with_reason() {
    let cluster = start().await;
    for (happens, expected, message) in [
        ("taken", LossReason::Taken("thief".to_owned()), "leads no more: the lease was taken by \"thief\""),
        ("deleted", LossReason::Deleted, "leads no more: the lease was deleted"),
        ("cut-off", LossReason::NotRenewed, "leads no more: the lease could not be renewed in time"),
    ] {
        cluster.server.delete::<Lease>("default", LEASE);
        let mut process = process(&cluster);
        (&mut process.begun).await.unwrap();
        put_services(&cluster, [format!("before-{happens}")]);
        cluster.until(|_| has_slice(&cluster, &format!("before-{happens}"))).await;

        if happens == "deleted" {
            cluster.server.delete::<Lease>("default", LEASE);
        } else if happens == "taken" {
            let mut lease = cluster.server.get::<Lease>("default", LEASE).unwrap();
            lease.spec.as_mut().unwrap().holder_identity = Some("thief".to_owned());
            cluster.server.put(&lease);
        } else {
            cluster.server.hang(RequestMatcher::any().resource::<Lease>());
        }
        let lost = process.end().await.unwrap_err();
        assert_eq!((lost.to_string().as_str(), lost.0), (message, expected));
        put_services(&cluster, [format!("after-{happens}")]);
        cluster.rest().await;
        assert!(
            !has_slice(&cluster, &format!("after-{happens}")),
            "the process works after it has lost the leadership"
        );
        cluster.server.resume();
    }
}
