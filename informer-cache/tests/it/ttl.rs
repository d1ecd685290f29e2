//! Tests of the TTL store: one test for each guarantee, and tests that compare the store with a reference implementation (a list), on random
//! operation sequences and on the corpus of the fuzz target.

use std::cell::RefCell;
use std::fmt::Debug;
use std::hash::{Hash, Hasher};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use drivers::cache::ttl::{BY_TAG, Object, nanos, run, store, tally};
use drivers::corpus::replay;
use flyball_informer_cache::{Change, Index, TtlEntry, TtlSnapshot, TtlStore, WriteOutcome};
use flyball_sync::{Clock, ManualClock, Nanos};
use parking_lot::Mutex;
use testkit::random::cases;

fn object(id: u8, tag: u8) -> Object {
    Object { id, serial: 0, tag }
}

fn keys(changes: &[Change<u8, TtlEntry<Object>>]) -> Vec<u8> {
    changes.iter().map(|change| *change.key()).collect()
}

fn shared<T: Send + Sync + Unpin + Debug>() {}

#[test]
fn types_can_be_sent_shared_and_shown() {
    shared::<TtlStore<String, String>>();
    shared::<TtlSnapshot<String, String>>();
    shared::<TtlEntry<String>>();
}

#[test]
fn no_read_shows_what_has_expired() {
    let (store, clock) = store();
    store.upsert(object(1, 2));
    store.upsert(object(2, 7));
    store.upsert(object(3, 0));
    clock.advance(nanos(36));
    let view = store.snapshot();
    assert_eq!(store.stored_len(), 3, "a read evicted an object");
    assert_eq!((store.get(&1), view.get(&1), view.entry(&2).is_some()), (None, None, false));
    assert!(!view.contains_key(&2) && view.contains_key(&3));
    assert_eq!((store.len(), view.len(), view.iter().count(), view.keys().count()), (1, 1, 1, 1));
    assert!(!store.is_empty());
    assert!(store.by_index(&BY_TAG, &2).unwrap().is_empty());
    assert_eq!(view.by_index(&BY_TAG, &2).unwrap().count(), 0);
    assert_eq!(view.index_values(&BY_TAG).unwrap().collect::<Vec<_>>(), [(&0, 1)]);
    assert_eq!(view.index_errors().count(), 0);
    assert_eq!(store.delete(&1), None);
    let mut initial = store.subscribe();
    assert_eq!(initial.try_next().map(|change| *change.key()), Some(3));
    assert!(initial.try_next().is_none());
    assert_eq!(store.stored_len(), 1, "a new subscription did not evict the expired objects");
}

