//! User functions that call the controller which calls them, and user functions that always panic for one object.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use flyball_controller::testing::{SimulatedTask, Simulation};
use flyball_controller::{
    Action, BatchConfig, Controller, ControllerConfig, ControllerHandle, ControllerMetrics, FailureClass,
    Nanos, ReconcileOutcome, WatchId, WatchOptions,
};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Change, Informer, Schema, Version};
use flyball_ratelimit::Exponential;
use flyball_sync::ManualTimer;
use flyball_workqueue::{Fifo, Queue};
use parking_lot::Mutex;
use tokio::sync::oneshot;

use crate::support::{Log, SECOND, THINGS, Thing, holds_nothing, panic_quietly, sorted};

const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::ZERO);
type Keys = Queue<u32, Fifo, Exponential<u32>, ManualTimer>;
type Handle = ControllerHandle<u32, Fifo, Exponential<u32>, ManualTimer>;

/// A mapper, a filter and a reconcile add a watch of the informer that calls them, and remove their own watch.
#[test]
fn a_mapper_may_add_watches_and_remove_its_own() {
    for place in ["mapper", "filter", "reconcile"] {
        Simulation::explore(20, |sim| {
            let server = TestServer::new(NUMBERS, |_, _, _| {});
            server.put(1);
            let numbers = sim.informer(Informer::builder(NUMBERS, server.clone())).unwrap();
            let queue: Keys =
                Queue::builder().limiter(Exponential::new(SECOND..=SECOND)).timer(sim.timer()).build();
            let (log, handle, own) =
                (Log::new(), Arc::new(Mutex::new(None::<Handle>)), Arc::new(Mutex::new(None::<WatchId>)));
            let (own_handle, own_id, cache, again) =
                (handle.clone(), own.clone(), numbers.clone(), log.clone());
            let done = AtomicBool::new(false);
            let act = Arc::new(move || {
                if done.swap(true, Ordering::SeqCst) {
                    return;
                }
                let handle = own_handle.lock().clone().unwrap();
                let again = again.clone();
                handle
                    .add_watch(&cache, move |change| {
                        again.note(*change.key());
                        10 + *change.key()
                    })
                    .unwrap();
                let id = own_id.lock().clone().unwrap();
                assert!(handle.remove_watch(&id));
            });
            let controller = Controller::new(queue.clone());
            *handle.lock() = Some(controller.handle());
            let (mapper, filter, reconcile) = (act.clone(), act.clone(), act);
            let options = WatchOptions::new().filter(move |_| {
                if place == "filter" {
                    filter()
                }
                true
            });
            let id = handle.lock().as_ref().unwrap().add_watch_with(
                &numbers,
                move |change| {
                    if place == "mapper" {
                        mapper()
                    }
                    *change.key()
                },
                options,
            );
            *own.lock() = id.ok();
            let keys = Log::new();
            let own_keys = keys.clone();
            sim.run(controller, move |key, _| {
                own_keys.note(key);
                if place == "reconcile" {
                    reconcile()
                }
                async { Ok::<_, String>(Action::await_change()) }
            });
            sim.run_until_stalled();
            server.put(2);
            sim.run_until_stalled();
            assert_eq!(sorted(log.take()), [1, 2], "{place}");
            let keys = sorted(keys.take());
            assert!(keys.ends_with(&[11, 12]) && keys.len() <= 3, "{place} {keys:?}");
        });
    }
}

/// A reconcile drops the run that it belongs to, at its first poll or later, and a second run continues.
#[test]
fn a_reconcile_may_drop_its_run() {
    for (batches, later) in [(false, false), (false, true), (true, false), (true, true)] {
        Simulation::explore(20, |sim| {
            let queue: Keys =
                Queue::builder().limiter(Exponential::new(SECOND..=SECOND)).timer(sim.timer()).build();
            _ = queue.add_many(0..10);
            let task = Arc::new(Mutex::new(None::<SimulatedTask<_>>));
            let (own_task, time, runs) = (task.clone(), sim.time(), Arc::new(AtomicU32::new(0)));
            let own_runs = runs.clone();
            let reconcile = move || {
                let (own_task, time) = (own_task.clone(), time.clone());
                let last = own_runs.fetch_add(1, Ordering::SeqCst) == 4;
                async move {
                    if later {
                        time.sleep(SECOND).await;
                    }
                    if last {
                        own_task.lock().take().inspect(SimulatedTask::abort);
                    }
                    time.sleep(SECOND).await;
                }
            };
            let config = ControllerConfig { workers: 3.into(), ..ControllerConfig::default() };
            let first = Controller::new(queue.clone()).with_config(config);
            *task.lock() = Some(if batches {
                sim.run_batches(first, BatchConfig::new(2), move |keys, _| {
                    let call = reconcile();
                    async move {
                        call.await;
                        Ok::<_, String>(keys.iter().map(|_| Ok(Action::await_change())).collect())
                    }
                })
            } else {
                sim.run(first, move |_, _| {
                    let call = reconcile();
                    async move {
                        call.await;
                        Ok::<_, String>(Action::await_change())
                    }
                })
            });
            sim.advance(20 * SECOND);
            let before = queue.stats();
            assert!(runs.load(Ordering::SeqCst) >= 5 && before.leased == 0, "{before:?}");
            sim.run(Controller::new(queue.clone()), |_, _| async { Ok::<_, String>(Action::await_change()) });
            sim.advance(20 * SECOND);
            assert!(holds_nothing(&queue.stats()));
        });
    }
}

