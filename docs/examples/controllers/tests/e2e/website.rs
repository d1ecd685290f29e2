//! Tests of websites together with Kubernetes' own controllers of Deployments and ReplicaSets, and its garbage collector.

mod own_cluster {
    use std::fmt::Debug;

    use example_controllers::program::wall_clock;
    use example_controllers::website::{Website, run};
    use flyball_kube::Controller;
    use futures::StreamExt;
    use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
    use k8s_openapi::api::core::v1::{ConfigMap, Pod, Service};
    use k8s_openapi::api::events::v1::Event;
    use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
    use kube::core::NamespaceResourceScope;
    use kube::runtime::watcher;
    use kube::{Api, Client, Resource, ResourceExt};
    use kubelet::run_pods;
    use serde::de::DeserializeOwned;
    use serde_json::{Value, from_value, json};
    use tokio::task::{AbortHandle, JoinSet};

    use crate::definition::{BEFORE, UNREADABLE};
    use crate::world::{client, namespace, until};

    /// The namespace of a test, and its tasks, which are aborted when this value is dropped.
    struct Play {
        client: Client,
        namespace: String,
        tasks: JoinSet<()>,
    }

    impl Play {
        async fn new() -> Self {
            let (client, namespace) = namespace().await;
            Self { client, namespace, tasks: JoinSet::new() }
        }

        fn api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self) -> Api<K> {
            Api::namespaced(self.client.clone(), &self.namespace)
        }

        /// Returns the API for websites as dynamic objects, so that the test can also read websites that cannot be decoded.
        fn raw(&self) -> Api<DynamicObject> {
            let kind = ApiResource::erase::<Website>(&());
            Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
        }

        fn run_sites(&mut self) -> AbortHandle {
            let controller = Controller::new(self.api(), watcher::Config::default());
            self.tasks.spawn(run(controller, self.client.clone(), wall_clock()).for_each(async |_| {}))
        }

        fn run_pods(&mut self) {
            let pods = flyball_kube::informer(self.api(), watcher::Config::default()).start().unwrap();
            self.tasks.spawn(run_pods(self.client.clone(), wall_clock(), pods, None));
        }

        async fn create(&self, name: &str, spec: Value) -> kube::Result<DynamicObject> {
            let site = json!({"apiVersion": "examples.flyball.rs/v1", "kind": "Website", "metadata": {"name": name},
                "spec": spec, "status": {"availableReplicas": 100}});
            self.raw().create(&PostParams::default(), &from_value(site).unwrap()).await
        }

        async fn change(&self, name: &str, spec: Value) {
            let patch = Patch::Merge(json!({ "spec": spec }));
            self.raw().patch(name, &PatchParams::default(), &patch).await.unwrap();
        }

        /// Returns true if the website's status is that of its newest generation, and has this number of available pods and this status of the
        /// condition `Ready`.
        async fn is(&self, name: &str, available: i32, ready: &str) -> bool {
            let site = self.api::<Website>().get(name).await.unwrap();
            let status = site.status.unwrap_or_default();
            status.observed_generation == site.metadata.generation
                && status.available_replicas == available
                && status.conditions.iter().any(|known| known.type_ == "Ready" && known.status == ready)
        }

        /// Creates a website, and waits until one pod serves it.
        async fn served(&mut self, name: &str) -> Website {
            self.create(name, json!({"html": "hello"})).await.unwrap();
            until(async || self.is(name, 1, "True").await).await;
            self.api().get(name).await.unwrap()
        }

        async fn uid<K>(&self, name: &str) -> Option<String>
        where
            K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        {
            self.api::<K>().get_opt(name).await.unwrap().and_then(|object| object.uid())
        }

        async fn assert_owned<K>(&self, name: &str, owner: &Website)
        where
            K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        {
            let part = self.api::<K>().get(name).await.unwrap();
            let mut reference = owner.controller_owner_ref(&()).unwrap();
            reference.block_owner_deletion = Some(true);
            assert_eq!(part.owner_references(), [reference]);
        }

        async fn comes_back<K>(&self, name: &str)
        where
            K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        {
            let before = self.uid::<K>(name).await.unwrap();
            self.api::<K>().delete(name, &DeleteParams::background()).await.unwrap();
            until(async || self.uid::<K>(name).await.is_some_and(|uid| uid != before)).await;
        }

        /// Returns true if there is an event with this reason.
        async fn has_said(&self, reason: &str) -> bool {
            let events = self.api::<Event>().list(&ListParams::default()).await.unwrap().items;
            events.iter().any(|event| event.reason.as_deref() == Some(reason))
        }

