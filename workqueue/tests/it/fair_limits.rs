//! Groups with a capacity, and suspended groups.

use flyball_sync::block_on;
use flyball_sync::block_on_timeout;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_sync::{ManualClock, ManualTimer};
use flyball_workqueue::{
    AddErrorKind, Added, DrainOptions, Fair, GetTimeoutError, NoLimiter, Queue, TryGetError,
};
use futures_util::FutureExt;
use testkit::random::cases;
use testkit::wakers::{Counting, poll_with};

use crate::support::{ns, times};
use crate::task::{Task, lists};

/// A key of a group.
type Key = (char, u32);
type FairQueue = Queue<Key, Fair<Key, char>>;
type TimedQueue = Queue<Key, Fair<Key, char>, NoLimiter, ManualTimer>;

type RetryQueue = Queue<Key, Fair<Key, char>, Exponential<Key>, ManualTimer>;

fn fair() -> Fair<Key, char> {
    Fair::by_group(|key: &Key| key.0)
}

fn timed(order: Fair<Key, char>) -> (TimedQueue, ManualClock) {
    let clock = ManualClock::new();
    (Queue::builder().order(order).timer(clock.timer()).build(), clock)
}

/// Returns a shared value, and a function that returns this value as the limit of every group, so that a test can change the limit.
fn changing(value: usize) -> (Arc<AtomicUsize>, impl Fn(&char) -> usize + Send + Sync) {
    let own = Arc::new(AtomicUsize::new(value));
    let asked = own.clone();
    (own, move |_: &char| asked.load(Ordering::Relaxed))
}

fn kind<T>(refused: Result<T, flyball_workqueue::AddError<Key>>) -> Option<AddErrorKind> {
    refused.err().map(|error| error.kind())
}

// ---- capacity --------------------------------------------------------------------------------------------------

/// The Ready, waiting and leased keys of a group count towards its capacity; keys of other groups do not. Only adds of absent keys are refused.
#[test]
fn a_group_holds_so_many_keys() {
    let (queue, _clock) = timed(fair().capacity(|_| 3));
    queue.add(('a', 1)).unwrap();
    let lease = queue.try_get().unwrap();
    queue.add(('a', 2)).unwrap();
    queue.add_after(('a', 3), ns(9)).unwrap();
    let refused = queue.add(('a', 4)).unwrap_err();
    assert_eq!((refused.kind(), refused.into_key()), (AddErrorKind::Full, ('a', 4)));
    assert_eq!(queue.add_ref(&('a', 4)), Err(AddErrorKind::Full));
    assert_eq!(kind(queue.add_after(('a', 4), ns(1))), Some(AddErrorKind::Full));
    assert_eq!(queue.add_many([('a', 4), ('b', 1), ('a', 2)]).refused.len(), 1);
    for (key, added) in [(1, Added::Dirty), (2, Added::Merged), (3, Added::Promoted)] {
        assert_eq!(queue.add(('a', key)).unwrap(), added);
    }
    lease.requeue_after(ns(5));
    assert_eq!(kind(queue.add(('a', 4))), Some(AddErrorKind::Full), "the requeued key does not count");
    assert!(queue.cancel(&('a', 1)));
    assert_eq!(queue.add(('a', 4)).unwrap(), Added::New);
    queue.check().unwrap();
}

#[test]
fn no_room_is_no_room_at_all() {
    let queue = Queue::builder().order(fair().capacity(|group| usize::from(*group != 'a'))).build();
    assert_eq!(kind(queue.add(('a', 1))), Some(AddErrorKind::Full));
    assert!(block_on_timeout(queue.add_when_room(('a', 1)), ns(1)).is_none());
    queue.add(('b', 1)).unwrap();
    assert_eq!(queue.stats_by_group(9).groups.len(), 1, "a group without keys was kept");
    queue.check().unwrap();
}

