//! Tests of reader slots, which a thread gets after some reads without a write in between. The results of reads must
//! not depend on whether the thread has a slot.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use flyball_informer_cache::{Schema, SharedWriter, Store, Version, WatchEvent};

/// A number of reads after which a thread certainly has a slot.
const MANY: usize = 100;

fn store() -> SharedWriter<u8, (u8, u64)> {
    Store::builder(Schema::new(|object: &(u8, u64)| object.0, |object| Version::new(object.1)))
        .build()
        .unwrap()
        .into_shared()
}

/// Reads until this thread has a slot. Returns the version of the object under key 1.
fn settled(store: &SharedWriter<u8, (u8, u64)>) -> Option<u64> {
    (1..MANY).for_each(|_| drop(store.get(&1)));
    store.get(&1).map(|object| object.1)
}

#[test]
fn a_reader_slot_sees_every_write() {
    let store = store();
    assert_eq!(settled(&store), None);
    store.upsert((1, 1));
    assert_eq!(settled(&store), Some(1));
    store.delete(&1, None);
    assert_eq!(settled(&store), None);
    store.replace([(1, 5)], Version::new(5));
    assert_eq!((settled(&store), store.version()), (Some(5), Version::new(5)));
    store.upsert((1, 6));
    assert_eq!(settled(&store), Some(6));
    store.apply(WatchEvent::Bookmark(Version::new(9)));
    assert_eq!((store.version(), store.snapshot().version()), (Version::new(9), Version::new(9)));
    store.check().unwrap();
}

#[test]
fn a_reader_slot_keeps_no_object_and_counts_as_no_snapshot() {
    let store = store();
    store.upsert((1, 1));
    thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| assert_eq!(settled(&store), Some(1)));
        }
    });
    settled(&store);
    let old = Arc::downgrade(&store.get(&1).unwrap());
    store.upsert((1, 2));
    assert_eq!(old.strong_count(), 0, "a slot keeps the old object after the write");
    assert_eq!(store.retained_snapshots().states, 0);
}

#[derive(Clone, Debug, Eq)]
struct PanickingEq(u8);

thread_local! {
    static ANGRY: Cell<bool> = const { Cell::new(false) };
}

impl PartialEq for PanickingEq {
    fn eq(&self, other: &Self) -> bool {
        assert!(!ANGRY.get(), "a hostile equality panics");
        self.0 == other.0
    }
}

impl Hash for PanickingEq {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_panic_of_eq_leaves_the_reader_slot_consistent() {
    let schema = Schema::new(|object: &(u8, u64)| PanickingEq(object.0), |object| Version::new(object.1));
    let store = Store::builder(schema).build().unwrap().into_shared();
    store.upsert((1, 1));
    for _ in 0..MANY {
        store.get(&PanickingEq(1));
    }
    ANGRY.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| store.get(&PanickingEq(1)))).is_err());
    ANGRY.set(false);
    assert_eq!(store.get(&PanickingEq(1)).map(|object| object.1), Some(1));
    store.upsert((1, 2));
    assert_eq!(store.get(&PanickingEq(1)).map(|object| object.1), Some(2));
    store.check().unwrap();
}
