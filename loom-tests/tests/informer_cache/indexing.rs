//! Models of indexes that are added and removed while other threads write and read.

use flyball_informer_cache::{Index, Version};
use loom_tests::cache::object::{BY_VERSION, Object, Objects, beside, content, holding, is_exact, object};
use loom_tests::{Model, model};

/// A second index by version, which is added while other threads use the store.
static LATE: Index<Object, u64> = Index::new("late", |object| object.version);

/// Asserts at the end that both indexes contain exactly the objects.
fn complete(store: &Objects) {
    let view = store.snapshot();
    assert!(is_exact(&view, &BY_VERSION), "the initial index is wrong");
    assert!(is_exact(&view, &LATE), "the added index is wrong");
    store.check().unwrap();
}

#[test]
fn add_index_vs_upsert() {
    let claim = Model {
        name: "informer_cache::add_index_vs_upsert",
        threads: 2,
        floor: 159,
        catches: "a new index that does not index the writes between its build and its publication",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        store.add_index(&LATE).unwrap();
        writer.join().unwrap();
        complete(&store);
    });
}

#[test]
fn add_index_vs_new_key() {
    let claim = Model {
        name: "informer_cache::add_index_vs_new_key",
        threads: 2,
        floor: 159,
        catches: "a new index that misses a key added during the build",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.upsert(object(2, 2)));
        store.add_index(&LATE).unwrap();
        writer.join().unwrap();
        complete(&store);
        assert_eq!(store.by_index(&LATE, &2).unwrap().len(), 1);
    });
}

#[test]
fn add_index_vs_delete() {
    let claim = Model {
        name: "informer_cache::add_index_vs_delete",
        threads: 2,
        floor: 159,
        catches: "a new index that misses the deletion of a key during the build",
    };
    model(claim, || {
        let store = holding([object(1, 1), object(2, 2)]);
        let writer = beside(&store, |store| store.delete(&1, None));
        store.add_index(&LATE).unwrap();
        writer.join().unwrap();
        complete(&store);
        assert!(store.by_index(&LATE, &1).unwrap().is_empty());
    });
}

#[test]
fn add_index_vs_by_index() {
    let claim = Model {
        name: "informer_cache::add_index_vs_by_index",
        threads: 2,
        floor: 71,
        catches: "a new index that can be queried before it is filled",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let reader = beside(&store, |store| {
            let first = store.by_index(&LATE, &1);
            let second = store.by_index(&LATE, &1);
            assert!(
                first.as_ref().is_ok_and(|hits| hits.len() == 1) || first.is_err(),
                "the index was incomplete"
            );
            assert!(second.is_ok() || first.is_err(), "the index disappeared");
            assert!(second.is_ok_and(|hits| hits.len() == 1) || first.is_err());
        });
        store.add_index(&LATE).unwrap();
        assert_eq!(store.by_index(&LATE, &1).unwrap().len(), 1);
        reader.join().unwrap();
    });
}

#[test]
fn add_index_vs_replace() {
    let claim = Model {
        name: "informer_cache::add_index_vs_replace",
        threads: 2,
        floor: 312,
        catches: "a new index that is added without being ordered with a relist, which then publishes a copy of the table without it",
    };
    model(claim, || {
        let store = holding([object(1, 1), object(2, 2)]);
        let writer = beside(
            &store,
            // Object 1 is unchanged, object 2 is newer, and object 3 is new.
            |store| store.replace([object(1, 1), object(2, 3), object(3, 3)], Version::new(3)),
        );
        store.add_index(&LATE).unwrap();
        complete(&store);
        writer.join().unwrap();
        complete(&store);
        assert_eq!(content(&store.snapshot()), (vec![(1, 1), (2, 3), (3, 3)], 3));
    });
}

#[test]
fn remove_index_vs_snapshot() {
    let claim = Model {
        name: "informer_cache::remove_index_vs_snapshot",
        threads: 2,
        floor: 13,
        catches: "an index whose definition is removed in one critical section and whose column in another",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        store.add_index(&LATE).unwrap();
        let reader = beside(&store, |store| {
            let view = store.snapshot();
            view.check().unwrap();
            assert!(is_exact(&view, &LATE), "the other index changed");
        });
        store.remove_index(&BY_VERSION).unwrap();
        assert!(store.by_index(&BY_VERSION, &1).is_err());
        reader.join().unwrap();
        store.check().unwrap();
    });
}

#[test]
fn remove_index_vs_replace() {
    let claim = Model {
        name: "informer_cache::remove_index_vs_replace",
        threads: 2,
        floor: 23,
        catches: "an index that is removed beside a relist, which then publishes a copy with it",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.replace([object(1, 2)], Version::new(2)));
        store.remove_index(&BY_VERSION).unwrap();
        writer.join().unwrap();
        assert!(store.by_index(&BY_VERSION, &2).is_err(), "the removed index came back");
        assert_eq!(content(&store.snapshot()), (vec![(1, 2)], 2));
        store.check().unwrap();
    });
}

#[test]
fn two_add_index_of_one_name() {
    let claim = Model {
        name: "informer_cache::two_add_index_of_one_name",
        threads: 2,
        floor: 425,
        catches: "an index whose name is checked for duplicates before it is ordered with writes, and not after",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let other = beside(&store, |store| store.add_index(&LATE).is_ok());
        let mine = store.add_index(&LATE).is_ok();
        assert!(mine != other.join().unwrap(), "not exactly one thread added the index");
        complete(&store);
        store.remove_index(&LATE).unwrap();
        assert!(store.remove_index(&LATE).is_err(), "the index was added twice");
    });
}

#[test]
fn add_index_upsert_snapshot() {
    let claim = Model {
        name: "informer_cache::add_index_upsert_snapshot",
        threads: 3,
        floor: 2100,
        catches: "a new index whose definition is added in one critical section and whose column in another",
    };
    model(claim, || {
        let store = holding([object(1, 1), object(2, 2)]);
        let writer = beside(&store, |store| store.upsert(object(1, 3)));
        let reader = beside(&store, |store| {
            let view = store.snapshot();
            assert!(is_exact(&view, &BY_VERSION));
            let asked = view.index_values(&LATE).is_ok();
            assert!(!asked || is_exact(&view, &LATE), "the index was incomplete");
            view.check().unwrap();
        });
        store.add_index(&LATE).unwrap();
        writer.join().unwrap();
        reader.join().unwrap();
        complete(&store);
    });
}

#[test]
fn add_index_upsert_delete() {
    let claim = Model {
        name: "informer_cache::add_index_upsert_delete",
        threads: 3,
        floor: 14330,
        catches: "a new index that keeps an object under its values from before an update",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        let deleter = beside(&store, |store| store.delete(&1, None));
        store.add_index(&LATE).unwrap();
        writer.join().unwrap();
        deleter.join().unwrap();
        assert!(store.len() <= 1);
        complete(&store);
    });
}
