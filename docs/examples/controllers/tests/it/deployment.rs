//! Tests of the Deployment controller together with the ReplicaSet controller: when a template changes, the pods are replaced.

use example_controllers::{deployment, program, replicaset};
use flyball_kube::Controller;
use flyball_kube_testing::{RequestMatcher, Verb};
use futures::StreamExt;
use futures::channel::mpsc;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::core::v1::Pod;
use kube::core::Status;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};
use kubelet::BROKEN;
use serde_json::{Value, from_value, json};

use crate::cluster::Cluster;

const REVISION: &str = "deployment.kubernetes.io/revision";

fn web(spec: Value) -> Deployment {
    let mut web = json!({"metadata": {"name": "web", "namespace": "default"}, "spec": {
        "replicas": 4, "selector": {"matchLabels": {"app": "web"}}, "revisionHistoryLimit": 1, "progressDeadlineSeconds": 60,
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "one"}]}}}});
    web["spec"].as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    from_value(web).unwrap()
}

/// Starts a cluster with both controllers and a kubelet. To reconcile a deployment, send its reference to the returned channel.
async fn start() -> (Cluster, mpsc::UnboundedSender<ObjectRef<Deployment>>) {
    let mut cluster = Cluster::new().await;
    let deployments = program::deployments(&cluster.client);
    cluster.run_pods();
    let (client, clock) = (cluster.client.clone(), cluster.clock.clone());
    let of_sets = Controller::for_shared(&cluster.sets);
    let of_sets = replicaset::run(of_sets, client.clone(), clock.clone(), &cluster.pods, &cluster.sets);
    let (poke, poked) = mpsc::unbounded();
    let controller = Controller::for_shared(&deployments).reconcile_on(poked);
    let of_deployments =
        deployment::run(controller, client, clock, &cluster.pods, &cluster.sets, &deployments);
    cluster.tasks.spawn(of_sets.for_each(async |_| {}));
    cluster.tasks.spawn(of_deployments.for_each(async |_| {}));
    (cluster, poke)
}

fn get(cluster: &Cluster) -> Deployment {
    cluster.server.get("default", "web").unwrap()
}

fn change(cluster: &Cluster, f: impl FnOnce(&mut Deployment)) {
    let mut web = get(cluster);
    f(&mut web);
    *web.metadata.generation.as_mut().unwrap() += 1;
    cluster.server.put(&web);
}

fn set_image(cluster: &Cluster, image: &str) {
    change(cluster, |web| {
        web.spec.as_mut().unwrap().template.spec.as_mut().unwrap().containers[0].image =
            Some(image.to_owned());
    });
}

fn reason(cluster: &Cluster, type_: &str) -> Option<String> {
    let conditions = get(cluster).status?.conditions?;
    conditions.into_iter().find(|condition| condition.type_ == type_)?.reason
}

/// Returns true if all pods have this image, and the status of the deployment is complete.
fn is_all(cluster: &Cluster, image: &str) -> bool {
    let web = get(cluster);
    let wanted = web.spec.as_ref().unwrap().replicas.unwrap();
    let status = web.status.clone().unwrap_or_default();
    let pods = cluster.server.list::<Pod>();
    let is = |pod: &Pod| pod.spec.as_ref().unwrap().containers[0].image.as_deref() == Some(image);
    status.observed_generation == web.metadata.generation
        && [status.replicas, status.updated_replicas, status.available_replicas] == [Some(wanted); 3]
        && pods.len() == wanted as usize
        && pods.iter().all(is)
        && reason(cluster, "Progressing").as_deref() == Some("NewReplicaSetAvailable")
}

fn revisions(cluster: &Cluster) -> Vec<String> {
    let sets = cluster.server.list::<ReplicaSet>();
    let mut revisions: Vec<_> = sets.iter().map(|set| set.annotations()[REVISION].clone()).collect();
    revisions.sort();
    revisions
}

