//! Defects of other stores, each with a test that shows that this store does not have it. The tests count calls, allocations and references, and do
//! not measure time.
//!
//! A number in parentheses is the number of an issue about client-go in the repository kubernetes/kubernetes. D13 to D16 are defects of kube-runtime
//! 5.0.0, which `docs/comparison.md` describes.
//!
//! The tests for other defects are beside the parts that they concern: handlers that are added late and stall others in `observer` and `handler`,
//! changes that are pending at the end in `subscription`, errors within a watch in `upstream_informer`, the timer of resyncs in `resync_every`, waits
//! that ignore cancellation in `informer`, and several informers of one kind in `informer_set`. The `controller` crate has tests for errors of the
//! process loop. The measurements of contention and of lists are in `benches`.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;

use flyball_informer_cache::{
    Index, IndexError, LabelIndex, Schema, SharedWriter, Store, StoreBuilder, Version, WatchEvent,
    WriteOutcome, Writer,
};

/// This type is not `Clone`, so no code can copy an object.
#[derive(Debug, PartialEq, Eq)]
struct Pod {
    id: u32,
    version: u64,
    node: u32,
    app: &'static str,
}

fn pod(id: u32, version: u64) -> Pod {
    Pod { id, version, node: id % 10, app: if id % 2 == 0 { "web" } else { "db" } }
}

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

static BY_NODE: Index<Pod, u32> = Index::new("node", |pod| {
    ASKED.set(ASKED.get() + 1);
    pod.node
});
static BY_VERSION: Index<Pod, u64> = Index::new("version", |pod: &Pod| pod.version).ordered();
static LABELS: LabelIndex<Pod> = LabelIndex::new("labels", |pod, each| each("app", pod.app));

fn builder() -> StoreBuilder<u32, Pod> {
    Store::builder(Schema::new(|pod: &Pod| pod.id, |pod| Version::new(pod.version)))
}

fn first_pod(id: u32) -> Pod {
    pod(id, 0)
}

fn filled() -> SharedWriter<u32, Pod> {
    filled_writer().into_shared()
}

fn filled_writer() -> Writer<u32, Pod> {
    let mut store = builder().index(&BY_NODE).index(&LABELS).build().unwrap();
    store.replace((0..1_000).map(|id| pod(id, 1)), Version::new(1));
    ASKED.set(0);
    store
}

/// In client-go, readers that list continuously starve the writer (130767). Here, a reader that iterates over a list holds no lock.
#[test]
fn a_list_that_never_ends_does_not_stop_a_thousand_writes() {
    let store = filled();
    let view = store.snapshot();
    let (mut all, mut of_node) = (view.iter(), view.by_index(&BY_NODE, &3).unwrap());
    assert!(all.next().is_some() && of_node.next().is_some());
    // The writes run on the thread that holds the iterators. If the iterators held a lock, this would deadlock.
    for id in 0..1_000 {
        assert_eq!(store.upsert(pod(id, 2)), WriteOutcome::Updated);
    }
    assert!(all.all(|(_, pod)| pod.version == 1), "the snapshot has changed");
    assert_eq!(of_node.count(), 99);
    assert!(store.snapshot().objects().all(|pod| pod.version == 2));
}

/// In client-go, a list copies all objects under the lock (130961). Here, a read does not allocate memory for objects, and stops when the caller does
/// not need further objects.
#[test]
fn a_lookup_shares_the_stored_object() {
    let store = filled();
    let view = store.snapshot();
    for _ in 0..100 {
        assert!(view.objects().zip(store.snapshot().objects()).all(|(a, b)| Arc::ptr_eq(a, b)));
    }
    let one = view.by_index(&BY_NODE, &3).unwrap().next().unwrap();
    // The store has the only reference, which shows that the lookup did not clone the `Arc`.
    assert_eq!(Arc::strong_count(one), 1);
    assert_eq!(ASKED.get(), 0);
}

/// In client-go, selectors scan all objects, and labels have no index (4817, 132396). Here, a selector is evaluated without calling a function for
/// any object.
#[test]
fn a_selector_asks_no_object() {
    thread_local! { static TOLD: Cell<usize> = const { Cell::new(0) }; }
    static COUNTED: LabelIndex<Pod> = LabelIndex::new("counted", |pod, each| {
        TOLD.set(TOLD.get() + 1);
        each("app", pod.app);
    });
    let store = builder().index(&COUNTED).build().unwrap().into_shared();
    store.replace((0..100).map(|id| pod(id, 1)), Version::new(1));
    let received = TOLD.get();
    let view = store.snapshot();
    assert_eq!(
        view.lister().select(&COUNTED, &"app in (web), !tier".parse().unwrap()).unwrap().iter().count(),
        50
    );
    assert_eq!(
        (received, TOLD.get()),
        (100, 100),
        "the label function was not called exactly once for each object"
    );
}

