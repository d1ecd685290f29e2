//! The fair order: groups of keys in weighted round robin.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use flyball_sync::{Clock, ManualClock, ManualTimer, Monotonic, block_on, steps};
use flyball_workqueue::{Added, DrainOptions, Fair, Lease, NoLimiter, Queue, TryGetError};
use testkit::random::cases;
use testkit::wakers::poll_once;

use crate::task::Task;

const SECOND: Duration = Duration::from_secs(1);

/// A key of a group.
type Key = (char, u32);

fn fair() -> Fair<Key, char> {
    Fair::by_group(|key: &Key| key.0)
}

fn drain(queue: &Queue<Key, Fair<Key, char>>) -> Vec<Key> {
    std::iter::from_fn(|| {
        let lease = queue.try_get().ok()?;
        let key = *lease;
        lease.done();
        Some(key)
    })
    .collect()
}

#[test]
fn groups_take_turns() {
    let queue = Queue::builder().order(fair()).build();
    _ = queue.add_many([('a', 1), ('a', 2), ('a', 3), ('b', 1), ('c', 1), ('b', 2)]);
    let shown: Vec<_> = queue.keys().iter().map(|record| record.key).collect();
    let order = drain(&queue);
    assert_eq!(order, [('a', 1), ('b', 1), ('c', 1), ('a', 2), ('b', 2), ('a', 3)]);
    assert_eq!(shown, order);
}

#[test]
fn a_turn_is_as_long_as_the_weight() {
    let weights = |group: &char| if *group == 'a' { 3 } else { 1 };
    let queue = Queue::builder().order(fair().weight(weights)).build();
    _ = queue.add_many((0..5).flat_map(|n| [('a', n), ('b', n)]));
    let groups: String = drain(&queue).iter().map(|key| key.0).collect();
    assert_eq!(groups, "aaabaabbbb");
}

/// With a lease limit of 1, the keys of each group run one after the other.
#[test]
fn a_cap_of_one_is_serial() {
    let queue = Queue::builder().order(fair().max_leased(|_| 1)).build();
    _ = queue.add_many([('a', 1), ('a', 2), ('b', 1)]);
    let (first, second) = (queue.try_get().unwrap(), queue.try_get().unwrap());
    assert_eq!((*first, *second), (('a', 1), ('b', 1)));
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert_eq!(
        (queue.ready_len(), queue.has_ready()),
        (1, true),
        "a key that waits for a lease of its group does not count as Ready"
    );
    let mut waiting = pin!(queue.get());
    assert!(poll_once(waiting.as_mut()).is_pending());
    second.done();
    assert!(poll_once(waiting.as_mut()).is_pending());
    first.done();
    let std::task::Poll::Ready(Some(third)) = poll_once(waiting) else { panic!("no key was handed out") };
    assert_eq!(*third, ('a', 2));
}

/// A Ready key of a group at its lease limit keeps the queue open after a shutdown. It is handed out when a lease of its group has ended.
#[test]
fn a_drain_serves_keys_that_a_cap_held_back() {
    let queue = Queue::builder().order(fair().max_leased(|_| 1)).build();
    _ = queue.add_many([('a', 1), ('a', 2)]);
    let lease = queue.try_get().unwrap();
    let mut drained = pin!(queue.drain(DrainOptions::unlimited()));
    assert_eq!(
        queue.try_get().unwrap_err(),
        TryGetError::Empty,
        "the queue is closed although a key is Ready"
    );
    lease.done();
    assert!(poll_once(drained.as_mut()).is_pending());
    queue.try_get().unwrap().done();
    assert!(poll_once(drained.as_mut()).is_ready());
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
}

/// A batch takes no more keys of a group than the group's lease limit allows. This holds for the first batch, and for the next one after the leases
/// have ended.
#[test]
fn a_batch_respects_the_caps() {
    let caps = |group: &char| if *group == 'a' { 2 } else { u32::MAX };
    let queue = Queue::builder().order(fair().max_leased(caps)).build();
    _ = queue.add_many((0..4).flat_map(|n| [('a', n), ('b', n)]));
    let leases = queue.try_get_many(100).unwrap();
    let of = |group| leases.iter().filter(|lease| lease.0 == group).count();
    assert_eq!((of('a'), of('b')), (2, 4));
    drop(leases);
    queue.check().unwrap();
    assert_eq!(queue.try_get_many(100).unwrap().len(), 6);
}

