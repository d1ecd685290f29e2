//! Models of writes of many objects (relists and transactions), while other threads wait for them or hold earlier snapshots.

use flyball_informer_cache::{Version, WatchEvent};
use loom_tests::cache::object::{BY_VERSION, beside, content, holding, is_exact, object, store, writer};
use loom_tests::{Model, block_on, model, thread};

#[test]
fn replace_vs_snapshot() {
    let claim = Model {
        name: "informer_cache::replace_vs_snapshot",
        threads: 2,
        floor: 6,
        catches: "a relist that publishes the objects in one critical section and the version in another",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.replace([object(2, 6)], Version::new(7)));
        let view = store.snapshot();
        let seen = content(&view);
        assert!(
            [(vec![(1, 1)], 1), (vec![(2, 6)], 7)].contains(&seen),
            "a part of the list was visible: {seen:?}"
        );
        assert!(is_exact(&view, &BY_VERSION));
        writer.join().unwrap();
        assert_eq!(content(&view), seen, "the snapshot changed");
        store.check().unwrap();
    });
}

#[test]
fn replace_vs_two_readers() {
    let claim = Model {
        name: "informer_cache::replace_vs_two_readers",
        threads: 3,
        floor: 315,
        catches: "a relist that removes missing objects in one critical section and inserts new ones in another",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.replace([object(2, 6)], Version::new(6)));
        let reader = beside(&store, |store| {
            let new = store.get(&2).is_some();
            let old = store.get(&1).is_some();
            assert!(!(new && old), "the old state came back");
        });
        let old = !store.by_index(&BY_VERSION, &1).unwrap().is_empty();
        let new = store.get(&2).is_some();
        assert!(old || new, "the store was empty");
        writer.join().unwrap();
        reader.join().unwrap();
    });
}

#[test]
fn transaction_vs_snapshot() {
    let claim = Model {
        name: "informer_cache::transaction_vs_snapshot",
        threads: 2,
        floor: 6,
        catches: "a transaction whose writes are published one after the other",
    };
    model(claim, || {
        let mut writer = writer();
        writer.upsert(object(1, 1));
        let store = writer.store();
        let writing = thread::spawn(move || {
            let mut transaction = writer.transaction();
            transaction.delete(1, None);
            transaction.upsert(object(2, 2));
            transaction.upsert(object(3, 3));
            transaction.commit()
        });
        let view = store.snapshot();
        let states = [(vec![(1, 1)], 1), (vec![(2, 2), (3, 3)], 3)];
        assert!(
            states.contains(&content(&view)),
            "a part of the transaction was visible: {:?}",
            content(&view)
        );
        assert!(is_exact(&view, &BY_VERSION));
        assert_eq!(writing.join().unwrap().len(), 3);
        store.check().unwrap();
    });
}

#[test]
fn shared_transaction_vs_upsert() {
    let claim = Model {
        name: "informer_cache::shared_transaction_vs_upsert",
        threads: 2,
        floor: 23,
        catches: "a transaction that is compared with a table before it has the writer, so that it overwrites a newer object",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writing = beside(&store, |store| {
            let mut transaction = store.transaction();
            transaction.upsert(object(1, 2));
            transaction.upsert(object(2, 2));
            transaction.commit().len()
        });
        store.upsert(object(1, 3));
        assert!((1..=2).contains(&writing.join().unwrap()));
        assert_eq!(content(&store.snapshot()), (vec![(1, 3), (2, 2)], 3));
        store.check().unwrap();
    });
}

#[test]
fn wait_for_vs_transaction() {
    let claim = Model {
        name: "informer_cache::wait_for_vs_transaction",
        threads: 2,
        floor: 80,
        catches: "a publication that checks for waiters in one critical section and publishes in another",
    };
    model(claim, || {
        let mut writer = writer();
        let store = writer.store();
        let writing = thread::spawn(move || {
            let mut transaction = writer.transaction();
            transaction.upsert(object(1, 7));
            transaction.commit();
            writer
        });
        assert_eq!(block_on(store.wait_for_version(Version::new(7))), Ok(Version::new(7)));
        assert!(store.get(&1).is_some(), "the awaited object is missing");
        writing.join().unwrap();
    });
}

#[test]
fn wait_for_vs_replace() {
    let claim = Model {
        name: "informer_cache::wait_for_vs_replace",
        threads: 2,
        floor: 113,
        catches: "a relist that publishes the version in one critical section and the objects in the next",
    };
    model(claim, || {
        let store = store();
        let writer = beside(&store, |store| store.replace([object(1, 5)], Version::new(7)));
        assert_eq!(block_on(store.wait_for_version(Version::new(6))), Ok(Version::new(7)));
        assert!(store.get(&1).is_some(), "the awaited object is missing");
        writer.join().unwrap();
    });
}

#[test]
fn wait_for_vs_bookmark() {
    let claim = Model {
        name: "informer_cache::wait_for_vs_bookmark",
        threads: 2,
        floor: 80,
        catches: "a bookmark that checks for waiters in one critical section and publishes in another",
    };
    model(claim, || {
        let store = store();
        let writer = beside(&store, |store| {
            store.apply(WatchEvent::Bookmark(Version::new(7)));
        });
        assert_eq!(block_on(store.wait_for_version(Version::new(7))), Ok(Version::new(7)));
        writer.join().unwrap();
        store.check().unwrap();
    });
}

#[test]
fn held_snapshots_vs_write() {
    let claim = Model {
        name: "informer_cache::held_snapshots_vs_write",
        threads: 2,
        floor: 15,
        catches: "a write that checks for holders of the old state in one critical section and retires the state in another",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        let view = store.snapshot();
        let held = store.retained_snapshots();
        assert!(held.states <= 1 && held.changes_behind == held.states as u64, "{held:?}");
        writer.join().unwrap();
        let held = store.retained_snapshots();
        let former = view.version() == Version::new(1);
        assert_eq!(held.states, usize::from(former));
        assert_eq!(held.oldest_version, former.then(|| view.version()));
        drop(view);
        assert_eq!(store.retained_snapshots().states, 0, "a state without snapshots is retained");
    });
}

#[test]
fn held_snapshots_vs_two_bookmarks() {
    let claim = Model {
        name: "informer_cache::held_snapshots_vs_two_bookmarks",
        threads: 2,
        floor: 85,
        catches: "a stale bookmark that counts the current state as a retained one",
    };
    model(claim, || {
        let store = store();
        let older = beside(&store, |store| {
            store.apply(WatchEvent::Bookmark(Version::new(2)));
        });
        store.apply(WatchEvent::Bookmark(Version::new(3)));
        let view = store.snapshot();
        older.join().unwrap();
        assert_eq!(view.version(), store.version());
        assert_eq!(store.retained_snapshots().states, 0, "the current state counts as retained");
        drop(view);
    });
}
