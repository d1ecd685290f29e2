//! Runs scenarios. A scenario changes a small cluster while a program runs. After that, the objects that exist are compared.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use futures::future::{BoxFuture, join};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::apps::v1::{Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, Resource, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::time::sleep;

/// A kind of object that the scenarios can use.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope> + Serialize + DeserializeOwned + Clone + Debug
{
}

impl<K> Kind for K where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope>
        + Serialize
        + DeserializeOwned
        + Clone
        + Debug
{
}

/// The environment in which programs run.
pub(crate) trait World {
    /// Returns a client whose default namespace does not contain objects of a scenario yet.
    async fn client(&self) -> Client;

    /// The longest time that any program needs until its next change of an object, when the server answers at once.
    const SETTLED: Duration;

    /// Whether the programs of both engines run at the same time, each with its own client.
    const TOGETHER: bool = true;
}

/// A world in which the engines run one after the other. Use it for programs that read cluster-scoped objects: if both engines ran at the same time,
/// each would see the objects of the other's scenario.
pub(crate) struct InTurn<'a, W>(pub(crate) &'a W);

impl<W: World> World for InTurn<'_, W> {
    const SETTLED: Duration = W::SETTLED;
    const TOGETHER: bool = false;

    fn client(&self) -> impl Future<Output = Client> {
        self.0.client()
    }
}

/// A client that changes the cluster while the program runs.
pub(crate) struct Life {
    client: Client,
    settled: Duration,
}

/// How often [`Life::settle`] looks at the objects in [`World::SETTLED`].
const LOOKS: u32 = 4;

/// The objects that exist at the end, by kind and name.
pub(crate) type Left = BTreeMap<String, Value>;

/// Runs the scenario twice: while the program of kube-runtime runs, and while the program of flyball runs. Returns the objects that exist at the end,
/// which must be the same for both programs.
pub(crate) async fn on_both<W: World>(
    world: &W,
    kube_runtime: impl FnOnce(Client) -> BoxFuture<'static, ()>,
    flyball: impl FnOnce(Client) -> BoxFuture<'static, ()>,
    scenario: impl AsyncFn(&Life),
) -> Left {
    let (kubes, ours) = (beside(world, kube_runtime, &scenario), beside(world, flyball, &scenario));
    let (kubes, ours) = if W::TOGETHER { join(kubes, ours).await } else { (kubes.await, ours.await) };
    let differ = |(name, ours): &(&String, &Value)| kubes.get(*name) != Some(*ours);
    for (name, ours) in ours.iter().filter(differ) {
        println!("{name} differs: {ours} with flyball, and {:?} with kube-runtime", kubes.get(name));
    }
    assert!(ours.keys().eq(kubes.keys()), "{:?} are left with flyball, and {:?}", ours.keys(), kubes.keys());
    assert!(ours == kubes, "an object differs");
    ours
}

async fn beside<W: World>(
    world: &W,
    program: impl FnOnce(Client) -> BoxFuture<'static, ()>,
    scenario: &impl AsyncFn(&Life),
) -> Left {
    let client = world.client().await;
    let running = tokio::spawn(program(client.clone()));
    let life = Life::new(client, W::SETTLED);
    life.settle().await;
    scenario(&life).await;
    life.settle().await;
    assert!(!running.is_finished(), "the program must not end");
    running.abort();
    life.left().await
}

impl Life {
    pub(crate) fn new(client: Client, settled: Duration) -> Self {
        Self { client, settled }
    }

    pub(crate) fn client(&self) -> Client {
        self.client.clone()
    }

    pub(crate) fn api<K: Kind>(&self) -> Api<K> {
        Api::default_namespaced(self.client.clone())
    }

    /// Waits until the program has processed the changes: until no object has changed for [`World::SETTLED`].
    ///
    /// A fixed time would be too short when the server is slow.
    pub(crate) async fn settle(&self) {
        let step = self.settled / LOOKS;
        let (mut before, mut quiet) = (self.versions().await, 0);
        for _ in 0..LOOKS * 20 {
            sleep(step).await;
            let now = self.versions().await;
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            if quiet == LOOKS {
                return;
            }
        }
        panic!("the program does not settle");
    }

    /// Returns the versions of all objects of the namespace.
    async fn versions(&self) -> BTreeMap<String, Option<String>> {
        let mut versions = BTreeMap::new();
        self.add_versions::<ConfigMap>(&mut versions).await;
        self.add_versions::<Secret>(&mut versions).await;
        self.add_versions::<Service>(&mut versions).await;
        self.add_versions::<Pod>(&mut versions).await;
        self.add_versions::<Deployment>(&mut versions).await;
        self.add_versions::<StatefulSet>(&mut versions).await;
        self.add_versions::<Event>(&mut versions).await;
        versions
    }

