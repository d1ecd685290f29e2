//! Tests of operations with indexes, transactions and relists, in which the functions of objects and index values panic, give inconsistent results,
//! or call the store.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use flyball_informer_cache::{
    Index, IndexError, Schema, SharedWriter, Store, StoreBuilder, Version, WatchEvent, Writer,
};

/// The places at which user code runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Point {
    Key,
    Version,
    Same,
    Transform,
    Index,
    Hash,
    Eq,
    Ord,
    Clone,
    Drop,
}

const POINTS: [Point; 10] = [
    Point::Key,
    Point::Version,
    Point::Same,
    Point::Transform,
    Point::Index,
    Point::Hash,
    Point::Eq,
    Point::Ord,
    Point::Clone,
    Point::Drop,
];

thread_local! {
    /// The place at which a call will panic, and which call at this place will do so, counted from now (1 is the next call).
    static FUSE: Cell<Option<(Point, u32)>> = const { Cell::new(None) };
    static LIVE: Cell<i64> = const { Cell::new(0) };
    /// The store that callbacks call (`BACK`), and how many callbacks may still call it (`BUDGET`).
    static BACK: RefCell<Option<SharedWriter<Word, Object>>> = const { RefCell::new(None) };
    static BUDGET: Cell<u32> = const { Cell::new(0) };
    /// The number of callbacks that wrote (`WRITTEN`), and of callbacks whose write was refused (`REFUSED`).
    static WRITTEN: Cell<u32> = const { Cell::new(0) };
    static REFUSED: Cell<u32> = const { Cell::new(0) };
}

fn called(point: Point) {
    if let Some((armed, left)) = FUSE.get().filter(|(armed, _)| *armed == point) {
        // A second panic while the first one unwinds would abort the test.
        if left == 1 && !thread::panicking() {
            FUSE.set(None);
            panic!("{armed:?} panics");
        }
        FUSE.set(Some((armed, left - u32::from(left > 1))));
    }
    // The store may call the hash, the equality and the order of keys and values under a lock, so these do not call the store.
    if !matches!(point, Point::Hash | Point::Eq | Point::Ord) {
        call_back();
    }
}

/// A value that can panic. It is used as a key, as an index value, and as a part of objects and errors.
#[derive(Debug)]
struct Word(u32);

fn word(id: u32) -> Word {
    LIVE.set(LIVE.get() + 1);
    Word(id)
}

impl Hash for Word {
    fn hash<H: Hasher>(&self, state: &mut H) {
        called(Point::Hash);
        self.0.hash(state);
    }
}

impl PartialEq for Word {
    fn eq(&self, other: &Self) -> bool {
        called(Point::Eq);
        self.0 == other.0
    }
}

impl Eq for Word {}

impl Ord for Word {
    fn cmp(&self, other: &Self) -> Ordering {
        called(Point::Ord);
        self.0.cmp(&other.0)
    }
}

impl PartialOrd for Word {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Clone for Word {
    fn clone(&self) -> Self {
        called(Point::Clone);
        word(self.0)
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        LIVE.set(LIVE.get() - 1);
        called(Point::Drop);
    }
}

#[derive(Debug)]
struct Failure(#[expect(dead_code, reason = "dropped with the error")] Word);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("odd")
    }
}

impl std::error::Error for Failure {}

struct Object {
    id: u32,
    version: u64,
    tag: u32,
    uid: u32,
    /// Dropped with the object.
    _own: Word,
}

fn object(id: u32, version: u64, tag: u32) -> Object {
    Object { id, version, tag, uid: tag / 10, _own: word(id) }
}

type Hostile = Writer<Word, Object>;

static BY_TAG: Index<Object, Word> = Index::new("tag", |object| {
    called(Point::Index);
    word(object.tag)
});
static BY_TAGS: Index<Object, Word> = Index::many("tags", |object: &Object| {
    called(Point::Index);
    vec![word(object.tag), word(object.tag % 2), word(7)]
})
.ordered();
static BY_HALF: Index<Object, Word> = Index::fallible("half", |object: &Object| {
    called(Point::Index);
    match object.tag % 2 {
        0 => Ok(vec![word(object.tag / 2)]),
        _ => Err(IndexError::new(Failure(word(object.tag)))),
    }
})
.unique();
static LATE: Index<Object, Word> = Index::fallible("late", |object: &Object| {
    called(Point::Index);
    match object.tag {
        3 => Err(IndexError::new(Failure(word(object.tag)))),
        tag => Ok(vec![word(tag), word(object.id)]),
    }
})
.ordered();

