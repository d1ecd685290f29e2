//! D2: after a relist, reconciles read the objects from before the relist, and no later reconcile follows.

use kube::runtime::controller::Action;
use std::time::Duration;

use flyball_kube_testing::{RequestMatcher, Verb};

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, in_pages, name, pass, paused, server, value};

pub(crate) const DEFECT: Defect = Defect {
    id: "D2",
    is: "a relist loses updates",
    measured: "one object is changed and one created while the watch is disconnected; the list has several pages: how many of the two are never reconciled in their newest state",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

fn program<E: Engine>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        for of in ["a", "b", "c", "d"] {
            server.put(&config_map(of, "old"));
        }
        server.set_latency(RequestMatcher::verb(Verb::List), Duration::from_millis(20));
        let noted = log.clone();
        let work = reconcile(move |object| {
            noted.note((name(&object), value(&object)));
            async { Ok(Action::await_change()) }
        });
        E::start(Plan { main: in_pages(2), ..Plan::new(server.client()) }, work);
        pass(5 * SECOND).await;
        assert_eq!(log.take().len(), 4, "all once");

        server.close_watches();
        server.put(&config_map("b", "new"));
        server.put(&config_map("e", "new"));
        server.compact();
        pass(300 * SECOND).await;
        let seen = log.take();
        let lost = ["b", "e"].into_iter().filter(|of| !seen.contains(&((*of).into(), "new".into()))).count();
        Finding::new(format!("{lost} of 2"), lost > 0)
    })
}