/// The capacity of the group and the capacity of the queue both apply.
#[test]
fn a_full_queue_refuses_a_group_with_room() {
    let queue = Queue::builder().order(fair().capacity(|_| 2)).capacity(3).build();
    let added = queue.add_many([('a', 1), ('a', 2), ('a', 3), ('b', 1), ('b', 2)]);
    let refused: Vec<_> = added.refused.into_iter().map(|error| error.into_key()).collect();
    assert_eq!(refused, [('a', 3), ('b', 2)]);
    assert!(queue.cancel(&('a', 1)));
    assert_eq!(queue.add(('b', 2)).unwrap(), Added::New);
    assert_eq!(kind(queue.add(('a', 3))), Some(AddErrorKind::Full));
    let stats = queue.stats_by_group(1);
    assert_eq!((stats.groups[0].group, stats.groups[0].capacity_left), ('b', Some(0)));
    assert_eq!((stats.others.group, stats.others.capacity_left), (1, Some(1)));
}

/// An adder that waits for room in a full group does not delay other adders, and is not woken for room in a different group.
#[test]
fn an_adder_of_a_full_group_delays_no_other() {
    let queue = Queue::builder().order(fair().capacity(|_| 1)).capacity(2).build();
    _ = queue.add_many([('a', 1), ('b', 1)]);
    let mut first = Task::waiting(queue.add_when_room(('a', 2)));
    let second = Task::waiting(queue.add_when_room(('a', 3)));
    let mut other = Task::waiting(queue.add_when_room(('c', 1)));
    queue.cancel(&('b', 1));
    assert_eq!((first.wakes(), second.wakes(), other.wakes()), (0, 0, 1));
    assert_eq!(other.finish().unwrap(), Added::New);
    queue.cancel(&('c', 1));
    assert_eq!((first.wakes(), second.wakes()), (0, 0), "an adder was woken although its group is full");
    queue.cancel(&('a', 1));
    assert_eq!((first.wakes(), second.wakes()), (1, 0), "one free slot did not wake exactly one adder");
    assert_eq!(first.finish().unwrap(), Added::New);
    drop(second);
    queue.check().unwrap();
}

/// Each operation that removes a key of a group wakes an adder of that group.
#[test]
fn every_way_out_makes_room_in_the_group() {
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(1)..=ns(1));
    let builder = Queue::builder().order(fair().capacity(|_| 1)).timer(clock.timer()).limiter(limiter);
    let queue = builder.give_up_after(times(1), |_, _| {}).build();
    let leave: [fn(&RetryQueue); 4] = [
        |queue| queue.try_get().unwrap().done(),
        |queue| queue.try_get().unwrap().retry(),
        |queue| assert!(queue.cancel(&('a', 1))),
        |queue| drop(queue.try_get().unwrap()),
    ];
    for leave in leave {
        queue.add(('a', 1)).unwrap();
        let mut adder = Task::waiting(queue.add_when_room(('a', 2)));
        leave(&queue);
        assert!(adder.was_woken());
        assert_eq!(adder.finish().unwrap(), Added::New);
        assert!(queue.cancel(&('a', 2)));
    }
    queue.add(('a', 1)).unwrap();
    let mut adder = Task::waiting(queue.add_when_room(('a', 2)));
    assert_eq!(queue.stop_now().ready, [('a', 1)]);
    assert_eq!(adder.finish().unwrap_err().kind(), AddErrorKind::ShutDown);
}

/// A woken adder that is dropped passes its wake-up on. A woken adder that finds no room waits again, in the line of its group.
#[test]
fn a_wake_up_for_room_in_a_group_is_not_lost() {
    let queue = Queue::builder().order(fair().capacity(|_| 1)).build();
    queue.add(('a', 1)).unwrap();
    let first = Task::waiting(queue.add_when_room(('a', 2)));
    let mut second = Task::waiting(queue.add_when_room(('a', 3)));
    queue.cancel(&('a', 1));
    assert!(first.was_woken() && !second.was_woken());
    drop(first);
    assert!(second.was_woken());
    queue.add(('a', 4)).unwrap();
    assert!(second.poll().is_pending());
    assert!(!second.was_woken());
    queue.cancel(&('a', 4));
    assert!(second.was_woken());
    assert_eq!(second.finish().unwrap(), Added::New);
    queue.check().unwrap();
}

