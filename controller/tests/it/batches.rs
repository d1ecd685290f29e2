//! Batches: reconciles of several keys at once.

use std::future::pending;
use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use flyball_controller::testing::Simulation;
use flyball_controller::{
    Action, BatchConfig, Controller, ControllerConfig, ControllerMetrics, FailureClass, ReconcileError,
    ReconcileOutcome, RunError,
};
use flyball_ratelimit::{Exponential, Quota};
use flyball_sync::{ManualTimer, TokioTimer};
use flyball_workqueue::{Fair, Fifo, KeyState, Queue};
use testkit::panicking::{PanicSwitch, PanickingKey, Point};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use crate::support::{Log, SECOND, left, panic_quietly, queue, run_until_pending, sorted};

type Keys = Queue<u32, Fifo, Exponential<u32>, ManualTimer>;

fn simulated(sim: &Simulation) -> Keys {
    let backoff = Exponential::new(SECOND..=60 * SECOND);
    Queue::builder().limiter(backoff).timer(sim.timer()).seed(sim.next_random()).build()
}

/// A backoff that is over almost at once.
const NANO: Duration = Duration::from_nanos(1);

type Results = Vec<Result<Action, String>>;

fn well(keys: &[u32]) -> Results {
    keys.iter().map(|_| Ok(Action::await_change())).collect()
}

/// Runs batches that succeed, and logs their keys.
fn run(sim: &Simulation, queue: &Keys, workers: usize, batches: BatchConfig<u32, u32>) -> Log<Vec<u32>> {
    let log = Log::new();
    let (own_log, time) = (log.clone(), sim.time());
    sim.run_batches(
        Controller::new(queue.clone())
            .with_config(ControllerConfig { workers: workers.into(), ..ControllerConfig::default() }),
        batches,
        move |keys, _| {
            let results = well(&keys);
            own_log.note(keys);
            let time = time.clone();
            async move {
                time.sleep(SECOND).await;
                Ok::<_, String>(results)
            }
        },
    );
    log
}

#[test]
fn size_time_and_group_decide() {
    Simulation::explore(50, |sim| {
        let queue = simulated(sim);
        let by_tens = BatchConfig::new(3).max_wait(5 * SECOND).group_by(|key| key / 10);
        let log = run(sim, &queue, 4, by_tens);
        sim.run_until_stalled();
        for key in [1, 11, 2, 21, 3] {
            queue.add(key).unwrap();
        }
        sim.run_until_stalled();
        assert_eq!(log.take(), [[1, 2, 3]], "the first full batch runs at once");
        sim.advance(4 * SECOND);
        queue.add(12).unwrap();
        sim.run_until_stalled();
        assert_eq!(log.take(), [] as [Vec<u32>; 0]);
        sim.advance(SECOND);
        assert_eq!(
            sorted(log.take()),
            [vec![11, 12], vec![21]],
            "the window of a batch starts with its first key"
        );
        sim.advance(10 * SECOND);
        assert!(crate::support::holds_nothing(&queue.stats()));
    });
}

/// Keys that fit into one batch are not split among several workers. A batch without a maximum wait takes all keys that are Ready.
#[test]
fn batches_are_as_full_as_they_can_be() {
    Simulation::explore(50, |sim| {
        let queue = simulated(sim);
        (0..100).for_each(|key| _ = queue.add(key));
        let log = run(sim, &queue, 4, BatchConfig::new(25).group_by(|_| 0));
        sim.run_until_stalled();
        let batches = log.take();
        assert_eq!(batches.concat(), (0..100).collect::<Vec<_>>(), "in the order of the adds");
        assert!(batches.iter().all(|batch| batch.len() == 25));
        queue.add(7).unwrap();
        sim.advance(SECOND);
        assert_eq!(log.take(), [[7]], "a batch without a window does not wait for more keys");
    });
}

/// While all workers are busy, keys stay in the queue, which orders them. The number of keys in open batches is bounded, even if each key has its own
/// group.
#[test]
fn bounds_the_keys_in_open_batches() {
    Simulation::explore(20, |sim| {
        let queue = simulated(sim);
        let log = run(sim, &queue, 1, BatchConfig::new(2).max_wait(60 * SECOND).group_by(|key| *key));
        (0..100).for_each(|key| _ = queue.add(key));
        sim.run_until_stalled();
        assert_eq!((log.take(), queue.stats().leased), (vec![vec![0]], 16));
        sim.advance(10 * SECOND);
        assert_eq!((log.take().len(), queue.stats().leased), (10, 16));
    });
}

