//! Tests the caches while servers are killed and connections break.

use std::path::Path;
use std::time::Duration;

use flyball_informer_cache::{BackoffCause, SourceError, SourceErrorKind, SourceFailure};
use flyball_kube::ApiError;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::watcher::Config;
use kube::{Api, Client};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::block_in_place;

use super::proxy::Proxy;
use super::{Cache, agreed, create, informer, map, test_config, write};
use crate::cluster::{Cluster, client_of, within_limit};

/// The failures that the informers report. Each item has a flag, which is set if the server answered, and the cause of the backoff.
type Failures = UnboundedReceiver<(bool, BackoffCause)>;

/// Returns one cache for each way to list (default, small pages, streaming), and the failures that the caches report.
fn caches(client: &Client) -> (Vec<Cache<ConfigMap>>, Failures) {
    let (sender, failures) = unbounded_channel();
    let start = |config: Config| {
        let sender = sender.clone();
        let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
        let failed = move |failure: &SourceFailure<'_>| {
            let cause = failure.error.and_then(SourceError::cause);
            let error = cause.and_then(|cause| cause.downcast_ref::<ApiError>());
            // A failure without an error, such as a watch that ended too early, counts as an answer of the server. `send` fails only after the test
            // has dropped the receiver.
            _ = sender.send((error.is_none_or(|error| error.status().is_some()), failure.cause));
        };
        informer(api, config).on_error(failed).start().unwrap()
    };
    (
        vec![start(test_config()), start(test_config().page_size(7)), start(test_config().streaming_lists())],
        failures,
    )
}

/// Updates, deletes and creates objects, with values that differ in each round.
async fn change(api: &Api<ConfigMap>, round: usize) {
    for n in 0..20 {
        write(api, &format!("map-{}", 20 + n), &round.to_string()).await.unwrap();
    }
    api.delete(&format!("map-{round}"), &DeleteParams::default()).await.unwrap();
    api.create(&PostParams::default(), &map(&format!("new-{round}"), "0")).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_server_that_is_killed_and_comes_back() {
    let mut cluster = block_in_place(Cluster::start).unwrap();
    let client = client_of(cluster.kubeconfig(), None).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&api, 50).await;
    let (caches, mut failures) = caches(&client);
    for cache in &caches {
        within_limit(cache.synced()).await.unwrap();
    }
    let mut answers = 0;
    for round in 0..2 {
        change(&api, round).await;
        block_in_place(|| cluster.kill_api_server()).unwrap();
        // Waits until a cache has reported that the server refuses connections.
        while let (answered, cause) = within_limit(failures.recv()).await.unwrap()
            && cause != BackoffCause::Failed(SourceErrorKind::ConnectionRefused)
        {
            answers += u64::from(answered);
        }
        block_in_place(|| cluster.restart_api_server()).unwrap();
        change(&api, 10 + round).await;
        for cache in &caches {
            agreed(cache, &api).await;
        }
    }
    while let Ok((answered, _)) = failures.try_recv() {
        answers += u64::from(answered);
    }
    // Only an error response may cause a relist, not a refused connection. A server that is starting may send some error responses.
    let relists: u64 = caches.iter().map(|cache| cache.status().relists).sum();
    assert!(relists <= answers, "{relists} lists after {answers} failures");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_server_that_is_suspended_and_resumes() {
    let mut cluster = block_in_place(Cluster::start).unwrap();
    let client = client_of(cluster.kubeconfig(), None).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&api, 50).await;
    let (caches, _failures) = caches(&client);
    for cache in &caches {
        within_limit(cache.synced()).await.unwrap();
    }
    for round in 0..2 {
        cluster.suspend_api_server().unwrap();
        // The connections stay open, so nothing fails.
        let changes = tokio::spawn({
            let api = api.clone();
            async move { change(&api, round).await }
        });
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert!(!changes.is_finished());
        cluster.resume_api_server().unwrap();
        within_limit(changes).await.unwrap();
        for cache in &caches {
            agreed(cache, &api).await;
        }
    }
    assert_eq!(caches.iter().map(|cache| cache.status().relists).sum::<u64>(), 0);
}

