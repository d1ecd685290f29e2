//! Tests of the writer whose objects expire: one test for each guarantee, and tests that compare it with a reference implementation (a list), on
//! random operation sequences and on the corpus of the fuzz target.

use std::cell::RefCell;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use drivers::cache::ttl::{BY_TAG, Object, nanos, run, store, tally};
use drivers::corpus::replay;
use flyball_informer_cache::{Schema, Store, TtlWriter, Version, WriteOutcome};
use flyball_sync::{Clock, ManualClock, Nanos, Timer};
use parking_lot::Mutex;
use testkit::random::cases;
use testkit::wakers::{Counting, poll_once, poll_with};

fn object(id: u8, tag: u8) -> Object {
    Object { id, serial: 0, tag }
}

fn shared<T: Send + Sync + Unpin + Debug>() {}

#[test]
fn types_can_be_sent_shared_and_shown() {
    shared::<TtlWriter<String, String>>();
}

#[test]
fn readers_find_an_expired_object_until_it_is_swept() {
    let (store, _sweeper, clock) = store();
    let readers = store.store();
    store.upsert(object(1, 2), Some(nanos(10)));
    store.upsert(object(2, 4), None);
    let mut changes = store.subscribe();
    while changes.try_next().is_some() {}
    clock.advance(nanos(9));
    assert_eq!(store.sweep(), 0, "an object was swept before its deadline");
    clock.advance(nanos(1));
    assert!(readers.get(&1).is_some() && changes.try_next().is_none());
    let view = readers.snapshot();
    assert_eq!(store.sweep(), 1);
    assert!(readers.get(&1).is_none() && readers.by_index(&BY_TAG, &2).unwrap().is_empty());
    assert_eq!(changes.try_next().map(|change| *change.key()), Some(1));
    assert_eq!((view.len(), readers.len()), (2, 1));
}

/// For example, an observer loads each expired object again, and the clock has jumped ahead while the process was suspended. Each write sweeps, so without
/// a limit, there would be as many nested calls of the observer as there are expired objects.
#[test]
fn writes_of_an_observer_do_not_nest_sweeps_without_end() {
    thread_local!(static DEPTH: RefCell<(usize, usize)> = const { RefCell::new((0, 0)) });
    let (store, _sweeper, clock) = store();
    (0..100).for_each(|id| _ = store.upsert(object(id, 2), Some(nanos(10))));
    clock.advance(nanos(1_000));
    let writer = store.clone();
    let observer = store.observe(move |change| {
        if change.new().is_none() {
            DEPTH.with_borrow_mut(|(depth, most)| (*depth, *most) = (*depth + 1, (*depth + 1).max(*most)));
            writer.upsert(object(*change.key(), 3), Some(nanos(10)));
            DEPTH.with_borrow_mut(|(depth, _)| *depth -= 1);
        }
    });
    assert!(store.sweep() > 0);
    assert_eq!(store.next_deadline().map(Nanos::get), Some(1_010), "not all expired objects were swept");
    assert_eq!((store.len(), store.by_index(&BY_TAG, &3).unwrap().len()), (100, 100));
    let (depth, most) = DEPTH.take();
    assert!(depth == 0 && most <= 2, "{most} nested calls of the observer");
    store.check().unwrap();
    drop(observer);
}

#[test]
fn a_sweep_ends_although_an_observer_stores_each_expired_object_again() {
    let (store, _sweeper, clock) = store();
    (0..10).for_each(|id| _ = store.upsert(object(id, 2), Some(nanos(1))));
    store.upsert(object(10, 2), None);
    let (writer, calls) = (store.clone(), Arc::new(Mutex::new(0)));
    let count = calls.clone();
    let observer = store.observe(move |change| {
        // Without a limit of the sweep, the test would not end.
        if change.new().is_none() && *count.lock() < 1_000 {
            *count.lock() += 1;
            writer.upsert(object(*change.key(), 3), Some(Duration::ZERO));
        }
    });
    clock.advance(nanos(1));
    assert!(store.sweep() <= 10);
    assert!(*calls.lock() < 100, "{} deletions", calls.lock());
    drop(observer);
}

#[test]
fn a_write_restarts_the_time_to_live() {
    let (store, _sweeper, clock) = store();
    let ttl = |span| Some(nanos(span));
    assert_eq!(store.upsert(object(1, 2), ttl(10)), WriteOutcome::Added);
    clock.advance(nanos(9));
    assert_eq!(store.upsert(object(1, 2), ttl(10)), WriteOutcome::Updated);
    clock.advance(nanos(9));
    assert_eq!(store.sweep(), 0);
    // The object is written again with a longer time to live, with a shorter one, and without one.
    for (next, deadline) in [(ttl(50), Some(68)), (ttl(1), Some(19)), (None, None)] {
        assert_eq!(store.upsert(object(1, 2), next), WriteOutcome::Updated);
        assert_eq!(store.next_deadline().map(Nanos::get), deadline);
    }
    clock.set(Nanos::MAX);
    assert_eq!((store.sweep(), store.len()), (0, 1));
}

