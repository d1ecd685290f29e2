//! Keys of different priorities.

use flyball_sync::block_on;
use std::cell::RefCell;
use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, Nanos};
use flyball_workqueue::{
    AddOptions, Added, KeyState, Lease, LeaseOutcome, NoLimiter, Priority, Queue, QueueMetrics, ThreadTimer,
};
use testkit::random::cases;

const SECOND: Duration = Duration::from_secs(1);

type Prioritised<K> = Queue<K, Priority>;

fn queue<K: flyball_workqueue::Key>() -> Prioritised<K> {
    Queue::builder().order(Priority::new()).build()
}

fn at(priority: i8) -> AddOptions {
    AddOptions { priority, ..AddOptions::default() }
}

/// Takes all keys, in the order of hand-out.
fn drain<K: Copy>(next: impl Fn() -> Option<Lease<K>>) -> Vec<K> {
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
    let queue = Queue::builder().order(Priority::new().strict()).build();
    for (key, priority) in [("a", 0), ("b", -1), ("c", 1), ("d", 0), ("e", 1), ("f", -128), ("g", 127)] {
        assert_eq!(
            queue.add_with(key, AddOptions { priority, ..AddOptions::default() }).unwrap(),
            Added::New
        );
    }
    let levels: Vec<_> = queue.stats_by_priority();
    assert_eq!(levels, [(127, 1), (1, 2), (0, 2), (-1, 1), (-128, 1)]);
    let shown: Vec<_> = queue.keys().iter().map(|record| record.key).collect();
    let order = drain(|| queue.try_get().ok());
    assert_eq!(order, ["g", "c", "e", "a", "d", "b", "f"]);
    assert_eq!(shown, order);
    assert_eq!(queue.stats_by_priority(), []);
}

/// If a key is added several times, the highest priority applies. A raised key goes to the tail of that priority (controller-runtime#3408).
#[test]
fn adds_merge_to_the_highest() {
    let queue = queue();
    queue.add_with("a", at(-5)).unwrap();
    queue.add_with("b", at(3)).unwrap();
    assert_eq!(queue.add_with("a", at(3)).unwrap(), Added::Merged);
    assert_eq!(queue.add_with("a", at(-7)).unwrap(), Added::Merged);
    assert_eq!(queue.add_ref(&"a").unwrap(), Added::Merged);
    assert_eq!(queue.priority(&"a"), Some(3));
    assert_eq!(queue.priority(&"nobody"), None);
    assert_eq!(drain(|| queue.try_get().ok()), ["b", "a"]);
}

#[test]
fn set_priority_lowers_too() {
    let queue = queue();
    _ = queue.add_many(["a", "b"]);
    assert!(queue.set_priority(&"a", -1));
    assert!(!queue.set_priority(&"nobody", -1));
    queue.check().unwrap();
    assert_eq!(drain(|| queue.try_get().ok()), ["b", "a"]);
}

/// A leased key has two priorities: that of its lease, and the highest one with which it was added during the lease. The end of the lease determines
/// which one applies.
#[test]
fn a_leased_key_has_two_priorities() {
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND..=SECOND);
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).limiter(backoff).build();
    let lease_of = |priority: i8| {
        queue.add_with("a", AddOptions { priority, ..AddOptions::default() }).unwrap();
        queue.try_get().unwrap()
    };
    // After `done`, only the priority of the adds during the lease applies, even if it is lower.
    let lease = lease_of(5);
    assert_eq!(queue.priority(&"a"), Some(5));
    queue.add_with("a", at(-3)).unwrap();
    assert_eq!(queue.priority(&"a"), Some(-3));
    queue.add_with("a", at(-2)).unwrap();
    lease.done();
    assert_eq!(queue.priority(&"a"), Some(-2));
    queue.cancel(&"a");
    // After a failure, the higher one of the key's own priority and the priority of the add applies.
    let lease = lease_of(5);
    queue.add_with("a", AddOptions { priority: -3, delay: SECOND, ..AddOptions::default() }).unwrap();
    lease.retry();
    assert_eq!(queue.priority(&"a"), Some(5));
    queue.cancel(&"a");
    queue.forget(&"a");
    // The same holds after `DoneAndRequeueAfter`, but no failure is counted.
    let lease = lease_of(5);
    queue.add_with("a", AddOptions { priority: -3, delay: SECOND, ..AddOptions::default() }).unwrap();
    lease.end(LeaseOutcome::DoneAndRequeueAfter(SECOND));
    assert_eq!((queue.priority(&"a"), queue.num_requeues(&"a")), (Some(5), 0));
    queue.cancel(&"a");
    // A cancelled add does not count.
    let lease = lease_of(1);
    queue.add_with("a", at(9)).unwrap();
    assert!(queue.cancel(&"a"));
    lease.requeue_after(SECOND);
    assert_eq!(queue.priority(&"a"), Some(1));
    // `set_priority` on a dirty key sets both priorities.
    clock.advance(SECOND);
    let lease = queue.try_get().unwrap();
    queue.add_with("a", at(9)).unwrap();
    assert!(queue.set_priority(&"a", 2));
    lease.done();
    assert_eq!(queue.priority(&"a"), Some(2));
}

