//! Tests a controller on a real API server: the controller is killed or shut down, its server is killed, or its watches are cut. In the end every
//! object must be reconciled.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use e2e::Process;
use flyball_kube::{Config, Controller};
use futures_util::future::{BoxFuture, ready};
use futures_util::{FutureExt, StreamExt, stream};
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{ListParams, Patch, PatchParams, PostParams};
use kube::client::{Body, ClientBuilder, DynBody};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::controller::Action;
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tower::layer::layer_fn;
use tower::{BoxError, Service};

use crate::cluster::{Namespace, client, client_of, within_limit};

const ORIGIN: &str = "flyball.test/origin";

/// The state that all reconciles share.
struct Copying {
    client: Client,
    /// The time that a reconcile takes in addition to its requests.
    slow: Duration,
}

/// Creates or updates the copy of a labelled config map, which owns its copy.
async fn copy(origin: Arc<ConfigMap>, copying: Arc<Copying>) -> Result<Action, kube::Error> {
    sleep(copying.slow).await;
    let maps = Api::<ConfigMap>::namespaced(copying.client.clone(), &origin.namespace().unwrap_or_default());
    let name = format!("{}-copy", origin.name_any());
    let copy = json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "ownerReferences": [origin.controller_owner_ref(&())] },
        "data": origin.data,
    });
    maps.patch(&name, &PatchParams::apply("copier").force(), &Patch::Apply(copy)).await?;
    Ok(Action::await_change())
}

fn error_policy(_: Arc<ConfigMap>, _: &kube::Error, _: Arc<Copying>) -> Action {
    Action::requeue(Duration::from_millis(100))
}

/// Runs the controller until `end` completes, and returns the number of reconciles.
async fn copier(
    client: Client,
    namespace: &str,
    slow: Duration,
    config: Config,
    end: impl Future<Output = ()> + Send + 'static,
) -> usize {
    let maps = || Api::<ConfigMap>::namespaced(client.clone(), namespace);
    let copying = Arc::new(Copying { client: client.clone(), slow });
    Controller::new(maps(), watcher::Config::default().labels(ORIGIN))
        .with_config(config.concurrency(8).backoff(Duration::from_millis(10)..=Duration::from_secs(1)))
        .owns(maps(), watcher::Config::default().labels(&format!("!{ORIGIN}")))
        .graceful_shutdown_on(end)
        .run(copy, error_policy, copying)
        .filter(|result| std::future::ready(result.is_ok()))
        .count()
        .await
}

fn origin(name: &str, value: u64) -> ConfigMap {
    let metadata = json!({ "name": name, "labels": { ORIGIN: "yes" } });
    serde_json::from_value(json!({ "metadata": metadata, "data": { "value": value.to_string() } })).unwrap()
}

async fn create(maps: &Api<ConfigMap>, names: impl IntoIterator<Item = String>) {
    let one = |name: String| async move {
        maps.create(&PostParams::default(), &origin(&name, 0)).await.unwrap();
    };
    stream::iter(names).map(one).buffer_unordered(8).collect::<()>().await;
}

/// Sets a value, and retries while the server fails.
async fn set(maps: &Api<ConfigMap>, name: &str, value: u64) {
    let patch = json!({ "data": { "value": value.to_string() } });
    while maps.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.is_err() {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Returns the values of the originals by name, and the values of the copies by name.
async fn values(maps: &Api<ConfigMap>) -> [BTreeMap<String, String>; 2] {
    let list = maps.list(&ListParams::default()).await.unwrap();
    let mut values = [BTreeMap::new(), BTreeMap::new()];
    for map in list.items {
        let name = map.name_any();
        let value = map.data.unwrap_or_default().remove("value").unwrap_or_default();
        match name.strip_suffix("-copy") {
            Some(of) => values[1].insert(of.to_owned(), value),
            None if map.metadata.labels.is_some() => values[0].insert(name, value),
            // This config map was created by the cluster itself.
            None => None,
        };
    }
    values
}

/// Waits until each copy has the value of its original. After failures one after the other, a cache waits for up to a minute before its next attempt, as
/// client-go's does, and may need a second one.
async fn settled(maps: &Api<ConfigMap>) {
    let begun = Instant::now();
    loop {
        let [originals, copies] = values(maps).await;
        if originals == copies && !originals.is_empty() {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(150), "{originals:?}\n{copies:?}");
        sleep(Duration::from_millis(100)).await;
    }
}

/// A random number generator: splitmix64.
struct SplitMix64(u64);

impl SplitMix64 {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (x ^ x >> 31) % n
    }
}

/// This is not a test, but the process that a test starts and ends: it copies config maps until it is killed or gets SIGTERM.
#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn process_of_a_copier() {
    let (Ok(config), Ok(namespace)) = (std::env::var("COPIER_CONFIG"), std::env::var("COPIER_NAMESPACE"))
    else {
        return;
    };
    let client = client_of(config.as_ref(), None).await;
    let mut terminated = signal(SignalKind::terminate()).unwrap();
    let end = async move {
        terminated.recv().await;
    };
    copier(client, &namespace, Duration::from_millis(20), Config::default(), end).await;
}

