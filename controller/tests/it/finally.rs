//! `finally` runs after every reconcile, whether it succeeded or failed.

use std::future::{Future, pending, poll_fn};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flyball_controller::{Action, BatchConfig, Controller, ControllerConfig, FailureClass, ReconcileError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use crate::support::{Log, SECOND, left, panic_quietly, queue, run_until_pending};

/// Returns the outcome of a reconcile, as one word.
fn word(ended: &Result<Action, Arc<ReconcileError>>) -> &'static str {
    match ended {
        Ok(_) => "well",
        Err(failure) => match **failure {
            ReconcileError::Error(_) => "error",
            ReconcileError::Panic(_) => "panic",
            ReconcileError::Timeout(_) => "timeout",
            _ => "unknown",
        },
    }
}

#[tokio::test(start_paused = true)]
async fn finally_runs_after_every_reconcile_while_the_key_is_leased() {
    let queue = queue();
    (1..=4).for_each(|key| drop(queue.add(key)));
    let (log, own_queue) = (Log::new(), queue.clone());
    let (own_log, reconciled) = (log.clone(), log.clone());
    let report = Controller::new(queue.clone())
        .with_config(ControllerConfig {
            reconcile_timeout: Some(SECOND),
            max_attempts: Some(1),
            ..ControllerConfig::default()
        })
        .finally(move |key, ended, _| {
            let (own_log, own_queue) = (own_log.clone(), own_queue.clone());
            async move {
                // `finally` takes almost its whole timeout. It has a timeout of its own, so the time of the reconcile does not count.
                sleep(SECOND * 9 / 10).await;
                assert_eq!(own_queue.stats().leased, 1);
                own_log.note((key, word(&ended)));
                Ok::<_, String>(())
            }
        })
        .on_give_up(|_, _| {})
        .graceful_shutdown_on(sleep(20 * SECOND))
        .run(move |key, _| {
            reconciled.note((key, "runs"));
            async move {
                match key {
                    2 => Err("no luck"),
                    3 => panic_quietly("boom"),
                    4 => pending().await,
                    _ => Ok(Action::await_change()),
                }
            }
        })
        .await
        .unwrap();
    let ends = [(1, "well"), (2, "error"), (3, "panic"), (4, "timeout")];
    assert_eq!(log.take(), ends.map(|(key, end)| [(key, "runs"), (key, end)]).concat());
    assert_eq!((report.reconciles, report.finally_failures, report.callback_panics), (4, 0, 0));
    assert_eq!((report.errors, report.panics, report.timeouts), (1, 1, 1));
}