fn builder() -> StoreBuilder<Word, Object> {
    let schema = Schema::new(
        |object: &Object| {
            called(Point::Key);
            word(object.id)
        },
        |object| {
            called(Point::Version);
            Version::new(object.version)
        },
    );
    let schema = schema.with_identity(|a, b| {
        called(Point::Same);
        a.uid == b.uid
    });
    Store::builder(schema).index(&BY_TAG).index(&BY_TAGS).index(&BY_HALF).seed(3).transform(|object| {
        called(Point::Transform);
        object
    })
}

/// Returns the sorted ids, versions and tags of the stored objects.
fn contents(store: &Store<Word, Object>) -> Vec<(u32, u64, u32)> {
    let view = store.snapshot();
    let mut contents: Vec<_> = view.objects().map(|object| (object.id, object.version, object.tag)).collect();
    contents.sort_unstable();
    contents
}

/// An operation with at most one write.
type Operation = fn(&mut Hostile);

const OPERATIONS: [(&str, Operation); 9] = [
    ("upsert", |store| {
        store.upsert(object(1, 9, 2));
    }),
    ("add", |store| {
        store.upsert(object(5, 9, 4));
    }),
    ("another object", |store| {
        store.upsert(object(2, 9, 13));
    }),
    ("delete", |store| {
        store.apply(WatchEvent::Deleted(object(2, 9, 3)));
    }),
    ("transaction", |store| {
        let mut writes = store.transaction();
        writes.upsert(object(1, 9, 4));
        writes.upsert(object(6, 9, 3));
        writes.delete(word(2), None);
        writes.delete(word(8), Some(object(8, 9, 3)));
        writes.upsert(object(1, 8, 5));
        writes.upsert(object(3, 1, 5));
        drop(writes.commit());
    }),
    ("a relist", |store| {
        let mut list = store.relist();
        list.insert(object(1, 1, 1));
        list.insert(object(2, 2, 3));
        list.insert(object(3, 4, 6));
        list.insert(object(4, 1, 8));
        list.insert(object(3, 3, 2));
        list.remove(&word(4));
        list.remove(&word(3));
        list.insert(object(3, 3, 2));
        list.insert(object(2, 6, 12));
        drop(list.publish(Version::new(9)));
    }),
    ("a relist that goes back", |store| {
        let mut list = store.relist();
        list.keep_stored(|object| object.id == 2);
        list.insert(object(3, 1, 1));
        drop(list.publish(Version::new(1)));
    }),
    ("add and remove an index", |store| {
        store.add_index(&LATE).unwrap();
        store.remove_index(&LATE).unwrap();
    }),
    ("look", |store| {
        let view = store.snapshot();
        let _ = view.range(&BY_TAGS, word(0)..word(9)).unwrap().descending().count();
        let _ = view
            .lister()
            .by_index(&BY_TAG, &word(1))
            .unwrap()
            .by_index(&BY_TAGS, &word(7))
            .unwrap()
            .iter()
            .count();
        drop(store.index_errors());
        let _ = view.unique_violations(&BY_HALF).unwrap().count();
    }),
];

fn filled() -> Hostile {
    let mut store = builder().build().unwrap();
    for (id, version, tag) in [(1, 1, 1), (2, 2, 3), (3, 3, 2)] {
        store.upsert(object(id, version, tag));
    }
    store
}