/// Starts a process that copies the config maps of a namespace.
fn start_copier(namespace: &str) -> Process {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "controller::process_of_a_copier", "--ignored"]);
    command.env("COPIER_CONFIG", e2e::shared_kubeconfig()).env("COPIER_NAMESPACE", namespace);
    let log = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("copier-{namespace}.log"));
    Process::start(&command, log).unwrap()
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn killed_at_any_point_and_started_again_it_converges() {
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace.name);
    create(&maps, (0..100).map(|n| format!("m{n}"))).await;
    let mut dice = SplitMix64(0x5eed);
    let mut killed_in_the_middle = 0;
    for life in 0..8 {
        let process = start_copier(&namespace.name);
        let end = Instant::now() + Duration::from_millis(150 + dice.below(600));
        while Instant::now() < end {
            set(&maps, &format!("m{}", dice.below(100)), 1 + life * 1000 + dice.below(1000)).await;
        }
        process.kill();
        let [originals, copies] = values(&maps).await;
        killed_in_the_middle += u32::from(originals != copies && !copies.is_empty());
    }
    assert!(killed_in_the_middle > 2, "few processes were killed in the middle of their work");
    let _process = start_copier(&namespace.name);
    settled(&maps).await;
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn terminated_under_a_backlog_it_ends_and_the_next_one_converges() {
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace.name);
    create(&maps, (0..500).map(|n| format!("m{n}"))).await;
    let process = start_copier(&namespace.name);
    within_limit(async {
        while values(&maps).await[1].len() < 20 {
            sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    process.terminate().unwrap();
    let status = within_limit(async {
        loop {
            match process.exit_status().unwrap() {
                Some(status) => break status,
                None => sleep(Duration::from_millis(20)).await,
            }
        }
    })
    .await;
    assert_eq!(status.code(), Some(0), "{}", process.output());
    let [originals, copies] = values(&maps).await;
    assert!(originals.len() - copies.len() > 50, "the process reconciled its whole backlog");
    let _next = start_copier(&namespace.name);
    settled(&maps).await;
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_storm_of_503_is_answered_with_backoff_and_then_it_converges() {
    let direct = client().await;
    let namespace = Namespace::fresh(&direct).await;
    let maps = Api::<ConfigMap>::namespaced(direct, &namespace.name);
    create(&maps, (0..100).map(|n| format!("m{n}"))).await;
    let storm = Arc::<Storm>::default();
    let client = client_in_a_storm(&storm).await;
    let name = namespace.name.clone();

    // The controller starts in the storm: its two lists fail.
    storm.blows.store(true, Ordering::SeqCst);
    let copying = tokio::spawn(async move {
        copier(client, &name, Duration::ZERO, Config::default(), std::future::pending()).await
    });
    sleep(Duration::from_secs(3)).await;
    let lists = storm.refused.swap(0, Ordering::SeqCst);
    assert!((2..=20).contains(&lists), "{lists} lists in three seconds");
    storm.blows.store(false, Ordering::SeqCst);
    settled(&maps).await;

    // Its watches are open, so it learns of the changes, but each of its writes fails.
    storm.blows.store(true, Ordering::SeqCst);
    for n in 0..100 {
        set(&maps, &format!("m{n}"), 1).await;
    }
    sleep(Duration::from_secs(5)).await;
    let writes = storm.refused.load(Ordering::SeqCst);
    assert!((100..=2000).contains(&writes), "{writes} writes of 100 objects in five seconds");
    storm.blows.store(false, Ordering::SeqCst);
    settled(&maps).await;
    copying.abort();
}

/// While it blows, every request is answered with 503, without being sent.
#[derive(Default)]
struct Storm {
    blows: AtomicBool,
    /// The number of requests that were answered with 503.
    refused: AtomicU32,
}

/// Returns a client of the shared cluster whose requests pass the storm.
async fn client_in_a_storm(storm: &Arc<Storm>) -> Client {
    let kubeconfig = Kubeconfig::read_from(e2e::shared_kubeconfig()).unwrap();
    let config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    let through = |inner| InStorm { storm: storm.clone(), inner };
    ClientBuilder::try_from(config).unwrap().with_layer(&layer_fn(through)).build()
}

struct InStorm<S> {
    storm: Arc<Storm>,
    inner: S,
}

impl<S> Service<Request<Body>> for InStorm<S>
where
    S: Service<Request<Body>, Response = Response<Box<DynBody>>, Error = BoxError, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        if !self.storm.blows.load(Ordering::SeqCst) {
            return self.inner.call(request).boxed();
        }
        self.storm.refused.fetch_add(1, Ordering::SeqCst);
        let status = json!({
            "apiVersion": "v1", "kind": "Status", "status": "Failure", "reason": "ServiceUnavailable",
            "code": 503, "message": "storm",
        });
        let body: Box<DynBody> = Box::new(Full::new(status.to_string().into()).map_err(BoxError::from));
        ready(Response::builder().status(503).body(body).map_err(BoxError::from)).boxed()
    }
}

/// Shuts a controller down while it reconciles 300 objects. Returns how many copies were missing at the shutdown signal, how many were missing at the
/// end, and the number of reconciles.
async fn ended_under_load(config: Config) -> (usize, usize, usize) {
    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace.name);
    create(&maps, (0..300).map(|n| format!("m{n}"))).await;
    let (say, end) = oneshot::channel::<()>();
    // Eight reconciles run at once, and each takes 50 ms, so 300 reconciles take two seconds.
    let slow = Duration::from_millis(50);
    let name = namespace.name.clone();
    let running =
        tokio::spawn(async move { copier(client, &name, slow, config, async { drop(end.await) }).await });
    // Once the first copies appear, the caches are filled.
    while values(&maps).await[1].len() < 20 {
        sleep(Duration::from_millis(10)).await;
    }
    say.send(()).unwrap();
    let before = 300 - values(&maps).await[1].len();
    let reconciles = within_limit(running).await.unwrap();
    let [originals, copies] = values(&maps).await;
    assert!(copies.iter().all(|(name, value)| originals.get(name) == Some(value)));
    (before, originals.len() - copies.len(), reconciles)
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_shutdown_under_load_leaves_queued_keys() {
    let (before, after, reconciles) = ended_under_load(Config::default()).await;
    assert!(before > 100 && after > 50, "{before} copies were missing at the signal, and {after} at the end");
    // The reconciles that were in flight at the shutdown signal have completed.
    assert!(before - after <= 24 && reconciles < 300, "{before} {after} {reconciles}");
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_drain_under_load_reconciles_queued_keys() {
    let (before, after, reconciles) = ended_under_load(Config::default().drain_on_shutdown()).await;
    assert!(before > 100, "{before} copies were missing at the signal");
    // All objects are reconciled. An object is reconciled a second time only if its copy changed before the shutdown signal, so the number of
    // reconciles may exceed 300.
    assert!(after == 0 && reconciles >= 300, "{after} {reconciles}");
}

#[tokio::test]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn two_that_write_the_same_objects_both_get_their_way() {
    // Each controller counts to ten under its own key in the object's data, by replacing the whole object that it read.
    async fn count(
        map: Arc<ConfigMap>,
        (client, mine): (Client, &'static str),
    ) -> Result<Action, kube::Error> {
        let mut next = ConfigMap::clone(&map);
        let data = next.data.get_or_insert_default();
        let read: u32 = data.get(mine).map_or(0, |n| n.parse().unwrap());
        if read < 10 {
            data.insert(mine.to_owned(), (read + 1).to_string());
            let maps = Api::<ConfigMap>::namespaced(client, &map.namespace().unwrap_or_default());
            maps.replace(&map.name_any(), &PostParams::default(), &next).await?;
        }
        Ok(Action::await_change())
    }

    let client = client().await;
    let namespace = Namespace::fresh(&client).await;
    let maps = Api::<ConfigMap>::namespaced(client.clone(), &namespace.name);
    create(&maps, (0..20).map(|n| format!("m{n}"))).await;
    let mut rivals = Vec::new();
    let conflicts = Arc::new(AtomicU32::new(0));
    for mine in ["left", "right"] {
        let (maps, client, conflicts) = (maps.clone(), client.clone(), conflicts.clone());
        rivals.push(tokio::spawn(
            Controller::new(maps, watcher::Config::default().labels(ORIGIN))
                .with_config(Config::recommended())
                .run(
                    move |map, client: Arc<Client>| count(map, (Client::clone(&client), mine)),
                    move |_, error, _| {
                        assert!(matches!(error, kube::Error::Api(status) if status.is_conflict()), "{error}");
                        conflicts.fetch_add(1, Ordering::Relaxed);
                        Action::requeue(Duration::ZERO)
                    },
                    Arc::new(client),
                )
                .for_each(|_| async {}),
        ));
    }
    let done = |map: &ConfigMap| {
        let data = map.data.clone().unwrap_or_default();
        ["left", "right"].iter().all(|mine| data.get(*mine).is_some_and(|n| n == "10"))
    };
    within_limit(async {
        loop {
            let list = maps.list(&ListParams::default().labels(ORIGIN)).await.unwrap();
            if list.items.iter().filter(|map| done(map)).count() == 20 {
                break;
            }
            sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert!(conflicts.load(Ordering::Relaxed) > 10);
    rivals.iter().for_each(|rival| rival.abort());
}

mod own_cluster {
    use tokio::task::block_in_place;

    use super::*;
    use crate::cluster::Cluster;

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn a_killed_server_that_loses_its_history_loses_no_change() {
        let mut cluster = Cluster::start().unwrap();
        let client = client_of(cluster.kubeconfig(), None).await;
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        create(&maps, (0..100).map(|n| format!("m{n}"))).await;
        let copying = tokio::spawn(async move {
            copier(client, "default", Duration::ZERO, Config::default(), std::future::pending()).await
        });
        // A separate task changes objects during the whole test.
        let (say, mut end) = oneshot::channel::<()>();
        let writer = tokio::spawn({
            let maps = maps.clone();
            async move {
                let mut dice = SplitMix64(0x5eed);
                while end.try_recv().is_err() {
                    set(&maps, &format!("m{}", dice.below(100)), 1 + dice.below(1_000_000)).await;
                }
            }
        });
        sleep(Duration::from_secs(1)).await;
        for _ in 0..2 {
            block_in_place(|| cluster.kill_api_server()).unwrap();
            sleep(Duration::from_millis(500)).await;
            block_in_place(|| cluster.restart_api_server()).unwrap();
            sleep(Duration::from_secs(1)).await;
            block_in_place(|| cluster.expire_history()).unwrap();
            sleep(Duration::from_secs(1)).await;
        }
        say.send(()).unwrap();
        within_limit(writer).await.unwrap();
        settled(&maps).await;
        copying.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn after_a_restore_from_a_backup_it_creates_what_is_missing() {
        let mut cluster = Cluster::start().unwrap();
        let client = client_of(cluster.kubeconfig(), None).await;
        let maps = Api::<ConfigMap>::default_namespaced(client.clone());
        create(&maps, (0..100).map(|n| format!("m{n}"))).await;
        let backup = cluster.back_up().unwrap();
        let copying = tokio::spawn(async move {
            copier(client, "default", Duration::ZERO, Config::default(), std::future::pending()).await
        });
        settled(&maps).await;
        for n in 0..100 {
            set(&maps, &format!("m{n}"), 1).await;
        }
        settled(&maps).await;
        // In the backup, every original has its first value, and there are no copies.
        block_in_place(|| cluster.restore(&backup)).unwrap();
        assert!(values(&maps).await[0].values().all(|value| value == "0"));
        settled(&maps).await;
        copying.abort();
    }
}
