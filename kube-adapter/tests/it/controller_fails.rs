//! Failed reconciles: when an object is retried.

use std::sync::Arc;
use std::time::Duration;

use flyball_controller::FailureClass;
use flyball_kube::{Config, Controller};
use futures_util::StreamExt;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::runtime::controller::{Action, Error as Outcome};
use kube::runtime::watcher;
use serde_json::json;
use tokio::time::sleep;

use crate::log_capture::Lines;
use crate::scripted_server::{Answer, Script};
use crate::world::{Refused, Runs, World, during, fifo_config, logging, map, outcomes};

const SECOND: Duration = Duration::from_secs(1);

/// Returns the times at which an object is reconciled within a minute. Each reconcile fails with `error`, and the error policy returns `policy`.
async fn tries(config: Config, error: fn() -> Refused, policy: Action) -> Vec<u64> {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        move |map: Arc<ConfigMap>, runs: Arc<Runs>| async move {
            runs.record(&*map);
            Err(error())
        },
        move |_, _, _| policy.clone(),
        runs.clone(),
    );
    let items = during(&mut reconciles, SECOND * 60).await;
    assert!(items.iter().all(|item| matches!(item, Err(Outcome::ReconcilerFailed(..)))));
    let tries = runs.of("a");
    assert_eq!(items.len(), tries.len());
    tries
}

fn unknown() -> Refused {
    Refused(None)
}

#[tokio::test(start_paused = true)]
async fn the_longer_of_policy_and_backoff() {
    let config = || fifo_config().backoff(SECOND..=SECOND * 300);
    let policy = Action::requeue(SECOND * 3);
    assert_eq!(tries(config(), unknown, policy.clone()).await, [0, 3_000, 6_000, 10_000, 18_000, 34_000]);
    assert_eq!(tries(config().without_backoff(), unknown, policy).await.len(), 20);
}