#[test]
fn a_panic_at_every_call_leaves_store_and_indexes_as_they_were() {
    let mut panics = 0;
    for point in POINTS {
        for (name, operation) in OPERATIONS {
            for nth in 1.. {
                let mut store = filled();
                let before = contents(&store);
                FUSE.set(Some((point, nth)));
                let panicked = catch_unwind(AssertUnwindSafe(|| operation(&mut store))).is_err();
                let unreached = FUSE.take().is_some();
                panics += u32::from(!unreached);
                // If an index function or the comparison of its values panics, the panic is stored as an error of the index, and the write continues.
                assert!(
                    panicked
                        || unreached
                        || matches!(point, Point::Index | Point::Hash | Point::Eq | Point::Ord | Point::Drop)
                );
                store.check().unwrap_or_else(|problem| panic!("{name}, {point:?} {nth}: {problem}"));
                // A panic may come after the write if the result is being built or a replaced value is being dropped. Any other panic comes before
                // the write.
                let after_it = matches!(point, Point::Drop | Point::Clone | Point::Same);
                if panicked && !after_it {
                    assert_eq!(contents(&store), before, "{name}, {point:?} {nth}");
                }
                // The store still accepts writes, and no operation was left incomplete.
                store.upsert(object(1, 100, 4));
                assert_eq!(store.get(&word(1)).unwrap().version, 100, "{name}, {point:?} {nth}");
                match store.add_index(&LATE) {
                    Ok(()) => {}
                    Err(_) => store.remove_index(&LATE).unwrap(),
                }
                store.check().unwrap();
                drop(store);
                assert_eq!(LIVE.get(), 0, "{name}, {point:?} {nth}: values leaked");
                if unreached {
                    break;
                }
            }
        }
    }
    assert!(panics > 300, "{panics} panics");
}

static MEANWHILE: Index<Object, Word> = Index::new("meanwhile", |object| word(object.tag));

/// Calls operations of the store from user code that the store calls. If the store holds the lock `turn` of the writer, this user code may read from
/// the store, but not write to it.
fn call_back() {
    if BUDGET.get() == 0 || thread::panicking() {
        return;
    }
    // The store is taken out of the variable during the call, so that callbacks that the call itself causes do not call the store again.
    let Some(store) = BACK.with(RefCell::take) else { return };
    BUDGET.set(BUDGET.get() - 1);
    let written = catch_unwind(AssertUnwindSafe(|| {
        store.upsert(object(99, 0, 98));
        store.delete(&word(99), None);
        if store.add_index(&MEANWHILE).is_ok() {
            let _ = store.by_index(&MEANWHILE, &word(1));
            let _ = store.remove_index(&MEANWHILE);
        }
    }));
    match written {
        Ok(()) => WRITTEN.set(WRITTEN.get() + 1),
        Err(refused) => {
            let message = refused.downcast_ref::<&str>().copied().unwrap_or_default();
            assert!(message.starts_with("a function that runs in the turn of a write"), "{message}");
            REFUSED.set(REFUSED.get() + 1);
        }
    }
    let _ = (store.get(&word(1)), store.subscribe().try_next(), store.index_errors());
    let _ = (store.retained_snapshots(), store.memory_usage(|_, _| 1), contents(&store));
    BACK.with(|slot| *slot.borrow_mut() = Some(store));
}

/// Fails the test if it deadlocks because the store holds a lock while it calls user code.
fn watched(test: impl FnOnce() + Send + 'static) {
    let (done, ended) = mpsc::channel::<()>();
    let thread = thread::spawn(move || {
        test();
        drop(done);
    });
    match ended.recv_timeout(Duration::from_secs(300)) {
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("the test has deadlocked"),
        _ => thread.join().unwrap(),
    }
}

type SharedDeed = fn(&SharedWriter<Word, Object>);

const SHARED_DEEDS: [(&str, SharedDeed); 6] = [
    ("upsert", |store| {
        store.upsert(object(1, 9, 2));
    }),
    ("add", |store| {
        store.upsert(object(5, 9, 4));
    }),
    ("another object", |store| {
        store.upsert(object(2, 9, 13));
    }),
    ("delete", |store| {
        store.apply(WatchEvent::Deleted(object(2, 9, 3)));
    }),
    ("replace", |store| drop(store.replace([object(1, 1, 1), object(2, 9, 2)], Version::new(9)))),
    ("add and remove an index", |store| {
        store.add_index(&LATE).unwrap();
        store.remove_index(&LATE).unwrap();
    }),
];

