//! The reader programs, with flyball's informers.

use std::sync::Arc;

use flyball_kube::{ApiSource, Change, Informer, InformerBuilder, NamespacedName, informer};
use futures::stream::select_all;
use futures::{Stream, StreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Secret};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// Answers requests from a store.
#[expect(missing_debug_implementations, reason = "it is never printed")]
pub struct Server {
    deployments: Informer<NamespacedName, Deployment>,
}

impl Server {
    /// Starts an informer in a task, and waits until its store has synced.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub async fn start(client: Client) -> Self {
        let api = Api::<Deployment>::default_namespaced(client);
        let deployments =
            informer(api, watcher::Config::default()).start().expect("no two indexes share a name");
        deployments.synced().await.expect("the informer is not stopped");
        Self { deployments }
    }

    /// Returns the response to `GET /versions`.
    #[must_use]
    pub fn versions(&self) -> Vec<String> {
        let mut versions: Vec<_> =
            self.deployments.snapshot().iter().map(|(_, known)| version_of(known)).collect();
        versions.sort();
        versions
    }
}

fn version_of(deployment: &Deployment) -> String {
    let pod = deployment.spec.as_ref().and_then(|spec| spec.template.spec.as_ref());
    let image = pod.and_then(|pod| pod.containers.first()?.image.clone()).unwrap_or_default();
    let (_, version) = image.rsplit_once(':').unwrap_or(("", "latest"));
    format!("{} {version}", deployment.name_any())
}

/// Starts an informer, and returns the changes of its cache. The informer runs until the tokio runtime ends.
fn changes<K>(
    cache: InformerBuilder<NamespacedName, K, ApiSource<K>>,
) -> impl Stream<Item = Change<NamespacedName, K>> + Send
where
    K: Resource + DeserializeOwned + Clone + Send + Sync + 'static,
{
    cache.start().expect("no two indexes share a name").subscribe()
}

/// Returns the nodes that are not ready, as a stream of lines.
pub fn nodes(client: Client) -> impl Stream<Item = String> + Send {
    let nodes = informer(Api::<Node>::all(client), watcher::Config::default().labels("watched=yes"));
    let nodes = changes(nodes).filter_map(async |node| node.new().cloned());
    nodes.filter_map(async |node| problem_of(&node))
}

fn problem_of(node: &Node) -> Option<String> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let ready = conditions.iter().find(|condition| condition.type_ == "Ready")?;
    (ready.status != "True")
        .then(|| format!("{}: {}", node.name_any(), ready.reason.as_deref().unwrap_or("unknown")))
}

/// Returns the reasons and messages of events, as a stream of lines.
pub fn events(client: Client) -> impl Stream<Item = String> + Send {
    let events = informer(Api::<Event>::default_namespaced(client), watcher::Config::default());
    let events = changes(events).filter_map(async |event| event.new().cloned());
    events.map(|event| {
        format!("{}: {}", event.reason.clone().unwrap_or_default(), event.message.clone().unwrap_or_default())
    })
}

/// Returns objects of a kind that is known only at run time, including deleted objects, as a stream of lines.
pub fn dynamic(client: Client, kind: ApiResource) -> impl Stream<Item = String> + Send {
    let objects = Api::<DynamicObject>::default_namespaced_with(client, &kind);
    let objects = changes(informer(objects, watcher::Config::default().labels("watched=yes")));
    let objects = objects.map(|object| object.object().clone());
    objects.map(|object| format!("{} {}", object.name_any(), object.data["data"]))
}

enum Watched {
    Config(Arc<ConfigMap>),
    Secret(Arc<Secret>),
}

/// Returns objects of two kinds, as one stream of lines.
pub fn multi(client: Client) -> impl Stream<Item = String> + Send {
    let config = watcher::Config::default().labels("watched=yes");
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let maps = changes(informer(maps, config.clone())).filter_map(async |map| map.new().cloned());
    let secrets = Api::<Secret>::default_namespaced(client);
    let secrets = changes(informer(secrets, config)).filter_map(async |secret| secret.new().cloned());
    let maps = maps.map(Watched::Config).boxed();
    let secrets = secrets.map(Watched::Secret).boxed();
    select_all([maps, secrets]).map(|watched| match watched {
        Watched::Config(map) => format!("config map {}", map.name_any()),
        Watched::Secret(secret) => format!("secret {}", secret.name_any()),
    })
}