#[tokio::test(start_paused = true)]
async fn policy_may_wait_for_a_change() {
    let conflict = || Refused::status(409, 0);
    assert_eq!(tries(fifo_config(), unknown, Action::await_change()).await, [0]);
    assert_eq!(tries(fifo_config(), conflict, Action::await_change()).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_tried_again_soon() {
    let conflict = || Refused::status(409, 0);
    let policy = Action::requeue(SECOND * 30);
    let config = fifo_config().conflict_backoff(Duration::from_millis(10)..=SECOND * 300);
    let scheduled = tries(config.clone(), conflict, policy.clone()).await;
    assert_eq!(scheduled[..5], [0, 10, 30, 70, 150]);
    // The backoff also protects the server if the conflict persists, because another writer owns the field or the name.
    assert_eq!(scheduled.len(), 13);
    // Without a conflict backoff, only the delay of the error policy applies.
    assert_eq!(tries(fifo_config(), conflict, policy.clone()).await, [0, 30_000]);
    assert_eq!(tries(config.without_backoff(), conflict, policy.clone()).await, [0, 30_000]);
    assert_eq!(
        tries(fifo_config().classify_status(409, FailureClass::Conflict), conflict, policy).await,
        scheduled
    );
}

/// Tests the longest possible delay, and the longest delay that a server can request.
#[tokio::test(start_paused = true)]
async fn accepts_a_requeue_delay_without_end() {
    let never = [Duration::MAX, SECOND * u32::MAX];
    for delay in never {
        assert_eq!(tries(fifo_config(), unknown, Action::requeue(delay)).await, [0]);
    }
    let config = fifo_config().respect_retry_after();
    assert_eq!(tries(config, || Refused::status(429, u32::MAX), Action::requeue(SECOND)).await, [0]);
}

#[tokio::test(start_paused = true)]
async fn an_unread_result_is_no_timeout() {
    let world = World::of((0..300).map(|n| map(&format!("default/{n}"))));
    let runs = Runs::new();
    let config = fifo_config().concurrency(4).reconcile_timeout(SECOND);
    let mut reconciles = logging(Controller::for_shared(&world.informer).with_config(config), &runs);
    assert!(reconciles.next().await.is_some());
    sleep(SECOND * 10).await;
    let rest = during(&mut reconciles, SECOND * 60).await;
    assert_eq!((rest.len(), runs.all().len()), (299, 300));
}

#[tokio::test(start_paused = true)]
async fn a_slow_consumer_delays_reconciles_once_256_results_are_buffered() {
    let world = World::of((0..300).map(|n| map(&format!("default/{n}"))));
    let runs = Runs::new();
    let config = fifo_config().concurrency(1);
    let mut reconciles = logging(Controller::for_shared(&world.informer).with_config(config), &runs);
    assert!(reconciles.next().await.is_some());
    // One result was taken, 256 are buffered, and one waits for room.
    for taken in 1..10 {
        sleep(SECOND).await;
        assert_eq!(runs.all().len(), taken + 256 + 1);
        assert!(reconciles.next().await.is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn respects_retry_after() {
    let busy = || Refused::status(429, 20);
    let config = || fifo_config().respect_retry_after();
    assert_eq!(tries(config(), busy, Action::requeue(SECOND)).await, [0, 20_000, 40_000]);
    // If the delay of the error policy is longer than the server's delay, the former applies.
    assert_eq!(tries(config(), busy, Action::requeue(SECOND * 25)).await, [0, 25_000, 50_000]);
    assert_eq!(
        tries(config().without_backoff(), busy, Action::requeue(SECOND * 25)).await,
        [0, 25_000, 50_000]
    );
    assert_eq!(tries(config().without_backoff(), busy, Action::requeue(SECOND * 5)).await.len(), 12);
}

/// The error policy is not called for panics and timeouts, so they have a backoff by default. A burst of changes does not increase the
/// backoff.
#[tokio::test(start_paused = true)]
async fn panics_and_timeouts_back_off_by_default() {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let config = fifo_config().reconcile_timeout(Duration::from_nanos(1));
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| match runs.record(&*map) {
            1 => panic!("a bug in the reconciler"),
            2 => std::future::pending().await,
            3..=5 => panic!("a bug in the reconciler"),
            6 => Err(unknown()),
            7 => Ok(Action::requeue(SECOND)),
            8 => panic!("a bug in the reconciler"),
            _ if runs.of("a").last() < Some(&5_000) => panic!("a bug in the reconciler"),
            _ => Ok(Action::await_change()),
        },
        |_, _, _| Action::requeue(SECOND),
        runs.clone(),
    );
    during(&mut reconciles, SECOND * 3).await;
    // After an error the delay of the error policy applies. A success resets the backoff of panics.
    assert_eq!(runs.of("a")[..9], [0, 5, 16, 36, 76, 156, 1_156, 2_156, 2_161]);
    for _ in 0..100 {
        world.server.put(map("default/a"));
        during(&mut reconciles, Duration::from_millis(20)).await;
    }
    during(&mut reconciles, SECOND * 10).await;
    let last = *runs.of("a").last().unwrap();
    assert!((5_000..8_000).contains(&last), "the last run was at {last} ms");
}

#[tokio::test(start_paused = true)]
async fn an_object_is_given_up_after_its_last_attempt_until_it_changes() {
    let lines = Lines::of(|metadata| metadata.target() == "kube_runtime::controller");
    let _default = tracing::subscriber::set_default(lines.clone());
    for config in [fifo_config(), fifo_config().backoff(SECOND..=SECOND), fifo_config().strict_backoff()] {
        let world = World::of([map("default/a")]);
        let runs = Runs::new();
        let controller = Controller::for_shared(&world.informer).with_config(config.max_attempts(3));
        let monitor = controller.monitor();
        let mut reconciles = controller.run(
            async |map: Arc<ConfigMap>, runs: Arc<Runs>| match runs.record(&*map) {
                2 => panic!("a bug in the reconciler"),
                _ => Err(unknown()),
            },
            |_, _, _| Action::requeue(SECOND),
            runs.clone(),
        );
        during(&mut reconciles, SECOND * 600).await;
        assert_eq!((runs.all().len(), monitor.stats().unwrap().waiting), (3, 0));
        world.server.put(map("default/a"));
        during(&mut reconciles, SECOND * 600).await;
        assert_eq!(runs.all().len(), 6);
    }
    assert_eq!(lines.with("given up").len(), 6);
    // A permanent failure is given up at once, without a warning.
    assert_eq!(tries(fifo_config().max_attempts(3), unknown, Action::await_change()).await, [0]);
    assert_eq!(lines.with("given up").len(), 6);
    assert_eq!(tries(fifo_config(), unknown, Action::requeue(SECOND)).await.len(), 60);
}

/// If the error policy panics, the object is retried as after any panic, and the error of the reconcile is still reported.
#[tokio::test(start_paused = true)]
async fn an_error_is_reported_even_if_the_error_policy_panics() {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let mut reconciles = Controller::for_shared(&world.informer).with_config(fifo_config()).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            Err(unknown())
        },
        |_, _, _| panic!("a bug in the error policy"),
        runs.clone(),
    );
    let items = during(&mut reconciles, Duration::from_millis(100)).await;
    assert_eq!(runs.of("a"), [0, 5, 15, 35, 75]);
    assert_eq!(items.len(), 5);
    assert!(items.iter().all(|item| matches!(item, Err(Outcome::ReconcilerFailed(..)))));
}

#[tokio::test(start_paused = true)]
async fn statuses_have_the_configured_class() {
    let invalid = || Refused::status(422, 0);
    let policy = Action::requeue(SECOND * 10);
    assert_eq!(tries(fifo_config(), invalid, policy.clone()).await.len(), 6);
    assert_eq!(
        tries(fifo_config().classify_status(422, FailureClass::Permanent), invalid, policy.clone()).await,
        [0]
    );
    let classified = fifo_config().classify(|error| error.is::<Refused>().then_some(FailureClass::Permanent));
    assert_eq!(tries(classified, unknown, policy.clone()).await, [0]);
    let panics = fifo_config().classify(|_| panic!("a bug in the classifier"));
    assert_eq!(tries(panics, unknown, policy).await.len(), 6);
}

#[tokio::test(start_paused = true)]
async fn a_success_ends_the_backoff() {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let config = fifo_config().backoff(SECOND..=SECOND * 300);
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| match runs.record(&*map) {
            4 => Ok(Action::requeue(SECOND)),
            8.. => Ok(Action::await_change()),
            _ => Err(unknown()),
        },
        |_, _, _| Action::requeue(Duration::ZERO),
        runs.clone(),
    );
    let items = during(&mut reconciles, SECOND * 100).await;
    assert_eq!(runs.of("a"), [0, 1_000, 3_000, 7_000, 8_000, 9_000, 11_000, 15_000]);
    assert_eq!(outcomes(&items), ["!a", "!a", "!a", "a", "!a", "!a", "!a", "a"]);
}

#[tokio::test(start_paused = true)]
async fn a_change_during_a_backoff_is_looked_at_and_makes_it_no_longer() {
    let world = World::of([map("default/a")]);
    let runs = Runs::new();
    let config = fifo_config().backoff(SECOND * 10..=SECOND * 300);
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            Err(unknown())
        },
        |_, _, _| Action::requeue(Duration::ZERO),
        runs.clone(),
    );
    during(&mut reconciles, SECOND * 4).await;
    world.server.put(map("default/a"));
    during(&mut reconciles, SECOND * 20).await;
    assert_eq!(runs.of("a"), [0, 4_000, 10_000]);
}

