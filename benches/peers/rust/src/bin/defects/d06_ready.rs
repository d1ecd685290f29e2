//! D6: of all tasks that wait for the first list, only one is woken.

use flyball_kube_testing::{RequestMatcher, Verb};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::runtime::watcher;

use crate::cache::{Cache, Flyball, KubeRuntime};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_maps, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D6",
    is: "the first list wakes only one of its waiters",
    measured: "8 tasks wait until the cache is ready: tasks that are woken in the minute after it is ready",
    theirs: program::<KubeRuntime<ConfigMap>>,
    ours: program::<Flyball<ConfigMap>>,
};

fn program<C: Cache<ConfigMap>>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        server.hang(RequestMatcher::verb(Verb::List));
        let (cache, _) = C::start(config_maps(&server), watcher::Config::default(), 0);
        for _ in 0..8 {
            let (ready, noted) = (cache.ready(), log.clone());
            tokio::spawn(async move {
                ready.await;
                noted.note(());
            });
        }
        pass(SECOND).await;
        assert!(log.take().is_empty(), "a task was woken before the list");
        server.resume();
        pass(60 * SECOND).await;
        let woken = log.take().len();
        Finding::new(format!("{woken} of 8"), woken < 8)
    })
}