/// Adders whose group becomes full while they wait for room in the queue do not block the adders of other groups.
#[test]
fn a_full_group_does_not_block_adders_that_wait_for_the_queue() {
    let queue = Queue::builder().order(fair().capacity(|_| 1)).capacity(1).build();
    queue.add(('x', 1)).unwrap();
    let mut crowd: Vec<_> = (0..20).map(|n| Task::waiting(queue.add_when_room(('a', n)))).collect();
    let mut other = Task::waiting(queue.add_when_room(('b', 1)));
    for _ in 0..2 {
        queue.try_get().unwrap().done();
        // Polls the woken adders until none is woken.
        loop {
            let mut looked = false;
            crowd.retain_mut(|task| {
                looked |= task.was_woken();
                !(task.was_woken() && task.is_ready())
            });
            if !looked {
                break;
            }
        }
    }
    assert!(other.was_woken() || crowd.len() == 18, "{} are left", crowd.len());
    let wakes: usize = crowd.iter().map(Task::wakes).sum();
    assert!(wakes <= 2 * crowd.len(), "{wakes} wake-ups");
    while !other.was_woken() {
        queue.try_get().unwrap().done();
        crowd.retain_mut(|task| !(task.was_woken() && task.is_ready()));
    }
    assert_eq!(other.finish().unwrap(), Added::New);
}

/// Random operation sequences: after every step, one adder is woken for each free slot that a waiting adder could use.
#[test]
fn one_adder_is_woken_for_each_free_slot() {
    let (waited, let_in) = (AtomicUsize::new(0), AtomicUsize::new(0));
    cases("one_adder_is_woken_for_each_free_slot", 1_500, 120, |bytes| {
        let room = |group: &char| if *group == 'a' { 1 } else { 2 };
        let queue = Queue::builder().order(fair().capacity(room)).capacity(3).build();
        let mut adders: Vec<(char, Task<'_, _>)> = Vec::new();
        let mut leases = Vec::new();
        for (n, byte) in (0..).zip(bytes) {
            let group = char::from(b'a' + byte / 16 % 4);
            let at = usize::from(byte / 16);
            match byte % 16 {
                0..6 => {
                    let mut task = Task::new(queue.add_when_room((group, n)));
                    // The future may yield once.
                    if task.poll().is_pending() && !(task.was_woken() && task.is_ready()) {
                        adders.push((group, task));
                    }
                }
                6..8 => drop(queue.add((group, n))),
                8..10 => leases.extend(queue.try_get()),
                10..12 if !leases.is_empty() => {
                    let lease: flyball_workqueue::Lease<Key> = leases.remove(at % leases.len());
                    lease.done();
                }
                12 if !adders.is_empty() => drop(adders.remove(at % adders.len())),
                _ if !adders.is_empty() => {
                    let index = at % adders.len();
                    if adders[index].1.is_ready() {
                        adders.remove(index);
                        let_in.fetch_add(1, Ordering::Relaxed);
                    }
                }
                _ => {}
            }
            queue.check().unwrap();
            let all = queue.stats_by_group(9).groups;
            let total: usize = all.iter().map(|group| group.total).sum();
            let mut could = BTreeMap::<char, usize>::new();
            for (group, _) in &adders {
                *could.entry(*group).or_default() += 1;
            }
            let could: usize = could
                .into_iter()
                .map(|(group, waiting)| {
                    let keys = all.iter().find(|own| own.group == group).map_or(0, |own| own.total);
                    waiting.min(room(&group).saturating_sub(keys))
                })
                .sum();
            let on_their_way = adders.iter().filter(|(_, task)| task.was_woken()).count();
            assert!(on_their_way >= could.min(3 - total), "{could} of {total}: {on_their_way}");
            waited.fetch_add(adders.len(), Ordering::Relaxed);
        }
        // Polls the woken adders until none is woken. The adders must not wake one another for ever.
        let mut rounds = 0;
        while adders.iter().any(|(_, task)| task.was_woken()) {
            adders.retain_mut(|(_, task)| !(task.was_woken() && task.is_ready()));
            rounds += 1;
            assert!(rounds < 1_000, "the adders wake one another for ever");
        }
        drop(leases);
    });
    assert!(waited.into_inner() > 10_000 && let_in.into_inner() > 1_000);
}

#[test]
fn threads_wait_for_room_in_their_group() {
    let queue = Queue::builder().order(fair().capacity(|_| 1)).capacity(3).build();
    _ = queue.add_many([('a', 0), ('b', 0), ('c', 0)]);
    thread::scope(|scope| {
        for group in ['a', 'b', 'c', 'd'] {
            for n in 1..4 {
                let queue = &queue;
                scope.spawn(move || block_on(queue.add_when_room((group, n))).unwrap());
            }
        }
        for _ in 0..15 {
            let Ok(lease) = queue.blocking_get_timeout(Duration::from_secs(20)) else {
                drop(queue.stop_now());
                panic!("a wake-up was lost");
            };
            lease.done();
        }
    });
    assert_eq!(queue.stats().ready, 0);
    queue.check().unwrap();
}

/// An adder whose group had a capacity of 0 completes once the group has room.
#[test]
fn a_raised_limit_wakes_waiting_adders() {
    for keys in [0, 1] {
        let (room, capacity) = changing(keys);
        let queue = Queue::builder().order(fair().capacity(capacity)).build();
        let _ = queue.add(('a', 0));
        let mut task = Task::waiting(queue.add_when_room(('a', 1)));
        thread::scope(|scope| {
            let blocked = scope.spawn(|| block_on(queue.add_when_room(('a', 2))).unwrap());
            room.store(9, Ordering::Relaxed);
            queue.refresh_groups();
            assert!(task.was_woken());
            assert_eq!(task.finish().unwrap(), Added::New);
            assert_eq!(blocked.join().unwrap(), Added::New);
        });
        queue.check().unwrap();
    }
}

// ---- suspended groups ------------------------------------------------------------------------------------------

fn suspended(group: char) -> FairQueue {
    Queue::builder().order(fair().max_leased(move |own| if *own == group { 0 } else { u32::MAX })).build()
}

#[test]
fn nothing_of_a_suspended_group_is_handed_out() {
    let queue = suspended('a');
    _ = queue.add_many([('a', 1), ('b', 1), ('a', 2)]);
    let leases = queue.try_get_many(9).unwrap();
    assert_eq!(leases.iter().map(|lease| **lease).collect::<Vec<_>>(), [('b', 1)]);
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
    assert_eq!(
        (queue.ready_len(), queue.has_ready()),
        (2, false),
        "the suspended keys are not Ready, or count as available"
    );
    let stats = queue.stats_by_group(9);
    assert_eq!((stats.groups[0].group, stats.groups[0].suspended), ('a', 2));
    assert_eq!(stats.groups[1].suspended, 0);
    let order: Vec<_> = queue.keys().into_iter().map(|info| info.key).collect();
    assert_eq!(order, [('a', 1), ('a', 2), ('b', 1)]);
    queue.check().unwrap();
}

#[test]
fn no_weight_suspends_too() {
    let queue = Queue::builder().order(fair().weight(|group| u32::from(*group != 'a'))).build();
    _ = queue.add_many([('a', 1), ('b', 1)]);
    let lease = queue.try_get().unwrap();
    assert_eq!(*lease, ('b', 1));
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Empty);
}

