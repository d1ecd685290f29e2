//! Generic functions with the bounds of kube-runtime. The test is that they compile.

use std::cell::Cell;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use flyball_kube::Controller;
use flyball_kube_testing::ApiServer;
use futures_util::Stream;
use k8s_openapi::api::core::v1::{ConfigMap, Pod, Secret};
use kube::core::{ObjectMeta, PartialObjectMeta};
use kube::runtime::controller::Action;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::{predicates, watcher};
use kube::{Api, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::borrow::Cow;

use crate::world::{Refused, SECOND, during, map, outcomes, pod};

fn created<K>(api: Api<K>) -> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    Controller::new(api, watcher::Config::default())
}

fn over_a_stream<K>(
    objects: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
    store: Store<K>,
) -> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    Controller::for_stream(objects, store).reconcile_all_on(futures_util::stream::pending())
}

/// The related kinds need not be `Sync`.
fn related<K, C, W>(controller: Controller<K>, owned: Api<C>, watched: Api<W>) -> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
    C: Clone + Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + 'static,
    W: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
    W::DynamicType: Default + Debug + Clone + Eq + Hash,
{
    controller
        .owns(owned.clone(), watcher::Config::default())
        .owns_filtered(owned, watcher::Config::default(), predicates::labels::<PartialObjectMeta<C>>)
        .watches(watched, watcher::Config::default(), |_| None::<ObjectRef<K>>)
}

fn related_streams<K, C, W>(
    controller: Controller<K>,
    owned: impl Stream<Item = Arc<C>> + Send + 'static,
    watched: impl Stream<Item = Result<W, watcher::Error>> + Send + 'static,
) -> Controller<K>
where
    K: Clone + Resource + DeserializeOwned + Debug + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone,
    C: Clone + Resource<DynamicType = ()> + DeserializeOwned + Debug + Send + 'static,
    W: Clone + Resource + DeserializeOwned + Debug + Send + 'static,
    W::DynamicType: Default + Debug + Clone,
{
    controller.owns_shared_stream(owned).watches_stream(watched, |_| None::<ObjectRef<K>>)
}

/// A Pod that is not `Sync`.
#[derive(Clone, Debug, Deserialize)]
struct NotSync {
    metadata: ObjectMeta,
    #[serde(skip)]
    _cell: Cell<()>,
}

impl Resource for NotSync {
    type DynamicType = ();
    type Scope = k8s_openapi::NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[tokio::test(start_paused = true)]
async fn the_bounds_of_kube_runtime_suffice_before_run() {
    let server = ApiServer::new();
    server.register::<ConfigMap>().register::<Pod>().register::<Secret>();
    server.put(&map("default/a"));
    let client = server.client();
    let controller = created(Api::<ConfigMap>::all(client.clone()));
    let controller = related(controller, Api::<NotSync>::all(client.clone()), Api::<Secret>::all(client));
    let none = futures_util::stream::empty::<Arc<Pod>>;
    let controller = related_streams(controller, none(), futures_util::stream::empty::<Result<NotSync, _>>());
    let mut reconciles = controller.run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::await_change()),
        |_, _, _| unreachable!(),
        Arc::new(()),
    );
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);
    server.put(&pod("default/p", &["a"]));
    assert_eq!(outcomes(&during(&mut reconciles, SECOND).await), ["a"]);

    let (store, _writer) = kube::runtime::reflector::store::<ConfigMap>();
    drop(over_a_stream(futures_util::stream::empty(), store));
}
