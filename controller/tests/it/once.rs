//! Even with many workers, no two reconciles of one key run at the same time, and no change is missed.

use std::collections::HashMap;
use std::sync::Arc;

use flyball_controller::{Action, Controller, ControllerConfig};
use parking_lot::Mutex;

use crate::support::{HistorySource, queue};

/// The number of running reconciles of each key, and the value that the last reconcile of each key read.
#[derive(Default)]
struct Watched {
    running: HashMap<u32, u32>,
    most: u32,
    reconciled: HashMap<u32, u32>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_is_never_reconciled_twice_at_once_and_its_last_change_is_seen() {
    const KEYS: u32 = 5;
    const CHANGES: u32 = 4_000;
    let world = HistorySource::new();
    let things = world.informer();
    let watched = Arc::new(Mutex::new(Watched::default()));
    let (watching, cache) = (watched.clone(), things.clone());
    let running = tokio::spawn(
        Controller::new(queue())
            .watches(&things, |change| *change.key())
            .with_config(ControllerConfig {
                workers: 16.into(),
                stop_when_idle: true,
                ..ControllerConfig::default()
            })
            .run(move |key, _| {
                let (watching, cache) = (watching.clone(), cache.clone());
                async move {
                    {
                        let mut now = watching.lock();
                        let same = now.running.entry(key).or_default();
                        *same += 1;
                        assert_eq!(*same, 1, "key {key} runs twice");
                        let all = now.running.values().sum();
                        now.most = now.most.max(all);
                    }
                    let value = cache.store().get(&key).map_or(0, |thing| thing.value);
                    for _ in 0..value % 7 {
                        tokio::task::yield_now().await;
                    }
                    let mut now = watching.lock();
                    *now.running.get_mut(&key).unwrap() -= 1;
                    now.reconciled.insert(key, value);
                    Ok::<_, String>(Action::await_change())
                }
            }),
    );
    let mut last = Default::default();
    for value in 1..=CHANGES {
        last = world.put(value % KEYS, value);
        if value % 16 == 0 {
            tokio::task::yield_now().await;
        }
    }
    things.store().wait_for_version(last).await.unwrap();
    things.shut_down();
    let report = running.await.unwrap().unwrap();
    assert_eq!((report.panics, report.errors), (0, 0), "no key may run twice at the same time");
    let watched = watched.lock();
    assert!(watched.most > 1, "several keys must run at the same time");
    let newest: HashMap<u32, u32> =
        (CHANGES - KEYS + 1..=CHANGES).map(|value| (value % KEYS, value)).collect();
    assert_eq!(watched.reconciled, newest);
}
