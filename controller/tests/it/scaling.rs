//! The worker pool: a worker is started when all others are busy, and idle workers stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flyball_controller::testing::Simulation;
use flyball_controller::{Action, Controller, ControllerConfig, ControllerMetrics};
use flyball_ratelimit::Exponential;
use flyball_sync::{Clock, ManualTimer};
use flyball_workqueue::{Fifo, Queue};
use tokio::time::{Instant, sleep};

use crate::support::{Log, SECOND, left, panic_quietly, queue, run_until_pending};

type Keys = Queue<u32, Fifo, Exponential<u32>, ManualTimer>;

fn simulated(sim: &Simulation) -> Keys {
    let backoff = Exponential::new(SECOND..=60 * SECOND);
    Queue::builder().limiter(backoff).timer(sim.timer()).seed(sim.next_random()).build()
}

/// The current number of workers, and the maximum so far.
#[derive(Clone, Default)]
struct Gauge(Arc<[AtomicUsize; 2]>);

impl Gauge {
    fn now(&self) -> usize {
        self.0[0].load(Ordering::SeqCst)
    }

    fn most(&self) -> usize {
        self.0[1].load(Ordering::SeqCst)
    }
}

impl ControllerMetrics for Gauge {
    fn worker_started(&self) {
        let now = self.0[0].fetch_add(1, Ordering::SeqCst) + 1;
        self.0[1].fetch_max(now, Ordering::SeqCst);
    }

    fn worker_stopped(&self) {
        self.0[0].fetch_sub(1, Ordering::SeqCst);
    }
}

/// Runs a controller with 2 to 5 workers. Each reconcile takes a second.
fn run(sim: &Simulation, queue: &Keys) -> (Gauge, Log<u32>) {
    let (gauge, log) = (Gauge::default(), Log::new());
    let controller = Controller::new(queue.clone())
        .with_config(ControllerConfig { workers: (2..=5).into(), ..ControllerConfig::default() })
        .metrics(gauge.clone());
    let (own_log, time) = (log.clone(), sim.time());
    sim.run(controller, move |key, _| {
        own_log.note(key);
        let time = time.clone();
        async move {
            time.sleep(SECOND).await;
            Ok::<_, String>(Action::await_change())
        }
    });
    (gauge, log)
}

#[test]
fn scales_with_the_load_within_bounds() {
    Simulation::explore(100, |sim| {
        let queue = simulated(sim);
        let (gauge, log) = run(sim, &queue);
        sim.run_until_stalled();
        assert_eq!(gauge.now(), 2);
        queue.add(1).unwrap();
        sim.run_until_stalled();
        assert_eq!(gauge.now(), 2, "one worker is idle");
        queue.add(2).unwrap();
        sim.run_until_stalled();
        assert_eq!(gauge.now(), 3, "no worker was idle for the next key");
        sim.advance(30 * SECOND);
        assert_eq!(gauge.now(), 2);
        log.take();

        (0..20).for_each(|key| _ = queue.add(key));
        sim.run_until_stalled();
        assert_eq!((gauge.now(), log.take().len()), (5, 5), "the pool must stay at its maximum");
        sim.advance(3 * SECOND);
        assert_eq!(log.take().len(), 15, "all workers must reconcile");
        sim.advance(SECOND);
        assert_eq!(gauge.now(), 5, "idle workers stay until their timeout");
        sim.advance(10 * SECOND);
        assert_eq!((gauge.now(), gauge.most()), (2, 5));
    });
}

/// The only idle worker does not stop while the others are busy. Otherwise the next key would have to wait.
#[test]
fn keeps_the_only_idle_worker() {
    Simulation::explore(100, |sim| {
        let (queue, log) = (simulated(sim), Log::new());
        let controller = Controller::new(queue.clone()).with_config(ControllerConfig {
            workers: (1..=3).into(),
            worker_idle_timeout: SECOND,
            ..ControllerConfig::default()
        });
        let (own_log, time) = (log.clone(), sim.time());
        sim.run(controller, move |key, _| {
            own_log.note((key, time.now()));
            let time = time.clone();
            async move {
                time.sleep(3600 * SECOND).await;
                Ok::<_, String>(Action::await_change())
            }
        });
        for key in 0..3 {
            sim.advance(Duration::from_millis(500 + sim.next_random() % 3_000));
            queue.add(key).unwrap();
            sim.run_until_stalled();
            assert_eq!(log.take(), [(key, sim.clock().now())]);
        }
        queue.add(3).unwrap();
        sim.advance(60 * SECOND);
        assert_eq!(log.take(), [], "all workers of the maximum are busy");
    });
}

#[test]
fn an_idle_pool_polls_nothing() {
    // With an even seed the simulation polls only tasks that were woken.
    for seed in [2, 4, 6] {
        let mut sim = Simulation::new(seed);
        let queue = simulated(&sim);
        let (gauge, _log) = run(&sim, &queue);
        (0..9).for_each(|key| _ = queue.add(key));
        sim.advance(60 * SECOND);
        assert_eq!((gauge.now(), gauge.most()), (2, 5));
        let steps = sim.poll_count();
        assert_eq!(sim.clock().next_alarm(), None);
        sim.advance(3600 * SECOND);
        assert_eq!(sim.poll_count(), steps);
    }
}

