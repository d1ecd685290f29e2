//! Tests of writes in which user code panics: what such a write leaves behind is dropped while no lock is held, and harms no later write.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use flyball_informer_cache::{Index, Schema, SharedWriter, Store, Version};

static PODS: OnceLock<SharedWriter<u32, Pod>> = OnceLock::new();
/// The number of writes that destructors have made.
static WRITES: AtomicUsize = AtomicUsize::new(0);

/// An object whose destructor writes to the store.
struct Pod {
    key: u32,
    version: u64,
}

/// The version of the object that the identity function refuses.
const REFUSED: u64 = 2;

impl Drop for Pod {
    fn drop(&mut self) {
        if self.version == REFUSED {
            PODS.get().unwrap().delete(&99, None);
            WRITES.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Under the lock of the writer, the write in the destructor would panic while the first panic unwinds, and the process would abort.
#[test]
fn the_object_of_a_failed_write_is_dropped_outside_the_lock_of_the_writer() {
    let schema = Schema::new(|pod: &Pod| pod.key, |pod| Version::new(pod.version)).with_identity(|_, new| {
        assert!(new.version != REFUSED, "the identity function panics");
        true
    });
    let pods = PODS.get_or_init(|| Store::builder(schema).build().unwrap().into_shared());
    pods.upsert(Pod { key: 1, version: 1 });
    let refused = || Pod { key: 1, version: REFUSED };
    let failed = catch_unwind(AssertUnwindSafe(|| pods.upsert(refused())));
    assert!(failed.is_err() && WRITES.load(Ordering::Relaxed) == 1);
    let list = [Pod { key: 2, version: 1 }, refused(), refused()];
    let failed = catch_unwind(AssertUnwindSafe(|| pods.replace(list, Version::new(3))));
    assert!(failed.is_err() && WRITES.load(Ordering::Relaxed) == 3);
    let mut transaction = pods.transaction();
    transaction.upsert(Pod { key: 2, version: 1 });
    transaction.upsert(refused());
    let failed = catch_unwind(AssertUnwindSafe(|| transaction.commit()));
    assert!(failed.is_err() && WRITES.load(Ordering::Relaxed) == 4);
    assert_eq!((pods.get(&1).map(|pod| pod.version), pods.len()), (Some(1), 1));
}

thread_local! {
    static EQ_PANICS: Cell<bool> = const { Cell::new(false) };
}

struct Key(u32);

impl Clone for Key {
    fn clone(&self) -> Self {
        Self(self.0)
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        assert!(!EQ_PANICS.get(), "the comparison of keys panics");
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

/// An index value whose destructor panics for one value.
#[derive(PartialEq, Eq, Hash)]
struct Tag(u32);

const PANICS: u32 = 7;

impl Drop for Tag {
    fn drop(&mut self) {
        assert!(self.0 != PANICS || thread::panicking(), "the destructor of an index value panics");
    }
}

static BY_TAG: Index<(u32, u32), Tag> = Index::new("tag", |object| Tag(object.1));

/// The plan of a failed write holds the last reference to its index value. The next write is complete before this value is dropped.
#[test]
fn an_index_value_of_a_failed_write_does_not_fail_the_next_write() {
    let schema = Schema::new(|object: &(u32, u32)| Key(object.0), |_| Version::ZERO);
    let mut store = Store::builder(schema).index(&BY_TAG).build().unwrap();
    // The write compares its key with the key of this subscription after it has planned the changes of the index.
    let changes = store.subscription().for_key(Key(1)).subscribe();
    EQ_PANICS.set(true);
    let failed = catch_unwind(AssertUnwindSafe(|| store.upsert((1, PANICS))));
    EQ_PANICS.set(false);
    assert!(failed.is_err() && store.is_empty());

    let second = catch_unwind(AssertUnwindSafe(|| store.upsert((2, 8))));
    assert!(second.is_err(), "the destructor of the value of the first write panics after the second write");
    assert_eq!(store.by_index(&BY_TAG, &Tag(8)).unwrap(), [(2, 8).into()]);
    store.check().unwrap();
    drop(changes);
}

/// An object with index values. Its destructor panics if it has any, or a version; that of a value always panics.
struct Both(u32, Vec<u32>, u64);

fn both(key: u32, values: impl Into<Vec<u32>>) -> Both {
    Both(key, values.into(), 0)
}

struct Value(u32);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

thread_local! {
    static DROPPED: Cell<usize> = const { Cell::new(0) };
}

fn drop_panics() {
    DROPPED.set(DROPPED.get() + 1);
    std::panic::resume_unwind(Box::new("a destructor panics"));
}

impl Drop for Both {
    fn drop(&mut self) {
        if !self.1.is_empty() || self.2 > 0 {
            drop_panics();
        }
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        drop_panics();
    }
}

static BY_VALUE: Index<Both, Value> =
    Index::many("value", |object| object.1.iter().map(|it| Value(*it)).collect());

/// A second panic while the first one unwinds aborts the process.
#[test]
fn several_values_that_panic_in_their_drop_do_not_abort_a_write() {
    let schema = Schema::new(|object: &Both| object.0, |object| Version::new(object.2));
    let count = |write: &mut dyn FnMut()| {
        DROPPED.set(0);
        let panicked = catch_unwind(AssertUnwindSafe(write)).is_err();
        (panicked, DROPPED.get())
    };
    for is_shared in [false, true] {
        let mut writer = Store::builder(schema).index(&BY_VALUE).build().unwrap();
        writer.upsert(both(1, [1, 2]));
        writer.upsert(both(2, [3, 4]));
        writer.upsert(both(3, [5, 6]));
        let store = writer.store();
        // One object and two values are dropped in each case.
        if is_shared {
            let writer = writer.into_shared();
            assert_eq!(count(&mut || _ = writer.upsert(both(1, []))), (true, 3));
            assert_eq!(count(&mut || _ = writer.delete(&2, None)), (true, 3));
            let mut transaction = Some(writer.transaction());
            transaction.iter_mut().for_each(|writes| writes.delete(3, None));
            assert_eq!(count(&mut || drop(transaction.take().unwrap().commit())), (true, 3));
            let mut discarded = Some(writer.transaction());
            for key in [1, 2] {
                discarded.iter_mut().for_each(|writes| writes.upsert(both(key, [key])));
            }
            assert_eq!(count(&mut || drop(discarded.take())), (true, 2));
            let mut list = Some([1, 2, 3, 0].map(|version| Both(1, Vec::new(), version)));
            // Each listed object but the last one is replaced.
            assert_eq!(count(&mut || drop(writer.replace(list.take().unwrap(), Version::new(1)))), (true, 3));
        } else {
            assert_eq!(count(&mut || _ = writer.upsert(both(1, []))), (true, 3));
            assert_eq!(count(&mut || _ = writer.delete(&2, None)), (true, 3));
            assert_eq!(count(&mut || drop(writer.replace([both(1, [])], Version::new(1)))), (true, 3));
        }
        store.check().unwrap();
    }
}
