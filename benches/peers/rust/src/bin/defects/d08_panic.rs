//! D8: a panic in one reconcile ends the controller.

use std::panic;

use kube::runtime::controller::Action;

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, SECOND, config_map, name, pass, paused, server, value};

pub(crate) const DEFECT: Defect = Defect {
    id: "D8",
    is: "a panic in one reconcile ends the controller",
    measured: "one reconcile panics: reconciles of ten other objects that change afterwards",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

fn program<E: Engine>() -> Finding {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| ()));
    let finding = paused(async {
        let (server, log) = (server(), Log::new());
        server.put(&config_map("a", ""));
        let noted = log.clone();
        let work = reconcile(move |object| {
            noted.note(name(&object));
            async move {
                assert_ne!(value(&object), "poison", "as ordered");
                Ok(Action::await_change())
            }
        });
        E::start(Plan::new(server.client()), work);
        pass(SECOND).await;
        server.put(&config_map("a", "poison"));
        pass(SECOND).await;
        log.take();
        for number in 0..10 {
            server.put(&config_map(&format!("b{number}"), ""));
        }
        pass(60 * SECOND).await;
        let after = log.take().iter().filter(|name| name.starts_with('b')).count();
        Finding::new(format!("{after} of 10"), after < 10)
    });
    panic::set_hook(hook);
    finding
}