#[test]
fn every_call_of_foreign_code_may_read_the_store_and_write_it_outside_a_turn() {
    watched(|| {
        let mut called_back = 0;
        for (name, operation) in SHARED_DEEDS {
            // Each of the first `budget` calls of user code calls the store.
            for budget in [1, 2, 5, 20] {
                let store = filled().into_shared();
                BACK.with(|slot| *slot.borrow_mut() = Some(store.clone()));
                BUDGET.set(budget);
                operation(&store);
                called_back += budget - BUDGET.replace(0);
                drop(BACK.with(RefCell::take));
                store.check().unwrap_or_else(|problem| panic!("{name}, {budget}: {problem}"));
                assert!(contents(&store).iter().all(|(id, ..)| *id < 90), "{name}, {budget}");
                drop(store);
                assert_eq!(LIVE.get(), 0, "{name}, {budget}");
            }
        }
        assert!(called_back > 100, "{called_back}");
        assert!(WRITTEN.get() > 20 && REFUSED.get() > 20, "{} and {}", WRITTEN.get(), REFUSED.get());
    });
}

/// Objects and index values that call the store when the store drops them.
#[test]
fn dropped_objects_may_use_the_store() {
    watched(|| {
        for held in [false, true] {
            let store = filled().into_shared();
            let snapshot = held.then(|| store.snapshot());
            BACK.with(|slot| *slot.borrow_mut() = Some(store.clone()));
            for round in 0..40_u32 {
                BUDGET.set(1);
                store.upsert(object(1, u64::from(round) + 10, round));
                BUDGET.set(1);
                drop(store.replace([object(2, u64::from(round) + 10, round + 1)], Version::ZERO));
                BUDGET.set(1);
                store.delete(&word(2), None);
            }
            BUDGET.set(1);
            drop(snapshot);
            BUDGET.set(0);
            drop(BACK.with(RefCell::take));
            store.check().unwrap();
            assert_eq!(store.retained_snapshots().states, 0);
            drop(store);
            assert_eq!(LIVE.get(), 0);
        }
    });
}

/// A value that is not equal to itself, like NaN.
#[derive(Clone, Copy, Debug)]
struct UnequalToItself(u32);

impl PartialEq for UnequalToItself {
    fn eq(&self, _: &Self) -> bool {
        false
    }
}

impl Eq for UnequalToItself {}