#[test]
fn a_stale_write_does_not_restart_the_time_to_live() {
    let clock = ManualClock::new();
    let schema = Schema::new(|object: &(u8, u64)| object.0, |object| Version::new(object.1));
    let (store, _sweeper) = TtlWriter::new(Store::builder(schema).build().unwrap(), clock.timer());
    store.upsert((1, 7), Some(nanos(10)));
    for stale in [(1, 7), (1, 6)] {
        assert_eq!(store.upsert(stale, Some(nanos(99))), WriteOutcome::Stale { stored: Version::new(7) });
    }
    assert_eq!(store.delete(&1, Some((1, 6))), WriteOutcome::Stale { stored: Version::new(7) });
    assert_eq!(store.next_deadline(), Some(Nanos::new(10)));
}

/// The row of a deleted object is used for the next new object.
#[test]
fn a_deleted_object_leaves_no_deadline_to_another_one() {
    let (store, _sweeper, clock) = store();
    store.upsert(object(1, 1), Some(nanos(5)));
    assert_eq!(store.delete(&1, None), WriteOutcome::Deleted);
    store.upsert(object(2, 1), None);
    clock.advance(nanos(100));
    assert_eq!((store.sweep(), store.len(), store.next_deadline()), (0, 1, None));
    store.check().unwrap();
}

#[test]
fn expired_objects_do_not_accumulate() {
    let (store, _sweeper, clock) = store();
    for id in 0..200 {
        store.upsert(object(id, 1), Some(nanos(5)));
    }
    clock.advance(nanos(6));
    // Each write deletes two expired objects, even if it always writes the same key or deletes an absent key.
    for round in 1..=50 {
        store.upsert(object(200, 1), Some(nanos(5)));
        assert_eq!(store.len(), 200 - 2 * round + 1);
    }
    for round in 51..=100 {
        assert_eq!(store.delete(&201, None), WriteOutcome::Absent);
        assert_eq!(store.len(), 200 - 2 * round + 1);
    }
    // However long this continues, the store contains at most the objects of one round.
    for _ in 0..1000 {
        clock.advance(nanos(6));
        store.upsert(object(7, 1), Some(nanos(5)));
        store.upsert(object(8, 1), Some(nanos(5)));
        assert!(store.len() <= 2, "{}", store.len());
    }
    store.check().unwrap();
}

#[test]
fn a_clock_may_jump() {
    let (store, _sweeper, clock) = store();
    clock.set(Nanos::new(1_000));
    store.upsert(object(1, 1), Some(nanos(5)));
    store.upsert(object(2, 1), Some(Duration::MAX));
    clock.set(Nanos::ZERO);
    assert_eq!((store.sweep(), store.len()), (0, 2), "an object expired although the clock jumped back");
    store.upsert(object(3, 1), Some(nanos(5)));
    clock.set(Nanos::MAX);
    assert_eq!((store.sweep(), store.len()), (2, 1), "an object did not expire at the maximum time");
    store.upsert(object(4, 1), Some(nanos(1)));
    assert_eq!((store.sweep(), store.len()), (0, 2));
    store.check().unwrap();
}

/// The sweeper is polled only when it is woken.
#[test]
fn the_sweeper_deletes_each_object_at_its_deadline() {
    let (store, mut sweeper, clock) = store();
    let (wakes, waker) = Counting::waker();
    let mut poll = || poll_with(sweeper.as_mut(), &waker).is_pending();
    assert!(poll());
    store.upsert(object(1, 1), Some(nanos(50)));
    assert_eq!(wakes.wakes(), 1, "the first deadline did not wake the sweeper");
    assert!(poll());
    store.upsert(object(2, 1), Some(nanos(60)));
    assert_eq!(wakes.wakes(), 1, "a later deadline woke the sweeper");
    store.upsert(object(3, 1), Some(nanos(10)));
    assert_eq!(wakes.wakes(), 2, "an earlier deadline did not wake the sweeper");
    assert!(poll());
    for (deadline, left) in [(10, 2), (50, 1), (60, 0)] {
        let woken = wakes.wakes();
        clock.set(Nanos::new(deadline));
        assert!(wakes.wakes() == woken + 1 && poll());
        assert_eq!(store.len(), left);
    }
    assert_eq!(clock.next_alarm(), None);
}

