//! `max_attempts`: a key that keeps failing is given up, and `on_give_up` is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use flyball_controller::{Action, BatchConfig, Controller, ControllerConfig, ReconcileError};
use flyball_ratelimit::{Exponential, MaxElapsed};
use flyball_sync::TokioTimer;
use flyball_workqueue::Queue;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::support::{HistorySource, Log, SECOND, left, panic_quietly, queue, run_until_pending, sorted};

#[tokio::test(start_paused = true)]
async fn a_key_is_given_up_at_the_last_attempt_and_comes_back_with_the_next_add() {
    let queue = queue();
    queue.add(1).unwrap();
    let (runs, given_up, begin) = (Log::new(), Log::new(), Instant::now());
    let (own_log, own_given_up, own_queue) = (runs.clone(), given_up.clone(), queue.clone());
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .with_config(ControllerConfig { max_attempts: Some(3), ..ControllerConfig::default() })
            .on_give_up(move |key, failure| {
                assert_eq!(own_queue.stats().leased, 1, "the key is still leased");
                own_given_up.note((*key, failure.to_string()));
            })
            .graceful_shutdown_on(sleep(100 * SECOND))
            .run(move |_, _| {
                own_log.note(begin.elapsed().as_secs());
                async { Err::<Action, _>("no luck") }
            }),
    );
    sleep(50 * SECOND).await;
    run_until_pending().await;
    assert_eq!(runs.take().len(), 3);
    assert_eq!(given_up.take(), [(1, "no luck".to_owned())]);
    assert_eq!(
        (queue.num_requeues(&1), queue.stats()),
        (0, Default::default()),
        "the failures of the key must be forgotten"
    );

    queue.add(1).unwrap();
    run_until_pending().await;
    assert_eq!(runs.take().len(), 1, "the count of failures starts at zero");
    assert_eq!(given_up.take(), []);
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.errors, report.given_up, report.retries()), (6, 2, 4));
}

#[tokio::test(start_paused = true)]
async fn on_give_up_receives_every_kind_and_may_panic() {
    let queue = queue();
    for key in 1..=4 {
        queue.add(key).unwrap();
    }
    let given_up = Log::new();
    let own_given_up = given_up.clone();
    let controller = Controller::new(queue)
        .with_config(ControllerConfig {
            reconcile_timeout: Some(SECOND),
            max_attempts: Some(1),
            ..ControllerConfig::default()
        })
        .on_give_up(move |key, failure| {
            if *key == 4 {
                panic_quietly("a hook panics");
            }
            let kind = match failure {
                ReconcileError::Error(_) => "error",
                ReconcileError::Panic(_) => "panic",
                ReconcileError::Timeout(_) => "timeout",
                _ => "unknown",
            };
            own_given_up.note((*key, kind, failure.to_string()));
        })
        .graceful_shutdown_on(sleep(10 * SECOND));
    let reconcile = |key, _| async move {
        match key {
            2 => panic_quietly("boom"),
            3 => std::future::pending().await,
            _ => Err::<Action, _>("no luck"),
        }
    };
    let report = controller.run(reconcile).await.unwrap();
    let expected = [
        (1, "error", "no luck".to_owned()),
        (2, "panic", "reconcile panicked: boom".to_owned()),
        (3, "timeout", "reconcile was not done after 1s".to_owned()),
    ];
    assert_eq!(given_up.take(), expected);
    assert_eq!((report.reconciles, report.given_up, report.callback_panics, report.retries()), (4, 4, 1, 0));
    assert_eq!(left(&report), 0);
}

/// kubernetes#136853: if a failing key is added again before its backoff is over, this must not use up its attempts.
#[tokio::test(start_paused = true)]
async fn adds_during_a_backoff_use_up_no_attempts() {
    let queue = queue();
    queue.add(1).unwrap();
    let (runs, given_up) = (Log::new(), Log::new());
    let (own_log, own_given_up) = (runs.clone(), given_up.clone());
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .with_config(ControllerConfig { max_attempts: Some(3), ..ControllerConfig::default() })
            .on_give_up(move |_, _| own_given_up.note(()))
            .run(move |_, _| {
                own_log.note(());
                async { Err::<Action, _>("no luck") }
            }),
    );
    run_until_pending().await;
    for _ in 0..20 {
        queue.add(1).unwrap();
        run_until_pending().await;
    }
    assert_eq!(runs.take().len(), 21, "each add must run the key at once");
    assert_eq!(given_up.take().len(), 0, "only one failure may count");
    assert_eq!(queue.num_requeues(&1), 1);
    running.abort();
}

/// Before a key runs again, it waits for 999 other keys. That takes longer than the time for which the limiter stores the failures of an idle key.
#[tokio::test(start_paused = true)]
async fn gives_up_every_failing_key_under_a_backlog_of_a_thousand() {
    let queue = queue();
    _ = queue.add_many(0..1_000);
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 1.into(),
            max_attempts: Some(3),
            ..ControllerConfig::default()
        })
        .on_give_up(|_, _| {})
        .graceful_shutdown_on(sleep(3_100 * SECOND))
        .run(|_, _| async {
            sleep(SECOND).await;
            Err::<Action, _>("no luck")
        })
        .await
        .unwrap();
    assert_eq!((report.errors, report.given_up), (3_000, 1_000));
}