/// Lowering a group's lease limit does not end leases. No key of the group is handed out until the group has fewer leases than the limit.
#[test]
fn weights_and_caps_may_change() {
    let cap = Arc::new(AtomicU32::new(2));
    let caps = {
        let cap = cap.clone();
        move |_: &char| cap.load(Ordering::Relaxed)
    };
    let queue = Queue::builder().order(fair().max_leased(caps)).build();
    _ = queue.add_many((0..4).map(|n| ('a', n)));
    let two = queue.try_get_many(9).unwrap();
    assert_eq!(two.len(), 2);
    cap.store(1, Ordering::Relaxed);
    queue.add(('a', 9)).unwrap();
    queue.check().unwrap();
    let mut two = two.into_iter();
    two.next().unwrap().done();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    two.next().unwrap().done();
    assert_eq!(*queue.try_get().unwrap(), ('a', 2));
    cap.store(3, Ordering::Relaxed);
    queue.add(('a', 10)).unwrap();
    assert_eq!(queue.try_get_many(9).unwrap().len(), 3);
}

/// Checks two bounds on random operation sequences: the leases of a group never exceed its limit, and a group that can be served waits
/// for at most as many hand-outs as the sum of the weights of the other groups.
#[test]
fn every_group_is_served_within_the_documented_bound() {
    let closest = Cell::new(0);
    let capped = Cell::new(0);
    cases("every_group_is_served_within_the_documented_bound", 2_000, 400, |bytes| {
        let weight = |group: char| group as u32 - 'a' as u32 + 1;
        let order =
            fair().weight(move |group| weight(*group)).max_leased(|group| if *group == 'a' { 1 } else { 2 });
        let queue = Queue::builder().order(order).build();
        let (mut ready, mut leases) = (BTreeSet::<Key>::new(), Vec::new());
        let mut waits = BTreeMap::<char, u32>::new();
        for (n, byte) in (0..).zip(bytes) {
            let group = char::from(b'a' + byte / 16 % 4);
            match byte % 16 {
                0..7 => {
                    queue.add((group, n)).unwrap();
                    ready.insert((group, n));
                }
                7..13 => {
                    if let Ok(lease) = queue.try_get() {
                        ready.remove(&lease);
                        waits.values_mut().for_each(|wait| *wait += 1);
                        waits.remove(&lease.0);
                        leases.push(lease);
                    }
                }
                _ if !leases.is_empty() => leases.swap_remove(usize::from(byte / 16) % leases.len()).done(),
                _ => {}
            }
            for group in 'a'..='d' {
                let cap = if group == 'a' { 1 } else { 2 };
                let held = leases.iter().filter(|lease| lease.0 == group).count();
                assert!(held <= cap, "{held} leases of {group}");
                if held < cap && ready.iter().any(|key| key.0 == group) {
                    let others: u32 = ('a'..='d').filter(|other| *other != group).map(weight).sum();
                    let waited = *waits.entry(group).or_default();
                    assert!(waited <= others, "{group} waits for {waited} of {others}");
                    closest.set(closest.get().max(waited));
                } else {
                    waits.remove(&group);
                    capped.set(capped.get() + usize::from(held == cap));
                }
            }
        }
    });
    assert!(closest.get() >= 6 && capped.get() > 1_000, "the sequences did not reach the bounds");
}

/// Due keys of a group at its lease limit do not block the due keys of other groups behind them, however many there are.
#[test]
fn due_keys_of_a_full_group_do_not_block_others() {
    let clock = ManualClock::new();
    let queue = Queue::builder().order(fair().max_leased(|_| 1)).timer(clock.timer()).build();
    queue.add(('a', 0)).unwrap();
    let lease = queue.try_get().unwrap();
    for n in 1..=1000 {
        queue.add_after(('a', n), SECOND).unwrap();
    }
    queue.add_after(('b', 0), SECOND * 2).unwrap();
    clock.advance(SECOND * 2);
    assert_eq!(*queue.try_get().unwrap(), ('b', 0));
    lease.done();
    queue.check().unwrap();
}

