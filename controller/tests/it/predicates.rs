//! Predicates, which select the changes that become keys.

use std::sync::Arc;

use flyball_controller::{Action, Controller, ControllerConfig, WatchOptions, predicate};
use flyball_informer_cache::Change;

use crate::support::{HistorySource, Log, Thing, queue, run_until_pending};

#[tokio::test(start_paused = true)]
async fn filtered_changes_become_no_key() {
    let world = HistorySource::new();
    world.put(1, 0);
    let things = world.informer();
    let log = Log::new();
    let (own_log, cache) = (log.clone(), things.clone());
    let controller = Controller::new(queue())
        .watches_with(
            &things,
            |change| *change.key(),
            WatchOptions::new().filter(predicate::changed(|thing: &Thing| thing.value / 10)),
        )
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() });
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note((key, cache.store().get(&key).map(|thing| thing.value)));
        async { Ok::<_, String>(Action::await_change()) }
    }));
    let mut seen = Vec::new();
    run_until_pending().await;
    seen.push(log.take());
    for value in [5, 12, 19, 20] {
        let version = world.put(1, value);
        things.store().wait_for_version(version).await.unwrap();
        run_until_pending().await;
        seen.push(log.take());
    }
    let last = world.remove(1);
    things.store().wait_for_version(last).await.unwrap();
    run_until_pending().await;
    seen.push(log.take());
    let once = |value| vec![(1, value)];
    assert_eq!(seen, [once(Some(0)), vec![], once(Some(12)), vec![], once(Some(20)), once(None)]);
    things.shut_down();
    assert_eq!(running.await.unwrap().unwrap().keys_added, 4);
}

/// The filter receives each change separately. If the two changes were coalesced before the filter receives them, the
/// state before the coalesced change and the state after it would be equal.
#[tokio::test(start_paused = true)]
async fn a_change_and_its_reversal_are_two_changes() {
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    let thing = |version, value| Thing { key: 1, version, value };
    things.writer().upsert(thing(1, 1));
    let (queue, log) = (queue(), Log::new());
    let own_log = log.clone();
    let controller = Controller::new(queue.clone()).watches_with(
        &things,
        |change| *change.key(),
        WatchOptions::new().filter(predicate::changed(|thing: &Thing| thing.value)),
    );
    let running = tokio::spawn(controller.run(move |key, _| {
        own_log.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    run_until_pending().await;
    assert_eq!(log.take(), [1]);
    // The controller does not run between these writes.
    things.writer().upsert(thing(2, 2));
    things.writer().upsert(thing(3, 1));
    run_until_pending().await;
    assert_eq!(log.take(), [1]);
    running.abort();
}

#[test]
fn predicate_results() {
    let thing = |value| Arc::new(Thing { key: 1, version: 1, value });
    let changed = predicate::changed(|thing: &Thing| thing.value);
    for (change, says) in [
        (Change::added(1, thing(1), true), true),
        (Change::added(1, thing(1), false), true),
        (Change::updated(1, thing(1), thing(1)), false),
        (Change::updated(1, thing(1), thing(2)), true),
        (Change::deleted(1, thing(1), false), true),
    ] {
        assert_eq!(changed(&change), says, "{change:?}");
    }
    // The value has two digits: the generation, and the observed generation, where 0 means none.
    let generation_unobserved = predicate::generation_unobserved(|thing: &Thing| {
        (thing.value / 10, Some(thing.value % 10).filter(|observed| *observed > 0))
    });
    for (change, says) in [
        (Change::added(1, thing(10), true), true),
        (Change::added(1, thing(11), true), false),
        (Change::updated(1, thing(11), thing(21)), true),
        (Change::updated(1, thing(21), thing(22)), false),
        (Change::deleted(1, thing(22), true), true),
    ] {
        assert_eq!(generation_unobserved(&change), says, "{change:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_change_must_pass_every_filter() {
    let world = HistorySource::new();
    (0..10).for_each(|key| _ = world.put(key, 0));
    let things = world.informer();
    things.synced().await.unwrap();
    things.shut_down();
    let options = WatchOptions::new()
        .filter(|change: &Change<u32, Thing>| change.key() % 2 == 0)
        .filter(|change| change.key() % 3 == 0);
    let report = Controller::new(queue())
        .watches_with(&things, |change| *change.key(), options)
        .with_config(ControllerConfig { stop_when_idle: true, ..ControllerConfig::default() })
        .run(|_, _| async { Ok::<_, String>(Action::await_change()) })
        .await
        .unwrap();
    assert_eq!(report.reconciles, 2);
}
