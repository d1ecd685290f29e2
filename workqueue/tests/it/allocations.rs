//! A queue in a steady state does not allocate. All tests of this binary run on an allocator that counts the allocations of each thread.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use flyball_ratelimit::{Exponential, Quota};
use flyball_sync::{ManualClock, ManualTimer, TokioTimer};
use flyball_workqueue::{Fair, Fifo, NoLimiter, Order, Priority, Queue, QueueMetrics, Timer, TryGetError};
use testkit::allocator::{CountingAllocator, allocations, live_bytes};
use testkit::wakers::{Counting, poll_once, poll_with};

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
    let _inside = runtime.enter();
    let (queue, keys) = (Queue::builder().timer(TokioTimer::current()).build(), keys(100));
    queue.add_after("delayed".into(), Duration::from_secs(3_600)).unwrap();
    let (_counting, waker) = Counting::waker();
    add_to_a_waiting_getter(&queue, &keys, &waker);
    assert_eq!(allocations(|| add_to_a_waiting_getter(&queue, &keys, &waker)), 0);
}

/// Adds many keys, and takes all of them.
fn burst<O: Order<u64>>(queue: &Queue<u64, O, NoLimiter, ManualTimer>, clock: &ManualClock, keys: u64) {
    let second = Duration::from_secs(1);
    for key in 0..keys {
        queue.add(key).unwrap();
        queue.add_after(key + keys, second).unwrap();
    }
    clock.advance(second);
    while let Ok(lease) = queue.try_get() {
        queue.add_after(*lease.key(), second).unwrap();
        assert!(queue.cancel(lease.key()));
        lease.done();
    }
    let stats = queue.stats();
    assert_eq!((stats.ready, stats.waiting, stats.leased), (0, 0, 0));
    if keys <= 100 {
        queue.check().unwrap(); // O(groups · keys)
    }
}

fn gives_its_memory_back<O: Order<u64>>(order: O) {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    burst(&queue, &clock, 100);
    let before = live_bytes();
    burst(&queue, &clock, 20_000);
    let after = live_bytes() - before;
    assert!(after > 800_000, "{after} bytes: a queue that may be filled again keeps its memory");
    burst(&queue, &clock, 20_000);
    assert_eq!(live_bytes() - before, after, "the second burst uses the memory of the first");
    burst(&queue, &clock, 100);
    let kept = live_bytes() - before;
    assert!(kept < 100_000, "{kept} bytes are kept after {after}");
    burst(&queue, &clock, 20_000);
    burst(&queue, &clock, 100);
    assert!(live_bytes() - before < 100_000);
}

#[test]
fn a_queue_gives_the_memory_of_a_burst_back() {
    gives_its_memory_back(Fifo);
    gives_its_memory_back(Priority::new());
    gives_its_memory_back(Fair::by_group(|key: &u64| key % 1_000));
    gives_its_memory_back(Fair::by_group(|key: &u64| *key));
}

/// Returns the bytes that a key takes in a full queue whose vectors have no spare capacity.
fn bytes_of_a_key<O: Order<Arc<str>>>(order: O) -> f64 {
    // A power of two fills the vectors; the hash table is seven sixteenths full, between its limits.
    const KEYS: usize = 1 << 16;
    let keys = keys(KEYS);
    let before = live_bytes();
    let queue = Queue::builder().order(order).build();
    for key in &keys {
        queue.add(key.clone()).unwrap();
    }
    (live_bytes() - before) as f64 / KEYS as f64
}

/// The figures of the README. The key itself, a pointer with a length, takes 16 bytes of each.
#[test]
fn bytes_of_a_queued_key() {
    let figures = [
        bytes_of_a_key(Fifo),
        bytes_of_a_key(Priority::new()),
        bytes_of_a_key(Fair::by_group(|key: &Arc<str>| key.len() % 16)),
        bytes_of_a_key(Fair::by_group(|key: &Arc<str>| key.as_ptr() as usize)),
    ];
    let bytes = figures.map(|bytes| bytes.round() as usize - 16);
    assert_eq!(bytes, [34, 66, 38, 144]);
}

/// With a rate, the last group is kept when the queue becomes empty, because its bucket is not full. The memory of the others is given back.
#[test]
fn a_queue_with_rates_gives_the_memory_of_its_groups_back() {
    let clock = ManualClock::new();
    let second = Quota::per_second(NonZeroU32::MIN).allow_burst(NonZeroU32::new(2).unwrap());
    let order = Fair::by_group(|key: &u64| *key).rate(move |_| Some(second));
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    let fill = |keys: u64| {
        for key in 0..keys {
            queue.add(key).unwrap();
        }
        while let Ok(lease) = queue.try_get() {
            lease.done();
        }
    };
    fill(10);
    let before = live_bytes();
    fill(5_000);
    let full = live_bytes() - before;
    // Two former groups are freed in each operation once their buckets are full.
    for round in 0..4_000 {
        if round % 1_000 == 0 {
            clock.advance(Duration::from_secs(1));
        }
        fill(1);
    }
    queue.check().unwrap();
    let kept = live_bytes() - before;
    assert!(full > 800_000 && kept < 300_000, "{kept} of {full} bytes are kept");
    // The group of key 0 is kept, with its bucket: no burst is restored.
    clock.advance(Duration::from_secs(60));
    (0..3).for_each(|_| fill(1));
    assert_eq!((queue.try_get().err(), queue.stats().ready), (Some(TryGetError::Empty), 1));
}

/// Metrics store the time at which a key became pending, if the order gathers due keys.
#[test]
fn the_memory_of_pending_times_is_given_back() {
    struct Sink;
    impl QueueMetrics for Sink {}

    let clock = ManualClock::new();
    let order = Fair::by_group(|key: &u64| key % 2);
    let queue = Queue::builder().order(order).timer(clock.timer()).metrics(Sink).build();
    burst(&queue, &clock, 100);
    let before = live_bytes();
    burst(&queue, &clock, 20_000);
    burst(&queue, &clock, 100);
    let kept = live_bytes() - before;
    assert!(kept < 100_000, "{kept} bytes are kept");
}

/// A burst of waiters costs memory only while it lasts.
#[test]
fn waiters_that_have_left_keep_no_memory() {
    let queue = Queue::builder().capacity(1).build();
    queue.add(0).unwrap();
    let before = live_bytes();
    let mut adding: Vec<_> = (0..20_000).map(|key| Box::pin(queue.add_when_room(key + 1))).collect();
    for adding in &mut adding {
        assert!(poll_once(adding.as_mut()).is_pending());
    }
    drop(adding);
    assert!(live_bytes() - before < 10_000);
}

/// The memory and the work for an adder do not depend on the number of groups, and are gone with it.
#[test]
fn an_adder_of_the_last_group_takes_no_memory_for_the_others() {
    let queue = Queue::builder().order(Fair::by_group(|key: &(u32, u32)| key.0).capacity(|_| 1)).build();
    assert_eq!(queue.add_many((0..20_000).map(|group| (group, 0))).new, 20_000);
    let before = live_bytes();
    for group in [19_999, 10_000] {
        let mut adding = Box::pin(queue.add_when_room((group, 1)));
        assert!(poll_once(adding.as_mut()).is_pending());
        let taken = live_bytes() - before;
        assert!(taken < 5_000, "{taken} bytes for one adder");
        drop(adding);
    }
    assert!(live_bytes() - before < 2_000, "{} bytes are left", live_bytes() - before);
}