#[tokio::test(start_paused = true)]
async fn a_panic_and_a_hang_are_failures_of_their_object_alone() {
    let world = World::of(["panics", "hangs", "policy", "works"].map(|name| map(&format!("default/{name}"))));
    let runs = Runs::new();
    let config = fifo_config().backoff(SECOND..=SECOND * 300).reconcile_timeout(SECOND);
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            let first = runs.record(&*map) == 1;
            match map.metadata.name.as_deref() {
                Some("panics") if first => panic!("a bug in the reconciler"),
                Some("hangs") if first => {
                    sleep(SECOND * 1000).await;
                    unreachable!()
                }
                Some("policy") if first => Err(unknown()),
                _ => Ok(Action::await_change()),
            }
        },
        |_, _, _| panic!("a bug in the policy"),
        runs.clone(),
    );
    let mut items = outcomes(&during(&mut reconciles, SECOND * 20).await);
    items.sort();
    assert_eq!(items, ["!policy", "hangs", "panics", "policy", "works"]);
    assert_eq!(runs.of("panics"), [0, 1_000]);
    assert_eq!(runs.of("policy"), [0, 1_000]);
    assert_eq!(runs.of("hangs"), [0, 2_000]);
    assert_eq!(runs.of("works"), [0]);
}

#[tokio::test(start_paused = true)]
async fn yields_watch_errors_between_results() {
    let (watch, lines) = Answer::watch();
    let empty = Answer::json(&json!({"metadata": {"resourceVersion": "7"}, "items": []}));
    let pods = Api::<Pod>::all(Script::of([empty, watch]).client());
    let world = World::of([map("default/a")]);
    let mut reconciles = Controller::for_shared(&world.informer).owns(pods, watcher::Config::default()).run(
        async |_: Arc<ConfigMap>, _: Arc<()>| Ok::<_, Refused>(Action::requeue(Duration::from_micros(1))),
        |_, _, _| unreachable!(),
        Arc::new(()),
    );
    assert!(reconciles.next().await.unwrap().is_ok());
    lines.send(
        "ERROR",
        &json!({"kind": "Status", "code": 403, "reason": "Forbidden", "status": "Failure", "message": "no"}),
    );
    // The consumer is so slow that the channel always has another result.
    for _ in 0..1000 {
        sleep(Duration::from_millis(5)).await;
        if let Err(error) = reconciles.next().await.unwrap() {
            assert!(matches!(error, Outcome::QueueError(_)));
            return;
        }
    }
    panic!("no error was reported");
}
