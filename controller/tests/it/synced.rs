//! Workers start when every cache has synced, and not before.

use std::any::type_name;
use std::future::pending;

use flyball_controller::{Action, Awaited, Controller, RunError};

use crate::support::{Log, Thing, World, queue, settle, sorted};

#[tokio::test(start_paused = true)]
async fn no_worker_starts_before_every_cache_has_synced() {
    let (early, late) = (World::new(), World::closed());
    early.put(1, 0);
    late.put(2, 0);
    let (one, other) = (early.informer(), late.informer());
    let (queue, log) = (queue(), Log::new());
    let noted = log.clone();
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .on(&one, |change| *change.key())
            .on(&other, |change| *change.key())
            .workers(4)
            .run(move |key, _| {
                noted.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    one.synced().await.unwrap();
    settle().await;
    assert_eq!(log.take(), [], "one of two caches is not enough");
    assert_eq!(queue.len(), 1, "but its changes are keys already");

    late.open();
    other.synced().await.unwrap();
    settle().await;
    assert_eq!(sorted(log.take()), [1, 2]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn a_cache_that_ends_before_it_has_synced_ends_the_run() {
    let (world, never) = (World::new(), World::closed());
    world.put(1, 0);
    let (one, other) = (world.informer(), never.informer());
    let queue = queue();
    let running = tokio::spawn(
        Controller::new(queue.clone())
            .on(&one, |change| *change.key())
            .on(&other, |change| *change.key())
            .run(|_, _| async { Ok::<_, String>(Action::await_change()) }),
    );
    one.synced().await.unwrap();
    settle().await;
    other.shut_down();
    assert_eq!(
        running.await.unwrap(),
        Err(RunError::NeverSynced(Awaited::Cache { index: 1, objects: type_name::<Thing>() }))
    );
    assert!(!queue.is_shutting_down());
    assert_eq!(queue.len(), 1, "the key of the other cache is still there");
}

#[tokio::test(start_paused = true)]
async fn without_a_cache_the_workers_start_at_once() {
    let queue = queue();
    queue.add(7).unwrap();
    let log = Log::new();
    let noted = log.clone();
    let running = tokio::spawn(Controller::new(queue).run(move |key, _| {
        noted.note(key);
        async { Ok::<_, String>(Action::await_change()) }
    }));
    settle().await;
    assert_eq!(log.take(), [7]);
    running.abort();
}

/// Another controller's caches are waited for as its own; nobody listens to them here.
#[tokio::test(start_paused = true)]
async fn no_worker_starts_before_what_it_comes_after() {
    let (own, others) = (World::new(), World::closed());
    own.put(1, 0);
    others.put(2, 0);
    let (one, other) = (own.informer(), others.informer());
    let (log, first) = (Log::new(), queue());
    let noted = log.clone();
    let elsewhere = Controller::new(queue()).on(&other, |change| *change.key());
    let caches = elsewhere.caches();
    let running = tokio::spawn(
        Controller::new(first)
            .on(&one, |change| *change.key())
            .after(async move { caches.synced().await })
            .run(move |key, _| {
                noted.note(key);
                async { Ok::<_, String>(Action::await_change()) }
            }),
    );
    one.synced().await.unwrap();
    settle().await;
    assert_eq!(log.take(), []);
    others.open();
    settle().await;
    assert_eq!(log.take(), [1]);
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn what_will_never_be_ends_the_run_though_others_are_still_awaited() {
    let never = World::closed().informer();
    let late = World::closed().informer();
    let controller = || Controller::new(queue()).on(&late, |change| *change.key());
    let reconcile = |_, _| async { Ok::<_, String>(Action::await_change()) };
    let refused = controller()
        .after(pending::<Result<(), ()>>())
        .after(async { Err("nobody elected us") })
        .run(reconcile)
        .await;
    assert_eq!(refused.err(), Some(RunError::NeverSynced(Awaited::After { index: 1 })));

    let caches = Controller::new(queue()).on(&late, |_| 0).on(&never, |_| 0).caches();
    let running = tokio::spawn(controller().after(async move { caches.synced().await }).run(reconcile));
    settle().await;
    never.shut_down();
    settle().await;
    assert!(running.is_finished());
    assert_eq!(running.await.unwrap().err(), Some(RunError::NeverSynced(Awaited::After { index: 0 })));
}
