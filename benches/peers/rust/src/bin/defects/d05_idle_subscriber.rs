//! D5: a subscriber that is not polled blocks the cache.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;

use crate::cache::{Cache, Flyball, KubeRuntime};
use crate::report::{Defect, Finding};
use crate::world::{SECOND, config_map, config_maps, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D5",
    is: "an idle subscriber blocks the cache",
    measured: "1000 objects are created while one subscriber is not polled: objects in the cache a minute later",
    theirs: program::<KubeRuntime<ConfigMap>>,
    ours: program::<Flyball<ConfigMap>>,
};

const OBJECTS: usize = 1000;

fn program<C: Cache<ConfigMap>>() -> Finding {
    paused(async {
        let server = server();
        let (cache, idle) = C::start(config_maps(&server), watcher::Config::default(), 1);
        cache.ready().await;
        for number in 0..OBJECTS {
            server.put(&config_map(&format!("a{number}"), ""));
        }
        pass(60 * SECOND).await;
        let there = cache.len();
        drop(idle);
        Finding::new(there.to_string(), there < OBJECTS)
    })
}