#[tokio::test(start_paused = true)]
async fn each_key_keeps_its_outcome() {
    let (queue, log, given_up, begin) = (queue(), Log::new(), Log::new(), Instant::now());
    (0..6).for_each(|key| _ = queue.add(key));
    let (own_log, own_given_up) = (log.clone(), given_up.clone());
    let report = Controller::new(queue)
        .classify(|failure| match failure.to_string().as_str() {
            "conflict" => FailureClass::Conflict,
            "hopeless" => FailureClass::Permanent,
            _ => FailureClass::Transient,
        })
        .on_give_up(move |key, _| own_given_up.note(*key))
        .graceful_shutdown_on(sleep(20 * SECOND))
        .run_batches(BatchConfig::new(10), move |keys, _| {
            let at = begin.elapsed().as_millis();
            let result = |key| match key {
                0 => Ok(Action::await_change()),
                1 if at == 0 => Ok(Action::requeue_after(5 * SECOND)),
                2 if at == 0 => Err("no luck"),
                3 if at == 0 => Err("conflict"),
                4 => Err("hopeless"),
                _ => Ok(Action::await_change()),
            };
            let results = keys.iter().copied().map(result).collect();
            own_log.note((at, keys));
            async move { Ok(results) }
        })
        .await
        .unwrap();
    let expected = [(0, (0..6).collect::<Vec<u32>>()), (10, vec![3]), (1_000, vec![2]), (5_000, vec![1])];
    assert_eq!(log.take(), expected);
    assert_eq!(given_up.take(), [4]);
    assert_eq!((report.batches, report.reconciles, report.requeues), (4, 9, 1));
    assert_eq!((report.errors, report.conflicts, report.successful_retries), (3, 1, 2));
}

