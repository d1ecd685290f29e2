//! The controllers of `docs/examples/controllers` and those of kube-controller-manager must settle on the same objects.

mod own_cluster {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use example_controllers::program::{self, wall_clock};
    use example_controllers::{deployment, endpointslice, replicaset};
    use flyball_kube::Controller;
    use futures_util::{StreamExt, join};
    use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
    use k8s_openapi::api::core::v1::{Node, Pod, Service};
    use k8s_openapi::api::discovery::v1::EndpointSlice;
    use kube::api::{ListParams, Patch, PatchParams, PostParams};
    use kube::{Api, Client, Resource, ResourceExt};
    use kubelet::{BROKEN, run_pods};
    use serde::Serialize;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, from_value, json};
    use tokio::task::block_in_place;
    use tokio::time::{Instant, sleep};

    use crate::cluster::{Cluster, Namespace, client_of};

    const NODE: &str = "node";
    /// The longest time that a step may take. A step ends when nothing has changed for `QUIET`.
    const LIMIT: Duration = Duration::from_secs(60);
    const QUIET: Duration = Duration::from_millis(1500);

    /// Runs the example controllers until the future is dropped.
    async fn run_examples(client: Client) {
        let (pods, sets) = (program::pods(&client), program::replica_sets(&client));
        let (deployments, services) = (program::deployments(&client), program::services(&client));
        let slices = program::slices(&client);
        let of_sets =
            replicaset::run(Controller::for_shared(&sets), client.clone(), wall_clock(), &pods, &sets);
        let of_deployments = Controller::for_shared(&deployments);
        let of_deployments =
            deployment::run(of_deployments, client.clone(), wall_clock(), &pods, &sets, &deployments);
        let of_services =
            endpointslice::run(Controller::for_shared(&services), client, &pods, &services, &slices);
        join!(
            of_sets.for_each(async |_| {}),
            of_deployments.for_each(async |_| {}),
            of_services.for_each(async |_| {}),
        );
    }

    /// A namespace in which the test performs its steps, and the state after each step.
    struct Scenario<'a> {
        client: &'a Client,
        namespace: &'a str,
        settled: Vec<(&'static str, Value)>,
    }

    impl Scenario<'_> {
        fn api<K>(&self) -> Api<K>
        where
            K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>,
        {
            Api::namespaced(self.client.clone(), self.namespace)
        }

        async fn all<K>(&self) -> Vec<K>
        where
            K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
                + Clone
                + DeserializeOwned
                + std::fmt::Debug,
        {
            self.api::<K>().list(&ListParams::default()).await.unwrap().items
        }

        async fn create<K>(&self, object: Value)
        where
            K: Resource<DynamicType = (), Scope = kube::core::NamespaceResourceScope>
                + Clone
                + DeserializeOwned
                + Serialize
                + std::fmt::Debug,
        {
            self.api::<K>().create(&PostParams::default(), &from_value(object).unwrap()).await.unwrap();
        }

        async fn change(&self, patch: Value) {
            let web = self.api::<Deployment>();
            web.patch("web", &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
        }

        async fn set_image(&self, image: &str) {
            let containers = json!([{"name": "main", "image": image}]);
            self.change(json!({"spec": {"template": {"spec": {"containers": containers}}}})).await;
        }

        /// Waits until `all` pods exist, `available` of them are available, and nothing changes any longer. Then records the state.
        async fn settle(&mut self, step: &'static str, available: i32, all: i32) {
            let end = Instant::now() + LIMIT;
            let mut last = (Value::Null, Instant::now());
            loop {
                let web = self.api::<Deployment>().get("web").await.unwrap();
                let status = web.status.clone().unwrap_or_default();
                let is_there = status.observed_generation == web.metadata.generation
                    && (status.available_replicas.unwrap_or(0), status.replicas.unwrap_or(0))
                        == (available, all);
                let now = self.state().await;
                if !is_there || now != last.0 {
                    last = (now, Instant::now());
                } else if last.1.elapsed() > QUIET {
                    self.settled.push((step, last.0));
                    return;
                }
                assert!(Instant::now() < end, "{step}: {:#}", last.0);
                sleep(Duration::from_millis(50)).await;
            }
        }

        /// Returns the state without the parts that differ in each run: names, uids, versions, times and hashes.
        async fn state(&self) -> Value {
            let sets = self.all::<ReplicaSet>().await;
            let mut by_image = BTreeMap::<String, Value>::new();
            let image_of =
                |pod: &k8s_openapi::api::core::v1::PodSpec| pod.containers[0].image.clone().unwrap();
            for set in &sets {
                let spec = set.spec.clone().unwrap();
                let image = image_of(&spec.template.unwrap().spec.unwrap());
                let status = set.status.clone().unwrap_or_default();
                let counts = [
                    Some(status.replicas),
                    status.fully_labeled_replicas,
                    status.ready_replicas,
                    status.available_replicas,
                ]
                .map(|count| count.unwrap_or(0));
                by_image.insert(
                    format!("{} {image}", owner_of(set)),
                    json!({"replicas": spec.replicas, "minReadySeconds": spec.min_ready_seconds, "counts": counts,
                        "seen": status.observed_generation == set.metadata.generation, "notes": set.annotations(),
                        "labels": set.labels().keys().collect::<Vec<_>>()}),
                );
            }
            let mut pods = BTreeMap::<String, usize>::new();
            for pod in self.all::<Pod>().await {
                let labels: Vec<_> = pod.labels().keys().map(String::as_str).collect();
                let image = image_of(pod.spec.as_ref().unwrap());
                *pods.entry(format!("{} {image} {}", owner_of(&pod), labels.join(" "))).or_default() += 1;
            }
            let mut slices: Vec<_> = self.all::<EndpointSlice>().await.iter().map(slice).collect();
            slices.sort_by_key(Value::to_string);
            json!({"web": web(&self.api::<Deployment>().get("web").await.unwrap()),
                "sets": by_image, "pods": pods, "slices": slices})
        }
    }

    fn owner_of(object: &impl Resource) -> String {
        let owners = object.owner_references().iter();
        owners
            .map(|owner| format!("{} {:?} {:?}", owner.kind, owner.controller, owner.block_owner_deletion))
            .collect()
    }

    fn web(web: &Deployment) -> Value {
        let status = web.status.clone().unwrap_or_default();
        let counts = [
            status.replicas,
            status.updated_replicas,
            status.ready_replicas,
            status.available_replicas,
            status.unavailable_replicas,
            status.terminating_replicas,
        ]
        .map(|count| count.unwrap_or(0));
        let conditions = status.conditions.unwrap_or_default();
        let mut conditions: Vec<_> = conditions
            .into_iter()
            .map(|condition| (condition.type_, condition.status, condition.reason))
            .collect();
        conditions.sort();
        json!({"counts": counts, "conditions": conditions, "notes": web.annotations()})
    }

    fn slice(slice: &EndpointSlice) -> Value {
        let mut endpoints: Vec<_> = slice
            .endpoints
            .iter()
            .flatten()
            .map(|endpoint| {
                let target = endpoint.target_ref.as_ref().and_then(|target| target.kind.clone());
                json!([
                    endpoint.addresses.len(),
                    endpoint.conditions,
                    endpoint.node_name,
                    endpoint.hostname,
                    target
                ])
            })
            .collect();
        endpoints.sort_by_key(Value::to_string);
        json!({"type": slice.address_type, "ports": slice.ports, "labels": slice.labels(),
            "owner": owner_of(slice), "endpoints": endpoints})
    }

    /// Performs the steps of the test, with a deployment, a replica set without a deployment, and a service.
    async fn play(client: &Client, namespace: &str) -> Vec<(&'static str, Value)> {
        let mut play = Scenario { client, namespace, settled: Vec::new() };
        let template = |app: &str, image: &str| {
            json!({"metadata": {"labels": {"app": app}}, "spec": {"containers": [
                {"name": "main", "image": image, "ports": [{"name": "http", "containerPort": 8080}]}]}})
        };
        play.create::<Service>(json!({"metadata": {"name": "web", "labels": {"team": "a"}},
            "spec": {"selector": {"app": "web"}, "ports": [{"name": "http", "port": 80, "targetPort": "http"}]}})).await;
        play.create::<Service>(json!({"metadata": {"name": "headless"},
            "spec": {"selector": {"app": "alone"}, "clusterIP": "None", "publishNotReadyAddresses": true}}))
            .await;
        play.create::<Pod>(json!({"metadata": {"name": "orphan", "labels": {"app": "alone"}},
            "spec": {"containers": [{"name": "main", "image": "good"}]}}))
            .await;
        play.create::<ReplicaSet>(
            json!({"metadata": {"name": "alone"}, "spec": {"replicas": 3, "minReadySeconds": 1,
            "selector": {"matchLabels": {"app": "alone"}}, "template": template("alone", "good")}}),
        )
        .await;
        play.create::<Deployment>(json!({"metadata": {"name": "web", "annotations": {"note": "kept"}}, "spec": {"replicas": 4,
            "revisionHistoryLimit": 2, "selector": {"matchLabels": {"app": "web"}}, "template": template("web", "one")}})).await;
        play.settle("the first template", 4, 4).await;
        let released = Patch::Merge(json!({"metadata": {"labels": {"app": "free"}}}));
        play.api::<Pod>().patch("orphan", &PatchParams::default(), &released).await.unwrap();
        play.set_image("two").await;
        play.settle("the second template", 4, 4).await;
        play.change(json!({"spec": {"replicas": 6}})).await;
        play.settle("more pods", 6, 6).await;
        play.set_image(BROKEN).await;
        // A quarter of six pods is 1.5. So there may be two additional pods (rounded up), and one pod may be unavailable (rounded down).
        play.settle("a template that never works", 5, 8).await;
        play.change(json!({"spec": {"replicas": 9}})).await;
        play.settle("more pods on the way", 7, 12).await;
        play.set_image("two").await;
        play.settle("the way back", 9, 9).await;
        play.change(json!({"spec": {"strategy": {"type": "Recreate", "rollingUpdate": null}}})).await;
        play.set_image("three").await;
        play.settle("recreated", 9, 9).await;
        play.change(json!({"spec": {"paused": true, "replicas": 2}})).await;
        play.set_image("four").await;
        play.settle("paused", 2, 2).await;
        play.settled
    }

    async fn uids(client: &Client, namespace: &str) -> Vec<String> {
        let pods = Api::<Pod>::namespaced(client.clone(), namespace);
        let mut uids: Vec<_> = pods
            .list(&ListParams::default())
            .await
            .unwrap()
            .items
            .into_iter()
            .map(|pod| pod.uid().unwrap())
            .collect();
        uids.sort();
        uids
    }

    #[tokio::test(flavor = "multi_thread")]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn converge_to_the_state_of_the_original_controllers() {
        let mut cluster = Cluster::start().unwrap();
        let client = client_of(cluster.kubeconfig(), None).await;
        let node: Node = from_value(json!({"metadata": {"name": NODE}})).unwrap();
        Api::all(client.clone()).create(&PostParams::default(), &node).await.unwrap();
        let pods = program::pods(&client);
        let kubelet = tokio::spawn(run_pods(client.clone(), wall_clock(), pods, Some(NODE)));

        let here = Namespace::fresh(&client).await;
        let controllers = tokio::spawn(run_examples(client.clone()));
        let ours = play(&client, &here.name).await;
        controllers.abort();

        let names = ["deployment-controller", "replicaset-controller", "endpointslice-controller"];
        let before = uids(&client, &here.name).await;
        block_in_place(|| cluster.start_controller_manager(&names)).unwrap();
        let there = Namespace::fresh(&client).await;
        let theirs = play(&client, &there.name).await;
        for ((step, ours), (_, theirs)) in ours.iter().zip(&theirs) {
            assert_eq!(ours, theirs, "{step}\nours: {ours:#}\ntheirs: {theirs:#}");
        }
        // In this namespace, kube-controller-manager ran after the example controllers, and must have changed nothing.
        assert_eq!(uids(&client, &here.name).await, before);
        let mut left = Scenario { client: &client, namespace: &here.name, settled: Vec::new() };
        left.settle("left to the originals", 2, 2).await;
        assert_eq!(left.settled[0].1, ours.last().unwrap().1);
        kubelet.abort();
    }
}