/// In client-go, a query with several conditions needs a separate index for each combination (109329). Here, a query combines several indexes, and
/// starts with the condition that the fewest objects meet.
#[test]
fn several_indexes_answer_one_question() {
    let store = filled();
    let view = store.snapshot();
    let query =
        view.lister().by_index(&BY_NODE, &4).unwrap().select(&LABELS, &"app=web".parse().unwrap()).unwrap();
    assert_eq!(query.iter().count(), 100);
    assert_eq!(
        view.lister()
            .by_index(&BY_NODE, &5)
            .unwrap()
            .select(&LABELS, &"app=web".parse().unwrap())
            .unwrap()
            .iter()
            .count(),
        0
    );
    assert_eq!(ASKED.get(), 0);
}

/// In client-go, an error that an index function returns becomes a panic (50555), and leaves the store and the index inconsistent. Here, an error or
/// a panic of an index function is stored as a value.
#[test]
fn an_index_error_is_a_value_and_so_is_a_panic() {
    static MOODY: Index<Pod, u32> = Index::fallible("moody", |pod| match pod.node {
        13 => panic!("not this one"),
        7 => Err(IndexError::new("no node")),
        node => Ok(vec![node]),
    });
    let store = builder().index(&MOODY).build().unwrap().into_shared();
    let on = |id, version, node| Pod { node, ..pod(id, version) };
    let failed = || store.index_errors().iter().map(|(id, ..)| *id).collect::<Vec<_>>();
    store.upsert(on(1, 1, 1));
    store.upsert(on(2, 1, 7));
    assert_eq!(failed(), [2]);
    store.upsert(on(1, 2, 13));
    assert_eq!((store.len(), store.by_index(&MOODY, &1).unwrap().len()), (2, 0));
    store.replace([on(3, 2, 1), on(4, 2, 13)], Version::new(2));
    assert_eq!((failed(), store.by_index(&MOODY, &1).unwrap().len()), (vec![4], 1));
    store.check().unwrap();
}

/// In client-go, the index functions run twice for an update: for the old and for the new object. Here, they run once for each version of an object,
/// and do not run for an unchanged object.
#[test]
fn an_index_function_runs_once_for_each_version() {
    let store = filled();
    store.upsert(pod(1, 2));
    assert_eq!(ASKED.take(), 1);
    store.upsert(pod(1, 2));
    store.delete(&2, None);
    assert_eq!(ASKED.take(), 0, "the index function was called for a known object");
    store.replace((0..1_000).map(|id| pod(id, if id == 1 { 2 } else { 1 })), Version::new(3));
    assert_eq!(ASKED.take(), 1, "the index function was not called exactly once, for the new object");
}

/// In client-go, the set of an index value was never removed, even when it was empty (84959). Here, a value is removed together with its last object.
#[test]
fn values_that_nothing_has_are_gone() {
    let store = builder().index(&BY_VERSION).build().unwrap().into_shared();
    for version in 1..2_000 {
        store.upsert(pod(1, version));
    }
    assert_eq!(store.snapshot().index_values(&BY_VERSION).unwrap().len(), 1);
    let few = store.memory_usage(|_, _| 0).total();
    store.upsert(pod(1, 2_000));
    assert_eq!(store.memory_usage(|_, _| 0).total(), few);
    store.delete(&1, None);
    assert_eq!(store.snapshot().index_values(&BY_VERSION).unwrap().len(), 0);
}

/// In client-go, indexes cannot be added to a running informer (117046), adding an index to a store blocks all other calls until the index is
/// complete, and no index can be removed.
#[test]
fn indexes_come_and_go_while_others_write() {
    let store = filled();
    thread_local! { static WRITES: Cell<Option<SharedWriter<u32, Pod>>> = const { Cell::new(None) }; }
    // Writers and readers can continue while the index function runs. To show this, the function itself writes and reads.
    static LATE: Index<Pod, u32> = Index::new("late", |pod| {
        if let Some(store) = WRITES.take() {
            store.upsert(Pod { node: 77, version: store.version().get() + 1, ..first_pod(pod.id) });
            assert!(store.by_index(&LATE, &1).is_err(), "an incomplete index can be queried");
            assert_eq!(store.get(&pod.id).unwrap().node, 77);
            WRITES.set((store.version() < Version::new(300)).then_some(store));
        }
        pod.node
    });
    WRITES.set(Some(store.clone()));
    store.add_index(&LATE).unwrap();
    drop(WRITES.take());
    assert_eq!(store.by_index(&LATE, &77).unwrap().len(), 299);
    store.check().unwrap();
    assert!(store.add_index(&LATE).is_err());
    store.remove_index(&LATE).unwrap();
    assert!(store.by_index(&LATE, &77).is_err());
    store.check().unwrap();
}