#[tokio::test(start_paused = true)]
async fn rolls_out_each_template_and_prunes_history() {
    let (cluster, _poke) = start().await;
    cluster.server.put(&web(json!({})));
    cluster.until(|_| is_all(&cluster, "one")).await;
    assert_eq!((get(&cluster).annotations()[REVISION].as_str(), revisions(&cluster).len()), ("1", 1));

    set_image(&cluster, "two");
    cluster.until(|_| is_all(&cluster, "two")).await;
    set_image(&cluster, "three");
    cluster.until(|_| is_all(&cluster, "three") && revisions(&cluster) == ["2", "3"]).await;
    set_image(&cluster, "two");
    cluster.until(|_| is_all(&cluster, "two") && revisions(&cluster) == ["3", "4"]).await;
    assert_eq!(get(&cluster).annotations()[REVISION], "4");

    change(&cluster, |web| web.spec.as_mut().unwrap().replicas = Some(7));
    cluster.until(|_| is_all(&cluster, "two")).await;
    change(&cluster, |web| web.spec.as_mut().unwrap().replicas = Some(0));
    cluster.until(|_| is_all(&cluster, "two")).await;

    // A complete deployment causes no writes.
    cluster.rest().await;
    cluster.server.clear_requests();
    cluster.rest().await;
    for verb in [Verb::Create, Verb::Update, Verb::Patch, Verb::Delete] {
        assert_eq!(cluster.server.requests_matching(&RequestMatcher::verb(verb)), [], "{verb:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failing_template_keeps_enough_old_pods() {
    let (cluster, _poke) = start().await;
    cluster.server.put(&web(json!({})));
    cluster.until(|_| is_all(&cluster, "one")).await;
    set_image(&cluster, BROKEN);
    cluster.until(|_| reason(&cluster, "Progressing").as_deref() == Some("ProgressDeadlineExceeded")).await;
    let status = get(&cluster).status.unwrap();
    assert_eq!(
        (status.available_replicas, status.replicas),
        (Some(3), Some(5)),
        "not one unavailable pod and one surge pod"
    );
    set_image(&cluster, "one");
    cluster.until(|_| is_all(&cluster, "one")).await;
}

#[tokio::test(start_paused = true)]
async fn recreate_waits_for_the_last_old_pod() {
    let (cluster, _poke) = start().await;
    cluster.server.put(&web(json!({"strategy": {"type": "Recreate"}})));
    cluster.until(|_| is_all(&cluster, "one")).await;
    let mut last = cluster.server.list::<Pod>().remove(0);
    last.finalizers_mut().push("test/hold".into());
    cluster.server.put(&last);
    set_image(&cluster, "two");
    cluster.until(|server| server.list::<Pod>().len() == 1).await;
    cluster.rest().await;
    let mut held = cluster.server.list::<Pod>();
    assert_eq!(
        (held.len(), held[0].name_any()),
        (1, last.name_any()),
        "a new pod was created before the last old pod ended"
    );
    assert!(held[0].meta().deletion_timestamp.is_some());
    held[0].finalizers_mut().clear();
    cluster.server.put(&held[0]);
    cluster.server.delete::<Pod>("default", &held[0].name_any());
    cluster.until(|_| is_all(&cluster, "two")).await;
}

#[tokio::test(start_paused = true)]
async fn adopts_an_existing_set() {
    let (cluster, _poke) = start().await;
    cluster.server.put(&web(json!({})));
    cluster.until(|_| is_all(&cluster, "one")).await;
    let mut set = cluster.server.list::<ReplicaSet>().remove(0);
    let (uid, owners) = (set.uid(), std::mem::take(set.owner_references_mut()));
    cluster.server.put(&set);
    cluster.until(|server| server.list::<ReplicaSet>()[0].owner_references() == owners).await;
    assert_eq!(cluster.server.list::<ReplicaSet>()[0].uid(), uid);
    cluster.until(|_| is_all(&cluster, "one")).await;
}

#[tokio::test(start_paused = true)]
async fn a_name_collision_changes_the_name() {
    // The first cluster is used to learn the name of the new set. In the second cluster, a different set already has that name.
    let (cluster, _poke) = start().await;
    cluster.server.put(&web(json!({})));
    cluster.until(|server| !server.list::<ReplicaSet>().is_empty()).await;
    let name = cluster.server.list::<ReplicaSet>()[0].name_any();

    let (cluster, _poke) = start().await;
    let other = json!({"metadata": {"name": name, "namespace": "default"}, "spec": {"replicas": 0,
        "selector": {"matchLabels": {"app": "other"}}, "template": {"metadata": {"labels": {"app": "other"}}}}});
    cluster.server.put(&from_value::<ReplicaSet>(other).unwrap());
    cluster.server.put(&web(json!({})));
    cluster.until(|_| is_all(&cluster, "one")).await;
    assert_eq!(get(&cluster).status.unwrap().collision_count, Some(1));
}

#[tokio::test(start_paused = true)]
async fn reports_failures_to_create_pods() {
    let (cluster, _poke) = start().await;
    let quota = Status::failure("no more", "Forbidden").with_code(403);
    cluster.server.fail_next(RequestMatcher::verb(Verb::Create).resource::<Pod>(), 12, quota);
    cluster.server.put(&web(json!({})));
    cluster.until(|_| reason(&cluster, "ReplicaFailure").as_deref() == Some("FailedCreate")).await;
    cluster.until(|_| is_all(&cluster, "one") && reason(&cluster, "ReplicaFailure").is_none()).await;
}

/// The watches stall while the ReplicaSet is being created, and deliver it to the cache only minutes later.
#[tokio::test(start_paused = true)]
async fn a_stale_cache_creates_no_second_set() {
    let (cluster, poke) = start().await;
    let one_second = std::time::Duration::from_secs(1);
    cluster.server.set_latency(RequestMatcher::verb(Verb::Create).resource::<ReplicaSet>(), one_second);
    cluster.server.put(&web(json!({})));
    cluster.until(|_| cluster.requests::<ReplicaSet>(Verb::Create) > 0).await;
    cluster.server.stall_watches();
    cluster.until(|server| !server.list::<ReplicaSet>().is_empty()).await;
    for _ in 0..60 {
        poke.unbounded_send(ObjectRef::new("web").within("default")).unwrap();
        tokio::time::sleep(one_second).await;
        assert!(cluster.sets.store().is_empty(), "the cache is not behind");
    }
    cluster.until(|_| is_all(&cluster, "one")).await;
    assert_eq!(
        (cluster.requests::<ReplicaSet>(Verb::Create), get(&cluster).status.unwrap().collision_count),
        (1, None)
    );
}
