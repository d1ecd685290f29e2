//! The reader programs, with kube-runtime.

use futures::stream::select_all;
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Node, Secret};
use kube::api::{ApiResource, DynamicObject};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};

/// Answers requests from a store.
#[expect(missing_debug_implementations, reason = "it is never printed")]
pub struct Server {
    deployments: Store<Deployment>,
}

impl Server {
    /// Starts a reflector in a task, and waits until its store is ready.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    pub async fn start(client: Client) -> Self {
        let api = Api::<Deployment>::default_namespaced(client);
        let (deployments, writer) = reflector::store();
        let changes = watcher(api, watcher::Config::default()).default_backoff().reflect(writer);
        tokio::spawn(changes.touched_objects().for_each(|_| async {}));
        deployments.wait_until_ready().await.expect("the task keeps the writer");
        Self { deployments }
    }

    /// Returns the response to `GET /versions`.
    #[must_use]
    pub fn versions(&self) -> Vec<String> {
        let mut versions: Vec<_> = self.deployments.state().iter().map(|known| version_of(known)).collect();
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

/// Returns the nodes that are not ready, as a stream of lines.
pub fn nodes(client: Client) -> impl Stream<Item = String> + Send {
    let nodes = watcher(Api::<Node>::all(client), watcher::Config::default().labels("watched=yes"));
    let nodes = nodes.default_backoff().applied_objects().filter_map(async |node| node.ok());
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
    let events = watcher(Api::<Event>::default_namespaced(client), watcher::Config::default());
    let events = events.default_backoff().applied_objects().filter_map(async |event| event.ok());
    events.map(|event| format!("{}: {}", event.reason.unwrap_or_default(), event.message.unwrap_or_default()))
}

/// Returns objects of a kind that is known only at run time, including deleted objects, as a stream of lines.
pub fn dynamic(client: Client, kind: ApiResource) -> impl Stream<Item = String> + Send {
    let objects = Api::<DynamicObject>::default_namespaced_with(client, &kind);
    let objects = watcher(objects, watcher::Config::default().labels("watched=yes"));
    let objects = objects.default_backoff().touched_objects().filter_map(async |object| object.ok());
    objects.map(|object| format!("{} {}", object.name_any(), object.data["data"]))
}

enum Watched {
    Config(Box<ConfigMap>),
    Secret(Box<Secret>),
}

/// Returns objects of two kinds, as one stream of lines.
pub fn multi(client: Client) -> impl Stream<Item = String> + Send {
    let config = watcher::Config::default().labels("watched=yes");
    let maps = Api::<ConfigMap>::default_namespaced(client.clone());
    let maps = watcher(maps, config.clone()).default_backoff().applied_objects();
    let secrets = Api::<Secret>::default_namespaced(client);
    let secrets = watcher(secrets, config).default_backoff().applied_objects();
    let maps = maps.map_ok(|map| Watched::Config(Box::new(map))).boxed();
    let secrets = secrets.map_ok(|secret| Watched::Secret(Box::new(secret))).boxed();
    select_all([maps, secrets]).filter_map(async |watched| watched.ok()).map(|watched| match watched {
        Watched::Config(map) => format!("config map {}", map.name_any()),
        Watched::Secret(secret) => format!("secret {}", secret.name_any()),
    })
}
