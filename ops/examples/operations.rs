//! A controller as in production: leader election among several replicas, a client quota, probes, metrics, a debug view and a graceful shutdown.
//! Run it with `cargo run -p flyball-ops --features kube --example operations`.
//!
//! The API server runs in memory, so no cluster is needed. For a real cluster, build the client with
//! `throttle.client(Config::infer().await?)?`.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{Controller, ThrottleLayer};
use flyball_kube_lease::{Election, ElectionOutcome, unique_identity};
use flyball_kube_testing::ApiServer;
use flyball_ops::OpsServer;
use flyball_ratelimit::Quota;
use futures_util::StreamExt;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{Patch, PatchParams};
use kube::client::ClientBuilder;
use kube::runtime::{controller::Action, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, from_value, json};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

async fn reconcile(map: Arc<ConfigMap>, client: Arc<Client>) -> Result<Action, kube::Error> {
    let maps: Api<ConfigMap> = Api::namespaced((*client).clone(), &map.namespace().unwrap_or_default());
    let seen = json!({"data": {"seen": "yes"}});
    maps.patch(&map.name_any(), &PatchParams::default(), &Patch::Merge(seen)).await?;
    Ok(Action::await_change())
}

fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Client>) -> Action {
    Action::requeue(Duration::from_secs(5))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let cluster = ApiServer::new();
    cluster.register::<ConfigMap>().register::<Lease>();
    for name in ["a", "b", "c"] {
        cluster.put::<ConfigMap>(&from_value(json!({"metadata": {"namespace": "default", "name": name}}))?);
    }

    // The rate, in requests per second, and the burst.
    let quota = Quota::per_second(NonZeroU32::new(50).unwrap()).allow_burst(NonZeroU32::new(100).unwrap());
    let throttle = ThrottleLayer::new(quota);
    let client = ClientBuilder::new(cluster.clone(), "default").with_layer(&throttle).build();
    let maps: Api<ConfigMap> = Api::all(client.clone());

    // The lease has its own client, so that renewals do not wait behind the requests of the controller.
    let identity = unique_identity(&std::env::var("HOSTNAME").unwrap_or_default());
    let mut election = Election::builder(cluster.client(), "default", "example", identity.clone())
        .on_new_leader(|leader| println!("{leader} leads"))
        .standby(true)
        .build()?;

    let controller =
        Controller::new(maps, watcher::Config::default()).with_config(flyball_kube::Config::recommended());
    let listener = TcpListener::bind("127.0.0.1:0").await?; // in a pod "[::]:8080"
    let address = listener.local_addr()?;
    let server = OpsServer::new()
        .kube_controller("configmaps", &controller.monitor(), Duration::from_secs(60))
        .throttle("api", &throttle)
        .election("example", &election.status());
    let (hang_up, hung_up) = oneshot::channel::<()>();
    let serving = tokio::spawn(server.serve(listener, async { drop(hung_up.await) }));

    // In a real program, the signal is SIGTERM. Here a client reads the pages, and then stops the program.
    let (stop, stopped) = oneshot::channel::<()>();
    let (work, mut worked) = tokio::sync::mpsc::unbounded_channel();
    let looks = tokio::spawn(async move {
        for _ in 0..3 {
            assert_eq!(worked.recv().await, Some(true));
        }
        let seen =
            (get(address, "/readyz").await?, get(address, "/metrics").await?, get(address, "/debug").await?);
        drop(stop);
        anyhow::Ok(seen)
    });

    let ended = election
        .run(async { drop(stopped.await) }, |leadership| {
            controller.with_leadership(&leadership).run(reconcile, error_policy, Arc::new(client)).for_each(
                move |result| {
                    let _ = work.send(result.is_ok());
                    std::future::ready(())
                },
            )
        })
        .await;

    let (ready, metrics, debug) = looks.await??;
    assert!(ready.ends_with("ok"), "{ready}");
    assert!(metrics.contains("leader_election_master_status{name=\"example\"} 1\n"), "{metrics}");
    let debug: Value = serde_json::from_str(debug.split_once("\r\n\r\n").map_or("", |(_, body)| body))?;
    assert_eq!(debug["elections"]["example"]["leader"], identity);
    println!("{debug:#}");

    // The lease was released only after the work had ended.
    assert!(matches!(ended, ElectionOutcome::Done(())), "{ended:?}");
    let lease = cluster.get::<Lease>("default", "example").and_then(|lease| lease.spec).expect("a lease");
    assert_eq!(lease.holder_identity.as_deref(), Some(""));
    assert!(
        cluster.list::<ConfigMap>().iter().all(|map| map.data.iter().flatten().any(|(key, _)| key == "seen"))
    );
    assert!(throttle.stats().requests >= 5);
    let gone = get(address, "/readyz").await?;
    assert!(gone.contains("[-]configmaps failed: the controller has ended"), "{gone}");
    drop(hang_up);
    serving.await??;
    Ok(())
}

/// Sends a request and returns the whole response, like curl.
async fn get(address: SocketAddr, path: &'static str) -> anyhow::Result<String> {
    let asked = tokio::task::spawn_blocking(move || {
        let mut stream = TcpStream::connect(address)?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        std::io::Result::Ok(answer)
    });
    Ok(asked.await??)
}