/// Otherwise, a poll would grow with the number of the objects that have expired.
#[test]
fn a_poll_of_the_sweeper_deletes_a_bounded_number_of_objects() {
    let (store, mut sweeper, clock) = store();
    let (wakes, waker) = Counting::waker();
    (0..200).for_each(|id| _ = store.upsert(object(id, 1), Some(nanos(5))));
    clock.advance(nanos(5));
    for (polls, left) in [136, 72, 8, 0].into_iter().enumerate() {
        assert!(poll_with(sweeper.as_mut(), &waker).is_pending());
        assert_eq!(store.len(), left);
        assert_eq!(
            wakes.wakes(),
            (polls + 1).min(3),
            "the sweeper is polled again only if something is left"
        );
    }
}

#[test]
fn the_sweeper_ends_with_the_last_writer() {
    let (store, mut sweeper, _) = store();
    let (readers, other) = (store.store(), store.clone());
    let (wakes, waker) = Counting::waker();
    assert!(poll_with(sweeper.as_mut(), &waker).is_pending());
    let mut changes = readers.subscribe();
    drop(store);
    assert_eq!(wakes.wakes(), 0);
    drop(other);
    assert_eq!(wakes.wakes(), 1, "the end does not wake the sweeper");
    assert!(poll_with(sweeper.as_mut(), &waker).is_ready());
    assert!(flyball_sync::block_on(changes.next()).is_none(), "the sweeper keeps the store open");
}

#[test]
fn a_dropped_sweeper_leaves_no_alarm_and_no_waker() {
    let (store, mut sweeper, clock) = store();
    let (wakes, waker) = Counting::waker();
    store.upsert(object(1, 1), Some(nanos(5)));
    assert!(poll_with(sweeper.as_mut(), &waker).is_pending());
    assert!(clock.next_alarm().is_some());
    drop((sweeper, waker));
    assert_eq!((clock.next_alarm(), Arc::strong_count(&wakes)), (None, 1));
    clock.advance(nanos(5));
    store.upsert(object(2, 1), None);
    assert!(store.get(&1).is_none());
}

#[test]
fn a_panic_of_the_clock_leaves_the_store_unchanged() {
    struct Broken;
    impl Clock for Broken {
        fn now(&self) -> Nanos {
            panic!("a hostile clock panics")
        }
    }
    impl Timer for Broken {
        fn wake_at(&self, _: Nanos, _: &std::task::Waker) {}
    }
    let schema = Schema::new(|object: &u8| *object, |_| Version::ZERO);
    let (store, mut sweeper) = TtlWriter::new(Store::builder(schema).build().unwrap(), Broken);
    let upsert = std::panic::AssertUnwindSafe(|| store.upsert(1, Some(nanos(1))));
    assert!(std::panic::catch_unwind(upsert).is_err());
    let poll = std::panic::AssertUnwindSafe(|| poll_once(std::pin::Pin::new(&mut sweeper)));
    assert!(std::panic::catch_unwind(poll).is_err());
    assert_eq!((store.len(), store.next_deadline()), (0, None));
}

/// An object is written again after a sweep has read the clock, and before it takes its turn.
#[test]
fn a_sweep_does_not_delete_an_object_that_was_written_meanwhile() {
    type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;
    struct Hooked(ManualClock, Hook);
    impl Clock for Hooked {
        fn now(&self) -> Nanos {
            let now = self.0.now();
            let hook = self.1.lock().take();
            hook.into_iter().for_each(|hook| hook());
            now
        }
    }
    impl Timer for Hooked {
        fn wake_at(&self, _: Nanos, _: &std::task::Waker) {}
    }
    let (clock, hook) = (ManualClock::new(), Hook::default());
    let schema = Schema::new(|object: &(u8, u8)| object.0, |_| Version::ZERO);
    let writer = Store::builder(schema).build().unwrap();
    let (store, _sweeper) = TtlWriter::new(writer, Hooked(clock.clone(), hook.clone()));
    store.upsert((1, 1), Some(nanos(5)));
    clock.advance(nanos(5));
    *hook.lock() = Some(Box::new({
        let store = store.clone();
        move || _ = store.upsert((1, 2), Some(nanos(5)))
    }));
    assert_eq!(store.sweep(), 0);
    assert_eq!(store.get(&1).as_deref(), Some(&(1, 2)));
}

#[test]
fn random_operation_sequences_match_a_list_of_changes() {
    let tally = RefCell::new(tally());
    cases("ttl", CASES, 300, |bytes| run(bytes, &mut tally.borrow_mut()));
    let rare = tally.into_inner().below(FLOOR);
    assert!(rare.is_empty(), "rare: {rare:?}");
}

#[test]
fn the_corpus_matches_a_list_of_changes() {
    replay("ttl_ops", |bytes| run(bytes, &mut tally()));
}

const CASES: u64 = if cfg!(debug_assertions) { 500 } else { 20_000 };
const FLOOR: u64 = if cfg!(debug_assertions) { 10 } else { 400 };
