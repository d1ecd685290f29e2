//! Keys of different priorities.

use std::cell::RefCell;
use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{Exponential, ManualClock};
use flyball_workqueue::{Added, KeyState, Lease, NoDelay, NoLimit, Priority, Queue, Time};
use testkit::random::cases;

const SECOND: Duration = Duration::from_secs(1);

type Prioritised<K> = Queue<K, Priority>;

fn queue<K: flyball_workqueue::Key>() -> Prioritised<K> {
    Queue::builder().order(Priority::new()).build()
}

/// Takes everything, in order.
fn drain<K: Copy, T: Time>(next: impl Fn() -> Option<Lease<K, T>>) -> Vec<K> {
    std::iter::from_fn(|| {
        let lease = next()?;
        let key = *lease;
        lease.done();
        Some(key)
    })
    .collect()
}

#[test]
fn higher_first_and_fifo_within() {
    let queue = queue();
    for (key, priority) in [("a", 0), ("b", -1), ("c", 1), ("d", 0), ("e", 1), ("f", -128), ("g", 127)] {
        assert_eq!(queue.at(priority).add(key).unwrap(), Added::New);
    }
    let levels: Vec<_> = queue.levels().iter().map(|level| (level.priority, level.ready)).collect();
    assert_eq!(levels, [(127, 1), (1, 2), (0, 2), (-1, 1), (-128, 1)]);
    let shown: Vec<_> = queue.snapshot().keys.iter().map(|record| record.key).collect();
    let order = drain(|| queue.try_get().ok());
    assert_eq!(order, ["g", "c", "e", "a", "d", "b", "f"]);
    assert_eq!(shown, order);
    assert_eq!(queue.levels(), []);
}

/// The highest of all adds counts; one that is raised goes behind those who are there (controller-runtime#3408).
#[test]
fn adds_merge_to_the_highest() {
    let queue = queue();
    queue.at(-5).add("a").unwrap();
    queue.at(3).add("b").unwrap();
    assert_eq!(queue.at(3).add("a").unwrap(), Added::Merged);
    assert_eq!(queue.at(-7).add("a").unwrap(), Added::Merged);
    assert_eq!(queue.add_ref(&"a").unwrap(), Added::Merged);
    assert_eq!(queue.priority(&"a"), Some(3));
    assert_eq!(queue.priority(&"nobody"), None);
    assert_eq!(drain(|| queue.try_get().ok()), ["b", "a"]);
}

#[test]
fn set_priority_lowers_too() {
    let queue = queue();
    queue.add_many(["a", "b"]);
    assert!(queue.set_priority(&"a", -1));
    assert!(!queue.set_priority(&"nobody", -1));
    queue.check().unwrap();
    assert_eq!(drain(|| queue.try_get().ok()), ["b", "a"]);
}

/// What a lease was handed out for, and what it was added for meanwhile, are two things until it ends.
#[test]
fn a_leased_key_has_two_priorities() {
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND..=SECOND);
    let queue = Queue::builder().order(Priority::new()).clock(clock.clone()).limiter(backoff).build();
    let lease_of = |priority: i8| {
        queue.at(priority).add("a").unwrap();
        queue.try_get().unwrap()
    };
    // Done: only the add meanwhile counts, and it may be lower.
    let lease = lease_of(5);
    assert_eq!(queue.priority(&"a"), Some(5));
    queue.at(-3).add("a").unwrap();
    assert_eq!(queue.priority(&"a"), Some(-3));
    queue.at(-2).add("a").unwrap();
    lease.done();
    assert_eq!(queue.priority(&"a"), Some(-2));
    queue.cancel(&"a");
    // A failure comes back for both.
    let lease = lease_of(5);
    queue.at(-3).add_after("a", SECOND).unwrap();
    lease.retry();
    assert_eq!(queue.priority(&"a"), Some(5));
    queue.cancel(&"a");
    queue.forget(&"a");
    // Neither success nor failure comes back for both, too, and is counted as nothing.
    let lease = lease_of(5);
    queue.at(-3).add_after("a", SECOND).unwrap();
    lease.done_after(SECOND);
    assert_eq!((queue.priority(&"a"), queue.requeues(&"a")), (Some(5), 0));
    queue.cancel(&"a");
    // What is taken back does not count.
    let lease = lease_of(1);
    queue.at(9).add("a").unwrap();
    assert!(queue.cancel(&"a"));
    lease.requeue_after(SECOND);
    assert_eq!(queue.priority(&"a"), Some(1));
    // Set while leased and added: both.
    clock.advance(SECOND);
    let lease = queue.try_get().unwrap();
    queue.at(9).add("a").unwrap();
    assert!(queue.set_priority(&"a", 2));
    lease.done();
    assert_eq!(queue.priority(&"a"), Some(2));
}

/// Of the deadline the earlier, of the priority the higher, each by itself; and what becomes Ready is in its line at once
/// (controller-runtime#3330).
#[test]
fn a_waiting_key_keeps_its_priority() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).clock(clock.clone()).build();
    queue.at(4).add_after("late", SECOND * 3600).unwrap();
    queue.at(-4).add_after("late", SECOND).unwrap();
    queue.add_many(["a", "b"]);
    queue.at(4).add("c").unwrap();
    assert_eq!(queue.priority(&"late"), Some(4));
    clock.advance(SECOND);
    assert_eq!(queue.state(&"late"), KeyState::Ready);
    assert_eq!(queue.len(), 4);
    // Ready since before `d` is: so it stands before it.
    queue.at(4).add("d").unwrap();
    assert_eq!(drain(|| queue.try_get().ok()), ["c", "late", "d", "a", "b"]);
}

