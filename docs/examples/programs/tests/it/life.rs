//! A life of a small cluster, and what is left of it in the end.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use flyball_kube_testing::ApiServer;
use futures::future::BoxFuture;
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

/// Who acts on the cluster, beside the program.
pub(crate) struct Life {
    client: Client,
}

/// What is left, by kind and name.
type Left = BTreeMap<String, Value>;

/// Runs the scenario beside each program; what both left, which is the same.
pub(crate) async fn on_both(
    kube_runtime: impl FnOnce(Client) -> BoxFuture<'static, ()>,
    flyball: impl FnOnce(Client) -> BoxFuture<'static, ()>,
    scenario: impl AsyncFn(&Life),
) -> Left {
    let kubes = beside(kube_runtime, &scenario).await;
    let ours = beside(flyball, &scenario).await;
    assert_eq!(ours, kubes);
    ours
}

async fn beside(
    program: impl FnOnce(Client) -> BoxFuture<'static, ()>,
    scenario: &impl AsyncFn(&Life),
) -> Left {
    let server = ApiServer::new();
    server.register::<ConfigMap>();
    server.register::<Secret>();
    server.register::<Event>();
    let running = tokio::spawn(program(server.client()));
    let life = Life { client: server.client() };
    life.settle().await;
    scenario(&life).await;
    life.settle().await;
    assert!(!running.is_finished(), "a controller goes on");
    running.abort();
    let mut left = Left::new();
    life.gather::<ConfigMap>(&mut left).await;
    life.gather::<Secret>(&mut left).await;
    life.gather::<Event>(&mut left).await;
    left
}

impl Life {
    fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn wait(&self, time: Duration) {
        sleep(time).await;
    }

    /// As long as any of these programs needs.
    pub(crate) async fn settle(&self) {
        self.wait(Duration::from_secs(20)).await;
    }

    pub(crate) async fn create<K>(&self, name: &str, object: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let mut object = object;
        object["metadata"]["name"] = json!(name);
        let object: K = serde_json::from_value(object).expect("an object of the kind");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("it is new");
    }

    pub(crate) async fn merge<K>(&self, name: &str, patch: Value)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
    {
        let patch = Patch::Merge(patch);
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await.expect("it is there");
    }

    pub(crate) async fn delete<K>(&self, name: &str)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + DeserializeOwned + Clone + Debug,
    {
        self.api::<K>().delete(name, &DeleteParams::default()).await.expect("it is there");
    }

    /// Without what a server makes up anew each time.
    async fn gather<K>(&self, left: &mut Left)
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
            + Serialize
            + DeserializeOwned
            + Clone
            + Debug,
    {
        let kind = K::kind(&()).into_owned();
        for object in self.api::<K>().list(&ListParams::default()).await.expect("the kind is there") {
            // The names of events are made up, too.
            let name = if kind == "Event" { String::new() } else { object.name_any() };
            let mut value = serde_json::to_value(&object).expect("JSON");
            for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields"] {
                value["metadata"].as_object_mut().expect("metadata").remove(field);
            }
            for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
                owner["uid"] = json!("");
            }
            if kind == "Event" {
                value = json!({"reason": value["reason"], "note": value["note"], "regarding": value["regarding"]["name"]});
                left.insert(format!("Event/{}{name}", value["note"]), value);
            } else {
                left.insert(format!("{kind}/{name}"), value);
            }
        }
    }
}