/// A pool of fixed size never changes its number of workers, and sets no timer.
#[test]
fn a_fixed_number_of_workers_does_not_change() {
    let mut sim = Simulation::new(2);
    let (queue, gauge) = (simulated(&sim), Gauge::default());
    let controller = Controller::new(queue.clone())
        .with_config(ControllerConfig { workers: 3.into(), ..ControllerConfig::default() })
        .metrics(gauge.clone());
    sim.run(controller, |_, _| async { Ok::<_, String>(Action::await_change()) });
    for key in 0..9 {
        queue.add(key).unwrap();
        sim.run_until_stalled();
        assert_eq!(sim.clock().next_alarm(), None);
        sim.advance(60 * SECOND);
        assert_eq!((gauge.now(), gauge.most()), (3, 3));
    }
}

/// A reconcile that panics or times out does not stop its worker.
#[test]
fn a_panic_or_timeout_keeps_the_worker() {
    Simulation::explore(50, |sim| {
        let (queue, gauge) = (simulated(sim), Gauge::default());
        let controller = Controller::new(queue.clone())
            .with_config(ControllerConfig {
                workers: (1..=4).into(),
                reconcile_timeout: Some(SECOND),
                max_attempts: Some(1),
                ..ControllerConfig::default()
            })
            .on_give_up(|_, _| {})
            .metrics(gauge.clone());
        sim.run(controller, |key, _| async move {
            match key % 3 {
                0 => panic_quietly("boom"),
                1 => std::future::pending().await,
                _ => Err::<Action, _>("no luck"),
            }
        });
        (0..30).for_each(|key| _ = queue.add(key));
        sim.advance(60 * SECOND);
        assert_eq!((gauge.now(), gauge.most()), (1, 4));
        assert!(crate::support::holds_nothing(&queue.stats()));
    });
}

#[test]
fn may_be_shut_down_or_dropped_while_scaling() {
    Simulation::explore(200, |sim| {
        let (queue, gauge) = (simulated(sim), Gauge::default());
        (0..12).for_each(|key| _ = queue.add(key));
        let controller = Controller::new(queue.clone())
            .with_config(ControllerConfig {
                workers: (1..=4).into(),
                worker_idle_timeout: SECOND,
                drain_on_shutdown: true,
                ..ControllerConfig::default()
            })
            .metrics(gauge.clone())
            .graceful_shutdown_on(sim.time().sleep(Duration::from_millis(sim.next_random() % 4_000)));
        let time = sim.time();
        let running = sim.run(controller, move |_, _| {
            let time = time.clone();
            async move {
                time.sleep(SECOND).await;
                Ok::<_, String>(Action::await_change())
            }
        });
        let dropped = sim.seed() % 4 < 2;
        if dropped {
            sim.advance(Duration::from_millis(sim.next_random() % 4_000));
            running.abort();
        }
        sim.advance(60 * SECOND);
        assert!(running.is_finished());
        assert_eq!(gauge.now(), 0, "every worker that started must stop");
        match running.take_output() {
            Some(report) => {
                let report = report.expect("the configuration is valid");
                assert_eq!(
                    (report.reconciles, left(&report)),
                    (12, 0),
                    "the drain must serve the whole backlog"
                );
            }
            None => {
                assert!(dropped);
                assert_eq!(queue.stats().leased, 0);
                queue.check().unwrap();
            }
        }
    });
}

/// During a drain the pool still scales up to its maximum.
#[tokio::test(start_paused = true)]
async fn scales_up_during_a_drain() {
    let (queue, gauge, begin) = (queue(), Gauge::default(), Instant::now());
    let adding = queue.clone();
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: (1..=10).into(),
            drain_on_shutdown: true,
            ..ControllerConfig::default()
        })
        .metrics(gauge.clone())
        .graceful_shutdown_on(async move {
            sleep(SECOND).await;
            (0..100).for_each(|key| _ = adding.add(key));
        })
        .run(|_, _| async {
            sleep(SECOND).await;
            Ok::<_, String>(Action::await_change())
        })
        .await
        .unwrap();
    assert_eq!((report.reconciles, begin.elapsed()), (100, 11 * SECOND));
    assert_eq!((gauge.now(), gauge.most()), (0, 10));
}

/// Runs on several threads, so that an add can coincide with the timeout of an idle worker.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_on_threads() {
    let (queue, gauge, done) = (queue(), Gauge::default(), Arc::new(AtomicUsize::new(0)));
    let (counted, ending) = (done.clone(), queue.clone());
    let controller = Controller::new(queue.clone())
        .with_config(ControllerConfig {
            workers: (1..=8).into(),
            worker_idle_timeout: Duration::from_nanos(1),
            ..ControllerConfig::default()
        })
        .metrics(gauge.clone());
    let running = tokio::spawn(controller.run(move |_, _| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            tokio::task::yield_now().await;
            Ok::<_, String>(Action::await_change())
        }
    }));
    for key in 0..5_000 {
        queue.add(key).unwrap();
        if key % 7 == 0 {
            run_until_pending().await;
        }
    }
    ending.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.reconciles, done.load(Ordering::SeqCst)), (5_000, 5_000));
    assert_eq!(gauge.now(), 0);
    assert!(gauge.most() <= 8);
}