#[test]
fn a_drain_leaves_the_keys_of_a_suspended_group_over() {
    let queue = suspended('a');
    _ = queue.add_many([('a', 1), ('b', 1)]);
    let lease = queue.try_get().unwrap();
    let mut getter = Task::waiting(queue.get());
    let mut drain = Task::waiting(queue.drain(DrainOptions::unlimited()));
    assert!(getter.finish().is_none(), "the getter of a closed queue returned a key");
    lease.done();
    assert!(drain.was_woken());
    assert_eq!(lists(drain.finish()), (vec![('a', 1)], vec![], vec![]));
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    assert_eq!(queue.blocking_get_timeout(ns(1)).unwrap_err(), GetTimeoutError::Closed);
    queue.refresh_groups();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
}

/// A queue that was reported as closed stays closed, even if the limits of a suspended group with keys are raised afterwards.
#[test]
fn a_closed_queue_resumes_no_group() {
    let (leases, max_leased) = changing(0);
    let queue = Queue::builder().order(fair().max_leased(move |group| max_leased(group) as u32)).build();
    queue.add(('a', 1)).unwrap();
    assert_eq!(queue.blocking_drain(DrainOptions::unlimited()).ready, [('a', 1)]);
    leases.store(1, Ordering::Relaxed);
    queue.refresh_groups();
    assert_eq!(queue.try_get().unwrap_err(), TryGetError::Closed);
    assert_eq!(queue.stop_now().ready, [('a', 1)]);
    queue.check().unwrap();
}