/// If a batch fails as a whole, each of its keys fails.
#[tokio::test(start_paused = true)]
async fn a_failure_of_the_batch_is_one_of_each_of_its_keys() {
    for how in ["error", "panic when called", "panic", "timeout", "too few", "too many", "none"] {
        let (queue, given_up, runs) = (queue(), Log::new(), AtomicUsize::new(0));
        (0..3).for_each(|key| _ = queue.add(key));
        let own_given_up = given_up.clone();
        let report = Controller::new(queue.clone())
            .with_config(ControllerConfig {
                reconcile_timeout: Some(SECOND),
                max_attempts: Some(2),
                ..ControllerConfig::default()
            })
            .on_give_up(move |key, failure| own_given_up.note((*key, failure.to_string())))
            .graceful_shutdown_on(sleep(30 * SECOND))
            .run_batches(BatchConfig::new(3), move |keys, _| {
                runs.fetch_add(1, Ordering::Relaxed);
                let results = well(&keys);
                if how == "panic when called" {
                    panic_quietly(how);
                }
                async move {
                    match how {
                        "error" => return Err("no luck".to_owned()),
                        "panic" => panic_quietly(how),
                        "timeout" => pending().await,
                        _ => {}
                    }
                    let one = [Ok(Action::await_change())];
                    Ok(match how {
                        "too few" => results.into_iter().skip(1).collect(),
                        "too many" => results.into_iter().chain(one).collect(),
                        _ => Vec::new(),
                    })
                }
            })
            .await
            .unwrap();
        let message = match how {
            "error" => "no luck",
            "panic when called" | "panic" => &format!("reconcile panicked: {how}"),
            "timeout" => "reconcile was not done after 1s",
            "too few" => "a batch of 3 keys came to 2 results",
            "too many" => "a batch of 3 keys came to 4 results",
            _ => "a batch of 3 keys came to 0 results",
        };
        let expected: Vec<_> = (0..3).map(|key| (key, message.to_owned())).collect();
        assert_eq!(sorted(given_up.take()), expected, "{how}");
        assert_eq!((report.failures(), report.retries(), report.given_up), (6, 3, 3), "{how}");
        assert_eq!((report.batches, left(&report)), (2, 0), "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn reports_each_key_of_a_batch() {
    #[derive(Clone)]
    struct Sink(Log<&'static str>);
    impl ControllerMetrics for Sink {
        fn batch_started(&self, keys: usize) {
            assert_eq!(keys, 3);
            self.0.note("batch");
        }

        fn reconcile_started(&self) {
            self.0.note("started");
        }

        fn reconcile_ended(&self, outcome: ReconcileOutcome, _: Duration) {
            self.0.note(outcome.label());
        }

        fn reconcile_dropped(&self) {
            self.0.note("dropped");
        }
    }
    let (queue, reports, finals) = (queue(), Log::new(), Log::new());
    (0..9).for_each(|key| _ = queue.add(key));
    let own_log = finals.clone();
    let report = Controller::new(queue.clone())
        .filter_keys(|key| key % 3 == 0)
        .metrics(Sink(reports.clone()))
        .finally(move |key, ended, _| {
            own_log.note((key, ended.is_ok()));
            async move { if key == 6 { Err("no status") } else { Ok(()) } }
        })
        .graceful_shutdown_on(sleep(SECOND / 2))
        .run_batches(BatchConfig::new(3), |keys, _| async move {
            let result = |key: &u32| if *key == 3 { Err("no luck") } else { Ok(Action::await_change()) };
            Ok(keys.iter().map(result).collect())
        })
        .await
        .unwrap();
    assert_eq!(finals.take(), [(0, true), (3, false), (6, true)]);
    assert_eq!(reports.take(), ["batch", "started", "started", "started", "success", "error", "error"]);
    assert_eq!((report.filtered_keys, report.finally_failures, report.errors, left(&report)), (6, 1, 2, 2));
}

/// A replica that loses its lease while keys wait in an open batch must not reconcile these keys.
#[test]
fn no_batch_starts_after_the_ownership_of_its_keys_has_ended() {
    for ended in [false, true] {
        let mut sim = Simulation::new(2);
        let (queue, log, mine) = (simulated(&sim), Log::new(), Arc::new(AtomicBool::new(true)));
        let (stop, stopped) = oneshot::channel::<()>();
        let (own_log, leads) = (log.clone(), mine.clone());
        let controller = Controller::new(queue.clone())
            .filter_keys(move |key| *key == 1 || leads.load(Ordering::Relaxed))
            .graceful_shutdown_on(async { drop(stopped.await) });
        let batches = BatchConfig::new(5).max_wait(2 * SECOND);
        let running = sim.run_batches(controller, batches, move |keys, _| {
            let results = well(&keys);
            own_log.note(keys);
            async move { Ok::<_, String>(results) }
        });
        (0..3).for_each(|key| _ = queue.add(key));
        sim.advance(SECOND);
        assert_eq!(queue.state(&0), KeyState::Leased, "the keys are in an open batch");
        mine.store(!ended, Ordering::Relaxed);
        sim.advance(2 * SECOND);
        assert_eq!(log.take(), [if ended { vec![1] } else { vec![0, 1, 2] }]);
        drop(stop);
        sim.run_until_stalled();
        let report = running.take_output().expect("the controller has ended").unwrap();
        let counts = (report.reconciles, report.batches, report.filtered_keys, left(&report));
        assert_eq!(counts, if ended { (1, 1, 2, 0) } else { (3, 1, 0, 0) });
    }
}

/// The keys of both batches are handed out by the queue before the first batch starts. The reconcile of the first batch ends the leadership.
#[test]
fn no_batch_starts_after_the_leadership_has_ended_during_the_batch_before_it() {
    for workers in [1, 2] {
        Simulation::explore(20, |sim| {
            let (queue, log, leads) = (simulated(sim), Log::new(), Arc::new(AtomicBool::new(true)));
            let (own_log, own_leads, filter) = (log.clone(), leads.clone(), leads.clone());
            let controller = Controller::new(queue.clone())
                .with_config(ControllerConfig { workers: workers.into(), ..ControllerConfig::default() })
                .filter_keys(move |_| filter.load(Ordering::Relaxed));
            let by_tens = BatchConfig::new(2).max_wait(SECOND).group_by(|key| key / 10);
            let time = sim.time();
            let _running = sim.run_batches(controller, by_tens, move |keys, _| {
                let results = well(&keys);
                own_log.note(keys);
                own_leads.store(false, Ordering::Relaxed);
                let time = time.clone();
                async move {
                    time.sleep(10 * SECOND).await;
                    Ok::<_, String>(results)
                }
            });
            sim.run_until_stalled();
            // The batch of 11 and 12 is full, while that of key 1 is open; keys 21 and 22 stay in the queue until a worker collects again.
            _ = queue.add_many([1, 11, 12, 21, 22]);
            sim.run_until_stalled();
            assert_eq!(log.take(), [[11, 12]]);
            sim.advance(60 * SECOND);
            assert_eq!(log.take(), [] as [Vec<u32>; 0], "a batch starts after the end of the leadership");
            assert!(
                crate::support::holds_nothing(&queue.stats()),
                "keys of another leader stay in the queue"
            );
        });
    }
}

/// If the clone of a key panics, `finally` runs for that key. It may take long, so it must not delay the reconcile of the other keys, during which the
/// ownership could end.
#[test]
fn the_finally_of_a_key_that_cannot_be_cloned_delays_no_batch() {
    let mut sim = Simulation::new(2);
    let keys = PanicSwitch::new();
    let queue: Queue<PanickingKey, Fifo, Exponential<PanickingKey>, ManualTimer> =
        Queue::builder().limiter(Exponential::new(SECOND..=60 * SECOND)).timer(sim.timer()).build();
    let (log, time, switch) = (Log::new(), sim.time(), keys.clone());
    let own_log = log.clone();
    let controller = Controller::new(queue.clone()).finally(move |_, ended, _| {
        let (time, failed) = (time.clone(), ended.is_err());
        async move {
            if failed {
                time.sleep(60 * SECOND).await;
            }
            Ok::<_, String>(())
        }
    });
    let batches = BatchConfig::new(2).group_by(move |key: &PanickingKey| {
        // The second key fills the batch, so the next clone is the one of the first key for the reconcile.
        if key.id() == 1 {
            switch.arm(Point::Clone, 1);
        }
    });
    sim.run_batches(controller, batches, move |keys, _| {
        own_log.note(keys.len());
        async move { Ok::<_, String>(keys.iter().map(|_| Ok(Action::await_change())).collect::<Results>()) }
    });
    let pair = [keys.key(0), keys.key(1)];
    pair.into_iter().for_each(|key| _ = queue.add(key));
    sim.run_until_stalled();
    assert_eq!(log.take(), [1], "the other key waits for `finally`");
}

#[tokio::test(start_paused = true)]
async fn a_panic_of_group_by_fails_its_key() {
    let (queue, log) = (queue(), Log::new());
    (0..4).for_each(|key| _ = queue.add(key));
    let own_log = log.clone();
    let batches = BatchConfig::new(4).group_by(|key| match key {
        2 => panic_quietly("an unknown key"),
        _ => 0,
    });
    let report = Controller::new(queue.clone())
        .graceful_shutdown_on(sleep(SECOND / 2))
        .run_batches(batches, move |keys, _| {
            let results = well(&keys);
            own_log.note(keys);
            async move { Ok::<_, String>(results) }
        })
        .await
        .unwrap();
    assert_eq!(log.take(), [[0, 1, 3]]);
    assert_eq!((report.callback_panics, report.panics, report.leftovers.waiting), (1, 1, vec![2]));
}

/// A key whose group cannot be determined uses up its attempts, like a key whose reconcile panics: it is classified, counted and given up. This holds
/// for a panic of the group function, and for one of `Hash` of the group.
#[tokio::test(start_paused = true)]
async fn a_key_without_a_group_is_given_up_after_its_attempts() {
    #[derive(Clone, PartialEq, Eq)]
    struct Group(u32);
    impl Hash for Group {
        fn hash<H: Hasher>(&self, state: &mut H) {
            match self.0 {
                1 => panic_quietly("hash"),
                other => other.hash(state),
            }
        }
    }
    let (queue, given_up) = (queue(), Log::new());
    (0..3).for_each(|key| _ = queue.add(key));
    let own_given_up = given_up.clone();
    let report = Controller::new(queue.clone())
        .with_config(ControllerConfig { max_attempts: Some(3), ..ControllerConfig::default() })
        .on_give_up(move |key, failure| own_given_up.note((*key, failure.to_string())))
        .graceful_shutdown_on(sleep(100 * SECOND))
        .run_batches(
            BatchConfig::new(2).group_by(|key| if *key == 0 { panic_quietly("group") } else { Group(*key) }),
            |keys: Vec<u32>, _| async move { Ok::<_, String>(well(&keys)) },
        )
        .await
        .unwrap();
    let panicked = |key, message| (key, format!("reconcile panicked: {message}"));
    assert_eq!(sorted(given_up.take()), [panicked(0, "group"), panicked(1, "hash")]);
    assert_eq!((report.reconciles, report.panics, report.given_up, report.retries()), (7, 6, 2, 4));
    assert_eq!((report.callback_panics, left(&report)), (6, 0));
}

/// At shutdown, open batches do not wait for more keys, because none can be added.
#[tokio::test(start_paused = true)]
async fn a_drain_closes_open_batches() {
    let (queue, log, begin) = (queue(), Log::new(), Instant::now());
    (0..7).for_each(|key| _ = queue.add(key));
    let own_log = log.clone();
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 2.into(),
            drain_on_shutdown: true,
            ..ControllerConfig::default()
        })
        .graceful_shutdown_on(sleep(SECOND))
        .run_batches(BatchConfig::new(5).max_wait(3600 * SECOND).group_by(|key| key % 2), move |keys, _| {
            let results = well(&keys);
            own_log.note(keys);
            async move { Ok::<_, String>(results) }
        })
        .await
        .unwrap();
    assert_eq!(begin.elapsed(), SECOND);
    assert_eq!(sorted(log.take()), [vec![0, 2, 4, 6], vec![1, 3, 5]]);
    assert_eq!((report.reconciles, left(&report)), (7, 0));
}

/// At shutdown, keys in an open batch are requeued, which does not count as a failure. The report lists these keys as Ready, not as leased. This
/// holds even if the reconciles are dropped immediately.
#[tokio::test(start_paused = true)]
async fn shutdown_requeues_keys_of_open_batches() {
    for (busy, grace) in [(false, SECOND), (true, SECOND), (false, Duration::ZERO), (true, Duration::ZERO)] {
        let queue = queue();
        (0..3).for_each(|key| _ = queue.add(key));
        let report = Controller::new(queue.clone())
            .with_config(ControllerConfig {
                workers: 2.into(),
                shutdown_grace: grace,
                abort_after: grace,
                ..ControllerConfig::default()
            })
            .graceful_shutdown_on(sleep(SECOND))
            .run_batches(
                BatchConfig::new(2).max_wait(3600 * SECOND).group_by(|key| key % 2),
                move |keys, _| async move {
                    assert_eq!(keys, [0, 2]);
                    if busy {
                        pending::<()>().await;
                    }
                    Ok::<_, String>(well(&keys))
                },
            )
            .await
            .unwrap();
        let left = report.leftovers;
        assert_eq!((left.ready, left.leased), (vec![1], if busy { vec![0, 2] } else { vec![] }));
        assert_eq!((left.waiting, queue.num_requeues(&1)), (vec![], 0));
    }
}

#[tokio::test(start_paused = true)]
async fn after_the_grace_all_keys_of_a_batch_are_left_over() {
    let queue = queue();
    (0..5).for_each(|key| _ = queue.add(key));
    let report = Controller::new(queue)
        .graceful_shutdown_on(sleep(SECOND))
        .with_config(ControllerConfig { shutdown_grace: SECOND, ..ControllerConfig::default() })
        .run_batches(BatchConfig::new(3), |_, _| pending::<Result<Results, String>>())
        .await
        .unwrap();
    assert_eq!((sorted(report.leftovers.leased), report.leftovers.ready), (vec![0, 1, 2], vec![3, 4]));
}

/// The controller is dropped at a random time. Keys in open batches, keys of running batches and queued keys stay in the queue.
#[test]
fn dropping_the_controller_loses_no_key() {
    let most = Arc::new(AtomicUsize::new(0));
    Simulation::explore(300, |sim| {
        let queue = simulated(sim);
        (0..12).for_each(|key| _ = queue.add(key));
        let (done, time) = (Log::new(), sim.time());
        let own_log = done.clone();
        let controller = Controller::new(queue.clone()).with_config(ControllerConfig {
            workers: (1..=3).into(),
            worker_idle_timeout: SECOND,
            ..ControllerConfig::default()
        });
        let batches = BatchConfig::new(3).max_wait(2 * SECOND).group_by(|key| key % 5);
        let running = sim.run_batches(controller, batches, move |keys, _| {
            let (time, own_log) = (time.clone(), own_log.clone());
            async move {
                time.sleep(SECOND).await;
                let results = well(&keys);
                keys.into_iter().for_each(|key| own_log.note(key));
                Ok::<_, String>(results)
            }
        });
        sim.advance(Duration::from_millis(sim.next_random() % 5_000));
        most.fetch_max(queue.stats().leased, Ordering::Relaxed);
        running.abort();
        sim.run_until_stalled();
        assert!(running.is_finished());
        queue.check().unwrap();
        assert_eq!(queue.stats().leased, 0);
        let done = sorted(done.take());
        for key in 0..12 {
            assert_eq!(queue.state(&key) == KeyState::Absent, done.contains(&key), "{key}: {done:?}");
        }
    });
    assert!(most.load(Ordering::Relaxed) > 9, "few keys were leased at any time");
}

#[tokio::test(start_paused = true)]
async fn stop_when_idle_ends_with_batches() {
    let world = crate::support::HistorySource::new();
    (0..10).for_each(|key| _ = world.put(key, 0));
    let things = world.informer();
    let controller = Controller::new(queue())
        .watches(&things, |change| *change.key())
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let running =
        tokio::spawn(controller.run_batches(BatchConfig::new(4).max_wait(SECOND), |keys, _| async move {
            Ok::<_, String>(well(&keys))
        }));
    things.synced().await.unwrap();
    run_until_pending().await;
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.reconciles, report.batches), (10, 3));
}

