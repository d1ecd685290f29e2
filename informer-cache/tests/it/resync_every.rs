//! Tests of subscriptions with a periodic resync, on virtual time.
//!
//! Some of the tests correspond to tests of client-go, which are named below: `TestListenerResyncPeriods` and `…Delayed`, `TestResyncCheckPeriod`,
//! and `TestSharedInformerWatchDisruption`. In client-go, all listeners share one periodic check, whose period is the shortest period that was
//! requested before the informer started. Here, each subscription has its own alarm.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Waker;
use std::time::Duration;

use drivers::cache::fixture::{EXPIRED, SCHEMA, World, object};
use drivers::cache::server::server;
use flyball_informer_cache::{
    Change, ChangeKind, Informer, Schema, SharedWriter, Store, Subscription, Version,
};
use flyball_sync::{Clock, ManualClock, Nanos, Timer};
use testkit::wakers::{Counting, Panicking, poll_with};

type Objects = SharedWriter<u32, (u32, u64)>;
type Changes = Subscription<u32, (u32, u64)>;

fn store(keys: impl IntoIterator<Item = u32>) -> Objects {
    let schema = Schema::new(|object: &(u32, u64)| object.0, |object| Version::new(object.1));
    let store = Store::builder(schema).seed(1).build().unwrap().into_shared();
    for key in keys {
        store.upsert((key, 1));
    }
    store
}

const fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}

/// Receives all pending changes, and returns their number.
fn received(changes: &mut Changes) -> usize {
    std::iter::from_fn(|| changes.try_next()).count()
}

fn is_redelivered<K, V>(change: &Change<K, V>) -> bool {
    change.kind() == ChangeKind::Updated && change.old().is_some_and(|old| Arc::ptr_eq(old, change.object()))
}

/// `TestListenerResyncPeriods`: one subscription without a period, and two with periods of two and three seconds.
#[test]
fn each_has_its_period() {
    let clock = ManualClock::new();
    let store = store([1, 2]);
    let mut readers =
        [0, 2, 3].map(|period| store.subscription().resync_every(clock.timer(), secs(period)).subscribe());
    assert_eq!(readers.each_mut().map(received), [2, 2, 2], "not all existing objects were delivered");
    let (counting, waker) = Counting::waker();
    let mut observed = Vec::new();
    for second in 1..=6 {
        let before = counting.wakes();
        for reader in &mut readers {
            assert!(poll_with(pin!(reader.next()), &waker).is_pending());
        }
        clock.advance(secs(1));
        let woken = counting.wakes() - before;
        let received = readers.each_mut().map(received);
        assert_eq!(
            received.iter().filter(|received| **received > 0).count(),
            woken,
            "not exactly the subscribers with a resync were woken"
        );
        observed.push((second, received));
    }
    let expected = [[0, 0, 0], [0, 2, 0], [0, 0, 2], [0, 2, 0], [0, 0, 0], [0, 2, 2]];
    assert_eq!(observed, std::iter::zip(1.., expected).collect::<Vec<_>>());
}

/// `TestListenerResyncPeriodsDelayed`: if a subscriber takes changes late, it gets one resync for all missed periods, and the next one a period
/// later.
#[test]
fn periods_that_passed_are_not_made_up_for() {
    let clock = ManualClock::new();
    let store = store([1]);
    let mut changes = store.subscription().resync_every(clock.timer(), secs(2)).subscribe();
    clock.advance(secs(7));
    assert_eq!(received(&mut changes), 2, "not the initial object and one resync");
    clock.advance(secs(1));
    assert_eq!(received(&mut changes), 0, "the period did not start at the resync");
    clock.advance(secs(1));
    assert_eq!(received(&mut changes), 1);
}

/// `TestResyncCheckPeriod`: no subscription changes the period of a different one, whatever the order in which they begin.
#[test]
fn subscriptions_do_not_affect_periods_of_others() {
    let clock = ManualClock::new();
    let store = store([1]);
    let mut known = Vec::new();
    for (period, next) in [(10, 10), (60, 10), (2, 2), (1, 1)] {
        let mut changes = store.subscription().resync_every(clock.timer(), secs(period)).subscribe();
        assert_eq!(received(&mut changes), 1);
        assert!(poll_with(pin!(changes.next()), Waker::noop()).is_pending());
        known.push(changes);
        assert_eq!(clock.next_alarm(), Some(Nanos::ZERO + secs(next)));
    }
    clock.advance(secs(10));
    assert_eq!(known.iter_mut().map(received).collect::<Vec<_>>(), [1, 0, 1, 1]);
}

