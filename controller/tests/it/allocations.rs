//! A controller in a steady state does not allocate. All tests of this binary run on an allocator that counts the allocations of each thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer, WatchOptions};
use flyball_informer_cache::{Change, Version};
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;
use testkit::allocator::{CountingAllocator, allocations, allocations_so_far};
use tokio::time::sleep;

use crate::support::{HistorySource, SECOND, Thing, queue};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) >= 1);
}

/// The futures of one worker's reconciles share an allocation, whether they are ready at once or wait.
#[tokio::test(start_paused = true)]
async fn a_reconcile_allocates_nothing() {
    for turns in [0, 3] {
        let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1_000));
        let queue = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
        _ = queue.add_many(0..1_000_u32);
        queue.shut_down();
        let counted = Arc::new(AtomicU64::new(0));
        let (calls, at_first, total) = (AtomicU64::new(0), AtomicU64::new(0), counted.clone());
        let reconcile = move |_key, _context| {
            match calls.fetch_add(1, Ordering::Relaxed) {
                100 => at_first.store(allocations_so_far(), Ordering::Relaxed),
                900 => {
                    total.store(allocations_so_far() - at_first.load(Ordering::Relaxed), Ordering::Relaxed)
                }
                _ => {}
            }
            async move {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                Ok::<_, String>(Action::await_change())
            }
        };
        counted.store(u64::MAX, Ordering::Relaxed);
        let report = Controller::new(queue)
            .with_config(ControllerConfig { workers: 1.into(), ..ControllerConfig::default() })
            .run(reconcile)
            .await
            .unwrap();
        assert_eq!((report.reconciles, counted.load(Ordering::Relaxed)), (1_000, 0), "{turns} turns");
    }
}

/// In each of the 64 parts of a resync period, all objects are looked at, but only those of one slice are mapped. The other objects cause no allocation.
#[tokio::test(start_paused = true)]
async fn a_resync_allocates_only_for_the_objects_that_it_maps() {
    const OBJECTS: u32 = 2_000;
    let things = HistorySource::new().informer();
    things.synced().await.unwrap();
    things.writer().replace((0..OBJECTS).map(|key| Thing { key, version: 1, value: 0 }), Version::new(1));
    let mapped = Arc::new(AtomicU64::new(0));
    let counted = mapped.clone();
    let mapper = move |_: &Change<u32, Thing>| {
        counted.fetch_add(1, Ordering::Relaxed);
        None
    };
    let options = WatchOptions::new().resync_every(64 * SECOND);
    let controller = Controller::new(queue()).watches_with(&things, mapper, options);
    let running = tokio::spawn(controller.run(|_, _| async { Ok::<_, String>(Action::await_change()) }));
    sleep(SECOND / 2).await;
    let (before, mapped_before) = (allocations_so_far(), mapped.load(Ordering::Relaxed));
    sleep(64 * SECOND).await;
    let allocations = allocations_so_far() - before;
    assert_eq!(mapped.load(Ordering::Relaxed) - mapped_before, u64::from(OBJECTS));
    assert!(allocations <= 3 * u64::from(OBJECTS), "{allocations} allocations for {OBJECTS} objects");
    running.abort();
}
