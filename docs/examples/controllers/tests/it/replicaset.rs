//! The ReplicaSet controller: the set reaches the wanted number of pods, even if pods are changed, requests are refused, or watches stall.

use std::time::Duration;

use example_controllers::replicaset::run;
use flyball_kube::Controller;
use flyball_kube_testing::{RequestMatcher, Verb};
use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::api::apps::v1::ReplicaSet;
use k8s_openapi::api::core::v1::Pod;
use kube::core::Status;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use serde_json::{Value, from_value, json};

use crate::cluster::Cluster;

fn set(replicas: i32, spec: Value) -> ReplicaSet {
    let mut set = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "good"}]}}}});
    set["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    from_value(set).unwrap()
}

/// Changes only the wanted number of pods of the set.
fn scale(cluster: &Cluster, replicas: i32) {
    let mut set = cluster.server.get::<ReplicaSet>("default", "web").unwrap();
    set.spec.as_mut().unwrap().replicas = Some(replicas);
    cluster.server.put(&set);
}

/// Returns the counts in the status of the set: replicas, fully labelled, ready, available.
fn counts(cluster: &Cluster) -> [i32; 4] {
    let status = cluster.server.get::<ReplicaSet>("default", "web").unwrap().status.unwrap_or_default();
    [Some(status.replicas), status.fully_labeled_replicas, status.ready_replicas, status.available_replicas]
        .map(|count| count.unwrap_or(0))
}

fn start(cluster: &mut Cluster) -> mpsc::UnboundedSender<ObjectRef<ReplicaSet>> {
    let (poke, poked) = mpsc::unbounded();
    let controller = Controller::for_shared(&cluster.sets).reconcile_on(poked);
    let reconciles =
        run(controller, cluster.client.clone(), cluster.clock.clone(), &cluster.pods, &cluster.sets);
    cluster.tasks.spawn(reconciles.for_each(async |_| {}));
    poke
}

#[tokio::test(start_paused = true)]
async fn creates_and_deletes_pods_to_the_wanted_number() {
    let mut cluster = Cluster::new().await;
    cluster.run_pods();
    let _poke = start(&mut cluster);
    cluster.server.put(&set(3, json!({})));
    cluster.until(|_| counts(&cluster) == [3; 4]).await;
    scale(&cluster, 5);
    cluster.until(|_| counts(&cluster) == [5; 4]).await;
    scale(&cluster, 2);
    cluster.until(|_| counts(&cluster) == [2; 4]).await;

    let lost = cluster.server.list::<Pod>()[0].name_any();
    cluster.server.delete::<Pod>("default", &lost);
    cluster.until(|server| server.list::<Pod>().len() == 2 && counts(&cluster) == [2; 4]).await;
    cluster.rest().await;
    assert_eq!((cluster.requests::<Pod>(Verb::Create), cluster.requests::<Pod>(Verb::Delete)), (6, 3));
    let status = cluster.server.get::<ReplicaSet>("default", "web").unwrap();
    assert_eq!(status.status.unwrap().observed_generation, status.metadata.generation);
}

#[tokio::test(start_paused = true)]
async fn replaces_a_finished_pod_and_keeps_it() {
    let mut cluster = Cluster::new().await;
    cluster.run_pods();
    let _poke = start(&mut cluster);
    cluster.server.put(&set(2, json!({})));
    cluster.until(|_| counts(&cluster) == [2; 4]).await;
    let mut ended = cluster.server.list::<Pod>().remove(0);
    ended.status.as_mut().unwrap().phase = Some("Failed".into());
    cluster.server.put(&ended);
    cluster.until(|server| server.list::<Pod>().len() == 3 && counts(&cluster) == [2; 4]).await;
    cluster.rest().await;
    assert_eq!(cluster.requests::<Pod>(Verb::Delete), 0);
}