#[test]
fn depths_are_bounded_in_names() {
    let queue = Queue::builder().order(fair()).build();
    _ = queue.add_many([('a', 1), ('b', 1), ('b', 2), ('c', 1), ('c', 2), ('c', 3)]);
    let _held = queue.try_get().unwrap();
    let depths = queue.stats_by_group(1);
    let (deepest, others) = (&depths.groups[0], &depths.others);
    assert_eq!((deepest.group, deepest.total, deepest.ready, deepest.leased), ('c', 3, 3, 0));
    assert_eq!((others.group, others.total, others.ready, others.leased), (2, 3, 2, 1));
    assert_eq!(queue.stats_by_group(0).others.total, 6);
    assert_eq!(queue.stats_by_group(9).others.group, 0);
}

/// The record of a removed group is reused, so groups that come and go need no more memory.
#[test]
fn groups_that_are_gone_cost_nothing() {
    let queue = Queue::builder().order(Fair::by_group(|key: &u32| *key)).build();
    for key in 0..10_000 {
        queue.add(key).unwrap();
        queue.try_get().unwrap().done();
    }
    queue.check().unwrap();
    assert_eq!((queue.stats_by_group(9).groups.len(), queue.stats_by_group(9).others.group), (0, 0));
}

// === hostile groups ===

/// A group whose `Eq` panics on demand, and whose `Drop` calls the queue. If the drop ran under the lock, this call would deadlock.
#[derive(Clone)]
struct PanickingGroup(u32, Arc<World>);

#[derive(Default)]
struct World {
    armed: AtomicU32,
    queue: OnceLock<Queue<u32, Fair<u32, PanickingGroup>>>,
    dropped: AtomicU32,
}

impl PartialEq for PanickingGroup {
    fn eq(&self, other: &Self) -> bool {
        assert_eq!(self.1.armed.load(Ordering::Relaxed), 0, "in Eq");
        self.0 == other.0
    }
}

impl Eq for PanickingGroup {}

impl std::hash::Hash for PanickingGroup {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        assert_ne!(self.1.armed.load(Ordering::Relaxed), 2, "in Hash");
        self.0.hash(state);
    }
}

impl Drop for PanickingGroup {
    fn drop(&mut self) {
        self.1.dropped.fetch_add(1, Ordering::Relaxed);
        if let Some(queue) = self.1.queue.get() {
            let _ = queue.ready_len();
        }
    }
}

#[test]
fn groups_are_dropped_outside_the_lock() {
    let world = Arc::new(World::default());
    let group = {
        let world = world.clone();
        move |key: &u32| PanickingGroup(key % 3, world.clone())
    };
    let queue = Queue::builder().order(Fair::by_group(group)).build();
    assert!(world.queue.set(queue.clone()).is_ok());
    for key in 0..30 {
        queue.add(key).unwrap();
        queue.add(key).unwrap();
        queue.add_ref(&key).unwrap();
        if key % 4 == 3 {
            queue.try_get().unwrap().done();
            queue.cancel(&key);
        }
    }
    _ = queue.add_many(0..30);
    drop(queue.stats_by_group(2));
    drop(queue.stop_now());
    queue.check().unwrap();
    assert!(world.dropped.load(Ordering::Relaxed) > 60);
}

#[test]
fn a_group_that_panics_adds_nothing() {
    let world = Arc::new(World::default());
    let group = {
        let world = world.clone();
        move |key: &u32| {
            assert_ne!(world.armed.load(Ordering::Relaxed), 3, "in the function");
            PanickingGroup(key % 2, world.clone())
        }
    };
    let queue = Queue::builder().order(Fair::by_group(group)).build();
    _ = queue.add_many([0, 1]);
    for function in 1..=3 {
        world.armed.store(function, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add(2).is_ok())).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add_ref(&2).is_ok())).is_err());
        queue.check().unwrap();
        assert_eq!(queue.ready_len(), 2);
    }
    world.armed.store(0, Ordering::Relaxed);
    assert_eq!(queue.add(2).unwrap(), Added::New);
    let order = RefCell::new(Vec::new());
    while let Ok(lease) = queue.try_get() {
        order.borrow_mut().push(*lease);
        lease.done();
    }
    assert_eq!(order.into_inner(), [0, 1, 2]);
}

/// A key whose drop calls its queue.
#[derive(Clone)]
struct Calling(u32, Arc<Callee>);