/// Metrics whose every method panics.
struct Panics;

impl ControllerMetrics for Panics {
    fn max_workers(&self, _: usize) {
        panic_quietly("metrics")
    }

    fn worker_started(&self) {
        panic_quietly("metrics")
    }

    fn worker_stopped(&self) {
        panic_quietly("metrics")
    }

    fn reconcile_started(&self) {
        panic_quietly("metrics")
    }

    fn batch_started(&self, _: usize) {
        panic_quietly("metrics")
    }

    fn reconcile_ended(&self, _: ReconcileOutcome, _: Duration) {
        panic_quietly("metrics")
    }

    fn reconcile_dropped(&self) {
        panic_quietly("metrics")
    }

    fn retry_succeeded(&self, _: u32) {
        panic_quietly("metrics")
    }

    fn gave_up(&self, _: FailureClass) {
        panic_quietly("metrics")
    }
}

/// One of the user's functions always panics for object 0, whose reconciles also fail, or all metrics panic. The other objects are reconciled as ever, and
/// the number of polls stays the same.
#[test]
fn a_function_that_always_panics_for_one_object_affects_no_other() {
    for batches in [false, true] {
        for place in 0..9_u64 {
            let mut sim = Simulation::new(2 + 2 * place);
            let server = TestServer::new(THINGS, |thing: &mut Thing, _, version: Version| {
                thing.version = version.get()
            });
            let things = sim.informer(Informer::builder(THINGS, server.clone())).unwrap();
            (0..5).for_each(|key| _ = server.put(Thing { key, version: 0, value: 0 }));
            let queue = Queue::builder()
                .limiter(Exponential::new(SECOND / 10..=60 * SECOND))
                .timer(sim.timer())
                .build();
            let at = move |own: u64, key: u32| {
                if place == own && key == 0 {
                    panic_quietly("object 0")
                }
            };
            let options = WatchOptions::new()
                .filter(move |change: &Change<u32, Thing>| {
                    at(0, *change.key());
                    true
                })
                .resync_every(50 * SECOND);
            let (stop, stopped) = oneshot::channel::<()>();
            let log = Log::new();
            let (own, time) = (log.clone(), sim.time());
            let controller = Controller::new(queue.clone())
                .watches_with(
                    &things,
                    move |change| {
                        at(1, *change.key());
                        *change.key()
                    },
                    options,
                )
                .filter_keys(move |key| {
                    at(2, *key);
                    true
                })
                .classify(move |_| {
                    if place == 3 {
                        panic_quietly("object 0")
                    }
                    FailureClass::Transient
                })
                .retry_after_at_least(move |key, _| {
                    at(4, *key);
                    None
                })
                .on_give_up(move |key, _| at(5, *key))
                .finally(move |key, _, _| {
                    at(6, key);
                    async { Ok::<_, String>(()) }
                })
                .with_config(ControllerConfig {
                    workers: 2.into(),
                    max_attempts: Some(5),
                    max_failing_in_flight: Some(1),
                    drain_on_shutdown: true,
                    ..ControllerConfig::default()
                })
                .graceful_shutdown_on(async move { drop(stopped.await) });
            let controller = if place == 7 { controller.metrics(Panics) } else { controller };
            let task = if batches {
                sim.run_batches(
                    controller,
                    BatchConfig::new(3).max_wait(SECOND).group_by(move |key| {
                        at(8, *key);
                        key % 2
                    }),
                    move |keys, _| {
                        let results = keys
                            .iter()
                            .map(|key| {
                                own.note((*key, time.now()));
                                if *key == 0 { Err("no") } else { Ok(Action::await_change()) }
                            })
                            .collect();
                        async move { Ok(results) }
                    },
                )
            } else {
                sim.run(controller, move |key, _| {
                    own.note((key, time.now()));
                    async move { if key == 0 { Err("no") } else { Ok(Action::await_change()) } }
                })
            };
            sim.advance(1000 * SECOND);
            let polls = sim.poll_count();
            for key in 1..5 {
                server.put(Thing { key, version: 0, value: 1 });
            }
            sim.advance(1000 * SECOND);
            let polls = [polls, sim.poll_count() - polls];
            drop(stop);
            sim.advance(SECOND);
            let log: Vec<(u32, Nanos)> = log.take();
            let count = |key| log.iter().filter(|(own, _)| *own == key).count();
            let report = task.take_output().expect("it has ended").unwrap();
            let at = format!("{place}, batches: {batches}, {polls:?} polls, {report:?}");
            assert!(report.leftovers.is_empty(), "{at}");
            // At the start, at each of forty resyncs, and after the change.
            assert!((1..5).all(|key| (41..=44).contains(&count(key))), "{at}");
            // Five attempts after each of these.
            assert!(count(0) <= 5 * 44 && polls.iter().all(|polls| *polls < 4_000), "{at}");
        }
    }
}