/// A drain also serves a group that is resumed during the drain. When the last group with Ready keys is suspended, the drain completes.
#[test]
fn a_drain_goes_by_what_is_suspended_now() {
    let (leases, max_leased) = changing(0);
    let order = fair().max_leased(move |group| if *group == 'a' { max_leased(group) as u32 } else { 1 });
    let queue = Queue::builder().order(order).build();
    _ = queue.add_many([('a', 1), ('b', 1)]);
    let lease = queue.try_get().unwrap();
    queue.add(('b', 1)).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::unlimited()));
    leases.store(1, Ordering::Relaxed);
    queue.refresh_groups();
    lease.done();
    for key in [('a', 1), ('b', 1)] {
        assert!(!drain.was_woken());
        let lease = queue.try_get().unwrap();
        assert_eq!(*lease, key);
        lease.done();
    }
    assert!(drain.finish().is_empty());
    queue.check().unwrap();

    let (leases, max_leased) = changing(1);
    let queue = Queue::builder().order(fair().max_leased(move |group| max_leased(group) as u32)).build();
    queue.add(('a', 1)).unwrap();
    let mut drain = Task::waiting(queue.drain(DrainOptions::unlimited()));
    leases.store(0, Ordering::Relaxed);
    queue.refresh_groups();
    assert!(drain.was_woken());
    assert_eq!(drain.finish().ready, [('a', 1)]);
}

/// A queue without leases is idle if all its Ready keys belong to suspended groups. This also holds for a waiting key of such a group whose deadline
/// has passed, even if no operation has processed the deadline yet.
#[test]
fn a_queue_of_suspended_keys_is_idle() {
    let (queue, clock) = timed(fair().max_leased(|_| 0));
    queue.add(('a', 1)).unwrap();
    queue.add_after(('a', 2), ns(5)).unwrap();
    assert_eq!(queue.wait_idle().now_or_never(), Some(()));
    clock.advance(ns(5));
    assert_eq!(queue.wait_idle().now_or_never(), Some(()));
    assert!(block_on_timeout(queue.wait_idle(), ns(1)).is_some());
    assert_eq!(queue.wait_empty().now_or_never(), None);
    queue.check().unwrap();
}

#[test]
fn suspending_the_last_group_makes_the_queue_idle() {
    let (leases, max_leased) = changing(1);
    let queue = Queue::builder().order(fair().max_leased(move |group| max_leased(group) as u32)).build();
    queue.add(('a', 1)).unwrap();
    let mut idle = Task::waiting(queue.wait_idle());
    leases.store(0, Ordering::Relaxed);
    queue.refresh_groups();
    assert!(idle.was_woken() && idle.is_ready());
}

/// A group is resumed by `refresh_groups`, or by an add of one of its keys: new, merged or refused.
#[test]
fn a_group_resumes_with_the_next_add() {
    let resume: [fn(&FairQueue); 5] = [
        |queue| queue.refresh_groups(),
        |queue| drop(queue.add(('a', 2))),
        |queue| drop(queue.add(('a', 1))),
        |queue| assert_eq!(queue.add_ref(&('a', 1)), Ok(Added::Merged)),
        |queue| assert_eq!(queue.add_many([('a', 2), ('a', 3)]).refused.len(), 1),
    ];
    for resume in resume {
        let (leases, max_leased) = changing(0);
        let order = fair().max_leased(move |group| max_leased(group) as u32).capacity(|_| 2);
        let queue = Queue::builder().order(order).build();
        queue.add(('a', 1)).unwrap();
        let mut getter = Task::waiting(queue.get());
        leases.store(1, Ordering::Relaxed);
        resume(&queue);
        assert!(getter.was_woken());
        assert_eq!(*getter.finish().unwrap(), ('a', 1));
        queue.check().unwrap();
    }
}