/// In client-go, an event can lower the version of the store, and a batch sets the version to that of its last object. Here, only a list can lower
/// it.
#[test]
fn the_version_does_not_go_back_with_events() {
    let mut store = filled_writer();
    store.upsert(pod(1, 9));
    store.upsert(pod(2, 5));
    assert_eq!(store.version(), Version::new(9));
    let mut writes = store.transaction();
    writes.upsert(pod(3, 12));
    writes.upsert(pod(4, 3));
    writes.commit();
    assert_eq!(store.version(), Version::new(12));
    store.apply(WatchEvent::Deleted(pod(3, 12)));
    store.apply(WatchEvent::Bookmark(Version::new(2)));
    assert_eq!(store.version(), Version::new(12));
}

/// In client-go, a getter returns the map of the index functions itself, without a lock. Here, no method exposes internal state, and a snapshot keeps
/// the indexes that the store had when it was taken.
#[test]
fn a_view_keeps_its_indexes() {
    let store = filled();
    let view = store.snapshot();
    store.remove_index(&BY_NODE).unwrap();
    store.add_index(&BY_VERSION).unwrap();
    assert_eq!(view.by_index(&BY_NODE, &3).unwrap().len(), 100);
    assert!(view.by_index(&BY_VERSION, &1).is_err());
    assert!(store.by_index(&BY_NODE, &3).is_err());
    view.check().unwrap();
}

/// In client-go, a query for the values of a missing index returns an empty list, and a query for its objects returns an error. Here, both queries
/// return an error.
#[test]
fn an_index_that_is_not_there_is_an_error_everywhere() {
    let store = builder().build().unwrap().into_shared();
    let view = store.snapshot();
    assert!(view.index_values(&BY_NODE).is_err());
    assert!(view.by_index(&BY_NODE, &1).is_err());
    assert!(view.lister().by_index(&BY_NODE, &1).is_err());
    assert!(view.unique_violations(&BY_NODE).is_err());
    assert!(view.range(&BY_VERSION, 1..).is_err());
    assert!(view.lister().select(&LABELS, &"app".parse().unwrap()).is_err());
    assert!(store.remove_index(&BY_NODE).is_err());
}

/// In client-go, a relist rebuilds the whole store under the lock. In kube-runtime, it blocks all readers while the old objects are dropped, and two
/// full copies of the objects are in memory (D13). Here, unchanged objects are kept, the objects of a page are dropped immediately, and the thread
/// that relists drops old objects while other threads read.
#[test]
fn a_relist_blocks_no_reader_and_keeps_unchanged_objects() {
    static LIVE: AtomicUsize = AtomicUsize::new(0);
    static GATE: AtomicBool = AtomicBool::new(false);
    type Ports = (mpsc::Sender<()>, mpsc::Receiver<()>);
    thread_local! { static DROPPED: Cell<Option<Ports>> = const { Cell::new(None) }; }
    struct Big(u32, u64);
    impl Drop for Big {
        fn drop(&mut self) {
            LIVE.fetch_sub(1, Ordering::SeqCst);
            // The drop of the first old object sends a message to the test, and blocks until the test has read.
            if GATE.load(Ordering::SeqCst) {
                if let Some((dropping, go_on)) = DROPPED.take() {
                    dropping.send(()).unwrap();
                    go_on.recv().unwrap();
                }
            }
        }
    }
    let big = |id, version| {
        LIVE.fetch_add(1, Ordering::SeqCst);
        Big(id, version)
    };
    let mut writer =
        Store::builder(Schema::new(|big: &Big| big.0, |big| Version::new(big.1))).build().unwrap();
    let store = writer.store();
    writer.replace((0..5_000).map(|id| big(id, 1)), Version::new(1));
    let kept = store.get(&4_999).unwrap();

    let mut list = writer.relist();
    for id in 2_000..5_000 {
        list.insert(big(id, 1));
        assert!(LIVE.load(Ordering::SeqCst) <= 5_001, "an unchanged object was kept");
    }
    list.insert(big(9_000, 2));
    let (dropping, dropped) = mpsc::channel();
    let (go_on, gone_on) = mpsc::channel();
    thread::scope(|scope| {
        let relisting = scope.spawn(move || {
            GATE.store(true, Ordering::SeqCst);
            DROPPED.set(Some((dropping, gone_on)));
            drop(list.publish(Version::new(2)));
            GATE.store(false, Ordering::SeqCst);
        });
        dropped.recv().unwrap();
        // The old object is still being dropped.
        assert_eq!((store.len(), store.version()), (3_001, Version::new(2)));
        assert!(store.get(&1).is_none() && store.get(&9_000).is_some());
        go_on.send(()).unwrap();
        relisting.join().unwrap();
    });
    assert_eq!(writer.upsert(big(9_001, 3)), WriteOutcome::Added);
    assert_eq!(store.snapshot().len(), 3_002);
    assert!(Arc::ptr_eq(&kept, &store.get(&4_999).unwrap()));
    assert_eq!(LIVE.load(Ordering::SeqCst), 3_002);
}

