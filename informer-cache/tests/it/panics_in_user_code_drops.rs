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