#[tokio::test(start_paused = true)]
async fn adopts_and_releases_pods_by_labels() {
    let mut cluster = Cluster::new().await;
    cluster.run_pods();
    let _poke = start(&mut cluster);
    let orphan: Pod =
        from_value(json!({"metadata": {"name": "orphan", "namespace": "default", "labels": {"app": "web"}}}))
            .unwrap();
    cluster.server.put(&orphan);
    cluster.server.put(&set(2, json!({})));
    cluster.until(|_| counts(&cluster) == [2; 4]).await;
    assert_eq!(cluster.requests::<Pod>(Verb::Create), 1);
    let mut taken = cluster.server.get::<Pod>("default", "orphan").unwrap();
    assert_eq!(taken.owner_references()[0].name, "web");

    taken.labels_mut().insert("app".into(), "debug".into());
    cluster.server.put(&taken);
    cluster.until(|server| server.list::<Pod>().len() == 3 && counts(&cluster) == [2; 4]).await;
    assert!(cluster.server.get::<Pod>("default", "orphan").unwrap().owner_references().is_empty());

    // Now another orphan appears. The set adopts it, and then has one pod too many. The new pod is deleted, because it is the newest.
    cluster.rest().await;
    cluster.server.put(&Pod {
        metadata: kube::core::ObjectMeta { name: Some("late".into()), ..orphan.metadata },
        ..orphan
    });
    cluster.until(|_| cluster.requests::<Pod>(Verb::Delete) == 1).await;
    cluster.until(|server| server.get::<Pod>("default", "late").is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_available_after_min_ready_seconds() {
    let mut cluster = Cluster::new().await;
    cluster.run_pods();
    let _poke = start(&mut cluster);
    cluster.server.put(&set(2, json!({"minReadySeconds": 30})));
    cluster.until(|_| counts(&cluster) == [2, 2, 2, 0]).await;
    let ready = tokio::time::Instant::now();
    cluster.until(|_| counts(&cluster) == [2; 4]).await;
    let waited = ready.elapsed();
    // The times in conditions are rounded to whole seconds, so the wait can differ by one second.
    assert!((Duration::from_secs(29)..Duration::from_secs(31)).contains(&waited), "{waited:?}");
}

#[tokio::test(start_paused = true)]
async fn reports_refusal_and_stops_batch() {
    let mut cluster = Cluster::new().await;
    cluster.run_pods();
    let refusal = Status::failure("no more", "Forbidden").with_code(403);
    cluster.server.fail_next(RequestMatcher::verb(Verb::Create).resource::<Pod>(), 8, refusal);
    let _poke = start(&mut cluster);
    cluster.server.put(&set(10, json!({})));
    let failed = |cluster: &Cluster| {
        let status = cluster.server.get::<ReplicaSet>("default", "web").unwrap().status;
        status.and_then(|status| status.conditions).map(|conditions| conditions[0].reason.clone().unwrap())
    };
    cluster.until(|_| failed(&cluster).as_deref() == Some("FailedCreate")).await;
    assert!(cluster.requests::<Pod>(Verb::Create) < 8, "a batch followed the failed batch");
    cluster.until(|_| counts(&cluster) == [10; 4] && failed(&cluster).is_none()).await;
    assert_eq!(cluster.requests::<Pod>(Verb::Create), 18);
}

/// The watches stall while pods are being created or deleted, so for some minutes the cache contains the old pods.
#[tokio::test(start_paused = true)]
async fn a_stale_cache_creates_no_second_pod() {
    let mut cluster = Cluster::new().await;
    let poke = start(&mut cluster);
    let web = || ObjectRef::<ReplicaSet>::new("web").within("default");
    let one_second = Duration::from_secs(1);

    cluster.server.set_latency(RequestMatcher::verb(Verb::Create).resource::<Pod>(), one_second);
    cluster.server.put(&set(3, json!({})));
    cluster.until(|_| cluster.requests::<Pod>(Verb::Create) > 0).await;
    cluster.server.stall_watches();
    cluster.until(|server| server.list::<Pod>().len() == 3).await;
    for _ in 0..60 {
        poke.unbounded_send(web()).unwrap();
        tokio::time::sleep(one_second).await;
        assert!(cluster.pods.store().is_empty(), "the cache is not behind");
    }
    cluster.until(|_| counts(&cluster)[0] == 3).await;
    assert_eq!(cluster.requests::<Pod>(Verb::Create), 3);

    cluster.server.set_latency(RequestMatcher::verb(Verb::Delete).resource::<Pod>(), one_second);
    scale(&cluster, 1);
    cluster.until(|_| cluster.requests::<Pod>(Verb::Delete) > 0).await;
    cluster.server.stall_watches();
    cluster.until(|server| server.list::<Pod>().len() == 1).await;
    for _ in 0..60 {
        poke.unbounded_send(web()).unwrap();
        tokio::time::sleep(one_second).await;
        assert_eq!(cluster.pods.store().len(), 3, "the cache is not behind");
    }
    cluster.until(|_| counts(&cluster)[0] == 1).await;
    assert_eq!((cluster.requests::<Pod>(Verb::Create), cluster.requests::<Pod>(Verb::Delete)), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_being_deleted_creates_no_pods() {
    let mut cluster = Cluster::new().await;
    cluster.run_pods();
    let _poke = start(&mut cluster);
    let mut deleting = set(2, json!({}));
    deleting.metadata.finalizers = Some(vec!["test/hold".into()]);
    cluster.server.put(&deleting);
    cluster.until(|_| counts(&cluster) == [2; 4]).await;
    let api = kube::Api::<ReplicaSet>::default_namespaced(cluster.client.clone());
    api.delete("web", &kube::api::DeleteParams::default()).await.unwrap();
    let lost = cluster.server.list::<Pod>()[0].name_any();
    cluster.server.delete::<Pod>("default", &lost);
    cluster.until(|_| counts(&cluster) == [1; 4]).await;
    cluster.rest().await;
    assert_eq!(cluster.requests::<Pod>(Verb::Create), 2);
    assert!(cluster.server.get::<ReplicaSet>("default", "web").unwrap().meta().deletion_timestamp.is_some());
}