/// A reader on a different thread never reads a partial relist.
#[test]
fn a_reader_beside_relists_sees_whole_lists() {
    let store = filled();
    let end = AtomicBool::new(false);
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0_u32;
            // At least one read comes after the last relist.
            loop {
                let ended = end.load(Ordering::SeqCst);
                let view = store.snapshot();
                let first = view.objects().next().unwrap().version;
                assert!(view.objects().all(|pod| pod.version == first));
                assert_eq!((view.len(), view.version().get()), (1_000, first));
                assert_eq!(view.by_index(&BY_NODE, &3).unwrap().len(), 100);
                reads += 1;
                if ended {
                    return reads;
                }
            }
        });
        for version in 2..30 {
            drop(store.replace((0..1_000).map(|id| pod(id, version)), Version::new(version)));
        }
        end.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0);
    });
    store.check().unwrap();
}

/// In kube-runtime, every event copies its object (D14). Here, an object does not have to be `Clone`: it is moved into the store, and all receivers
/// share it.
#[test]
fn nothing_is_copied_on_the_way_in_or_out() {
    let store = filled();
    let (mut one, mut other) = (store.subscribe(), store.subscribe());
    while one.try_next().is_some() {}
    while other.try_next().is_some() {}
    store.apply(WatchEvent::Modified(pod(7, 2)));
    let stored = store.get(&7).unwrap();
    for changes in [&mut one, &mut other] {
        assert!(changes.try_next().is_some_and(|change| Arc::ptr_eq(change.object(), &stored)));
    }
    assert!(store.by_index(&BY_NODE, &7).unwrap().iter().any(|found| Arc::ptr_eq(found, &stored)));
}

/// In kube-runtime, a query scans all objects under the lock, because there is no secondary index (D15). Here, a query compares only the value for
/// which it searches, and an index stores row numbers instead of objects.
#[test]
fn a_question_to_an_index_looks_at_its_hits_only() {
    thread_local! { static COMPARED: Cell<usize> = const { Cell::new(0) }; }
    #[derive(Eq)]
    struct Node(u32);
    impl std::hash::Hash for Node {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl PartialEq for Node {
        fn eq(&self, other: &Self) -> bool {
            COMPARED.set(COMPARED.get() + 1);
            self.0 == other.0
        }
    }
    static BY_COUNTED: Index<Pod, Node> =
        Index::many("counted", |pod| vec![Node(pod.id % 100), Node(1_000 + pod.id)]);
    let store = builder().index(&BY_COUNTED).build().unwrap().into_shared();
    store.replace((0..10_000).map(|id| pod(id, 1)), Version::new(1));
    COMPARED.set(0);
    assert_eq!(store.by_index(&BY_COUNTED, &Node(7)).unwrap().len(), 100);
    assert_eq!(COMPARED.take(), 1);
    // An update of the index compares only the old and the new value of the object.
    store.upsert(pod(7, 2));
    assert!(COMPARED.get() <= 8, "{}", COMPARED.get());
}

/// In kube-runtime, a key contains copies of the name and the namespace of the object, and of the version with which the object was first stored
/// (D16). Here, the schema defines the key, and the version and the object are replaced together.
#[test]
fn key_version_and_object_go_together() {
    let store = filled();
    store.upsert(pod(1, 5));
    assert_eq!(store.upsert(pod(1, 4)), WriteOutcome::Stale { stored: Version::new(5) });
    assert_eq!(store.upsert(pod(1, 6)), WriteOutcome::Updated);
    assert_eq!(store.upsert(pod(1, 5)), WriteOutcome::Stale { stored: Version::new(6) });
    let per_object = store.memory_usage(|_, _| 0).store_bytes / store.len();
    assert!(
        per_object < 150,
        "{per_object} bytes for each object, including its record and its share of the tables"
    );
}