        async fn are_gone<K>(&self)
        where
            K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
        {
            until(async || self.api::<K>().list(&ListParams::default()).await.unwrap().items.is_empty())
                .await;
        }
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn the_definition_is_established_with_its_schema() {
        let play = Play::new().await;
        let made = play.create("home", json!({"html": "hello"})).await.unwrap();
        assert_eq!(made.data["spec"], json!({"html": "hello", "replicas": 1, "image": "nginx:stable"}));
        assert_eq!(made.data.get("status"), None, "the status was accepted outside of its subresource");
        for spec in [json!({"html": 5}), json!({"replicas": 1}), json!({"html": "", "replicas": "many"})] {
            match play.create("other", spec.clone()).await {
                Err(kube::Error::Api(status)) => assert_eq!(status.code, 422, "{spec}: {status}"),
                other => panic!("{spec}: {other:?}"),
            }
        }
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn owns_its_parts_and_updates_its_status() {
        let mut play = Play::new().await;
        play.run_sites();
        play.create("home", json!({"html": "hello", "replicas": 2})).await.unwrap();
        until(async || play.is("home", 0, "False").await).await;
        let site = play.api::<Website>().get("home").await.unwrap();
        play.assert_owned::<ConfigMap>("home", &site).await;
        play.assert_owned::<Service>("home", &site).await;
        play.assert_owned::<Deployment>("home", &site).await;
        play.run_pods();
        until(async || play.is("home", 2, "True").await).await;
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn recreates_a_deleted_part() {
        let mut play = Play::new().await;
        play.run_sites();
        play.run_pods();
        let site = play.served("home").await;
        play.comes_back::<ConfigMap>("home").await;
        play.comes_back::<Service>("home").await;
        play.comes_back::<Deployment>("home").await;
        play.assert_owned::<Deployment>("home", &site).await;
        until(async || play.is("home", 1, "True").await).await;
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn applies_spec_changes() {
        let mut play = Play::new().await;
        play.run_sites();
        play.run_pods();
        play.served("home").await;
        let image = "httpd:stable";
        play.change("home", json!({"html": "goodbye", "replicas": 3, "image": image})).await;
        until(async || play.is("home", 3, "True").await).await;
        let page = play.api::<ConfigMap>().get("home").await.unwrap();
        assert_eq!(page.data.unwrap()["index.html"], "goodbye");
        let pods = play.api::<Pod>().list(&ListParams::default()).await.unwrap().items;
        let serving = pods.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
        let images: Vec<_> =
            serving.flat_map(|pod| pod.spec.iter().map(|spec| spec.containers[0].image.as_deref())).collect();
        assert_eq!(images, [Some(image); 3]);
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn deletion_waits_for_the_finalizer_and_removes_all_parts() {
        let mut play = Play::new().await;
        let controller = play.run_sites();
        play.run_pods();
        play.served("home").await;
        assert!(play.has_said("Serving").await);

        // While no controller runs, the deleted website remains, because of its finalizer.
        controller.abort();
        until(async || controller.is_finished()).await;
        play.api::<Website>().delete("home", &DeleteParams::background()).await.unwrap();
        assert!(play.uid::<Website>("home").await.is_some());
        assert!(!play.has_said("Deleted").await);

        play.run_sites();
        until(async || play.uid::<Website>("home").await.is_none()).await;
        assert!(play.has_said("Deleted").await, "there is no event for the deletion");
        play.are_gone::<ConfigMap>().await;
        play.are_gone::<Service>().await;
        play.are_gone::<Deployment>().await;
        play.are_gone::<ReplicaSet>().await;
        play.are_gone::<Pod>().await;
    }

    #[tokio::test]
    #[ignore = "needs an API server: cargo xtask e2e"]
    async fn an_unreadable_object_does_not_block_others() {
        let mut play = Play { client: client().await, namespace: BEFORE.to_owned(), tasks: JoinSet::new() };
        assert!(play.api::<Website>().get(UNREADABLE).await.is_err(), "the website can be decoded");
        let before = play.raw().get(UNREADABLE).await.unwrap();
        play.run_sites();
        play.run_pods();
        play.served("home").await;
        play.change("home", json!({"replicas": 2})).await;
        until(async || play.is("home", 2, "True").await).await;
        assert_eq!(play.raw().get(UNREADABLE).await.unwrap(), before, "the unreadable website has changed");
        // The website is reconciled as soon as a change makes it decodable.
        play.change(UNREADABLE, json!({"html": "hello", "replicas": 1})).await;
        until(async || play.is(UNREADABLE, 1, "True").await).await;
    }
}
