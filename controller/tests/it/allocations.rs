//! A controller in a steady state does not allocate. All tests of this binary run on an allocator that counts the allocations of each thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flyball_controller::{Action, Controller, ControllerConfig, TokioTimer};
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;
use testkit::allocator::{CountingAllocator, allocations, allocations_so_far};

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
