//! The simulation itself: a seed determines the run, and time passes only when the test advances it.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use flyball_controller::testing::{SimulatedTime, Simulation};
use flyball_controller::{Action, Controller, ControllerConfig};
use flyball_ratelimit::Exponential;
use flyball_sync::{ManualTimer, Nanos};
use flyball_workqueue::{Fifo, Queue};

use crate::support::{Log, SECOND, panic_quietly};

type Keys = Queue<u32, Fifo, Exponential<u32>, ManualTimer>;

fn queue(sim: &Simulation) -> Keys {
    Queue::builder()
        .limiter(Exponential::new(SECOND..=60 * SECOND))
        .timer(sim.timer())
        .seed(sim.next_random())
        .build()
}

fn seconds(time: &SimulatedTime) -> u64 {
    time.now().since(Nanos::ZERO).as_secs()
}

/// Reconciles eight keys with three workers; different keys take different times. Returns the start and the end of each reconcile, in order.
fn schedule_of(seed: u64) -> Vec<(u64, u32, bool)> {
    let mut sim = Simulation::new(seed);
    let (queue, log, time) = (queue(&sim), Log::new(), sim.time());
    (0..8).for_each(|key| drop(queue.add(key)));
    let own_log = log.clone();
    sim.run(
        Controller::new(queue)
            .with_config(ControllerConfig { workers: 3.into(), ..ControllerConfig::default() }),
        move |key, _| {
            let (own_log, time) = (own_log.clone(), time.clone());
            async move {
                own_log.note((seconds(&time), key, true));
                time.sleep(SECOND * (key % 3)).await;
                own_log.note((seconds(&time), key, false));
                Ok::<_, String>(Action::await_change())
            }
        },
    );
    sim.advance(60 * SECOND);
    log.take()
}

#[test]
fn a_seed_is_a_run_and_another_seed_is_another_one() {
    let schedules: Vec<_> = (0..20).map(schedule_of).collect();
    assert_eq!(schedules, (0..20).map(schedule_of).collect::<Vec<_>>());
    assert!(schedules.iter().all(|schedule| schedule.len() == 16));
    assert!(schedules.iter().collect::<BTreeSet<_>>().len() > 5, "different seeds must give different runs");
}

#[test]
fn time_passes_from_alarm_to_alarm_and_never_by_itself() {
    let mut sim = Simulation::new(1);
    let (log, time) = (Log::new(), sim.time());
    for after in [3_u32, 1, 2] {
        let (own_log, time) = (log.clone(), time.clone());
        let task = sim.spawn(async move {
            time.sleep(after * SECOND).await;
            own_log.note((seconds(&time), after));
            after
        });
        assert!(!task.is_finished());
    }
    sim.run_until_stalled();
    assert_eq!((log.take(), seconds(&time)), (vec![], 0));
    sim.advance(2 * SECOND);
    assert_eq!((log.take(), seconds(&time)), (vec![(1, 1), (2, 2)], 2));
    sim.advance(10 * SECOND);
    assert_eq!((log.take(), seconds(&time)), (vec![(3, 3)], 12));
}

#[test]
fn under_load_timers_of_different_deadlines_fire_together() {
    let together = |seed| {
        let mut sim = Simulation::new(seed);
        sim.set_busy_clock(true);
        let (log, time) = (Log::new(), sim.time());
        for after in 1..=4 {
            let (own_log, time) = (log.clone(), time.clone());
            sim.spawn(async move {
                time.sleep(after * SECOND).await;
                own_log.note(seconds(&time));
            });
        }
        sim.run_until_stalled();
        sim.advance(10 * SECOND);
        let at = log.take();
        assert_eq!(at.len(), 4);
        assert!(at.iter().all(|at| (1..=10).contains(at)), "late, but never early: {at:?}");
        at.iter().collect::<BTreeSet<_>>().len() < 4
    };
    let runs = (0..50).filter(|seed| together(*seed)).count();
    assert!((1..50).contains(&runs), "{runs} of 50");
}