#[derive(Default)]
struct Callee {
    queue: OnceLock<Queue<Calling, Fair<Calling, PanickingGroup>>>,
    calls: AtomicU32,
}

impl PartialEq for Calling {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Calling {}

impl std::hash::Hash for Calling {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(queue) = self.1.queue.get() {
            self.1.calls.fetch_add(1, Ordering::Relaxed);
            let _ = queue.ready_len();
        }
    }
}

/// If `Eq` of a group panics, the clone of the key is dropped outside the lock. Under the lock, the `Drop` of the clone would deadlock.
#[test]
fn the_clone_is_dropped_outside_the_lock_if_its_group_panics() {
    let (world, callee) = (Arc::new(World::default()), Arc::new(Callee::default()));
    let group = {
        let world = world.clone();
        move |_: &Calling| PanickingGroup(1, world.clone())
    };
    let queue = Queue::builder().order(Fair::by_group(group)).build();
    queue.add(Calling(1, callee.clone())).ok().unwrap();
    let key = Calling(2, callee.clone());
    callee.queue.set(queue.clone()).ok().unwrap();
    world.armed.store(1, Ordering::Relaxed);
    assert!(catch_unwind(AssertUnwindSafe(|| queue.add_ref(&key))).is_err());
    assert_eq!(callee.calls.load(Ordering::Relaxed), 1, "the clone was not dropped");
    world.armed.store(0, Ordering::Relaxed);
    queue.check().unwrap();
    assert_eq!(queue.add_ref(&key), Ok(Added::New));
    let dead = queue.stop_now();
    assert_eq!(dead.ready.iter().map(|key| key.0).collect::<Vec<_>>(), [1, 2]);
}

/// Deadlines that have passed stay in the heap until they are gathered, a few in each operation. If each operation of a drain examined all of them, a drain
/// would take quadratic time.
#[test]
fn an_operation_of_a_drain_costs_the_same_with_many_passed_deadlines() {
    // Each operation gathers 64 passed deadlines, so that many are left after the last operation, even of the few.
    const OPS: u32 = 100;
    let drain_some = |keys: u32| {
        let times = (0..3).map(|_| {
            let clock = ManualClock::new();
            let order = Fair::by_group(|key: &u32| key % 4);
            let queue = Queue::builder().order(order).timer(clock.timer()).build();
            for key in 0..keys {
                queue.add_after(key, Duration::from_nanos(1)).unwrap();
            }
            clock.advance(Duration::from_nanos(1));
            let _drain = Task::waiting(queue.drain(DrainOptions::serve_waiting(SECOND)));
            let began = Monotonic.now();
            for _ in 0..OPS {
                queue.try_get().unwrap().done();
            }
            Monotonic.now().since(began)
        });
        times.min().unwrap()
    };
    let (few, many) = (drain_some(80 * OPS), drain_some(800 * OPS));
    assert!(many < 3 * few + Duration::from_millis(20), "{many:?} instead of {few:?} for {OPS} keys");
}

/// If the first of many due keys cannot be handed out, each way to take a key finds the one that can.
#[test]
fn a_due_key_behind_many_keys_of_a_full_group_is_handed_out() {
    type Take = fn(&Queue<u32, Fair<u32, u32>, NoLimiter, ManualTimer>) -> Vec<u32>;
    let ways: [Take; 5] = [
        |queue| vec![queue.try_get().unwrap().detach()],
        |queue| queue.try_get_many(9).unwrap().into_iter().map(Lease::detach).collect(),
        |queue| vec![block_on(queue.get()).unwrap().detach()],
        |queue| block_on(queue.get_many(9)).into_iter().map(Lease::detach).collect(),
        |queue| vec![queue.blocking_get().unwrap().detach()],
    ];
    for take in ways {
        let clock = ManualClock::new();
        let order = Fair::by_group(|key: &u32| key % 2).max_leased(|_| 1);
        let queue = Queue::builder().order(order).timer(clock.timer()).build();
        queue.add(0).unwrap();
        let lease = queue.try_get().unwrap();
        for key in (2..2_000).step_by(2).chain([1]) {
            queue.add_after(key, SECOND).unwrap();
        }
        clock.advance(SECOND);
        assert_eq!(take(&queue), [1]);
        queue.check().unwrap();
        lease.done();
        assert_eq!(take(&queue), [2]);
    }
}