/// The last key joins no batch: either it belongs to a different replica, or `group_by` panics and the queue gives the key up.
#[tokio::test(start_paused = true)]
async fn stop_when_idle_ends_after_a_key_without_a_batch() {
    for mine in [false, true] {
        let things = crate::support::HistorySource::new().informer();
        let backoff = Exponential::new(SECOND..=60 * SECOND);
        let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current());
        let queue: crate::support::Keys = queue.give_up_after(NonZeroU32::new(1).unwrap(), |_, _| {}).build();
        let controller = Controller::new(queue.clone()).watches(&things, |change| *change.key());
        let controller = controller
            .filter_keys(move |_| mine)
            .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
        let batches = BatchConfig::new(4).group_by(|_| -> u32 { panic_quietly("no group") });
        let running = tokio::spawn(
            controller.run_batches(batches, |keys, _| async move { Ok::<_, String>(well(&keys)) }),
        );
        things.synced().await.unwrap();
        queue.add_after(1, 2 * SECOND).unwrap();
        things.shut_down();
        let ended = timeout(3600 * SECOND, running).await.expect("the run must end");
        let report = ended.unwrap().unwrap();
        assert_eq!((report.filtered_keys, report.callback_panics), if mine { (0, 1) } else { (1, 0) });
    }
}