/// A failure that occurs before the previous backoff is over is not counted, so the key is not given up after such a failure.
#[tokio::test(start_paused = true)]
async fn a_failure_that_does_not_count_gives_no_key_up() {
    let (given_up, begin) = (Log::new(), Instant::now());
    let backoff = || Exponential::new(SECOND..=60 * SECOND);
    let own_given_up = given_up.clone();
    let dead = Queue::builder().limiter(backoff()).timer(TokioTimer::current()).give_up_after(
        std::num::NonZeroU32::new(4).unwrap(),
        move |key, _| {
            own_given_up.note((*key, begin.elapsed().as_secs()));
        },
    );
    let own_given_up = given_up.clone();
    let (own, others) = (queue(), dead.build());
    let reconcile = |_, _| async { Err::<Action, _>("no luck") };
    let minute = |_: &u32, _: &ReconcileError| Some(60 * SECOND);
    let attempts = Controller::new(own.clone())
        .retry_after_at_least(minute)
        .with_config(ControllerConfig { max_attempts: Some(4), ..ControllerConfig::default() })
        .on_give_up(move |_, _| {
            own_given_up.note((2, begin.elapsed().as_secs()));
        });
    let running = [
        tokio::spawn(attempts.run(reconcile)),
        tokio::spawn(Controller::new(others.clone()).retry_after_at_least(minute).run(reconcile)),
    ];
    for _ in 0..8 {
        own.add(2).unwrap();
        others.add(1).unwrap();
        sleep(SECOND).await;
    }
    assert_eq!(
        sorted(given_up.take()),
        [(1, 7), (2, 7)],
        "given up at the fourth counted failure: at 0, 1, 3 and 7 s"
    );
    running.iter().for_each(|running| running.abort());
}

