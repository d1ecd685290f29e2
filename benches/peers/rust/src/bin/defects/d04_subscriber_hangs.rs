//! D4: a subscriber that receives a reference to an already deleted object stops, and waits for a notification that
//! never comes.

use futures::StreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;

use crate::cache::{Cache, Flyball, KubeRuntime};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, config_maps, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D4",
    is: "shared subscribers hang for ever",
    measured: "an object is created and deleted before a subscriber is polled; then two objects are created: how many of the two the subscriber receives",
    theirs: program::<KubeRuntime<ConfigMap>>,
    ours: program::<Flyball<ConfigMap>>,
};

fn program<C: Cache<ConfigMap>>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        let (cache, mut names) = C::start(config_maps(&server), watcher::Config::default(), 1);
        cache.ready().await;
        server.put(&config_map("a", ""));
        server.delete::<ConfigMap>("default", "a");
        pass(SECOND).await;

        let (mut names, noted) = (names.pop().expect("no subscriber"), log.clone());
        tokio::spawn(async move {
            while let Some(name) = names.next().await {
                noted.note(name);
            }
        });
        for later in ["b", "c"] {
            pass(SECOND).await;
            server.put(&config_map(later, ""));
        }
        pass(60 * SECOND).await;
        let received = log.take().iter().filter(|name| matches!(name.as_str(), "b" | "c")).count();
        Finding::new(format!("{received} of 2"), received < 2)
    })
}
