//! ConfigMaps and their Pods on an in-memory server, and controllers over informers of them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Informer, NamespacedName};
use flyball_kube::{Config, Controller, ReconcileStream, schema};
use futures_util::{Stream, StreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Resource;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::reflector::ObjectRef;
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::{Instant, timeout};

pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A server, and an informer of its objects.
pub(crate) struct World<K> {
    pub(crate) server: TestServer<NamespacedName, K>,
    pub(crate) informer: Informer<NamespacedName, K>,
}

impl<K> World<K>
where
    K: Resource + Clone + Send + Sync + 'static,
{
    /// Creates a server with these objects, and a running informer.
    pub(crate) fn of(objects: impl IntoIterator<Item = K>) -> Self {
        let server = TestServer::new(schema::<K>(), |object: &mut K, uid, version| {
            object.meta_mut().uid = Some(uid.to_string());
            object.meta_mut().resource_version = Some(version.to_string());
        });
        for object in objects {
            server.put(object);
        }
        let informer = Informer::builder(schema(), server.clone()).start().unwrap();
        Self { server, informer }
    }
}

pub(crate) fn map(key: &str) -> ConfigMap {
    let key: NamespacedName = key.parse().unwrap();
    let metadata = json!({"namespace": key.namespace(), "name": key.name(), "uid": key.name()});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

/// Returns a pod that is owned by ConfigMaps with these names.
pub(crate) fn pod(key: &str, owners: &[&str]) -> Pod {
    let key: NamespacedName = key.parse().unwrap();
    let owner = |name: &&str| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": name});
    let owners: Vec<_> = owners.iter().map(owner).collect();
    let metadata = json!({"namespace": key.namespace(), "name": key.name(), "ownerReferences": owners});
    serde_json::from_value(json!({"metadata": metadata})).unwrap()
}

/// The log of the reconciles: the name of each object, and the time in milliseconds since the start.
pub(crate) struct Runs {
    start: Instant,
    seen: Mutex<Vec<(String, u64)>>,
}

impl Runs {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self { start: Instant::now(), seen: Mutex::default() })
    }

    pub(crate) fn record<K: Resource>(&self, object: &K) -> usize {
        let name = object.meta().name.clone().unwrap();
        let mut seen = self.seen.lock();
        seen.push((name.clone(), self.start.elapsed().as_millis() as u64));
        seen.iter().filter(|(other, _)| *other == name).count()
    }

    pub(crate) fn all(&self) -> Vec<(String, u64)> {
        self.seen.lock().clone()
    }

    /// Returns the times at which the object of this name was reconciled.
    pub(crate) fn of(&self, name: &str) -> Vec<u64> {
        self.seen.lock().iter().filter(|(other, _)| other == name).map(|(_, at)| *at).collect()
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.seen.lock().iter().map(|(name, _)| name.clone()).collect()
    }
}

/// The error type of the reconcilers in these tests.
#[derive(Debug)]
pub(crate) struct Refused(pub(crate) Option<kube::Error>);

impl Refused {
    /// Returns the error of a reconcile whose request the API server answered with this status.
    pub(crate) fn status(code: u16, retry_after: u32) -> Self {
        let details = serde_json::from_value(json!({ "retryAfterSeconds": retry_after })).unwrap();
        let status = kube::core::Status::failure("no", "Because").with_code(code).with_details(details);
        Self(Some(kube::Error::Api(status.boxed())))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.as_ref().map(|error| error as _)
    }
}

/// Runs the controller with a reconcile that only records its object.
pub(crate) fn logging(
    controller: Controller<ConfigMap>,
    runs: &Arc<Runs>,
) -> ReconcileStream<ConfigMap, Refused> {
    controller.run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            Ok(Action::await_change())
        },
        |_, _, _| Action::requeue(Duration::ZERO),
        runs.clone(),
    )
}

/// Returns a configuration with FIFO order, so that tests can assert the order of the reconciles.
pub(crate) fn fifo_config() -> Config {
    Config::default().queue_order(flyball_kube::QueueOrder::Fifo)
}

/// Returns the items that the stream yields during this span of virtual time.
pub(crate) async fn during<S: Stream + Unpin>(stream: &mut S, time: Duration) -> Vec<S::Item> {
    let mut items = Vec::new();
    let end = Instant::now() + time;
    while let Ok(Some(item)) = timeout(end.saturating_duration_since(Instant::now()), stream.next()).await {
        items.push(item);
    }
    items
}

/// A result of a reconcile, as the streams yield it.
type ReconcileItem<K, E, Q> = Result<(ObjectRef<K>, Action), Outcome<E, Q>>;

/// Returns the names of the reconciled objects, with a prefix: `!` if the reconcile failed, `?` if the object was not found. Any other error is `!!`.
pub(crate) fn outcomes<K: Resource, E, Q>(items: &[ReconcileItem<K, E, Q>]) -> Vec<String> {
    let name = |item: &ReconcileItem<K, E, Q>| match item {
        Ok((object, _)) => object.name.clone(),
        Err(Outcome::ReconcilerFailed(_, object)) => format!("!{}", object.name),
        Err(Outcome::ObjectNotFound(object)) => format!("?{}", object.name),
        Err(_) => "!!".to_owned(),
    };
    items.iter().map(name).collect()
}