/// If a waiting key is added again, the earlier deadline and the higher priority apply, independently of each other. As soon as its deadline passes,
/// the key has a position at its priority (controller-runtime#3330).
#[test]
fn a_waiting_key_keeps_its_priority() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    queue
        .add_with("late", AddOptions { priority: 4, delay: SECOND * 3600, ..AddOptions::default() })
        .unwrap();
    queue.add_with("late", AddOptions { priority: -4, delay: SECOND, ..AddOptions::default() }).unwrap();
    _ = queue.add_many(["a", "b"]);
    queue.add_with("c", at(4)).unwrap();
    assert_eq!(queue.priority(&"late"), Some(4));
    clock.advance(SECOND);
    assert_eq!(queue.state(&"late"), KeyState::Ready);
    assert_eq!(queue.ready_len(), 4);
    // `late` became Ready before `d`, so it is handed out before `d`.
    queue.add_with("d", at(4)).unwrap();
    assert_eq!(drain(|| queue.try_get().ok()), ["c", "late", "d", "a", "b"]);
}

/// The wait of an urgent key does not depend on the number of less urgent keys.
#[test]
fn serves_an_urgent_key_before_a_long_backlog() {
    for backlog in [1_500, 10_000, 100_000_u32] {
        let queue = queue();
        for key in 1..=backlog {
            queue.add_with(key, at(-100)).unwrap();
        }
        // Ten keys of the backlog run before the urgent key is added.
        (0..10).for_each(|_| queue.try_get().unwrap().done());
        queue.add(0).unwrap();
        assert_eq!(*queue.try_get().unwrap(), 0, "behind {backlog}");
    }
}

/// If each lower level is owed a hand-out, one key of each level is served before the urgent key.
#[test]
fn an_urgent_key_waits_for_one_key_of_each_lower_level() {
    let queue = queue();
    for level in 1..=3_i8 {
        for key in 0..100 {
            queue.add_with(u32::from(level.unsigned_abs()) * 1000 + key, at(-level)).unwrap();
        }
    }
    // After four hand-outs of urgent keys, all three lower levels are owed a hand-out.
    _ = queue.add_many(0..4);
    (0..4).for_each(|_| queue.try_get().unwrap().done());
    queue.add(9).unwrap();
    assert_eq!(drain(|| queue.try_get().ok())[..4], [1000, 2000, 3000, 9]);
}

/// Due keys of a low priority do not delay an urgent key, however many there are.
#[test]
fn serves_an_urgent_due_key_before_ten_thousand_others() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    for key in 1..=10_000_u32 {
        queue.add_with(key, AddOptions { priority: -100, delay: SECOND, ..AddOptions::default() }).unwrap();
    }
    queue.add_after(0, 2 * SECOND).unwrap();
    clock.advance(3 * SECOND);
    assert_eq!(*queue.try_get().unwrap(), 0);
    queue.check().unwrap();
}

/// During a steady stream of urgent keys (controller-runtime#3496, home-operations/miroir#122), one key of a lower priority is served for
/// each `share` urgent keys.
#[test]
fn a_steady_stream_does_not_starve_the_others() {
    for share in [1, 4, 7] {
        let order = Priority::new().share(NonZeroU32::new(share).unwrap());
        let queue = Queue::builder().order(order).build();
        (0..3).for_each(|key| _ = queue.add_with(key, at(-100)).unwrap());
        let mut order = Vec::new();
        for key in 100..120_u32 {
            queue.add(key).unwrap();
            queue.add(key + 1).unwrap();
            let lease = queue.try_get().unwrap();
            order.push(*lease);
            lease.done();
        }
        let low: Vec<_> = (0..20_u32).filter(|at| order[*at as usize] < 3).collect();
        let expected: Vec<_> = (0..3).map(|key| key * (share + 1) + share).filter(|at| *at < 20).collect();
        assert_eq!(low, expected, "{order:?}");
    }
}

