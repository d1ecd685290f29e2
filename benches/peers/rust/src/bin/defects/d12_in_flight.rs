//! D12: each end of a reconcile causes a scan of all reconciles in flight.

use std::time::Duration;

use kube::runtime::controller::Action;
use rustix::time::{ClockId, clock_gettime};
use tokio::time::{Instant, sleep_until};

use crate::engine::{Engine, Flyball, KubeRuntime, Plan, reconcile};
use crate::report::{Defect, Finding};
use crate::world::{Log, MILLISECOND, SECOND, config_map, name, pass, paused, server};

pub(crate) const DEFECT: Defect = Defect {
    id: "D12",
    is: "the end of a reconcile takes time proportional to the number in flight",
    measured: "CPU time per end of a reconcile, with 2000 and with 10000 in flight that end one after the other",
    theirs: program::<KubeRuntime>,
    ours: program::<Flyball>,
};

fn program<E: Engine>() -> Finding {
    let (few, many) = (end::<E>(2_000), end::<E>(10_000));
    let micros = |time: Duration| time.as_nanos() as f64 / 1e3;
    // With five times as many reconciles in flight, ending one takes five times as long if each end scans all of them,
    // and equally long otherwise.
    Finding::new(format!("{:.1} and {:.1} µs", micros(few), micros(many)), many > few * 5 / 2)
}

fn end<E: Engine>(objects: u32) -> Duration {
    paused(async {
        let (server, log) = (server(), Log::new());
        for number in 0..objects {
            server.put(&config_map(&number.to_string(), ""));
        }
        let first = Instant::now() + 60 * SECOND;
        let noted = log.clone();
        let work = reconcile(move |object| {
            let number: u32 = name(&object).parse().expect("the name is not a number");
            noted.note(number);
            async move {
                // The reconciles complete in an order that is unrelated to their order in the table.
                let turn = number.wrapping_mul(7_919) % objects;
                sleep_until(first + turn * MILLISECOND).await;
                Ok(Action::await_change())
            }
        });
        E::start(Plan::new(server.client()), work);
        pass(50 * SECOND).await;
        assert_eq!(log.take().len() as u32, objects, "not all reconciles are in flight");
        let before = cpu();
        pass(20 * SECOND + objects * MILLISECOND).await;
        (cpu() - before) / objects
    })
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
