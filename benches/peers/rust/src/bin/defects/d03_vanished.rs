//! D3: an object that was deleted while the watch was interrupted causes no change.

use k8s_openapi::api::core::v1::Pod;
use kube::runtime::controller::Action;

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, name, pass, paused, pod_of, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D3",
    is: "objects that are deleted while the watch is disconnected cause no reconcile",
    measured: "the only child of an owner is deleted while the watch of children is disconnected: reconciles of the owner in the five minutes after that",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

fn program<E: Engine>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        let owner = server.put(&config_map("a", ""));
        server.put(&pod_of(&owner, "child"));
        let noted = log.clone();
        let work = reconcile(move |object| {
            noted.note(name(&object));
            async { Ok(Action::await_change()) }
        });
        E::start(Plan { owns: true, ..Plan::new(server.client()) }, work);
        pass(5 * SECOND).await;
        assert!(!log.take().is_empty(), "the owner was not reconciled after the first list");

        server.close_watches_of::<Pod>();
        server.delete::<Pod>("default", "child");
        server.compact();
        pass(300 * SECOND).await;
        let runs = log.take().len();
        Finding::new(runs.to_string(), runs == 0)
    })
}