#[test]
fn strict_priorities_do_starve() {
    let queue = Queue::builder().order(Priority::new().strict()).build();
    queue.add_with(0_u32, at(-1)).unwrap();
    for key in 1..10_000 {
        queue.add(key).unwrap();
        let lease = queue.try_get().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
}

/// A key that is raised to the end of a long line is still handed out at its old position as soon as its old level is owed a hand-out.
#[test]
fn a_raise_does_not_postpone_a_key() {
    for raise in [
        |queue: &Prioritised<u32>| drop(queue.add(0)),
        |queue: &Prioritised<u32>| assert!(queue.set_priority(&0, 0)),
    ] {
        let queue = queue();
        queue.add_with(0_u32, at(-1)).unwrap();
        _ = queue.add_many(1..=100);
        raise(&queue);
        queue.check().unwrap();
        assert_eq!(queue.priority(&0), Some(0));
        let levels: Vec<_> = queue.stats_by_priority();
        assert_eq!(levels, [(0, 101)]);
        let order = drain(|| queue.try_get().ok());
        assert_eq!(order.iter().position(|key| *key == 0), Some(4));
    }
}

/// Raising a key that is Ready because its deadline has passed does not postpone the key.
#[test]
fn a_raise_does_not_postpone_a_due_key() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    queue.add_with(0_u32, AddOptions { priority: -1, delay: SECOND, ..AddOptions::default() }).unwrap();
    clock.advance(2 * SECOND);
    _ = queue.add_many(1..=100);
    assert_eq!(queue.add(0).unwrap(), Added::Merged);
    queue.check().unwrap();
    assert_eq!(queue.priority(&0), Some(0));
    let order = drain(|| queue.try_get().ok());
    assert_eq!(order.iter().position(|key| *key == 0), Some(4));
    queue.check().unwrap();
}

/// A raised key has two positions, but is handed out once. If it is cancelled, postponed or lowered, positions that no longer apply become invalid.
#[test]
fn a_raised_key_is_handed_out_once() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    let raise = |from: i8| {
        queue.add_with(1_u32, at(from)).unwrap();
        queue.add_with(1, at(5)).unwrap();
        queue.check().unwrap();
    };
    raise(-1);
    assert_eq!(drain(|| queue.try_get().ok()), [1]);
    raise(-1);
    assert!(queue.cancel(&1));
    assert!(queue.try_get().is_err());
    raise(-1);
    assert!(queue.postpone(&1, SECOND));
    queue.check().unwrap();
    assert!(queue.try_get().is_err());
    clock.advance(SECOND);
    assert_eq!(queue.priority(&1), Some(5), "the raise was lost before the hand-out");
    assert_eq!(drain(|| queue.try_get().ok()), [1]);
    // Two of these priorities are between the two positions of the key. The third one is below both.
    for (priority, expected) in [(3, [1, 2, 3]), (0, [2, 1, 3]), (-3, [2, 3, 1])] {
        raise(-1);
        queue.add_with(2, at(1)).unwrap();
        queue.add_with(3, at(-2)).unwrap();
        assert!(queue.set_priority(&1, priority));
        queue.check().unwrap();
        assert_eq!(drain(|| queue.try_get().ok()), expected, "lowered to {priority}");
    }
}

/// Adding and raising a key again and again, without a hand-out, does not accumulate positions.
#[test]
fn invalid_positions_are_dropped() {
    let queue = queue();
    queue.add_with(0_u32, at(5)).unwrap();
    queue.add_with(1, at(-1)).unwrap();
    queue.add_with(1, at(5)).unwrap();
    for _ in 0..10_000 {
        queue.add(2).unwrap();
        queue.add_with(2, at(5)).unwrap();
        assert!(queue.cancel(&2));
    }
    queue.check().unwrap();
    assert_eq!(drain(|| queue.try_get().ok()), [0, 1]);
}