impl Hash for UnequalToItself {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn values_that_equal_nothing_lose_no_object_and_go_with_theirs() {
    static NEVER: Index<(u32, u32), UnequalToItself> =
        Index::many("never", |pair| vec![UnequalToItself(pair.1), UnequalToItself(pair.1)]);
    static ALONE: Index<(u32, u32), UnequalToItself> = Index::new("alone", |pair| UnequalToItself(pair.1));
    let schema = Schema::new(|pair: &(u32, u32)| pair.0, |_| Version::ZERO);
    let store = Store::builder(schema).index(&NEVER).index(&ALONE).build().unwrap().into_shared();
    for round in 0..5 {
        for id in 0..50 {
            store.upsert((id, id % 3 + round));
        }
    }
    assert_eq!(store.snapshot().iter().count(), 50);
    assert!((0..50).all(|id| store.get(&id).is_some()));
    assert_eq!(
        store.snapshot().index_values(&ALONE).unwrap().len(),
        50,
        "there is not one value for each object"
    );
    assert_eq!(store.snapshot().index_values(&NEVER).unwrap().len(), 100);
    for id in 0..50 {
        store.delete(&id, None);
    }
    assert_eq!(store.snapshot().index_values(&ALONE).unwrap().len(), 0);
    assert_eq!(store.snapshot().index_values(&NEVER).unwrap().len(), 0);
}

#[test]
fn keys_that_equal_nothing_end_with_the_next_list() {
    let schema = Schema::new(|pair: &(UnequalToItself, u32)| pair.0, |pair| Version::new(u64::from(pair.1)));
    let parity = Index::new("parity", |pair: &(UnequalToItself, u32)| pair.1 % 2);
    let mut store = Store::builder(schema).index(&parity).build().unwrap();
    for round in 1..4 {
        for id in 0..10 {
            store.upsert((UnequalToItself(id), round));
        }
    }
    assert_eq!((store.len(), store.snapshot().iter().count()), (30, 30), "a key replaced another one");
    assert_eq!(store.by_index(&parity, &1).unwrap().len(), 20);
    let mut writes = store.transaction();
    writes.upsert((UnequalToItself(1), 7));
    writes.delete(UnequalToItself(1), None);
    assert_eq!(writes.commit().len(), 1);
    assert_eq!(store.replace([(UnequalToItself(1), 1), (UnequalToItself(1), 1)], Version::new(1)).len(), 33);
    assert_eq!((store.len(), store.by_index(&parity, &1).unwrap().len()), (2, 2));
}

thread_local! {
    static CONTRARY: Cell<u64> = const { Cell::new(0x9E37_79B9_7F4A_7C15) };
}

/// An order that changes from call to call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct InconsistentOrder(u32);

impl Ord for InconsistentOrder {
    fn cmp(&self, _: &Self) -> Ordering {
        let mut state = CONTRARY.get();
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        CONTRARY.set(state);
        [Ordering::Less, Ordering::Equal, Ordering::Greater][(state >> 20) as usize % 3]
    }
}

impl PartialOrd for InconsistentOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[test]
fn an_order_that_contradicts_itself_loses_nothing_but_the_order() {
    static CONTRARY_ORDER: Index<(u32, u32), InconsistentOrder> =
        Index::many("contrary", |pair: &(u32, u32)| {
            vec![InconsistentOrder(pair.1), InconsistentOrder(pair.1 / 2), InconsistentOrder(pair.0)]
        })
        .ordered();
    let schema = Schema::new(|pair: &(u32, u32)| pair.0, |_| Version::ZERO);
    let store = Store::builder(schema).index(&CONTRARY_ORDER).build().unwrap().into_shared();
    for round in 0..6 {
        for id in 0..300 {
            match (id + round) % 5 {
                0 => store.delete(&id, None),
                _ => store.upsert((id, id * 7 % 400 + round)),
            };
        }
        let view = store.snapshot();
        let values = view.index_values(&CONTRARY_ORDER).unwrap().len();
        let all = view.range::<_, InconsistentOrder, _>(&CONTRARY_ORDER, ..).unwrap();
        assert_eq!(all.values(), values, "a value is missing, or in the order twice");
        let mut met: Vec<_> = all.map(|(value, pair)| (value.0, pair.0)).collect();
        met.sort_unstable();
        let mut named: Vec<_> = view
            .objects()
            .flat_map(|pair| [(pair.1, pair.0), (pair.1 / 2, pair.0), (pair.0, pair.0)])
            .collect();
        named.sort_unstable();
        named.dedup();
        assert_eq!(met, named);
        let _ = view.range(&CONTRARY_ORDER, InconsistentOrder(9)..).map(Iterator::count);
        assert!(view.objects().all(|pair| store.get(&pair.0).is_some_and(|stored| *stored == **pair)));
    }
    store.replace([], Version::ZERO);
    assert_eq!(store.snapshot().index_values(&CONTRARY_ORDER).unwrap().len(), 0);
    store.check().unwrap();
}

thread_local! {
    static CONTRADICTS: Cell<bool> = const { Cell::new(false) };
}

/// An order that is consistent until `CONTRADICTS` is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SwitchableOrder(u32);

impl Ord for SwitchableOrder {
    fn cmp(&self, other: &Self) -> Ordering {
        match CONTRADICTS.get() {
            true => InconsistentOrder(self.0).cmp(&InconsistentOrder(other.0)),
            false => self.0.cmp(&other.0),
        }
    }
}

impl PartialOrd for SwitchableOrder {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// If an object has many new values and their order is inconsistent, the sort function of the standard library may panic.
#[test]
fn an_order_that_contradicts_itself_is_an_error_of_the_object_or_refuses_the_index() {
    type Pair = (u32, u32);
    static MANY: Index<Pair, SwitchableOrder> =
        Index::many("many", |pair: &Pair| (0..90).map(|at| SwitchableOrder(pair.1 * 100 + at)).collect())
            .ordered();
    let operations: [fn(&mut Writer<u32, Pair>); 4] = [
        |store| {
            store.upsert((1, 7));
        },
        |store| drop(store.replace([(1, 7), (2, 8)], Version::ZERO)),
        |store| {
            let mut writes = store.transaction();
            writes.delete(2, None);
            writes.upsert((3, 7));
            drop(writes.commit());
        },
        |store| {
            store.remove_index(&MANY).unwrap();
            let added = catch_unwind(AssertUnwindSafe(|| store.add_index(&MANY).unwrap()));
            CONTRADICTS.set(false);
            if added.is_err() {
                assert!(
                    store.by_index(&MANY, &SwitchableOrder(100)).is_err(),
                    "an incomplete index was published"
                );
                store.add_index(&MANY).unwrap();
                panic!("the index was refused");
            }
        },
    ];
    for (at, operation) in operations.into_iter().enumerate() {
        let mut refusals = 0;
        for _ in 0..20 {
            let schema = Schema::new(|pair: &Pair| pair.0, |_| Version::ZERO);
            let mut store = Store::builder(schema).index(&MANY).build().unwrap();
            store.replace([(1, 1), (2, 2)], Version::ZERO);
            let before: Vec<_> = store.snapshot().objects().cloned().collect();
            CONTRADICTS.set(true);
            let refused = catch_unwind(AssertUnwindSafe(|| operation(&mut store))).is_err();
            CONTRADICTS.set(false);
            let errors = store.index_errors().len();
            if refused {
                store.check().unwrap();
                assert!(store.snapshot().objects().eq(&before));
            }
            // Only an index that is added is refused.
            assert_eq!((refused, errors > 0), if at == 3 { (refused, false) } else { (false, errors > 0) });
            refusals += usize::from(refused) + errors;
            // No lock is still held, and no write is incomplete. All values are removed with their objects, although the order was inconsistent.
            store.upsert((5, 5));
            assert_eq!(store.by_index(&MANY, &SwitchableOrder(589)).unwrap().len(), 1);
            assert_eq!(store.snapshot().index_values(&MANY).unwrap().len(), 90 * (store.len() - errors));
            store.replace([], Version::ZERO);
            assert_eq!(store.snapshot().index_values(&MANY).unwrap().len(), 0);
            store.check().unwrap();
        }
        assert!(refusals > 0, "operation {at} was never refused, so nothing was checked");
    }
}

/// A key type whose hashes are all equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Same(u32);

impl Hash for Same {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[test]
fn hashes_that_are_all_the_same_are_slow_and_nothing_else() {
    static SAME: Index<Same, Same> = Index::new("same", |same: &Same| *same).ordered();
    let schema = Schema::new(|same: &Same| *same, |_| Version::ZERO);
    let store = Store::builder(schema).index(&SAME).build().unwrap().into_shared();
    store.replace((0..1_500).map(Same), Version::ZERO);
    for id in (0..1_500).filter(|id| id % 3 > 0) {
        store.delete(&Same(id), None);
    }
    store.check().unwrap();
    assert_eq!(store.len(), 500);
    assert!((0..1_500).all(|id| store.get(&Same(id)).is_some() == (id % 3 == 0)));
    assert!(store.snapshot().range(&SAME, Same(5)..Same(12)).unwrap().map(|(same, _)| same.0).eq([6, 9]));
}

#[test]
fn memory_comes_back_after_many_came_and_went() {
    static ORDERED: Index<u32, u32> =
        Index::new("ordered", |number: &u32| number.wrapping_mul(2_654_435_761)).ordered();
    static GROUPS: Index<u32, u32> = Index::new("groups", |number| number % 10);
    let store = || {
        let schema = Schema::new(|number: &u32| *number, |_| Version::ZERO);
        Store::builder(schema).index(&ORDERED).index(&GROUPS).seed(1).build().unwrap().into_shared()
    };
    let bytes = |store: &SharedWriter<u32, u32>| store.memory_usage(|_, _| 0).total();
    let few = store();
    few.replace(0..100, Version::ZERO);
    let much = store();
    much.replace(0..20_000, Version::ZERO);
    let full = bytes(&much);
    for number in 100..20_000_u32 {
        // The keys that are deleted are spread over all parts of the tree.
        much.delete(&((number - 100).wrapping_mul(7_919) % 19_900 + 100), None);
    }
    much.check().unwrap();
    assert_eq!(much.len(), 100);
    assert!(bytes(&much) < bytes(&few) + full / 5, "{} {} {full}", bytes(&much), bytes(&few));
    // The number of objects repeatedly crosses the limits at which pages are split and joined, and row numbers are used again.
    let to_and_fro = |rounds: u32| {
        for round in 0..rounds {
            much.upsert(1_000 + round % 400);
            much.delete(&(1_000 + (round + 200) % 400), None);
        }
        bytes(&much)
    };
    let before = to_and_fro(800);
    let after = to_and_fro(8_000);
    much.check().unwrap();
    assert!(after < before + 10_000, "{after} {before}");
    much.replace([], Version::ZERO);
    assert!(bytes(&much) < bytes(&store()) + 4_096, "an empty store takes more memory than a new one");
}

#[test]
fn questions_at_the_edge() {
    use flyball_informer_cache::{LabelIndex, Selector};
    struct Item {
        id: u32,
        name: &'static str,
        labels: &'static [(&'static str, &'static str)],
    }
    static NAMES: Index<Item, &str> = Index::new("names", |item: &Item| item.name).ordered();
    static DIGITS: Index<Item, u32> =
        Index::many("digits", |item| vec![item.id % 10, item.id / 10, item.id % 2]);
    static LABELS: LabelIndex<Item> =
        LabelIndex::new("labels", |item, each| item.labels.iter().for_each(|(key, value)| each(key, value)));
    let schema = Schema::new(|item: &Item| item.id, |_| Version::ZERO);
    let store =
        Store::builder(schema).index(&NAMES).index(&DIGITS).index(&LABELS).build().unwrap().into_shared();
    type Told = &'static [(&'static str, &'static str)];
    let items: [(u32, &str, Told); 5] = [
        (11, "", &[]),
        (12, "ä", &[("app", ""), ("", "x")]),
        (21, "äb", &[("app", "web"), ("app", "db")]),
        (22, "日本", &[("app", "web")]),
        (30, "日", &[("tier", "web")]),
    ];
    store.replace(items.map(|(id, name, labels)| Item { id, name, labels }), Version::ZERO);
    let view = store.snapshot();

    let sorted = |ids: &mut dyn Iterator<Item = u32>| {
        let mut ids: Vec<_> = ids.collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(view.lister().iter().count(), 5);
    let both = view.lister().by_index(&DIGITS, &1).unwrap().by_index(&DIGITS, &2).unwrap();
    assert_eq!(sorted(&mut both.iter().map(|item| item.id)), [12, 21]);
    let neither = both.by_index(&DIGITS, &77).unwrap();
    assert_eq!(neither.iter().count(), 0);
    let mut nothing = neither.iter();
    assert!(nothing.next().is_none() && nothing.next().is_none(), "the iterator does not stay at its end");

    let select = |selector: Selector| {
        sorted(&mut view.lister().select(&LABELS, &selector).unwrap().iter().map(|item| item.id))
    };
    let all = Selector::everything;
    assert_eq!(select(all()), [11, 12, 21, 22, 30]);
    assert_eq!(select(all().equals("app", "")), [12]);
    assert_eq!(select(all().equals("", "x")), [12]);
    assert_eq!(
        select(all().equals("app", "web")),
        [22],
        "the last of two labels with one key does not count"
    );
    assert_eq!(select(all().equals("app", "web").equals("app", "db")), [0; 0]);
    assert_eq!(select("app in (web, web, db)".parse().unwrap()), [21, 22]);
    assert_eq!(select("app notin (web), !tier".parse().unwrap()), [11, 12, 21]);

    fn named<'a>(range: impl Iterator<Item = (&'a &'static str, &'a Arc<Item>)>) -> Vec<&'static str> {
        range.map(|(name, _)| *name).collect()
    }
    assert_eq!(named(view.prefix(&NAMES, "").unwrap()), ["", "ä", "äb", "日", "日本"]);
    assert_eq!(named(view.prefix(&NAMES, "ä").unwrap()), ["ä", "äb"]);
    assert_eq!(named(view.prefix(&NAMES, "日").unwrap().descending()), ["日本", "日"]);
    assert_eq!(named(view.prefix(&NAMES, "日本語").unwrap()), [""; 0]);
    assert_eq!(named(view.range::<_, &str, _>(&NAMES, "ä"..="ä").unwrap()), ["ä"]);
    assert_eq!(named(view.range::<_, &str, _>(&NAMES, "ä".."ä").unwrap()), [""; 0]);
    let mut turned = view.range::<_, &str, _>(&NAMES, ..).unwrap();
    assert_eq!(turned.next().map(|(name, _)| *name), Some(""));
    assert_eq!(turned.values(), 4);
    assert_eq!(named(turned.descending()), ["日本", "日", "äb", "ä"]);

    let mut hits = view.by_index(&DIGITS, &1).unwrap();
    for left in (0..=hits.len()).rev() {
        assert_eq!(hits.size_hint(), (left, Some(left)));
        assert_eq!(hits.next().is_some(), left > 0);
    }
}