/// A queue that was built without a timer has one: a requeue needs no configuration but a limiter.
#[tokio::test]
async fn a_controller_runs_on_a_queue_without_a_timer() {
    let queue = Queue::builder().limiter(Exponential::new(SECOND..=SECOND)).build();
    queue.add(7_u32).unwrap();
    let twice = Arc::new(Notify::new());
    let controller = Controller::new(queue).graceful_shutdown_on(twice.clone().notified_owned());
    let runs = AtomicUsize::new(0);
    let running = controller.run(move |_, _| {
        if runs.fetch_add(1, Ordering::Relaxed) == 1 {
            twice.notify_one();
        }
        async { Ok::<_, std::io::Error>(Action::requeue_after(SECOND / 1_000)) }
    });
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn on_give_up_is_called_when_the_limiter_gives_the_key_up() {
    let backoff = MaxElapsed::new(Exponential::new(SECOND..=SECOND * 60), SECOND * 10);
    let queue = Queue::builder().timer(TokioTimer::current()).limiter(backoff).build();
    queue.add(1).unwrap();
    let (given_up, begin) = (Log::new(), Instant::now());
    let own_given_up = given_up.clone();
    let report = Controller::new(queue)
        .on_give_up(move |key, failure| {
            own_given_up.note((*key, failure.to_string(), begin.elapsed().as_secs()))
        })
        .graceful_shutdown_on(sleep(100 * SECOND))
        .run(|_, _| async { Err::<Action, _>("no luck") })
        .await
        .unwrap();
    assert_eq!(
        given_up.take(),
        [(1, "no luck".to_owned(), 7)],
        "after 1 s, 2 s and 4 s; 8 s more are too late"
    );
    assert_eq!((report.errors, report.given_up), (4, 1));
}

/// Twelve keys fail slowly, and would take all workers most of the time. With a limit, a healthy key runs at once, and each failing key is still
/// retried.
#[tokio::test(start_paused = true)]
async fn a_limit_of_failing_keys_leaves_workers_for_healthy_keys() {
    for batches in [false, true] {
        let (queue, log, begin) = (queue(), Log::new(), Instant::now());
        let (failing, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let config = ControllerConfig {
            workers: 4.into(),
            max_failing_in_flight: Some(2),
            ..ControllerConfig::default()
        };
        let controller = Controller::new(queue.clone()).with_config(config);
        let (own_log, counted, maximum) = (log.clone(), failing.clone(), most.clone());
        let reconcile = move |key: u32, _| {
            own_log.note((key, begin.elapsed()));
            let (counted, maximum) = (counted.clone(), maximum.clone());
            async move {
                if key >= 100 {
                    return Ok(Action::await_change());
                }
                maximum.fetch_max(counted.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(30 * SECOND).await;
                counted.fetch_sub(1, Ordering::SeqCst);
                Err("no luck")
            }
        };
        _ = queue.add_many(0..12);
        let running = match batches {
            false => tokio::spawn(controller.run(reconcile)),
            true => {
                let reconcile = Arc::new(reconcile);
                tokio::spawn(controller.run_batches(BatchConfig::new(1), move |keys: Vec<u32>, context| {
                    let reconcile = reconcile.clone();
                    async move { Ok(vec![reconcile(keys[0], context).await]) }
                }))
            }
        };
        // At their first attempts, the keys are not known to fail.
        sleep(100 * SECOND).await;
        assert_eq!(most.swap(0, Ordering::SeqCst), 4);
        log.take();
        for key in 100..120 {
            sleep(33 * SECOND).await;
            let added = begin.elapsed();
            queue.add(key).unwrap();
            run_until_pending().await;
            assert!(log.take().contains(&(key, added)), "the healthy key must not wait");
        }
        sleep(2_000 * SECOND).await;
        let seen = log.take();
        for key in 0..12 {
            let runs = seen.iter().filter(|(seen, _)| *seen == key).count();
            assert!(runs >= 5, "key {key} ran {runs} times");
        }
        assert_eq!(most.load(Ordering::SeqCst), 2);
        running.abort();
    }
}

/// A drain reconciles every Ready key, whatever the limit.
#[tokio::test(start_paused = true)]
async fn a_drain_reconciles_failing_keys_beyond_the_limit() {
    let (queue, log) = (queue(), Log::new());
    let own_log = log.clone();
    // Two healthy keys are before the failing ones, and run when the drain begins.
    _ = queue.add_many([100, 101]);
    (0..4).for_each(|key| _ = queue.add_rate_limited(key));
    sleep(2 * SECOND).await;
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 2.into(),
            max_failing_in_flight: Some(1),
            drain_on_shutdown: true,
            ..ControllerConfig::default()
        })
        .graceful_shutdown_on(sleep(SECOND / 2))
        .run(move |key, _| {
            own_log.note(key);
            async {
                sleep(SECOND).await;
                Ok::<_, String>(Action::await_change())
            }
        })
        .await
        .unwrap();
    assert_eq!((sorted(log.take()), left(&report)), (vec![0, 1, 2, 3, 100, 101], 0));
}

/// A run that stops when it is idle waits for keys that are put back, so the limit applies until its end.
#[tokio::test(start_paused = true)]
async fn the_limit_of_failing_keys_applies_although_all_informers_have_stopped() {
    const KEYS: u32 = 6;
    let world = HistorySource::new();
    (0..KEYS).for_each(|key| _ = world.put(key, 0));
    let things = world.informer();
    things.synced().await.unwrap();
    things.shut_down();
    things.stopped().await;
    let (failing, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (own_most, calls) = (most.clone(), AtomicU32::new(0));
    let report = Controller::new(queue())
        .watches(&things, |change| *change.key())
        .with_config(ControllerConfig {
            workers: 4.into(),
            max_failing_in_flight: Some(1),
            stop_when_idle: true,
            ..ControllerConfig::default()
        })
        .run(move |_, _| {
            let (failing, most) = (failing.clone(), own_most.clone());
            let first = calls.fetch_add(1, Ordering::SeqCst) < KEYS;
            async move {
                if first {
                    return Err("no luck");
                }
                most.fetch_max(failing.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                sleep(10 * SECOND).await;
                failing.fetch_sub(1, Ordering::SeqCst);
                Ok(Action::await_change())
            }
        })
        .await
        .unwrap();
    assert_eq!((report.reconciles, report.errors, most.load(Ordering::SeqCst)), (12, 6, 1));
}

/// However many keys fail, and however fast they end, only a bounded number of those beyond the limit is dequeued per second.
#[tokio::test(start_paused = true)]
async fn failing_keys_beyond_the_limit_are_rarely_dequeued() {
    const KEYS: u32 = 20_000;
    let backoff = Exponential::new(SECOND..=3_600 * SECOND);
    let queue = Queue::builder().timer(TokioTimer::current()).limiter(backoff).build();
    (0..KEYS).for_each(|key| _ = queue.add_rate_limited(key));
    let dequeued = Arc::new(AtomicUsize::new(0));
    let counted = dequeued.clone();
    let config =
        ControllerConfig { max_failing_in_flight: Some(1), workers: 2.into(), ..ControllerConfig::default() };
    let report = Controller::new(queue)
        .with_config(config)
        .filter_keys(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            true
        })
        .graceful_shutdown_on(sleep(61 * SECOND))
        .run(|_, _| async {
            sleep(SECOND / 100).await;
            Err::<Action, _>("no luck")
        })
        .await
        .unwrap();
    // All of them once, then one per millisecond, and those that were reconciled.
    let (dequeued, failed) = (dequeued.load(Ordering::Relaxed), report.errors as usize);
    assert!(
        failed > 2_000 && dequeued <= KEYS as usize + 61_000 + failed,
        "{dequeued} dequeued, {failed} failed"
    );
}
