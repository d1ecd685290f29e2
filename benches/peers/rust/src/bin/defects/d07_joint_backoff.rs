//! D7: while one watch of a controller backs off, the controller polls none of the others.

use std::time::Duration;

use flyball_kube_testing::RequestMatcher;
use k8s_openapi::api::core::v1::Pod;
use kube::core::Status;
use kube::runtime::controller::Action;
use tokio::time::Instant;

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, pass, paused, server, value};

pub(crate) const DEFECT: Defect = Defect {
    id: "D7",
    is: "one failing watch delays all watches",
    measured: "the watch of owned pods becomes forbidden; 20 changes of the main kind, two minutes apart: the longest time from a change to its reconcile",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

fn program<E: Engine>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        let noted = log.clone();
        let work = reconcile(move |object| {
            noted.note((value(&object), Instant::now()));
            async { Ok(Action::await_change()) }
        });
        E::start(Plan { owns: true, ..Plan::new(server.client()) }, work);
        pass(60 * SECOND).await;
        // From now on every request for pods fails with this status.
        let forbidden = Status::failure("pods is forbidden", "Forbidden").with_code(403);
        server.fail_next(RequestMatcher::any().resource::<Pod>(), u32::MAX, forbidden);
        server.close_watches_of::<Pod>();
        pass(60 * SECOND).await;

        let mut longest = Duration::ZERO;
        for change in 0..20 {
            let put = Instant::now();
            server.put(&config_map("a", &change.to_string()));
            pass(119 * SECOND + Duration::from_millis(change * 37)).await;
            let seen = log.take().into_iter().find(|(value, _)| *value == change.to_string());
            longest = longest.max(seen.map_or(Duration::MAX, |(_, at)| at - put));
        }
        Finding::new(
            if longest == Duration::MAX { "never".into() } else { format!("{:.1} s", longest.as_secs_f64()) },
            longest > SECOND,
        )
    })
}