/// A group whose drop calls a function.
#[derive(Clone)]
struct DropCalls(u32, Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>);

impl PartialEq for DropCalls {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for DropCalls {}

impl std::hash::Hash for DropCalls {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Drop for DropCalls {
    fn drop(&mut self) {
        if let Some(call) = self.1.get() {
            call();
        }
    }
}

/// The names of former groups are freed with the memory of a burst, outside the lock: under it, a `Drop` that calls the queue would deadlock. If some
/// panic, the others are dropped, and the queue goes on.
#[test]
fn names_of_former_groups_are_dropped_outside_the_lock() {
    let call = Arc::new(OnceLock::<Box<dyn Fn() + Send + Sync>>::new());
    let group = {
        let call = call.clone();
        move |key: &u32| DropCalls(*key, call.clone())
    };
    let queue = Queue::builder().order(Fair::by_group(group)).build();
    let burst = |keys| {
        assert_eq!(queue.add_many(0..keys).new, keys as usize);
        while let Ok(lease) = queue.try_get() {
            lease.done();
        }
    };
    burst(5_000);
    let dropped = Arc::new(AtomicU32::new(0));
    let on_drop = {
        let (queue, dropped) = (queue.clone(), dropped.clone());
        move || {
            assert!(!queue.is_shutting_down());
            assert_ne!(dropped.fetch_add(1, Ordering::Relaxed) % 2_000, 1_999); // twice
        }
    };
    call.set(Box::new(on_drop)).ok().unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| burst(5))).is_err());
    assert!(dropped.load(Ordering::Relaxed) >= 5_000);
    burst(5);
    queue.check().unwrap();
}

/// An adder that was woken, and whose line is not looked at again before its group is gone and the memory of the groups is given back.
#[test]
fn a_line_of_a_group_that_is_gone_is_not_looked_at() {
    for polls in [true, false] {
        let order = Fair::by_group(|key: &Key| key.0).capacity(|group| if *group == 'z' { 0 } else { 2_000 });
        let queue = Queue::builder().order(order).build();
        assert_eq!(queue.add_many((0..2_000).map(|key| ('a', key))).new, 2_000);
        {
            let mut adding = pin!(queue.add_when_room(('a', 5_000)));
            assert!(poll_once(adding.as_mut()).is_pending());
            queue.try_get().unwrap().done(); // wakes the adder
            assert_eq!(queue.add(('a', 7)).unwrap(), Added::Merged); // an operation before the adder is polled
            queue.check().unwrap();
            assert!(!polls || poll_once(adding.as_mut()).is_ready());
        }
        queue.check().unwrap();
        drain(&queue);
        queue.add(('a', 1)).unwrap();
        queue.try_get().unwrap().done(); // gives the memory back
        queue.check().unwrap();
        let mut adding = pin!(queue.add_when_room(('z', 0)));
        assert!(poll_once(adding.as_mut()).is_pending());
        queue.add(('a', 1)).unwrap();
        queue.check().unwrap();
    }
}

/// If many keys of a suspended group are due, the waits for an idle and for an empty queue, and a shutdown, do not examine all of them in each operation.
#[test]
fn due_keys_of_a_suspended_group_are_examined_once() {
    for keys in [2_000, 40_000] {
        let clock = ManualClock::new();
        let order = Fair::by_group(|key: &Key| key.0).max_leased(|group| u32::from(*group != 's'));
        let queue = Queue::builder().order(order).timer(clock.timer()).build();
        for key in 0..keys {
            queue.add_after(('s', key), SECOND).unwrap();
        }
        queue.add(('a', 0)).unwrap();
        let _lease = queue.try_get().unwrap();
        let _idle = Task::waiting(async { queue.wait_idle().await });
        let _empty = Task::waiting(async { queue.wait_empty().await });
        clock.advance(SECOND);
        queue.add(('a', 1)).unwrap(); // reads the clock, and gathers the keys
        queue.cancel(&('a', 1));
        steps::take();
        for _ in 0..300 {
            queue.cancel(&('a', 0));
        }
        queue.shut_down();
        for _ in 0..300 {
            queue.cancel(&('a', 0));
        }
        assert!(steps::take() < 200);
    }
}
