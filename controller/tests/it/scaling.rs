//! Workers that come while all are busy, and go when there is nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use flyball_controller::testing::Simulation;
use flyball_controller::{Action, Controller, ControllerMetrics};
use flyball_ratelimit::Exponential;
use flyball_sync::{Clock, ManualTimer};
use flyball_workqueue::{Fifo, Queue, WithTimer};
use tokio::time::{Instant, sleep};

use crate::support::{Log, SECOND, left, panic_quietly, queue, settle};

type Keys = Queue<u32, Fifo, Exponential<u32>, WithTimer<ManualTimer>>;

fn simulated(sim: &Simulation) -> Keys {
    let backoff = Exponential::new(SECOND..=60 * SECOND);
    Queue::builder().limiter(backoff).timer(sim.timer()).seed(sim.next_random()).build()
}

/// How many workers there are, and how many there were at most.
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

/// Runs a controller of 2 to 5 workers, each of whose reconciles takes a second.
fn run(sim: &Simulation, queue: &Keys) -> (Gauge, Log<u32>) {
    let (gauge, log) = (Gauge::default(), Log::new());
    let controller = Controller::new(queue.clone()).workers_between(2..=5).metrics(gauge.clone());
    let (noted, time) = (log.clone(), sim.time());
    sim.run(controller, move |key, _| {
        noted.note(key);
        let time = time.clone();
        async move {
            time.sleep(SECOND).await;
            Ok::<_, String>(Action::await_change())
        }
    });
    (gauge, log)
}

#[test]
fn they_are_as_many_as_there_is_work_within_bounds() {
    Simulation::explore(100, |sim| {
        let queue = simulated(sim);
        let (gauge, log) = run(sim, &queue);
        sim.run_until_stalled();
        assert_eq!(gauge.now(), 2);
        queue.add(1).unwrap();
        sim.run_until_stalled();
        assert_eq!(gauge.now(), 2, "one is free");
        queue.add(2).unwrap();
        sim.run_until_stalled();
        assert_eq!(gauge.now(), 3, "none was free for the next key");
        sim.advance(30 * SECOND);
        assert_eq!(gauge.now(), 2);
        log.take();

        (0..20).for_each(|key| _ = queue.add(key));
        sim.run_until_stalled();
        assert_eq!((gauge.now(), log.take().len()), (5, 5), "no more than it may be");
        sim.advance(3 * SECOND);
        assert_eq!(log.take().len(), 15, "all of them work");
        sim.advance(SECOND);
        assert_eq!(gauge.now(), 5, "they stay for a while");
        sim.advance(10 * SECOND);
        assert_eq!((gauge.now(), gauge.most()), (2, 5));
    });
}

/// The only one who is free does not go while the others are busy, or nobody would be there for the next key.
#[test]
fn a_key_waits_for_no_worker_that_could_be_there() {
    Simulation::explore(100, |sim| {
        let (queue, log) = (simulated(sim), Log::new());
        let controller = Controller::new(queue.clone()).workers_between(1..=3).worker_idle_timeout(SECOND);
        let (noted, time) = (log.clone(), sim.time());
        sim.run(controller, move |key, _| {
            noted.note((key, time.now()));
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
        assert_eq!(log.take(), [], "three are as many as there may be");
    });
}

#[test]
fn at_rest_nobody_looks_at_anything() {
    // An even seed: nobody has his turn without having been woken.
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

/// A crew of a fixed size is never asked anything, and no timer is set for it.
#[test]
fn a_fixed_number_stays() {
    let mut sim = Simulation::new(2);
    let (queue, gauge) = (simulated(&sim), Gauge::default());
    let controller = Controller::new(queue.clone()).workers(3).metrics(gauge.clone());
    sim.run(controller, |_, _| async { Ok::<_, String>(Action::await_change()) });
    for key in 0..9 {
        queue.add(key).unwrap();
        sim.run_until_stalled();
        assert_eq!(sim.clock().next_alarm(), None);
        sim.advance(60 * SECOND);
        assert_eq!((gauge.now(), gauge.most()), (3, 3));
    }
}

/// What happens to a reconcile happens to no worker.
#[test]
fn who_panics_stays_and_who_takes_too_long_is_free() {
    Simulation::explore(50, |sim| {
        let (queue, gauge) = (simulated(sim), Gauge::default());
        let controller = Controller::new(queue.clone())
            .workers_between(1..=4)
            .reconcile_timeout(SECOND)
            .max_attempts(1)
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
fn in_the_middle_of_it_it_may_be_shut_down_or_dropped() {
    Simulation::explore(200, |sim| {
        let (queue, gauge) = (simulated(sim), Gauge::default());
        (0..12).for_each(|key| _ = queue.add(key));
        let controller = Controller::new(queue.clone())
            .workers_between(1..=4)
            .worker_idle_timeout(SECOND)
            .metrics(gauge.clone())
            .drain_on_shutdown()
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
        assert_eq!(gauge.now(), 0, "everybody who came went");
        match running.take_output() {
            Some(report) => {
                let report = report.expect("it makes sense");
                assert_eq!((report.reconciles, left(&report)), (12, 0), "the backlog was worked off");
            }
            None => {
                assert!(dropped);
                assert_eq!(queue.stats().leased, 0);
                queue.check().unwrap();
            }
        }
    });
}

/// At shutdown as many work on the backlog as before, and those who were not there yet come.
#[tokio::test(start_paused = true)]
async fn during_a_drain_the_crew_grows_on() {
    let (queue, gauge, begin) = (queue(), Gauge::default(), Instant::now());
    let adding = queue.clone();
    let report = Controller::new(queue)
        .workers_between(1..=10)
        .metrics(gauge.clone())
        .graceful_shutdown_on(async move {
            sleep(SECOND).await;
            (0..100).for_each(|key| _ = adding.add(key));
        })
        .drain_on_shutdown()
        .run(|_, _| async {
            sleep(SECOND).await;
            Ok::<_, String>(Action::await_change())
        })
        .await
        .unwrap();
    assert_eq!((report.reconciles, begin.elapsed()), (100, 11 * SECOND));
    assert_eq!((gauge.now(), gauge.most()), (0, 10));
}

/// On many threads, where a key and an end of a wait really meet.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_lost_on_threads() {
    let (queue, gauge, done) = (queue(), Gauge::default(), Arc::new(AtomicUsize::new(0)));
    let (counted, ending) = (done.clone(), queue.clone());
    let controller = Controller::new(queue.clone())
        .workers_between(1..=8)
        .worker_idle_timeout(Duration::from_nanos(1))
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
            settle().await;
        }
    }
    ending.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.reconciles, done.load(Ordering::SeqCst)), (5_000, 5_000));
    assert_eq!(gauge.now(), 0);
    assert!(gauge.most() <= 8);
}