/// An add reads the limits of a group, then `refresh_groups` changes these limits, and only then is the add applied. The add must not restore the old
/// limits.
#[test]
fn an_add_brings_nothing_older_than_the_last_refresh() {
    for known in [true, false] {
        let leases = Arc::new(AtomicU32::new(0));
        let called = Arc::new(OnceLock::<FairQueue>::new());
        let armed = Arc::new(AtomicU32::new(0));
        let order = {
            let (leases, called, armed) = (leases.clone(), called.clone(), armed.clone());
            fair().max_leased(move |_| {
                let old = leases.load(Ordering::Relaxed);
                if let Some(queue) = called.get().filter(|_| armed.swap(0, Ordering::Relaxed) == 1) {
                    leases.store(1, Ordering::Relaxed);
                    queue.refresh_groups();
                }
                old
            })
        };
        let queue = Queue::builder().order(order).build();
        called.set(queue.clone()).ok().unwrap();
        if known {
            queue.add(('a', 1)).unwrap();
        }
        armed.store(1, Ordering::Relaxed);
        queue.add(('a', 1)).unwrap();
        assert_eq!(*queue.try_get().unwrap(), ('a', 1), "known: {known}");
        queue.check().unwrap();
    }
}

// ---- hostile functions -----------------------------------------------------------------------------------------

/// No lock is held while the functions that were passed to `Fair` run. If one of them panics, nothing is added and nothing changes.
#[test]
fn functions_of_a_group_may_panic_and_call_back() {
    let (armed, called) = (Arc::new(AtomicUsize::new(0)), Arc::new(OnceLock::<FairQueue>::new()));
    let function = |which: usize| {
        let (armed, called) = (armed.clone(), called.clone());
        move |_: &char| {
            let _ = called.get().map(Queue::ready_len);
            assert!(armed.load(Ordering::Relaxed) != which, "a hostile function panics");
            2
        }
    };
    let (weight, leases, keys) = (function(1), function(2), function(3));
    let order = fair()
        .weight(move |group| weight(group))
        .max_leased(move |group| leases(group))
        .capacity(move |group| keys(group) as usize);
    let queue = Queue::builder().order(order).build();
    called.set(queue.clone()).ok().unwrap();
    _ = queue.add_many([('a', 1), ('a', 2), ('b', 1)]);
    let mut first = Task::waiting(queue.add_when_room(('a', 3)));
    let mut second = Task::waiting(queue.add_when_room(('a', 4)));
    for which in 1..=3 {
        armed.store(which, Ordering::Relaxed);
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add(('b', 9)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add_ref(&('b', 9)))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| queue.add_many([('b', 9)]))).is_err());
        assert!(catch_unwind(AssertUnwindSafe(|| queue.refresh_groups())).is_err());
        queue.check().unwrap();
    }
    assert_eq!(queue.stats().ready, 3);
    queue.cancel(&('a', 1));
    assert!(first.was_woken() && !second.was_woken());
    assert!(catch_unwind(AssertUnwindSafe(|| first.poll())).is_err());
    drop(first);
    assert!(second.was_woken(), "the wake-up was not passed on");
    armed.store(0, Ordering::Relaxed);
    assert_eq!(second.finish().unwrap(), Added::New);
    queue.check().unwrap();
}

/// If a function that was passed to `Fair` panics in a woken thread, the thread passes its wake-up on. In most rounds, both threads sleep before the
/// key is cancelled.
#[test]
fn a_thread_whose_group_panics_passes_its_wake_up_on() {
    // Few rounds, because a panic takes long if it prints a backtrace.
    for _ in 0..20 {
        let calls = Arc::new(AtomicUsize::new(0));
        let counted = calls.clone();
        let keys = move |_: &char| {
            let panics =
                counted.load(Ordering::Relaxed) >= 3 && thread::current().name() == Some("panicking");
            assert!(!panics, "a hostile function panics");
            counted.fetch_add(1, Ordering::Relaxed);
            1
        };
        let queue = Queue::builder().order(fair().capacity(keys)).build();
        queue.add(('a', 1)).unwrap();
        thread::scope(|scope| {
            let blocked = thread::Builder::new().name("panicking".into());
            let blocked = blocked.spawn_scoped(scope, || block_on(queue.add_when_room(('a', 2)))).unwrap();
            let other = scope.spawn(|| block_on(queue.add_when_room(('a', 3))));
            while calls.load(Ordering::Relaxed) < 3 {
                thread::yield_now();
            }
            (0..50).for_each(|_| thread::yield_now());
            queue.cancel(&('a', 1));
            while !(blocked.is_finished() && other.is_finished()) {
                // Removes the key of the adder that has completed first, which makes room for the other adder.
                _ = queue.cancel(&('a', 2)) || queue.cancel(&('a', 3));
                thread::yield_now();
            }
            let _ = blocked.join();
            assert_eq!(other.join().unwrap().unwrap(), Added::New);
        });
        queue.check().unwrap();
    }
}