/// `group_by` always panics for key 0, which is Ready again immediately. Nevertheless, the other batches run: they do not wait until the queue has no
/// Ready key.
#[tokio::test(start_paused = true)]
async fn a_key_without_a_group_holds_up_no_batch() {
    let queue: Queue<u32, Fifo, Exponential<u32>, TokioTimer> =
        Queue::builder().limiter(Exponential::new(NANO..=NANO)).timer(TokioTimer::current()).build();
    for window in [Duration::ZERO, SECOND] {
        let log = Log::new();
        let own_log = log.clone();
        let batches = BatchConfig::new(usize::MAX).max_wait(window);
        let batches = batches.group_by(|key| if *key == 0 { panic_quietly("no group") } else { *key });
        let running = tokio::spawn(Controller::new(queue.clone()).run_batches(batches, move |keys, _| {
            let results = well(&keys);
            own_log.note(keys);
            async move { Ok::<_, String>(results) }
        }));
        (0..3).for_each(|key| _ = queue.add(key));
        for _ in 0..30 {
            run_until_pending().await;
            tokio::time::advance(SECOND / 10).await;
        }
        running.abort();
        assert_eq!(log.take(), [[1], [2]], "{window:?}");
        _ = running.await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_of_nothing_is_refused() {
    let run =
        Controller::new(queue()).run_batches(BatchConfig::new(0), |_, _| async { Ok::<_, String>(vec![]) });
    assert!(matches!(run.await, Err(RunError::Config(invalid)) if invalid.setting() == "run_batches"));
}

/// One group always has enough keys for a full batch; the other group has a single key. Returns the time in milliseconds at which the single key
/// ran, and the number of batches.
fn full_group_and_single_key(window: Duration) -> (u64, u64) {
    let mut sim = Simulation::new(1);
    let queue = simulated(&sim);
    queue.add(0).unwrap();
    (1..65).for_each(|key| _ = queue.add(key));
    let (log, time) = (Log::new(), sim.time());
    let own_log = log.clone();
    let batches = BatchConfig::new(4).max_wait(window).group_by(|key| u32::from(*key > 0));
    sim.run_batches(Controller::new(queue), batches, move |keys, _| {
        let (time, own_log) = (time.clone(), own_log.clone());
        async move {
            own_log.note((time.now().get() / 1_000_000, keys[0]));
            time.sleep(Duration::from_millis(10)).await;
            // The keys of the large group are requeued at once.
            let again = |key: &u32| {
                Ok(if *key == 0 { Action::await_change() } else { Action::requeue_after(Duration::ZERO) })
            };
            Ok::<_, String>(keys.iter().map(again).collect::<Results>())
        }
    });
    sim.advance(10 * SECOND);
    let batches = log.take();
    let lonely = batches.iter().find(|(_, first)| *first == 0).expect("the single key never ran");
    (lonely.0, batches.len() as u64)
}

#[test]
fn a_group_is_closed_in_time_beside_one_that_is_always_full() {
    let (at, batches) = full_group_and_single_key(Duration::from_millis(50));
    assert!((50..=60).contains(&at), "{at}");
    assert!(batches > 900, "{batches}");
}

#[test]
fn a_group_without_a_window_is_closed_beside_one_that_is_always_full() {
    let (at, _) = full_group_and_single_key(Duration::ZERO);
    assert!(at <= 80, "{at}");
}

/// A key becomes dirty while it is in an open batch. It then runs in two batches, and neither of them waits for more keys.
#[tokio::test(start_paused = true)]
async fn a_dirty_key_of_an_open_batch_runs_twice_without_waiting() {
    for how in ["drain", "run_until_pending", "shut down from elsewhere"] {
        let world = crate::support::HistorySource::new();
        world.put(1, 0);
        let things = world.informer();
        let (queue, log, begin) = (queue(), Log::new(), Instant::now());
        let controller = Controller::new(queue.clone()).watches(&things, |change| *change.key());
        let controller = match how {
            "drain" => controller
                .graceful_shutdown_on(sleep(2 * SECOND))
                .with_config(ControllerConfig { drain_on_shutdown: true, ..ControllerConfig::default() }),
            "run_until_pending" => controller
                .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() }),
            _ => controller,
        };
        let own_log = log.clone();
        let batches = BatchConfig::new(5).max_wait(3600 * SECOND);
        let running = tokio::spawn(controller.run_batches(batches, move |keys, _| {
            let results = well(&keys);
            own_log.note(keys);
            async move { Ok::<_, String>(results) }
        }));
        sleep(SECOND).await;
        assert_eq!(queue.state(&1), KeyState::Leased, "the key is in an open batch");
        queue.add(1).unwrap();
        sleep(SECOND).await;
        match how {
            "run_until_pending" => things.shut_down(),
            "shut down from elsewhere" => queue.shut_down(),
            _ => {}
        }
        let report = running.await.unwrap().unwrap();
        assert_eq!((begin.elapsed(), log.take()), (2 * SECOND, vec![vec![1], vec![1]]), "{how}");
        assert_eq!(left(&report), 0, "{how}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_of_one_key_keeps_its_kind() {
    let queue = queue();
    (0..3).for_each(|key| _ = queue.add(key));
    let report = Controller::new(queue)
        .graceful_shutdown_on(sleep(SECOND / 2))
        .run_batches(BatchConfig::new(3), |keys, _| async move {
            let how = |key| match key {
                0 => ReconcileError::Timeout(SECOND),
                1 => ReconcileError::Panic("boom".to_owned()),
                _ => ReconcileError::Error("no luck".into()),
            };
            Ok(keys.into_iter().map(|key| Err(how(key))).collect())
        })
        .await
        .unwrap();
    assert_eq!((report.timeouts, report.panics, report.errors), (1, 1, 1));
}

/// `finally` runs for all keys of a batch concurrently. If one call is aborted at shutdown, the successes of the other keys are still counted.
#[tokio::test(start_paused = true)]
async fn an_aborted_finally_affects_its_key_alone() {
    let queue = queue();
    (0..4).for_each(|key| _ = queue.add(key));
    let report = Controller::new(queue)
        .finally(|key, _, _| async move {
            if key == 0 {
                pending::<()>().await;
            }
            Ok::<_, String>(())
        })
        .graceful_shutdown_on(sleep(SECOND))
        .run_batches(BatchConfig::new(4), |keys, _| async move { Ok::<_, String>(well(&keys)) })
        .await
        .unwrap();
    assert_eq!((report.reconciles, report.failures(), report.leftovers.leased), (3, 0, vec![0]));
}

/// Keys that a lease limit, a rate or a pause holds back, and keys of a suspended group, do not close a batch: it waits for its window.
#[test]
fn keys_that_are_held_back_close_no_batch() {
    let seconds = |mut sim: Simulation, order: Fair<u32, bool>, pauses: bool| {
        let backoff = Exponential::new(SECOND..=SECOND);
        let queue = Queue::builder().order(order).limiter(backoff).timer(sim.timer()).build();
        // Key 0 is in the group `true`.
        _ = queue.add_many(0..20);
        let (log, time) = (Log::new(), sim.time());
        let own_log = log.clone();
        let batches = BatchConfig::new(10).max_wait(5 * SECOND);
        sim.run_batches(Controller::new(queue.clone()), batches, move |keys: Vec<u32>, _| {
            own_log.note((time.now().get() / 1_000_000_000, keys.len()));
            let results = well(&keys);
            async move { Ok::<_, String>(results) }
        });
        if pauses {
            sim.run_until_stalled();
            _ = queue.add_many(20..23);
            sim.run_until_stalled();
            queue.pause();
            _ = queue.add_many(30..33);
            sim.advance(SECOND);
            queue.resume();
        }
        sim.advance(9 * SECOND);
        log.take()
    };
    let fair = || Fair::by_group(|key: &u32| *key == 0);
    let one = Quota::per_second(NonZeroU32::MIN);
    let limited = seconds(Simulation::new(2), fair().max_leased(|_| 2), false);
    assert_eq!(limited, [(5, 3)], "the keys of both groups");
    let rated = seconds(Simulation::new(2), fair().rate(move |_| Some(one)), false);
    assert_eq!(rated, [(5, 7)], "key 0, and one key of the other group per second");
    let suspended =
        seconds(Simulation::new(2), fair().max_leased(|zero| if *zero { 0 } else { u32::MAX }), false);
    assert_eq!(suspended, [(0, 10), (5, 9)]);
    let paused = seconds(Simulation::new(2), fair(), true);
    assert_eq!(paused, [(0, 10), (0, 10), (5, 6)]);
}

/// Other code shuts the queue down while a batch is open and keys are held back. The batches then wait no longer.
#[tokio::test(start_paused = true)]
async fn a_shutdown_from_elsewhere_closes_batches_although_keys_are_held_back() {
    for pauses in [false, true] {
        let order = Fair::by_group(|_: &u32| ()).max_leased(|_| 2);
        let backoff = Exponential::new(SECOND..=SECOND);
        let queue = Queue::builder().order(order).limiter(backoff).timer(TokioTimer::current()).build();
        _ = queue.add_many(0..7);
        let (log, begin) = (Log::new(), Instant::now());
        let own_log = log.clone();
        let batches = BatchConfig::new(5).max_wait(3_600 * SECOND);
        let running =
            tokio::spawn(Controller::new(queue.clone()).run_batches(batches, move |keys: Vec<u32>, _| {
                let results = well(&keys);
                own_log.note((begin.elapsed().as_secs(), keys));
                async move { Ok::<_, String>(results) }
            }));
        sleep(SECOND).await;
        if pauses {
            queue.pause();
        }
        queue.shut_down();
        sleep(SECOND).await;
        queue.resume();
        assert_eq!(left(&running.await.unwrap().unwrap()), 0);
        let at = if pauses { 2 } else { 1 };
        assert_eq!(log.take(), [(1, vec![0, 1]), (at, vec![2, 3]), (at, vec![4, 5]), (at, vec![6])]);
    }
}