#[test]
fn timeouts_backoff_panics_and_the_end_are_on_its_time() {
    for seed in 0..20 {
        let mut sim = Simulation::new(seed);
        let (queue, log, time) = (queue(&sim), Log::new(), sim.time());
        queue.add(1).unwrap();
        let (own_log, stop) = (log.clone(), time.sleep(20 * SECOND));
        let controller = Controller::new(queue.clone())
            .with_config(ControllerConfig {
                reconcile_timeout: Some(2 * SECOND),
                shutdown_grace: 5 * SECOND,
                ..ControllerConfig::default()
            })
            .graceful_shutdown_on(stop);
        let run = sim.run(controller, move |_, context| {
            let (own_log, time) = (own_log.clone(), time.clone());
            async move {
                let at = seconds(&time);
                own_log.note(at);
                match at {
                    // The reconcile takes too long, so it fails at 2 s, and is retried after 1 s.
                    0 => time.sleep(3 * SECOND).await,
                    // The key is retried after 2 s.
                    3 => panic_quietly("now"),
                    5 => return Ok(Action::requeue_after(5 * SECOND)),
                    _ => {
                        time.sleep(SECOND).await;
                        assert!(!context.is_shutting_down());
                    }
                }
                if at == 10 { Err("the last") } else { Ok(Action::await_change()) }
            }
        });
        sim.advance(19 * SECOND);
        assert_eq!(log.take(), [0, 3, 5, 10, 12]);
        assert!(!run.is_finished());
        sim.advance(SECOND);
        let report = run.take_output().expect("the run has ended").unwrap();
        assert_eq!((report.reconciles, report.timeouts, report.panics, report.errors), (5, 1, 1, 1));
        assert!(queue.is_shutting_down());
    }
}

#[test]
fn abort_drops_the_task_and_drop_drops_all_tasks() {
    let mut sim = Simulation::new(1);
    let (one, other) = (Arc::new(()), Arc::new(()));
    let hold = |held: &Arc<()>| {
        let held = held.clone();
        sim.spawn(async move {
            let _held = held;
            std::future::pending::<()>().await;
        })
    };
    let task = hold(&one);
    hold(&other);
    sim.run_until_stalled();
    task.abort();
    assert_eq!(Arc::strong_count(&one), 2, "the task is dropped at its next step");
    sim.run_until_stalled();
    assert!(task.is_finished() && task.take_output().is_none());
    assert_eq!((Arc::strong_count(&one), Arc::strong_count(&other)), (1, 2));

    // Dropping the simulation also drops a controller in the middle of a reconcile.
    let queue = queue(&sim);
    queue.add(1).unwrap();
    let held = other.clone();
    sim.run(Controller::new(queue.clone()), move |_, _| {
        let held = held.clone();
        async move {
            let _held = held;
            std::future::pending::<Result<Action, String>>().await
        }
    });
    sim.run_until_stalled();
    assert_eq!((queue.stats().leased, Arc::strong_count(&other)), (1, 4));
    drop(sim);
    assert_eq!((queue.stats().leased, Arc::strong_count(&other)), (0, 1));
}

#[test]
fn a_failing_seed_fails_the_exploration() {
    let seeds = Log::new();
    let own_log = seeds.clone();
    let explored = catch_unwind(AssertUnwindSafe(|| {
        Simulation::explore(5, |sim| {
            own_log.note(sim.seed());
            if sim.seed() == 3 {
                panic_quietly("here");
            }
        })
    }));
    assert_eq!(explored.unwrap_err().downcast_ref(), Some(&"here"));
    assert_eq!(seeds.take(), [1, 2, 3]);
}

#[test]
fn panics_if_tasks_never_stall() {
    let mut sim = Simulation::new(0);
    let time = sim.time();
    sim.spawn(async move {
        loop {
            time.sleep(Duration::ZERO).await;
        }
    });
    let settled = catch_unwind(AssertUnwindSafe(|| sim.run_until_stalled()));
    assert!(settled.unwrap_err().downcast_ref::<&str>().unwrap().starts_with("a million steps"));
}

/// A panic of a task propagates to the call that runs it. A test that catches the panic can continue the simulation, whatever the seed is.
#[test]
fn a_task_that_panicked_is_over() {
    for seed in 0..20 {
        let mut sim = Simulation::new(seed);
        let task = sim.spawn(async { panic_quietly("a task") });
        let settled = catch_unwind(AssertUnwindSafe(|| sim.run_until_stalled()));
        assert_eq!(settled.unwrap_err().downcast_ref(), Some(&"a task"));
        assert!(task.is_finished());
        task.abort();
        let time = sim.time();
        let other = sim.spawn(async move { time.sleep(SECOND).await });
        sim.advance(SECOND);
        assert!(other.is_finished());
    }
}

/// The simulation runs in a tokio task. The polls of the simulation do not count against the cooperative budget of that task; if they did, they would
/// use up the budget.
#[tokio::test]
async fn it_runs_within_a_task_of_a_real_runtime() {
    for seed in 0..300 {
        let mut sim = Simulation::new(seed);
        let queue = queue(&sim);
        let ends = Log::new();
        let (own_log, time) = (ends.clone(), sim.time());
        queue.add(1).unwrap();
        let controller = Controller::new(queue).graceful_shutdown_on(time.sleep(SECOND));
        let run = sim.run(controller, move |_, context| {
            let own_log = own_log.clone();
            async move {
                context.shutdown_started().await;
                own_log.note(());
                Ok::<_, String>(Action::await_change())
            }
        });
        sim.advance(SECOND);
        assert!(run.is_finished());
        assert_eq!(ends.take().len(), 1);
    }
}