/// The check for room updates the limits of the adder's group. Waiters that can continue under the new limits are woken, even if the adder itself
/// yields.
#[test]
fn an_adder_that_yields_wakes_adders_with_room() {
    let limit = Arc::new(AtomicU32::new(0));
    let asked = limit.clone();
    let order = Fair::by_group(|key: &(char, u32)| key.0)
        .max_leased(move |group| if *group == 'a' { asked.load(Ordering::Relaxed) } else { u32::MAX });
    let queue = Queue::builder().order(order).capacity(1_000).build();
    queue.add(('a', 1)).unwrap();
    for key in 0..127 {
        queue.add(('b', key)).unwrap();
        Task::new(queue.get()).finish().unwrap().done();
    }
    let getter = Task::waiting(queue.get());
    limit.store(1, Ordering::Relaxed);
    let mut adding = Task::new(queue.add_when_room(('a', 2)));
    assert!(adding.poll().is_pending(), "the future did not yield");
    drop(adding);
    assert!(getter.was_woken());
}

/// If two refreshes run concurrently, the limits of the one that started later apply, whichever ends last.
#[test]
fn the_later_of_two_refreshes_holds() {
    let leases = Arc::new(AtomicU32::new(u32::MAX));
    let queue: Arc<OnceLock<FairQueue>> = Arc::default();
    let inner = Arc::new(AtomicUsize::new(usize::MAX));
    let asked = {
        let (leases, queue, inner) = (leases.clone(), queue.clone(), inner.clone());
        move |_: &char| {
            let answer = leases.load(Ordering::Relaxed);
            // In the middle of the first refresh, the group is resumed, and a second refresh runs from start to end.
            if inner.fetch_sub(1, Ordering::Relaxed) == 1 {
                leases.store(1, Ordering::Relaxed);
                queue.get().expect("it is set").refresh_groups();
            }
            answer
        }
    };
    let order = Fair::by_group(|key: &Key| key.0).max_leased(asked);
    queue.set(Queue::builder().order(order).build()).ok().unwrap();
    let queue = queue.get().unwrap();
    queue.add(('a', 1)).unwrap();
    leases.store(0, Ordering::Relaxed);
    inner.store(1, Ordering::Relaxed);
    queue.refresh_groups();
    assert_eq!(leases.load(Ordering::Relaxed), 1, "the second refresh did not run");
    assert!(queue.try_get().is_ok(), "the group is still suspended");
}

/// A delay of a key whose group is suspended ends: no getter is woken, because there is no key for it.
#[test]
fn a_delay_of_a_suspended_group_wakes_no_getter() {
    let clock = ManualClock::new();
    let order = Fair::by_group(|key: &u32| key % 2).max_leased(|group| *group);
    let queue = Queue::builder().order(order).timer(clock.timer()).build();
    for key in (0..200).step_by(2) {
        queue.add_after(key, Duration::from_nanos(u64::from(key) + 1)).unwrap();
    }
    queue.add_after(1, Duration::from_nanos(150)).unwrap();
    let (wakes, waker) = Counting::waker();
    let mut get = Box::pin(queue.get());
    assert!(poll_with(get.as_mut(), &waker).is_pending());
    clock.advance(Duration::from_nanos(100));
    assert_eq!(wakes.wakes(), 0);
    clock.advance(Duration::from_nanos(100));
    assert_eq!(wakes.wakes(), 1);
    assert!(poll_with(get.as_mut(), &waker).is_ready());
}