/// A steady stream of high priority (controller-runtime#3496, home-operations/miroir#122): one that waits is overtaken by
/// 64 for each level above it, and by no more.
#[test]
fn a_steady_stream_does_not_starve_the_others() {
    for (levels, ageing) in [(1, 64), (2, 64), (3, 64), (1, 1), (2, 5)] {
        let order = Priority::new().ageing(NonZeroU32::new(ageing).unwrap());
        let queue = Queue::builder().order(order).build();
        queue.at(-100).add(0_u32).unwrap();
        // Every level above it has a backlog for ever.
        let mut next = 1;
        let mut refill = |queue: &Prioritised<u32>| {
            for level in 0..levels {
                queue.at(level).add(next).unwrap();
                next += 1;
            }
        };
        (0..200).for_each(|_| refill(&queue));
        let mut overtaken = 0;
        while let Some(lease) = queue.try_get().ok().filter(|lease| **lease != 0) {
            lease.done();
            overtaken += 1;
            refill(&queue);
        }
        // The levels above age, too, so with several of them it is fewer.
        let most = ageing * levels as u32;
        assert!(
            (ageing..=most).contains(&overtaken),
            "{overtaken} with {levels} levels above, {ageing} each"
        );
    }
}

#[test]
fn strict_priorities_do_starve() {
    let queue = Queue::builder().order(Priority::new().strict()).build();
    queue.at(-1).add(0_u32).unwrap();
    for key in 1..10_000 {
        queue.add(key).unwrap();
        let lease = queue.try_get().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
}

/// One that has waited for long in its line is not sent to the end of a long one.
#[test]
fn to_be_raised_is_never_worse() {
    let queue = queue();
    queue.at(-1).add(0_u32).unwrap();
    queue.add_many(1..=100);
    assert_eq!(queue.add(0).unwrap(), Added::Merged);
    assert_eq!(queue.priority(&0), Some(0));
    let order = drain(|| queue.try_get().ok());
    assert_eq!(order.iter().position(|key| *key == 0), Some(64));
}

/// The bound as it stands in the docs, on random lives: for each key that was Ready, how many came after it and went before.
#[test]
fn no_key_is_overtaken_more_than_promised() {
    const AGEING: u64 = 3;
    let closest = RefCell::new(0);
    cases("no_key_is_overtaken_more_than_promised", 2_000, 400, |bytes| {
        let ageing = NonZeroU32::new(AGEING as u32).unwrap();
        let queue = Queue::<u64>::builder().order(Priority::new().ageing(ageing)).build();
        // By key: its priority, how many have overtaken it, and the most levels above it that were in use.
        let mut ready: Vec<(u64, i8, u64, u64)> = Vec::new();
        let mut next = 0;
        for byte in bytes {
            if byte % 8 < 5 {
                let priority = (byte / 8 % 4) as i8;
                queue.at(priority).add(next).unwrap();
                ready.push((next, priority, 0, 0));
                next += 1;
            } else if let Ok(lease) = queue.try_get() {
                let levels = ready.iter().fold(0_u8, |levels, (_, priority, ..)| levels | 1 << priority);
                for (key, priority, overtaken, above) in &mut ready {
                    *above = (*above).max((levels >> (*priority + 1)).count_ones().into());
                    *overtaken += u64::from(*key < *lease);
                }
                ready.retain(|(key, ..)| *key != *lease);
                lease.done();
            }
            for (key, _, overtaken, above) in &ready {
                assert!(
                    *overtaken <= AGEING * above,
                    "{key}: {overtaken} went before it, {above} levels above"
                );
                let mut closest = closest.borrow_mut();
                *closest = (*closest).max(*overtaken);
            }
        }
    });
    // Otherwise this was no test of the bound.
    assert!(closest.into_inner() >= AGEING);
}

/// More deadlines at once than one operation gathers: all come, those with the earlier deadline first.
#[test]
fn a_thousand_deadlines_at_once() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).clock(clock.clone()).build();
    for key in 0..1000_u32 {
        queue.at((key % 2) as i8).add_after(key, SECOND).unwrap();
    }
    clock.advance(SECOND);
    assert_eq!(queue.len(), 1000);
    assert_eq!(queue.levels().iter().map(|level| level.ready).collect::<Vec<_>>(), [500, 500]);
    let order = drain(|| queue.try_get().ok());
    queue.check().unwrap();
    let of = |bit| order.iter().copied().filter(|key| key % 2 == bit).collect::<Vec<_>>();
    assert!(of(0).is_sorted() && of(1).is_sorted());
    assert_eq!((of(0).len(), of(1).len()), (500, 500));
}

/// All of the adds come with a priority.
#[test]
fn every_add_at_a_priority() {
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND..=SECOND);
    let queue = Queue::builder().order(Priority::new()).clock(clock).limiter(backoff).capacity(5).build();
    let at = queue.at(7);
    assert_eq!(at.add(1).unwrap(), Added::New);
    assert_eq!(at.add_ref(&2).unwrap(), Added::New);
    assert_eq!(at.add_many([3, 3]).merged, 1);
    assert_eq!(at.add_after(4, SECOND).unwrap(), Added::New);
    assert_eq!(at.add_rate_limited(4).unwrap(), Added::Merged);
    assert_eq!(at.blocking_add(5).unwrap(), Added::New);
    let refused = at.add(6).unwrap_err();
    assert_eq!(refused.into_key(), 6);
    assert!((1..=5).all(|key| queue.priority(&key) == Some(7)));
    assert_eq!(format!("{at:?}"), "At { priority: 7, .. }");
}

#[test]
fn a_queue_of_priorities_says_what_it_is() {
    fn shared<T: Send + Sync>(_: &T) {}
    let queue: Queue<u32, Priority, NoLimit, NoDelay> = Queue::builder().order(Priority::default()).build();
    shared(&queue);
}
