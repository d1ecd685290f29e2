//! D1: keys that wait for a free slot are taken from a hash table in an arbitrary order, so some keys starve.

use std::collections::BTreeSet;
use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::time::sleep;

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, name, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D1",
    is: "starvation under a bound on concurrency",
    measured: "2000 objects, 10 concurrent reconciles of 49 ms each, each requeued after 5 s: objects that are not reconciled within a minute",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

const OBJECTS: usize = 2000;

fn program<E: Engine>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        for number in 0..OBJECTS {
            server.put(&config_map(&format!("a{number:04}"), ""));
        }
        let noted = log.clone();
        let work = reconcile(move |object| {
            noted.note(name(&object));
            async {
                sleep(Duration::from_millis(49)).await;
                Ok(Action::requeue(5 * SECOND))
            }
        });
        E::start(Plan { concurrency: 10, ..Plan::new(server.client()) }, work);
        pass(60 * SECOND).await;
        let ran: BTreeSet<String> = log.take().into_iter().collect();
        let never = OBJECTS - ran.len();
        Finding::new(never.to_string(), never > 0)
    })
}