/// Combines a successful or failed reconcile with each way in which `finally` can fail.
#[tokio::test(start_paused = true)]
async fn a_failed_finally_fails_the_reconcile_and_replaces_no_failure() {
    for (first, then, last) in [
        ("well", "error", "written: no"),
        ("well", "panic at once", "reconcile panicked: at once"),
        ("well", "panic later", "reconcile panicked: later"),
        ("well", "timeout", "reconcile was not done after 1s"),
        ("error", "error", "reconciled: no"),
        ("error", "timeout", "reconciled: no"),
        ("error", "well", "reconciled: no"),
    ] {
        let (queue, given_up) = (queue(), Log::new());
        queue.add(1).unwrap();
        let own_given_up = given_up.clone();
        let report = Controller::new(queue)
            .with_config(ControllerConfig {
                reconcile_timeout: Some(SECOND),
                max_attempts: Some(1),
                ..ControllerConfig::default()
            })
            .finally(move |_, _, _| {
                if then == "panic at once" {
                    panic_quietly("at once");
                }
                async move {
                    tokio::task::yield_now().await;
                    match then {
                        "well" => Ok(()),
                        "error" => Err("written: no"),
                        "timeout" => pending().await,
                        _ => panic_quietly("later"),
                    }
                }
            })
            .on_give_up(move |_, failure| own_given_up.note(failure.to_string()))
            .graceful_shutdown_on(sleep(9 * SECOND))
            .run(move |_, _| async move {
                if first == "well" { Ok(Action::await_change()) } else { Err("reconciled: no") }
            })
            .await
            .unwrap();
        assert_eq!(given_up.take(), [last], "{first}, then {then}");
        assert_eq!((report.reconciles, report.failures()), (1, 1), "{first}, then {then}");
        assert_eq!(report.finally_failures, u64::from(then != "well"), "{first}, then {then}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_conflict_in_finally_is_a_conflict() {
    let queue = queue();
    queue.add(1).unwrap();
    let (log, begin) = (Log::new(), Instant::now());
    let own_log = log.clone();
    Controller::new(queue)
        .classify(|_| FailureClass::Conflict)
        .finally(move |_, _, _| {
            let at = begin.elapsed().as_millis();
            async move { if at == 0 { Err("another writer has written it") } else { Ok(()) } }
        })
        .graceful_shutdown_on(sleep(9 * SECOND))
        .run(move |_, _| {
            own_log.note(begin.elapsed().as_millis());
            async { Ok::<_, String>(Action::await_change()) }
        })
        .await
        .unwrap();
    assert_eq!(log.take(), [0, 10]);
}

#[tokio::test(start_paused = true)]
async fn finally_is_not_called_for_a_dropped_reconcile() {
    let (queue, log) = (queue(), Log::new());
    queue.add(1).unwrap();
    queue.add(2).unwrap();
    let own_log = log.clone();
    let report = Controller::new(queue)
        .with_config(ControllerConfig {
            workers: 2.into(),
            shutdown_grace: SECOND,
            ..ControllerConfig::default()
        })
        .finally(move |key, _, _| {
            let own_log = own_log.clone();
            async move {
                own_log.note((key, "begins"));
                sleep(9 * SECOND).await;
                own_log.note((key, "ends"));
                Ok::<_, String>(())
            }
        })
        .graceful_shutdown_on(sleep(SECOND))
        .run(|key, _| async move {
            if key == 1 { pending().await } else { Ok::<_, String>(Action::await_change()) }
        })
        .await
        .unwrap();
    run_until_pending().await;
    assert_eq!(log.take(), [(2, "begins")]);
    assert_eq!((report.reconciles, left(&report)), (0, 2), "both keys are leftovers");
}

/// The keys of a batch end one after another. If each end polled the `finally` of every key that is left, the number of polls would be quadratic.
#[tokio::test(start_paused = true)]
async fn the_polls_of_finally_are_linear_in_the_keys_of_a_batch() {
    const KEYS: u32 = 2_000;
    let (queue, polls) = (queue(), Arc::new(AtomicU64::new(0)));
    _ = queue.add_many(0..KEYS);
    queue.shut_down();
    let turn = Arc::new(watch::Sender::new(0));
    let (own_turn, counted) = (turn.clone(), polls.clone());
    let report = Controller::new(queue)
        .finally(move |key, _, _| {
            let (turn, counted) = (own_turn.clone(), counted.clone());
            let mut ended = Box::pin(async move {
                // A waiter of its own for each key: only the next key is woken.
                sleep(Duration::from_millis(1) * key).await;
                turn.send_modify(|turn| *turn += 1);
                Ok::<_, String>(())
            });
            poll_fn(move |cx| {
                counted.fetch_add(1, Ordering::Relaxed);
                ended.as_mut().poll(cx)
            })
        })
        .run_batches(BatchConfig::new(KEYS as usize), |keys: Vec<u32>, _| async move {
            Ok::<_, String>(keys.iter().map(|_| Ok(Action::await_change())).collect())
        })
        .await
        .unwrap();
    assert_eq!((report.reconciles, *turn.borrow()), (u64::from(KEYS), KEYS));
    let polls = polls.load(Ordering::Relaxed);
    assert!(polls <= 4 * u64::from(KEYS), "{polls} polls for {KEYS} keys");
}
