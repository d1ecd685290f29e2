//! D14: every event is cloned before it is stored.

use kube::Api;
use kube::runtime::watcher;

use crate::cache::{Cache, Flyball, KubeRuntime};
use crate::counted::{self, Counted};
use crate::report::{Defect, Finding};
use crate::world::{SECOND, config_map, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D14",
    is: "every event copies its object",
    measured: "100 changes: deep copies of objects",
    theirs: program::<KubeRuntime<Counted>>,
    ours: program::<Flyball<Counted>>,
};

fn program<C: Cache<Counted>>() -> Finding {
    paused(async {
        let server = server();
        let (cache, _) = C::start(Api::all(server.client()), watcher::Config::default(), 0);
        cache.ready().await;
        counted::reset();
        for number in 0..100 {
            server.put(&config_map(&format!("a{number}"), ""));
        }
        pass(SECOND).await;
        assert_eq!(cache.len(), 100, "not all objects have arrived");
        let copies = counted::copies();
        Finding::new(copies.to_string(), copies > 0)
    })
}