/// A raise lasts for one hand-out, whatever the outcome of the lease.
#[test]
fn a_raise_lasts_one_hand_out() {
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND..=SECOND);
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).limiter(backoff).build();
    let raised = || {
        queue.add_with("a", at(-7)).unwrap();
        queue.add_with("a", at(5)).unwrap();
        let lease = queue.try_get().unwrap();
        assert_eq!(queue.priority(&"a"), Some(5));
        lease
    };
    raised().retry();
    assert_eq!(queue.priority(&"a"), Some(-7), "a failure");
    queue.cancel(&"a");
    raised().requeue_after(SECOND);
    assert_eq!(queue.priority(&"a"), Some(-7), "a requeue");
    queue.cancel(&"a");
    // The priority of an add during the lease applies to the next hand-out.
    let lease = raised();
    queue.add_with("a", at(2)).unwrap();
    lease.requeue_after(SECOND);
    assert_eq!((queue.priority(&"a"), queue.state(&"a")), (Some(2), KeyState::Ready));
    queue.try_get().unwrap().requeue_after(SECOND);
    assert_eq!(queue.priority(&"a"), Some(-7));
    // A priority that was set with `set_priority` is kept.
    assert!(queue.set_priority(&"a", 3));
    clock.advance(SECOND);
    queue.try_get().unwrap().retry();
    assert_eq!(queue.priority(&"a"), Some(3));
    queue.cancel(&"a");
    // If a key is added during its lease, and the lease ends with `done`, the priority of that add becomes the key's own priority.
    let lease = raised();
    queue.add_with("a", at(1)).unwrap();
    lease.done();
    queue.try_get().unwrap().requeue_after(SECOND);
    assert_eq!(queue.priority(&"a"), Some(1));
}

/// A lease that ends before its work has begun does not use up the raise.
#[test]
fn a_requeued_lease_keeps_the_raise() {
    let clock = ManualClock::new();
    let queue = Queue::<u32>::builder().order(Priority::new()).timer(clock.timer()).build();
    queue.add_with(1, at(-7)).unwrap();
    queue.add_with(1, at(5)).unwrap();
    queue.try_get().unwrap().end(LeaseOutcome::Requeued);
    queue.check().unwrap();
    assert_eq!((queue.state(&1), queue.priority(&1)), (KeyState::Ready, Some(5)));
}

/// A due key that was raised is not handed out early after the clock has jumped back.
#[test]
fn a_raised_key_is_not_early_when_the_clock_jumps_back() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    clock.advance(SECOND);
    queue.add_with(0_u32, AddOptions { priority: -1, delay: SECOND, ..AddOptions::default() }).unwrap();
    clock.advance(SECOND);
    queue.add_with(0, at(3)).unwrap();
    clock.set(Nanos::ZERO);
    queue.add(1).unwrap();
    queue.check().unwrap();
    assert_eq!(drain(|| queue.try_get().ok()), [1]);
    clock.advance(2 * SECOND);
    assert_eq!(queue.priority(&0), Some(3));
    assert_eq!(drain(|| queue.try_get().ok()), [0]);
    queue.check().unwrap();
}

/// The documented bounds, checked on random operation sequences.
#[test]
fn every_key_is_handed_out_within_the_documented_bound() {
    struct Ready {
        key: u64,
        priority: i8,
        before: u64,
        waited: u64,
        /// The levels that were lower at one or more hand-outs while the key was Ready.
        lower: Vec<i8>,
    }
    const SHARE: u64 = 3;
    let closest = RefCell::new(u64::MAX);
    cases("every_key_is_handed_out_within_the_documented_bound", 2_000, 400, |bytes| {
        let share = NonZeroU32::new(SHARE as u32).unwrap();
        let queue = Queue::<u64>::builder().order(Priority::new().share(share)).build();
        let mut ready: Vec<Ready> = Vec::new();
        let mut next = 0;
        for byte in bytes {
            if byte % 8 < 5 {
                let priority = (byte / 8 % 4) as i8;
                queue.add_with(next, AddOptions { priority, ..AddOptions::default() }).unwrap();
                let before = ready.iter().filter(|other| other.priority == priority).count() as u64;
                ready.push(Ready { key: next, priority, before, waited: 0, lower: Vec::new() });
                next += 1;
            } else if let Ok(lease) = queue.try_get() {
                let highest = ready.iter().map(|key| key.priority).max().unwrap();
                let mut lower: Vec<i8> =
                    ready.iter().map(|key| key.priority).filter(|own| *own < highest).collect();
                lower.sort_unstable();
                lower.dedup();
                let served = *lease;
                lease.done();
                for key in &mut ready {
                    key.waited += 1;
                    let new: Vec<_> =
                        lower.iter().filter(|level| !key.lower.contains(level)).copied().collect();
                    key.lower.extend(new);
                    let levels = key.lower.len() as u64;
                    let most = (SHARE + levels) * (key.before + 1);
                    assert!(key.waited <= most, "{}: {} of {most}", key.key, key.waited);
                    if key.key == served && key.lower.contains(&key.priority) {
                        let mut closest = closest.borrow_mut();
                        *closest = (*closest).min(most - key.waited);
                    }
                    let urgent = key.before == 0 && key.priority == highest && !key.lower.contains(&highest);
                    let first = key.waited <= levels + 1;
                    assert!(!urgent || first, "{}: {} with {levels} levels below", key.key, key.waited);
                }
                ready.retain(|key| key.key != served);
            }
        }
    });
    // At least one sequence reaches the bound exactly. So no smaller bound would hold.
    assert_eq!(closest.into_inner(), 0);
}

