//! Reconciles of objects that are deleted.

use std::sync::Arc;
use std::time::Duration;

use flyball_kube::Controller;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::runtime::controller::Action;
use tokio::time::sleep;

use crate::world::{Refused, Runs, SECOND, World, during, fifo_config, map, outcomes, pod};

const DAY: Duration = Duration::from_secs(86_400);

fn key() -> flyball_kube::NamespacedName {
    "default/a".parse().unwrap()
}

/// The objects wait for a requeue, for the delay of the error policy, and for a strict backoff.
#[tokio::test(start_paused = true)]
async fn a_deletion_cancels_a_delayed_reconcile() {
    for (fails, config) in
        [(false, fifo_config()), (true, fifo_config()), (true, fifo_config().strict_backoff())]
    {
        let world = World::of([map("default/a")]);
        let runs = Runs::new();
        let controller = Controller::for_shared(&world.informer).with_config(config);
        let monitor = controller.monitor();
        let mut reconciles = controller.run(
            move |map: Arc<ConfigMap>, runs: Arc<Runs>| async move {
                runs.record(&*map);
                if fails { Err(Refused(None)) } else { Ok(Action::requeue(90 * DAY)) }
            },
            |_, _, _| Action::requeue(90 * DAY),
            runs.clone(),
        );
        during(&mut reconciles, SECOND).await;
        assert_eq!(monitor.stats().unwrap().waiting, 1);
        world.server.delete(&key());
        assert!(during(&mut reconciles, SECOND).await.is_empty());
        assert_eq!(monitor.stats().unwrap().waiting, 0, "fails: {fails}");
        assert!(during(&mut reconciles, 100 * DAY).await.is_empty());
        // A new object of the same name is reconciled, and waits again.
        world.server.put(map("default/a"));
        assert_eq!(during(&mut reconciles, SECOND).await.len(), 1);
        assert_eq!((runs.all().len(), monitor.stats().unwrap().waiting), (2, 1));
    }
}

/// A reconcile that removes the last finalizer of its object usually returns after the object was deleted.
#[tokio::test(start_paused = true)]
async fn a_deletion_during_a_reconcile_cancels_the_requeue_that_it_returns() {
    for recreated in [false, true] {
        let world = World::of([map("default/a")]);
        let runs = Runs::new();
        let controller = Controller::for_shared(&world.informer).with_config(fifo_config());
        let monitor = controller.monitor();
        let mut reconciles = controller.run(
            async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
                runs.record(&*map);
                sleep(2 * SECOND).await;
                Ok::<_, Refused>(Action::requeue(90 * DAY))
            },
            |_, _, _| unreachable!(),
            runs.clone(),
        );
        during(&mut reconciles, SECOND).await;
        world.server.delete(&key());
        if recreated {
            world.server.put(map("default/a"));
        }
        let items = during(&mut reconciles, 10 * SECOND).await;
        let expected: &[&str] = if recreated { &["a", "a"] } else { &["a"] };
        assert_eq!(outcomes(&items), expected);
        assert_eq!(monitor.stats().unwrap().waiting, usize::from(recreated));
    }
}

/// As in kube-runtime, a reconcile that was requested before or after the deletion reports that the object was not found.
#[tokio::test(start_paused = true)]
async fn a_requested_reconcile_of_a_deleted_object_is_reported() {
    let (world, pods) = (World::of([map("default/a")]), World::<Pod>::of([]));
    let runs = Runs::new();
    let controller =
        Controller::for_shared(&world.informer).with_config(fifo_config()).owns_shared(&pods.informer);
    let mut reconciles = controller.run(
        async |map: Arc<ConfigMap>, runs: Arc<Runs>| {
            runs.record(&*map);
            sleep(2 * SECOND).await;
            Ok::<_, Refused>(Action::requeue(90 * DAY))
        },
        |_, _, _| unreachable!(),
        runs.clone(),
    );
    during(&mut reconciles, SECOND).await;
    world.server.delete(&key());
    during(&mut reconciles, SECOND / 2).await;
    pods.server.put(pod("default/p", &["a"]));
    assert_eq!(outcomes(&during(&mut reconciles, 10 * SECOND).await), ["a", "?a"]);
    pods.server.delete(&"default/p".parse().unwrap());
    assert_eq!(outcomes(&during(&mut reconciles, 10 * SECOND).await), ["?a"]);
}
