//! D11: with a debounce, an object that keeps changing is never reconciled.

use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::time::Instant;

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D11",
    is: "a debounce can starve an object for ever",
    measured: "debounce of 100 ms, a change every 50 ms for 30 s: the time of the first reconcile",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

fn program<E: Engine>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        let noted = log.clone();
        let work = reconcile(move |_| {
            noted.note(Instant::now());
            async { Ok(Action::await_change()) }
        });
        E::start(Plan { debounce: Duration::from_millis(100), ..Plan::new(server.client()) }, work);
        pass(5 * SECOND).await;
        let began = Instant::now();
        for change in 0..600 {
            server.put(&config_map("a", &change.to_string()));
            pass(Duration::from_millis(50)).await;
        }
        pass(5 * SECOND).await;
        let first = *log.take().first().expect("the object was never reconciled") - began;
        Finding::new(format!("after {:.2} s", first.as_secs_f64()), first >= 30 * SECOND)
    })
}
