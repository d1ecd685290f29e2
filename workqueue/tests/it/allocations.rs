//! A queue in a steady state does not allocate. All tests of this binary run on an allocator that counts the allocations of each thread.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, TokioTimer};
use flyball_workqueue::{Fifo, NoLimiter, Queue, Timer};
use testkit::allocator::{CountingAllocator, allocations};
use testkit::wakers::{Counting, poll_with};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

fn keys(count: usize) -> Vec<Arc<str>> {
    (0..count).map(|index| format!("namespace-{index:04}/name-{index:08}").into()).collect()
}

#[test]
fn the_counter_counts() {
    assert!(allocations(|| drop(std::hint::black_box(Box::new(1)))) >= 1);
}

#[test]
fn add_get_done() {
    let (queue, keys) = (Queue::new(), keys(1_000));
    let cycle = || {
        for key in &keys {
            queue.add(key.clone()).unwrap();
            queue.add(key.clone()).unwrap();
        }
        while let Ok(lease) = queue.try_get() {
            queue.add(lease.key().clone()).unwrap();
            assert!(queue.cancel(lease.key()));
            lease.done();
        }
    };
    cycle();
    assert_eq!(allocations(|| (0..10).for_each(|_| cycle())), 0);
}

#[test]
fn with_a_limiter_and_delays() {
    let clock = ManualClock::new();
    let millis = Duration::from_millis;
    let limiter = Exponential::new(millis(5)..=millis(1_000_000));
    let (queue, keys) = (Queue::builder().timer(clock.timer()).limiter(limiter).build(), keys(1_000));
    let cycle = || {
        for (index, key) in keys.iter().enumerate() {
            queue.add_after(key.clone(), millis(index as u64 % 7)).unwrap();
        }
        clock.advance(millis(10));
        while let Ok(lease) = queue.try_get() {
            lease.succeed();
        }
    };
    cycle();
    assert_eq!(allocations(|| (0..10).for_each(|_| cycle())), 0);
}

/// Adds each key while a getter waits, which then gets it.
fn add_to_a_waiting_getter<T: Timer>(
    queue: &Queue<Arc<str>, Fifo, NoLimiter, T>,
    keys: &[Arc<str>],
    waker: &Waker,
) {
    for key in keys {
        let mut get = std::pin::pin!(queue.get());
        assert!(poll_with(get.as_mut(), waker).is_pending());
        queue.add(key.clone()).unwrap();
        match poll_with(get.as_mut(), waker) {
            Poll::Ready(Some(lease)) => lease.done(),
            _ => panic!("no key was handed out"),
        }
    }
}

/// A getter that waits does not allocate either, because its slot in the wait queue is reused.
#[test]
fn waiting_for_a_key() {
    let (queue, keys) = (Queue::new(), keys(100));
    let (_counting, waker) = Counting::waker();
    add_to_a_waiting_getter(&queue, &keys, &waker);
    assert_eq!(allocations(|| add_to_a_waiting_getter(&queue, &keys, &waker)), 0);
}

/// Beside a delayed key, a getter that waits sets an alarm, and disarms it when it gets a key.
#[test]
fn waiting_for_a_key_beside_a_delayed_key() {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let timer = TokioTimer::new(runtime.handle().clone());
    let (queue, keys) = (Queue::builder().timer(timer).build(), keys(100));
    queue.add_after("delayed".into(), Duration::from_secs(3_600)).unwrap();
    let (_counting, waker) = Counting::waker();
    add_to_a_waiting_getter(&queue, &keys, &waker);
    assert_eq!(allocations(|| add_to_a_waiting_getter(&queue, &keys, &waker)), 0);
}
