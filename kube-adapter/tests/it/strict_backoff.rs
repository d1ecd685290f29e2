//! A strict backoff: which changes end the wait of a failed object.

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::{Config, Controller};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::ResourceExt;
use kube::runtime::controller::Action;
use serde_json::json;
use tokio::time::sleep;

use crate::world::{Refused, Runs, SECOND, World, during, fifo_config, map};

/// Returns how often an object is reconciled in 600 s. Each reconcile takes 20 ms, writes the number of its attempt to the object, and fails.
async fn attempts_of_a_reconcile_that_writes(config: Config) -> usize {
    let world = World::of([map("default/a")]);
    let (runs, server) = (Runs::new(), world.server.clone());
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        move |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            let server = server.clone();
            async move {
                let attempt = runs.record(&*map);
                sleep(Duration::from_millis(20)).await;
                let mut written = ConfigMap::clone(&map);
                written.annotations_mut().insert("attempt".to_owned(), attempt.to_string());
                server.put(written);
                Err(Refused(None))
            }
        },
        |_, _, _| Action::requeue(5 * SECOND),
        runs.clone(),
    );
    during(&mut reconciles, 600 * SECOND).await;
    runs.all().len()
}

#[tokio::test(start_paused = true)]
async fn a_failing_reconcile_that_writes_its_own_status_waits_for_its_backoff() {
    let recommended = attempts_of_a_reconcile_that_writes(Config::recommended()).await;
    assert!((10..20).contains(&recommended), "recommended: {recommended}");
    // Without a backoff, the wait is the delay of the error policy.
    let strict = attempts_of_a_reconcile_that_writes(fifo_config().strict_backoff()).await;
    assert_eq!(strict, 120);
}

/// Returns the times at which an object is reconciled. Each reconcile fails, and `changes` are written at their times.
async fn runs_of(config: Config, changes: impl IntoIterator<Item = (u64, ConfigMap)>) -> Vec<u64> {
    let world = World::of([changed(1, false)]);
    let runs = Runs::new();
    let mut reconciles = Controller::for_shared(&world.informer).with_config(config).run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            Err(Refused(None))
        },
        |_, _, _| Action::requeue(100 * SECOND),
        runs.clone(),
    );
    let mut now = 0;
    for (at, map) in changes {
        during(&mut reconciles, SECOND * (at - now) as u32).await;
        now = at;
        world.server.put(map);
    }
    during(&mut reconciles, SECOND * (150 - now) as u32).await;
    runs.of("a")
}

fn changed(generation: i64, deleting: bool) -> ConfigMap {
    let mut map = map("default/a");
    map.metadata.generation = Some(generation);
    map.metadata.finalizers = Some(vec!["test/f".to_owned()]);
    map.metadata.deletion_timestamp =
        deleting.then(|| serde_json::from_value(json!("2024-01-01T00:00:00Z")).unwrap());
    map
}

#[tokio::test(start_paused = true)]
async fn a_new_generation_and_a_deletion_end_a_strict_backoff() {
    let changes = || [(10, changed(1, false)), (20, changed(2, false)), (30, changed(2, true))];
    let strict = fifo_config().backoff(100 * SECOND..=100 * SECOND).strict_backoff();
    assert_eq!(runs_of(strict, changes()).await[..3], [0, 20_000, 30_000]);
    // Without the option, each change ends the wait.
    assert_eq!(runs_of(fifo_config(), changes()).await[..4], [0, 10_000, 20_000, 30_000]);
    let undone = Config::recommended().without_backoff();
    assert_eq!(runs_of(undone, changes()).await[..4], [0, 10_000, 20_000, 30_000]);
}