/// A thousand keys with the same deadline are all handed out. Keys of one priority are handed out in the order of their adds.
#[test]
fn a_thousand_deadlines_at_once() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(Priority::new()).timer(clock.timer()).build();
    for key in 0..1000_u32 {
        queue
            .add_with(key, AddOptions { priority: (key % 2) as i8, delay: SECOND, ..AddOptions::default() })
            .unwrap();
    }
    clock.advance(SECOND);
    assert_eq!(queue.ready_len(), 1000);
    assert_eq!(queue.stats_by_priority().iter().map(|level| level.1).collect::<Vec<_>>(), [500, 500]);
    let order = drain(|| queue.try_get().ok());
    queue.check().unwrap();
    let of = |bit| order.iter().copied().filter(|key| key % 2 == bit).collect::<Vec<_>>();
    assert!(of(0).is_sorted() && of(1).is_sorted());
    assert_eq!((of(0).len(), of(1).len()), (500, 500));
}

/// An add that says no priority has priority 0; it neither raises nor lowers a key.
#[test]
fn an_add_has_a_priority_of_0_or_that_of_its_options() {
    let clock = ManualClock::new();
    let backoff = Exponential::new(SECOND..=SECOND);
    let builder = Queue::builder().order(Priority::new()).timer(clock.timer());
    let queue = builder.limiter(backoff).capacity(5).build();
    assert_eq!(queue.add_with(1, at(7)).unwrap(), Added::New);
    assert_eq!(queue.add_with(2, AddOptions { delay: SECOND, ..at(7) }).unwrap(), Added::New);
    assert_eq!(queue.add_ref(&3).unwrap(), Added::New);
    assert_eq!(queue.add_many([1, 3]).merged, 2);
    assert_eq!(queue.add_rate_limited(4).unwrap(), Added::New);
    assert_eq!(block_on(queue.add_when_room(5)).unwrap(), Added::New);
    let refused = queue.add_with(6, at(7)).unwrap_err();
    assert_eq!(refused.into_key(), 6);
    assert_eq!([1, 2, 3, 4, 5].map(|key| queue.priority(&key).unwrap()), [7, 7, 0, 0, 0]);
    assert_eq!(queue.add_with(3, at(-7)).unwrap(), Added::Merged);
    assert_eq!(queue.priority(&3), Some(0));
}

/// The options say what only some orders use, so that code that is generic over orders can add with a priority.
#[test]
fn an_order_without_priorities_ignores_the_priority_of_an_add() {
    let queue = Queue::new();
    queue.add_with(1, at(-100)).unwrap();
    queue.add_with(2, at(100)).unwrap();
    assert_eq!(drain(|| queue.try_get().ok()), [1, 2]);
}

#[test]
fn a_priority_queue_is_send_and_sync() {
    fn shared<T: Send + Sync>(_: &T) {}
    let queue: Queue<u32, Priority, NoLimiter, ThreadTimer> =
        Queue::builder().order(Priority::default()).build();
    shared(&queue);
}

/// Metrics count the key that is handed out, even if many deadlines pass at the same time.
#[test]
fn counts_the_key_that_is_handed_out_when_many_deadlines_pass_at_once() {
    struct Sink;
    impl QueueMetrics for Sink {}

    let clock = ManualClock::new();
    let order = Priority::new().strict();
    let queue = Queue::builder().order(order).timer(clock.timer()).metrics(Sink).build();
    for key in 0..100_u32 {
        queue.add_after(key, SECOND).unwrap();
    }
    queue.add_with(100, AddOptions { priority: 1, delay: SECOND, ..AddOptions::default() }).unwrap();
    clock.advance(2 * SECOND);
    let lease = queue.try_get().unwrap();
    assert_eq!(*lease, 100, "not the most urgent key");
    queue.check().unwrap();
    assert_eq!(queue.stats().adds, 101);
}