    /// Lists the objects of a kind, except events of the API server itself: it reports in an event if a Service that it has just stored is not yet
    /// in its table of addresses when it compares the two, which is a matter of time.
    async fn list<K: Kind>(&self) -> Vec<K> {
        let mut objects =
            self.api::<K>().list(&ListParams::default()).await.expect("the kind is there").items;
        objects.retain(|object| {
            let object = serde_json::to_value(object).expect("JSON");
            !object["reportingController"]
                .as_str()
                .is_some_and(|name| name.ends_with("allocator-repair-controller"))
        });
        objects
    }

    async fn add_versions<K: Kind>(&self, versions: &mut BTreeMap<String, Option<String>>) {
        let kind = K::kind(&());
        for object in self.list::<K>().await {
            versions.insert(format!("{kind}/{}", object.name_any()), object.resource_version());
        }
    }

    pub(crate) async fn create<K: Kind>(&self, name: &str, object: Value) {
        let mut object = object;
        object["metadata"]["name"] = json!(name);
        let object: K = serde_json::from_value(object).expect("an object of the kind");
        self.api::<K>().create(&PostParams::default(), &object).await.expect("it is new");
    }

    /// Creates an object that `owner` owns.
    pub(crate) async fn create_owned<K: Kind, O: Kind>(&self, name: &str, owner: &str, object: Value) {
        let owner = self.api::<O>().get(owner).await.expect("it is there");
        let mut object = object;
        object["metadata"]["ownerReferences"] = json!([owner.controller_owner_ref(&())]);
        self.create::<K>(name, object).await;
    }

    pub(crate) async fn merge<K: Kind>(&self, name: &str, patch: Value) {
        let patch = Patch::Merge(patch);
        self.api::<K>().patch(name, &PatchParams::default(), &patch).await.expect("it is there");
    }

    pub(crate) async fn merge_status<K: Kind>(&self, name: &str, status: Value) {
        let patch = Patch::Merge(json!({ "status": status }));
        self.api::<K>().patch_status(name, &PatchParams::default(), &patch).await.expect("it is there");
    }

    pub(crate) async fn delete<K: Kind>(&self, name: &str) {
        let at_once = DeleteParams::default().grace_period(0);
        self.api::<K>().delete(name, &at_once).await.expect("it is there");
    }

    pub(crate) async fn get<K: Kind>(&self, name: &str) -> K {
        self.api::<K>().get(name).await.expect("it is there")
    }

    /// Returns all objects of the namespace.
    pub(crate) async fn left(&self) -> Left {
        let mut left = Left::new();
        self.gather::<ConfigMap>(&mut left).await;
        self.gather::<Secret>(&mut left).await;
        self.gather::<Service>(&mut left).await;
        self.gather::<Pod>(&mut left).await;
        self.gather::<Deployment>(&mut left).await;
        self.gather::<StatefulSet>(&mut left).await;
        self.gather::<Event>(&mut left).await;
        self.name_versions(&mut left).await;
        left
    }

    /// Adds the objects of kind `K`, without the fields whose values the server generates, because these differ from run to run.
    async fn gather<K: Kind>(&self, left: &mut Left) {
        const MADE_UP: [&str; 6] =
            ["uid", "resourceVersion", "creationTimestamp", "managedFields", "namespace", "generation"];
        let kind = K::kind(&()).into_owned();
        for object in self.list::<K>().await {
            let mut value = serde_json::to_value(&object).expect("JSON");
            for field in MADE_UP {
                value["metadata"].as_object_mut().expect("metadata").remove(field);
            }
            for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
                owner["uid"] = json!("");
            }
            if let Some(spec) = value["spec"].as_object_mut() {
                spec.remove("clusterIP");
                spec.remove("clusterIPs");
            }
            // The server generates the names of events, too.
            if kind == "Event" {
                value = json!({"reason": value["reason"], "note": value["note"], "regarding": value["regarding"]["name"]});
                left.insert(format!("Event/{}", value["note"]), value);
            } else {
                left.insert(format!("{kind}/{}", object.name_any()), value);
            }
        }
    }

    /// Replaces each object version in the annotations that the program `restarter` writes: with `current` if the object still has this version, and
    /// otherwise with `stale`.
    async fn name_versions(&self, left: &mut Left) {
        for set in left.iter_mut().filter(|(name, _)| name.starts_with("StatefulSet/")).map(|(_, set)| set) {
            let annotations = &mut set["spec"]["template"]["metadata"]["annotations"];
            for (name, said) in annotations.as_object_mut().into_iter().flatten() {
                let version = match name.split_once('.') {
                    Some(("restarter/configmap", name)) => version(&self.get::<ConfigMap>(name).await),
                    Some((_, name)) => version(&self.get::<Secret>(name).await),
                    None => continue,
                };
                *said = json!(if *said == json!(version) { "current" } else { "stale" });
            }
        }
    }
}

fn version<K: Kind>(object: &K) -> String {
    format!("{}/{}", object.uid().unwrap_or_default(), object.resource_version().unwrap_or_default())
}
