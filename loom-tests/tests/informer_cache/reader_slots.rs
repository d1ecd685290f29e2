//! Models of reader slots: a read from a slot returns the published table.

use std::hash::{Hash, Hasher};

use flyball_informer_cache::{Schema, SharedWriter, Store, Version};
use loom_tests::cache::object::{Object, Objects, object};
use loom_tests::{Model, model, thread};

/// A store with the given number of reader slots and version 1 of key 1.
fn store_with(slots: usize) -> Objects {
    let schema = Schema::new(|object: &Object| object.key, |object| Version::new(object.version));
    let store = Store::builder(schema).reader_slots(slots, 1).seed(1).build().unwrap().into_shared();
    store.upsert(object(1, 1));
    store
}

fn version(store: &Objects) -> Option<u64> {
    store.get(&1).map(|object| object.version)
}

#[test]
fn get_vs_upsert() {
    let claim = Model {
        name: "reader_slots::get_vs_upsert",
        threads: 2,
        floor: 63,
        catches: "a writer that clears the reader slots before it locks readers out",
    };
    model(claim, || {
        let store = store_with(1);
        let reader = thread::spawn({
            let store = store.clone();
            move || {
                let seen = [version(&store), version(&store)];
                assert!(seen[0] <= seen[1], "a read returned an older version: {seen:?}");
            }
        });
        store.upsert(object(1, 2));
        assert_eq!(version(&store), Some(2), "the written version was not read");
        reader.join().unwrap();
        assert_eq!(version(&store), Some(2));
        store.check().unwrap();
    });
}

#[test]
fn fill_slot_vs_delete() {
    let claim = Model {
        name: "reader_slots::fill_slot_vs_delete",
        threads: 2,
        floor: 7,
        catches: "a reader that fills its slot after it released the lock under which it read the table",
    };
    model(claim, || {
        let store = store_with(1);
        let reader = thread::spawn({
            let store = store.clone();
            move || {
                let seen = version(&store);
                (seen, version(&store))
            }
        });
        store.delete(&1, None);
        let (first, second) = reader.join().unwrap();
        assert!(first.is_some() || second.is_none(), "a read returned an older state: {first:?}, {second:?}");
        // The read uses the reader's slot, because there is only one.
        assert_eq!(version(&store), None);
        store.check().unwrap();
    });
}

#[test]
fn two_slots_vs_replace() {
    let claim = Model {
        name: "reader_slots::two_slots_vs_replace",
        threads: 4,
        floor: 114564,
        catches: "a writer that clears the first reader slot only",
    };
    model(claim, || {
        let store = store_with(2);
        let readers = [(); 2].map(|()| {
            let store = store.clone();
            thread::spawn(move || {
                version(&store);
                (version(&store), store.version())
            })
        });
        store.replace([object(1, 2)], Version::new(2));
        assert_eq!((version(&store), store.version()), (Some(2), Version::new(2)));
        for reader in readers {
            let (object, list) = reader.join().unwrap();
            assert!(object == Some(1) || list == Version::new(2), "the list was published in parts");
        }
        // Reads on a new thread, so that the other slot is read, too.
        let again = thread::spawn({
            let store = store.clone();
            move || assert_eq!((version(&store), store.version()), (Some(2), Version::new(2)))
        });
        again.join().unwrap();
        store.check().unwrap();
    });
}

/// A key whose comparison yields, so that other threads run in between.
#[derive(Clone, Debug, Eq)]
struct Slow(u8);

impl PartialEq for Slow {
    fn eq(&self, other: &Self) -> bool {
        thread::yield_now();
        self.0 == other.0
    }
}

impl Hash for Slow {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn clear_slot_vs_get() {
    let claim = Model {
        name: "reader_slots::clear_slot_vs_get",
        threads: 2,
        floor: 4,
        catches: "a writer that does not wait for a reader in a slot, and leaves the old table in the slot",
    };
    model(claim, || {
        let schema = Schema::new(|object: &Object| Slow(object.key), |object| Version::new(object.version));
        let store = Store::builder(schema).reader_slots(1, 1).seed(1).build().unwrap().into_shared();
        store.upsert(object(1, 1));
        let version = |store: &SharedWriter<Slow, Object>| store.get(&Slow(1)).map(|object| object.version);
        // This read fills the only slot, which all threads share.
        assert_eq!(version(&store), Some(1));
        let reader = thread::spawn({
            let store = store.clone();
            move || version(&store)
        });
        store.upsert(object(1, 2));
        assert_eq!(version(&store), Some(2));
        reader.join().unwrap();
        store.upsert(object(1, 3));
        assert_eq!(store.retained_snapshots().states, 0, "an earlier state is retained");
        assert_eq!(version(&store), Some(3));
    });
}
