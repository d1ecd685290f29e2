//! D15: a lookup by node scans all objects.

use std::cell::Cell;
use std::sync::Arc;

use flyball_informer_cache::{Index, Informer, NamespacedName};
use futures::{StreamExt, future};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::reflector::{Store, store};
use kube::runtime::{WatchStreamExt, watcher};

use crate::report::{Defect, Finding};
use crate::world::{SECOND, config_map, config_maps, pass, paused, server, value};

pub(crate) const DEFECT: Defect = Defect {
    id: "D15",
    is: "no index: a query scans all objects",
    measured: "10 objects of one node among 10000: objects visited by the query",
    theirs: program::<Scanned>,
    ours: program::<Indexed>,
};

thread_local! {
    static LOOKED_AT: Cell<usize> = const { Cell::new(0) };
}

fn node(object: &ConfigMap) -> String {
    LOOKED_AT.set(LOOKED_AT.get() + 1);
    value(object)
}

trait Nodes {
    fn start(api: Api<ConfigMap>) -> Self;
    fn on(&self, node: &str) -> Vec<Arc<ConfigMap>>;
}

struct Scanned(Store<ConfigMap>);

impl Nodes for Scanned {
    fn start(api: Api<ConfigMap>) -> Self {
        let (reader, writer) = store();
        let reflected = watcher(api, watcher::Config::default()).reflect(writer);
        tokio::spawn(reflected.for_each(|_| future::ready(())));
        Self(reader)
    }

    fn on(&self, wanted: &str) -> Vec<Arc<ConfigMap>> {
        self.0.state_filter(|object| node(object) == wanted)
    }
}

static BY_NODE: Index<ConfigMap, String> = Index::many("node", |object| vec![node(object)]);

struct Indexed(Informer<NamespacedName, ConfigMap>);

impl Nodes for Indexed {
    fn start(api: Api<ConfigMap>) -> Self {
        let informer = flyball_kube::informer(api, watcher::Config::default()).index(&BY_NODE);
        Self(informer.start().expect("the informer cannot be built"))
    }

    fn on(&self, wanted: &str) -> Vec<Arc<ConfigMap>> {
        self.0.store().by_index(&BY_NODE, wanted).expect("the index is missing")
    }
}

fn program<N: Nodes>() -> Finding {
    paused(async {
        let server = server();
        for number in 0..10_000 {
            server.put(&config_map(&format!("a{number}"), &format!("node-{}", number % 1000)));
        }
        let nodes = N::start(config_maps(&server));
        pass(60 * SECOND).await;
        LOOKED_AT.set(0);
        let found = nodes.on("node-7").len();
        assert_eq!(found, 10, "the answer");
        // A query visits at least the objects that it returns.
        let looked_at = LOOKED_AT.get().max(found);
        Finding::new(looked_at.to_string(), looked_at > found)
    })
}