#[test]
fn ranges_and_queries_pass_over_what_has_expired() {
    static BY_AGE: Index<TtlEntry<Object>, u8> =
        Index::new("age", |object: &TtlEntry<Object>| object.tag).ordered();
    let (store, clock) = store();
    for (id, tag) in [(1, 4), (2, 2), (3, 0), (4, 1), (5, 3)] {
        store.upsert(object(id, tag));
    }
    assert!(store.snapshot().range(&BY_AGE, ..).is_err());
    store.add_index(&BY_AGE).unwrap();
    assert!(store.add_index(&BY_AGE).is_err());
    let tags = |range: std::ops::RangeFrom<u8>| {
        let view = store.snapshot();
        view.range(&BY_AGE, range).unwrap().map(|(tag, object)| (*tag, object.id)).collect::<Vec<_>>()
    };
    let even = || {
        let view = store.snapshot();
        let found = view.query(|query| query.by_index(&BY_TAG, &0)).unwrap();
        let mut ids: Vec<_> = found.map(|object| object.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(tags(1..), [(1, 4), (2, 2), (3, 5), (4, 1)]);
    assert_eq!(even(), [1, 2, 3]);
    clock.advance(nanos(11));
    assert_eq!((tags(0..), even(), store.stored_len()), (vec![(0, 3), (3, 5), (4, 1)], vec![1, 3], 5));
    store.remove_index(&BY_AGE).unwrap();
    assert!(store.snapshot().range(&BY_AGE, ..).is_err());
}

#[test]
fn a_snapshot_keeps_its_instant() {
    let (store, clock) = store();
    store.upsert(object(1, 1));
    let view = store.snapshot();
    clock.advance(nanos(100));
    assert_eq!(keys(&store.evict_expired()), [1]);
    assert_eq!((view.taken_at(), view.len()), (Nanos::ZERO, 1));
    assert_eq!(view.entry(&1).map(|timed| timed.expires_at()), Some(Some(Nanos::new(5))));
    assert_eq!(view.clone().by_index(&BY_TAG, &1).unwrap().count(), 1);
}

#[test]
fn a_write_restarts_the_ttl() {
    let (store, clock) = store();
    store.upsert(object(1, 2));
    clock.advance(nanos(10));
    assert_eq!(store.upsert(object(1, 2)), WriteOutcome::Updated);
    clock.advance(nanos(10));
    assert!(store.get(&1).is_some());
    // The object is written again with a longer time to live, with a shorter one, and without one.
    assert_eq!(store.upsert_with_ttl(object(1, 2), Some(nanos(50))), WriteOutcome::Updated);
    assert_eq!(store.next_expiry(), Some(Nanos::new(71)));
    store.upsert_with_ttl(object(1, 2), Some(nanos(1)));
    assert_eq!(store.next_expiry(), Some(Nanos::new(22)));
    store.upsert_with_ttl(object(1, 2), None);
    assert_eq!(store.next_expiry(), None, "the expiry of an overwritten object is still set");
    clock.set(Nanos::MAX);
    assert!(store.get(&1).is_some() && store.evict_expired().is_empty());
}

#[test]
fn a_deletion_gives_back_what_was_there() {
    let (store, clock) = store();
    store.upsert(object(1, 1));
    store.upsert(object(2, 1));
    assert_eq!(store.delete(&1).as_deref(), Some(&object(1, 1)));
    assert_eq!(store.delete(&1), None);
    clock.advance(nanos(6));
    assert_eq!((store.delete(&2), store.stored_len()), (None, 0));
    assert_eq!(store.next_expiry(), None);
}

#[test]
fn a_list_is_written_at_one_instant() {
    let (store, clock) = store();
    store.upsert(object(1, 1));
    store.upsert(object(2, 4));
    store.upsert(object(3, 4));
    clock.advance(nanos(6));
    let mut changes = store.subscribe();
    while changes.try_next().is_some() {}
    let received = store.replace([object(1, 1), object(2, 1), object(2, 2), object(4, 0)]);
    // Object 1 has expired. The list adds it again, which is reported as an addition: the expired object was evicted before, and its deletion was
    // reported.
    let kinds: Vec<_> = received.iter().map(|change| (*change.key(), change.old().is_some())).collect();
    assert_eq!(kinds, [(3, true), (1, false), (2, true), (4, false)]);
    let view = store.snapshot();
    assert!(view.iter().all(|(_, timed)| timed.written_at() == Nanos::new(6)));
    assert_eq!(
        view.entry(&2).and_then(|timed| timed.expires_at()),
        Some(Nanos::new(16)),
        "the last of two objects with one key does not count"
    );
    store.check().unwrap();
    clock.advance(nanos(11));
    assert_eq!(keys(&store.evict_expired()), [1, 2], "the evictions are not in the order of the deadlines");
    drop((received, view, changes));
    assert!(store.replace([]).len() == 1 && store.is_empty() && store.next_expiry().is_none());
}

#[test]
fn unread_changes_do_not_accumulate() {
    let (store, clock) = store();
    for id in 0..200 {
        store.upsert(object(id, 1));
    }
    clock.advance(nanos(6));
    // Each write evicts two expired objects, even if it always writes the same key or deletes an absent key.
    for round in 1..=50 {
        store.upsert(object(200, 1));
        assert_eq!(store.stored_len(), 200 - 2 * round + 1);
    }
    for round in 51..=100 {
        assert_eq!(store.delete(&201), None);
        assert_eq!(store.stored_len(), 200 - 2 * round + 1);
    }
    // However long this continues, the store contains at most the visible objects and the expired objects of one round.
    for _ in 0..1000 {
        clock.advance(nanos(6));
        store.upsert(object(7, 1));
        store.upsert(object(8, 1));
        assert!(store.stored_len() <= 2, "{}", store.stored_len());
    }
    store.check().unwrap();
}

#[test]
fn a_snapshot_does_not_stop_a_sweep() {
    let (store, clock) = store();
    let mut views = Vec::new();
    for _ in 0..100 {
        store.upsert(object(1, 1));
        views.push(store.snapshot());
    }
    store.upsert(object(2, 1));
    clock.advance(nanos(6));
    let mut swept = keys(&store.evict_expired());
    swept.sort_unstable();
    assert_eq!((swept, store.stored_len(), store.next_expiry()), (vec![1, 2], 0, None));
    assert!(views.iter().all(|view| view.len() == 1));
    drop(views);
    assert_eq!(store.next_expiry(), None);
}

#[test]
fn a_clock_may_jump() {
    let (store, clock) = store();
    clock.set(Nanos::new(1_000));
    store.upsert(object(1, 1));
    store.upsert(object(2, 5));
    clock.set(Nanos::ZERO);
    assert_eq!(
        (store.len(), store.evict_expired().len()),
        (2, 0),
        "an object expired although the clock jumped back"
    );
    store.upsert(object(3, 1));
    clock.set(Nanos::new(1_005));
    assert_eq!(keys(&store.evict_expired()), [3]);
    clock.set(Nanos::MAX);
    assert_eq!(
        keys(&store.evict_expired()),
        [1],
        "an object with a time to live did not expire at the maximum time"
    );
    store.upsert_with_ttl(object(4, 1), Some(nanos(1)));
    assert_eq!(store.len(), 2);
    clock.set(Nanos::ZERO);
    assert_eq!(store.len(), 2);
    store.check().unwrap();
}

#[test]
fn an_object_without_ttl_reads_no_clock() {
    struct Broken;
    impl Clock for Broken {
        fn now(&self) -> Nanos {
            panic!("a hostile clock panics")
        }
    }
    let clock = Arc::new(Mutex::new(0_u64));
    struct Counted(Arc<Mutex<u64>>);
    impl Clock for Counted {
        fn now(&self) -> Nanos {
            *self.0.lock() += 1;
            Nanos::ZERO
        }
    }
    let builder = || TtlStore::builder(|object: &TtlEntry<Object>| object.id);
    let counted = builder().clock(Counted(clock.clone())).build().unwrap();
    counted.upsert(object(1, 1));
    let before = *clock.lock();
    assert!(counted.get(&1).is_some() && counted.get(&2).is_none());
    assert_eq!(*clock.lock(), before);
    // If the clock panics, the store is not changed.
    let broken = builder().clock(Broken).build().unwrap();
    let upsert = std::panic::AssertUnwindSafe(|| broken.upsert(object(1, 1)));
    assert!(std::panic::catch_unwind(upsert).is_err());
    assert_eq!((broken.stored_len(), broken.next_expiry()), (0, None));
}

/// A function that a test sets, and that runs once.
type Hook = Arc<Mutex<Option<Box<dyn FnOnce() + Send>>>>;

fn run_once(hook: &Hook) {
    let set = hook.lock().take();
    if let Some(set) = set {
        set();
    }
}

/// A key that runs its hook when it is cloned.
struct HookedKey(u8, Hook);

impl Clone for HookedKey {
    fn clone(&self) -> Self {
        run_once(&self.1);
        Self(self.0, self.1.clone())
    }
}

impl PartialEq for HookedKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for HookedKey {}

impl Hash for HookedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[derive(Default)]
struct HookedObject {
    id: u8,
    serial: u32,
    in_key_function: Hook,
    in_clone_of_key: Hook,
}

/// A list is paused in the key function of its second object. Meanwhile, an object is written under the key of the first one, and expires. A sweep finds
/// it and is paused, the list replaces it, and the sweep continues.
#[test]
fn a_sweep_does_not_delete_a_listed_object_that_replaced_an_expired_one() {
    let clock = ManualClock::new();
    let builder = TtlStore::builder(|object: &TtlEntry<HookedObject>| {
        run_once(&object.in_key_function);
        HookedKey(object.id, object.in_clone_of_key.clone())
    });
    let store = builder.clock(clock.clone()).build().unwrap();
    let (reached, at_second) = mpsc::channel();
    let (resume, resumed) = mpsc::channel();
    let second = HookedObject { id: 2, ..HookedObject::default() };
    *second.in_key_function.lock() = Some(Box::new(move || {
        reached.send(()).unwrap();
        resumed.recv().unwrap();
    }));
    let lister = thread::spawn({
        let store = store.clone();
        move || store.replace([HookedObject { id: 1, serial: 1, ..HookedObject::default() }, second]).len()
    });
    at_second.recv().unwrap();
    let in_sweep = Hook::default();
    let expiring =
        HookedObject { id: 1, serial: 2, in_clone_of_key: in_sweep.clone(), ..HookedObject::default() };
    assert_eq!(store.upsert_with_ttl(expiring, Some(Duration::ZERO)), WriteOutcome::Added);
    clock.advance(nanos(1));
    *in_sweep.lock() = Some(Box::new(move || {
        resume.send(()).unwrap();
        assert_eq!(lister.join().unwrap(), 2);
    }));
    assert!(store.evict_expired().is_empty());
    assert!(in_sweep.lock().is_none(), "the sweep was not paused");
    let serial = |id| store.get(&HookedKey(id, Hook::default())).map(|object| object.serial);
    assert_eq!((serial(1), serial(2)), (Some(1), Some(0)), "the sweep deleted a listed object");
    store.check().unwrap();
}

#[test]
fn handles_share_the_store_and_two_indexes_need_two_names() {
    let (store, _) = store();
    store.clone().upsert(object(1, 0));
    assert_eq!(store.len(), 1);
    store.close();
    assert!(store.get(&1).is_some());
    let builder = TtlStore::builder(|object: &TtlEntry<Object>| object.id).ttl(nanos(1));
    assert!(builder.index(&BY_TAG).index(&BY_TAG).build().is_err());
    assert!(!format!("{store:?} {:?}", store.snapshot()).is_empty());
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
