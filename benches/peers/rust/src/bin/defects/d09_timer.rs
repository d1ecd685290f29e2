//! D9: a key that could run immediately waits for a timer.

use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::time::{Instant, advance};

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D9",
    is: "immediate work waits for a timer",
    measured: "20 changes, one after the other, on an idle controller: the shortest time from a change to its reconcile, on the virtual clock",
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
        E::start(Plan::new(server.client()), work);
        pass(SECOND).await;
        let mut shortest = Duration::MAX;
        for change in 0..20 {
            // The change does not arrive at a whole millisecond, because real changes arrive at any time.
            advance(Duration::from_micros(137)).await;
            let put = Instant::now();
            server.put(&config_map("a", &change.to_string()));
            pass(SECOND).await;
            let began = log.take().pop().expect("the change was not reconciled");
            shortest = shortest.min(began - put);
        }
        Finding::new(format!("{:.2} ms", shortest.as_secs_f64() * 1e3), !shortest.is_zero())
    })
}