/// `TestSharedInformerWatchDisruption`: after a watch was interrupted, a subscription without a resync receives only the changed objects. A
/// subscription with a resync also receives all objects at the end of its period.
#[test]
fn a_relist_delivers_changes_and_moves_no_period() {
    let server = server();
    for key in 0..4 {
        server.put(object(key, 0));
    }
    let mut world = World::new(Informer::builder(SCHEMA, server.clone()));
    world.settle();
    let mut plain = world.informer.subscribe();
    let mut resyncing =
        world.informer.subscription().resync_every(world.clock.timer(), Duration::from_secs(100)).subscribe();
    let begun = world.now();
    assert_eq!(std::iter::from_fn(|| plain.try_next()).count(), 4);
    assert_eq!(std::iter::from_fn(|| resyncing.try_next()).count(), 4);
    for key in [1, 2] {
        let relists = world.informer.status().relists;
        server.break_watches(EXPIRED);
        server.put(object(key, 0));
        server.compact();
        world.advance(Duration::from_secs(49));
        assert!(world.informer.status().relists > relists);
        assert_eq!(
            std::iter::from_fn(|| plain.try_next()).map(|change| *change.key()).collect::<Vec<_>>(),
            [key]
        );
        let news = std::iter::from_fn(|| resyncing.try_next());
        assert_eq!(news.filter(|change| !is_redelivered(change)).count(), 1);
    }
    world.advance(Duration::from_secs(2));
    assert_eq!(world.now().since(begun), Duration::from_secs(100));
    assert!(plain.try_next().is_none());
    let again: Vec<_> = std::iter::from_fn(|| resyncing.try_next()).collect();
    assert!(again.len() == 4 && again.iter().all(is_redelivered), "{again:?}");
}

#[test]
fn changed_objects_come_first_and_count() {
    let clock = ManualClock::new();
    let store = store([1, 2, 3]);
    let mut changes = store.subscription().resync_every(clock.timer(), secs(5)).subscribe();
    assert_eq!(received(&mut changes), 3);
    store.upsert((1, 2));
    clock.advance(secs(5));
    assert!(changes.try_next().is_some_and(|change| !is_redelivered(&change)));
    assert!(changes.try_next().is_some_and(|change| is_redelivered(&change)));
    store.upsert((2, 2));
    store.upsert((3, 2));
    let rest: Vec<_> = std::iter::from_fn(|| changes.try_next()).collect();
    assert!(rest.iter().all(|change| !is_redelivered(change)) && rest.len() == 2, "{rest:?}");
}

#[test]
fn nothing_is_left_of_it_after_the_end() {
    let clock = ManualClock::new();
    for closes in [true, false] {
        let store = store([]);
        let mut changes = store.subscription().resync_every(clock.timer(), secs(5)).subscribe();
        let (counting, waker) = Counting::waker();
        assert!(poll_with(pin!(changes.next()), &waker).is_pending());
        assert!(clock.next_alarm().is_some());
        if closes {
            store.close();
            assert!(poll_with(pin!(changes.next()), &waker).is_ready());
        } else {
            drop(changes);
        }
        drop(waker);
        assert_eq!(clock.next_alarm(), None);
        assert_eq!(Arc::strong_count(&counting), 1, "the waker is still held");
    }
}

#[test]
fn waits_may_be_dropped_at_every_poll_and_wakers_may_panic() {
    let clock = ManualClock::new();
    let store = store([1]);
    let mut changes = store.subscription().resync_every(clock.timer(), secs(1)).subscribe();
    assert_eq!(received(&mut changes), 1);
    let hostile = Waker::from(Arc::new(Panicking));
    for round in 0..50 {
        drop(changes.next());
        if round % 2 == 0 {
            assert!(poll_with(pin!(changes.next()), &hostile).is_pending());
            // The panic of the waker propagates to the caller that advances the clock.
            let moved = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| clock.advance(secs(1))));
            assert!(moved.is_err());
        } else {
            assert!(poll_with(pin!(changes.next()), Waker::noop()).is_pending());
            clock.advance(secs(1));
        }
        assert_eq!(received(&mut changes), 1);
    }
}

/// A clock that advances by a second at each call.
struct AdvancingClock(AtomicU64);

impl Clock for AdvancingClock {
    fn now(&self) -> Nanos {
        Nanos::ZERO + secs(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

impl Timer for AdvancingClock {
    fn wake_at(&self, _: Nanos, waker: &Waker) {
        waker.wake_by_ref();
    }
}

#[test]
fn a_period_shorter_than_its_resync_returns() {
    let store = store([1, 2]);
    let clock = AdvancingClock(AtomicU64::new(0));
    let mut changes = store.subscription().filter(|_| false).resync_every(clock, secs(1)).subscribe();
    assert!(changes.try_next().is_none());
    let (counting, waker) = Counting::waker();
    assert!(poll_with(pin!(changes.next()), &waker).is_pending());
    assert_eq!(counting.wakes(), 1, "the task did not wake itself");
    // A period of zero disables the resync.
    let clock = AdvancingClock(AtomicU64::new(0));
    let mut changes = store.subscription().resync_every(clock, Duration::ZERO).subscribe();
    assert_eq!(received(&mut changes), 2);
}
