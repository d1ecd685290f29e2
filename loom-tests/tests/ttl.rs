//! Models of the store with expiry: a sweep concurrent with a write, two concurrent sweeps, and a list concurrent with other writes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flyball_informer_cache::{TtlEntry, TtlStore, WriteOutcome};
use flyball_sync::{Clock, Nanos};
use loom_tests::{Arc, Model, model, thread};

/// A clock whose time a test sets. Each reading returns the time `now`, and then adds `by` to it. `now` is std's atomic, not the model's, so that
/// reading adds no scheduling point; loom runs all threads of a model on one thread.
#[derive(Clone, Default)]
struct Ticking {
    now: Arc<AtomicU64>,
    by: u64,
}

impl Clock for Ticking {
    fn now(&self) -> Nanos {
        // Ordering: Relaxed; a clock publishes no other memory.
        Nanos::new(self.now.fetch_add(self.by, Ordering::Relaxed))
    }
}

/// A key and its value.
type Object = (u8, u8);
type Objects = TtlStore<u8, Object, Ticking>;

fn store(by: u64) -> (Objects, Ticking) {
    let clock = Ticking { by, ..Ticking::default() };
    let builder = TtlStore::builder(|object: &TtlEntry<Object>| object.0).clock(clock.clone());
    (builder.seed(1).reader_slots(0, 1).build().unwrap(), clock)
}

const TTL: Option<Duration> = Some(Duration::from_nanos(10));

#[test]
fn sweep_vs_upsert() {
    let claim = Model {
        name: "ttl::sweep_vs_upsert",
        threads: 2,
        floor: 275,
        catches: "a sweep that deletes an object inserted since it found the key expired",
    };
    model(claim, || {
        let (store, clock) = store(0);
        store.upsert_with_ttl((1, 1), TTL);
        clock.now.store(11, Ordering::Relaxed);
        let sweeper = thread::spawn({
            let store = store.clone();
            move || store.evict_expired().len()
        });
        store.upsert_with_ttl((1, 2), TTL);
        assert!(sweeper.join().unwrap() <= 1);
        assert_eq!(
            store.get(&1).as_deref(),
            Some(&(1, 2)),
            "the sweep of the old object deleted the new one"
        );
        store.check().unwrap();
        clock.now.store(22, Ordering::Relaxed);
        assert_eq!((store.evict_expired().len(), store.stored_len(), store.next_expiry()), (1, 0, None));
    });
}

#[test]
fn sweep_vs_upsert_of_no_time() {
    let claim = Model {
        name: "ttl::sweep_vs_upsert_of_no_time",
        threads: 2,
        floor: 16,
        catches: "a sweep that takes an unpublished object for a deleted one, which then never expires",
    };
    model(claim, || {
        let (store, _) = store(1);
        let sweeper = thread::spawn({
            let store = store.clone();
            move || store.evict_expired().len()
        });
        // The object expires immediately, because every reading of the clock advances it.
        store.upsert_with_ttl((1, 1), Some(Duration::ZERO));
        let swept = sweeper.join().unwrap();
        assert_eq!(
            (swept + store.evict_expired().len(), store.stored_len(), store.next_expiry()),
            (1, 0, None)
        );
    });
}

#[test]
fn two_sweeps() {
    let claim = Model {
        name: "ttl::two_sweeps",
        threads: 2,
        floor: 180,
        catches: "a sweep that reports the objects it found, not those it deleted",
    };
    model(claim, || {
        let (store, clock) = store(0);
        store.upsert_with_ttl((1, 1), TTL);
        clock.now.store(11, Ordering::Relaxed);
        let sweeper = thread::spawn({
            let store = store.clone();
            move || store.evict_expired().len()
        });
        let swept = store.evict_expired().len();
        assert_eq!(swept + sweeper.join().unwrap(), 1, "a deletion was not reported exactly once");
        assert_eq!((store.stored_len(), store.next_expiry()), (0, None));
        store.check().unwrap();
    });
}

#[test]
fn replace_vs_upsert_and_delete() {
    let claim = Model {
        name: "ttl::replace_vs_upsert_and_delete",
        threads: 2,
        floor: 1300,
        catches: "a list whose objects have older tickets than an object that it replaces, so that a deletion of that object deletes a listed one",
    };
    model(claim, || {
        let (store, _) = store(0);
        let lister = thread::spawn({
            let store = store.clone();
            move || store.replace([(1, 1)]).len()
        });
        let outcome = store.upsert_with_ttl((1, 2), None);
        let deleted = store.delete(&1).as_deref().copied();
        assert_eq!(lister.join().unwrap(), 1);
        assert!(deleted.is_some());
        // If the list neither came before the upsert nor was deleted, it came last.
        let last = outcome == WriteOutcome::Added && deleted == Some((1, 2));
        assert_eq!(store.get(&1).as_deref(), last.then_some(&(1, 1)), "{outcome:?}, {deleted:?} was deleted");
        store.check().unwrap();
    });
}