/// After the restore, the versions of the server are lower than those of the caches, and nothing is written: only the server's answers can show the
/// caches that they hold the state of another time.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_server_that_is_restored_from_a_backup() {
    let mut cluster = block_in_place(Cluster::start).unwrap();
    let client = client_of(cluster.kubeconfig(), None).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&api, 50).await;
    let backup = block_in_place(|| cluster.back_up()).unwrap();
    let (caches, _failures) = caches(&client);
    for cache in &caches {
        within_limit(cache.synced()).await.unwrap();
    }
    for round in 0..2 {
        change(&api, round).await;
        for cache in &caches {
            agreed(cache, &api).await;
        }
        block_in_place(|| cluster.restore(&backup)).unwrap();
        for cache in &caches {
            agreed(cache, &api).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_history_that_expires_during_changes() {
    let mut cluster = block_in_place(Cluster::start).unwrap();
    let client = client_of(cluster.kubeconfig(), None).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&api, 50).await;
    let (caches, mut failures) = caches(&client);
    for cache in &caches {
        within_limit(cache.synced()).await.unwrap();
    }
    change(&api, 0).await;
    block_in_place(|| cluster.expire_history()).unwrap();
    change(&api, 1).await;
    for cache in &caches {
        agreed(cache, &api).await;
    }
    let mut expired = 0;
    while let Ok((_, cause)) = failures.try_recv() {
        expired += usize::from(cause == BackoffCause::Failed(SourceErrorKind::Expired));
    }
    assert!(expired >= caches.len());
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn a_wire_that_is_cut_again_and_again() {
    let cluster = block_in_place(Cluster::start).unwrap();
    let direct: Api<ConfigMap> = Api::default_namespaced(client_of(cluster.kubeconfig(), None).await);
    let port = cluster.url().rsplit_once(':').unwrap().1.trim_end_matches('/').parse().unwrap();
    let proxy = Proxy::to(port).await;
    let client = client_through(cluster.kubeconfig(), proxy.port).await;
    create(&direct, 50).await;
    let (caches, _told) = caches(&client);
    for cache in &caches {
        within_limit(cache.synced()).await.unwrap();
    }
    for round in 0..8 {
        change(&direct, round).await;
        proxy.cut();
        change(&direct, 10 + round).await;
        if round % 2 == 0 {
            for cache in &caches {
                agreed(cache, &direct).await;
            }
        }
    }
    for cache in &caches {
        agreed(cache, &direct).await;
        assert!(cache.status().watch_restarts >= 1, "{:?}", cache.status());
    }
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs an API server: cargo xtask e2e"]
async fn watches_that_end_every_second() {
    let cluster = block_in_place(Cluster::start).unwrap();
    let client = client_of(cluster.kubeconfig(), None).await;
    let api: Api<ConfigMap> = Api::default_namespaced(client.clone());
    create(&api, 50).await;
    let cache = informer(api.clone(), test_config().timeout(1)).start().unwrap();
    within_limit(cache.synced()).await.unwrap();
    let mut round = 0;
    while cache.status().watch_restarts < 3 {
        assert!(round < 500, "{:?}", cache.status());
        change_some(&api, round).await;
        round += 1;
    }
    agreed(&cache, &api).await;
    assert_eq!(cache.status().relists, 0);
}

async fn change_some(api: &Api<ConfigMap>, round: usize) {
    for n in 0..20 {
        write(api, &format!("map-{n}"), &round.to_string()).await.unwrap();
    }
}

/// Returns a client that connects to the local port of the proxy.
async fn client_through(kubeconfig: &Path, port: u16) -> Client {
    let kubeconfig = Kubeconfig::read_from(kubeconfig).unwrap();
    let mut config =
        kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.unwrap();
    config.cluster_url = format!("https://127.0.0.1:{port}/").parse().unwrap();
    Client::try_from(config).unwrap()
}
