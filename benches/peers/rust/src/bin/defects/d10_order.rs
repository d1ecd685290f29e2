//! D10: keys that are queued within one millisecond are reconciled in reverse order.

use std::time::Duration;

use kube::runtime::controller::Action;
use tokio::time::advance;

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, MILLISECOND, SECOND, config_map, name, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D10",
    is: "last in, first out within a millisecond",
    measured: "an object is created, and 5 ms later the objects 0 to 9, in this order: the order of their reconciles",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

fn program<E: Engine>() -> Finding {
    paused(async {
        let (server, log) = (server(), Log::new());
        let noted = log.clone();
        let work = reconcile(move |object| {
            noted.note(name(&object));
            async { Ok(Action::await_change()) }
        });
        E::start(Plan::new(server.client()), work);
        pass(SECOND).await;
        // A different object changes shortly before the ten changes below. Without it, the timer wheel would reverse the order once per level, and an
        // even number of reversals would hide the defect.
        server.put(&config_map("before", ""));
        pass(5 * MILLISECOND).await;
        log.take();
        // The changes do not arrive at a whole millisecond, because real changes arrive at any time.
        advance(Duration::from_micros(137)).await;
        for number in 0..10 {
            server.put(&config_map(&number.to_string(), ""));
        }
        pass(SECOND).await;
        let order = log.take().join(" ");
        let defective = order != "0 1 2 3 4 5 6 7 8 9";
        Finding::new(order, defective)
    })
}
