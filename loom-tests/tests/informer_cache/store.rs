//! Models of the store: concurrent writers, readers, consumers and waiters.

use std::panic::{AssertUnwindSafe, catch_unwind};

use flyball_informer_cache::{Change, Schema, Store, SubscriptionEvent, Version, WaitForError};
use loom_tests::cache::object::{
    BY_VERSION, Consumer, Object, Objects, beside, content, holding, is_exact, object, store,
};
use loom_tests::{Model, block_on, model};

#[test]
fn write_vs_snapshot() {
    let claim = Model {
        name: "informer_cache::write_vs_snapshot",
        threads: 2,
        floor: 4,
        catches: "a write that publishes the objects in one critical section and the version in another",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        let view = store.snapshot();
        let version = view.version();
        assert_eq!(Version::new(view.get(&1).unwrap().version), version);
        assert_eq!(view.by_index(&BY_VERSION, &version.get()).unwrap().len(), 1);
        assert_eq!(view.index_values(&BY_VERSION).unwrap().len(), 1);
        writer.join().unwrap();
        assert_eq!(view.version(), version, "the snapshot changed");
        view.check().unwrap();
        store.check().unwrap();
    });
}

#[test]
fn subscribe_vs_write() {
    let claim = Model {
        name: "informer_cache::subscribe_vs_write",
        threads: 2,
        floor: 24,
        catches: "a subscription that takes its snapshot in one critical section and registers in another",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let writer = beside(&store, |store| {
            store.upsert(object(1, 2));
            store.upsert(object(2, 3));
        });
        let mut changes = store.subscribe();
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        writer.join().unwrap();
        consumer.drain(&mut changes);
        consumer.agrees(&store);
    });
}

#[test]
fn subscribe_vs_first_list() {
    let claim = Model {
        name: "informer_cache::subscribe_vs_first_list",
        threads: 2,
        floor: 6,
        catches: "a subscription that checks in one critical section whether there was a list and registers in another",
    };
    model(claim, || {
        let store = store();
        let lister = beside(&store, |store| store.replace([object(1, 1)], Version::new(1)));
        let mut changes = store.subscribe();
        lister.join().unwrap();
        assert!(!changes.is_initial_delivered(), "the initial list was reported too early");
        assert!(changes.try_next().is_some_and(|change| change.is_initial()));
        assert!(changes.is_initial_delivered());
        assert!(changes.try_next().is_none());
    });
}

#[test]
fn caught_up_vs_first_list() {
    let claim = Model {
        name: "informer_cache::caught_up_vs_first_list",
        threads: 2,
        floor: 19,
        catches: "a first list that is reported complete to a subscription before its objects are merged into it",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let lister = beside(&store, |store| store.replace([object(1, 1)], Version::new(1)));
        assert!(!changes.is_initial_delivered(), "the initial list was reported before a delivery");
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        if changes.is_initial_delivered() {
            consumer.agrees(&store);
        }
        lister.join().unwrap();
        consumer.drain(&mut changes);
        assert!(changes.is_initial_delivered());
    });
}

#[test]
fn caught_up_vs_two_waiters() {
    let claim = Model {
        name: "informer_cache::caught_up_vs_two_waiters",
        threads: 3,
        floor: 7602,
        catches: "an empty first list that checks in one critical section whether the consumer is idle and is published in another: no waiter for `initial_processed` is woken",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let waiting = changes.initial_processed();
        let waiter = loom_tests::thread::spawn(move || block_on(waiting));
        let lister = beside(&store, |store| store.replace([], Version::new(1)));
        assert!(changes.try_next().is_none());
        assert_eq!(block_on(changes.initial_processed()), Ok(()));
        assert_eq!(waiter.join().unwrap(), Ok(()));
        lister.join().unwrap();
    });
}

#[test]
fn two_first_lists() {
    let claim = Model {
        name: "informer_cache::two_first_lists",
        threads: 3,
        floor: 166,
        catches: "a list that is not ordered with other writes, so that two lists both count as the first one",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        // The lists differ in object 2, so the list that comes second adds that object or removes it.
        let listers = [vec![object(1, 1)], vec![object(1, 1), object(2, 1)]]
            .map(|list| beside(&store, move |store| store.replace(list, Version::new(1))));
        let [one, two] = listers.map(|lister| lister.join().unwrap());
        let initial =
            |changes: &[Change<u8, Object>]| changes.iter().filter(|change| change.is_initial()).count();
        let initial = (initial(&one), initial(&two));
        assert!(matches!(initial, (1, 0) | (0, 2)), "not exactly one list is the first: {initial:?}");
        assert!(!changes.is_initial_delivered());
        assert!(changes.try_next().is_some_and(|change| change.is_initial()));
    });
}

#[test]
fn subscribe_by_index_vs_move() {
    let claim = Model {
        name: "informer_cache::subscribe_by_index_vs_move",
        threads: 2,
        floor: 19,
        catches: "a subscription of an index value that takes its objects from a later table than the one from which its changes start",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        // The index values are versions, so the update moves the object out of value 1.
        let mover = beside(&store, |store| store.upsert(object(1, 2)));
        let mut changes = store.subscription().by_index(&BY_VERSION, 1).unwrap().subscribe();
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        mover.join().unwrap();
        consumer.drain(&mut changes);
        assert!(consumer.is_empty(), "an object still has the value");
    });
}

#[test]
fn subscribe_by_key_vs_write() {
    let claim = Model {
        name: "informer_cache::subscribe_by_key_vs_write",
        threads: 2,
        floor: 6,
        catches: "a write that commits the changes it prepared for an earlier set of subscriptions",
    };
    model(claim, || {
        let store = store();
        let others = store.subscribe();
        let writer = beside(&store, |store| store.upsert(object(1, 1)));
        let mut changes = store.subscription().for_key(1).subscribe();
        writer.join().unwrap();
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        consumer.agrees(&store);
        drop(others);
    });
}

#[test]
fn overflow_vs_next() {
    let claim = Model {
        name: "informer_cache::overflow_vs_next",
        threads: 2,
        floor: 98,
        catches: "a consumer that checks in one critical section whether it exceeded its bound and registers its waker in another",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscription().max_pending(1.try_into().unwrap()).subscribe();
        let lister = beside(&store, |store| store.replace([object(1, 1), object(2, 1)], Version::new(1)));
        assert!(
            matches!(block_on(changes.next()), Some(SubscriptionEvent::Restarted)),
            "two pending changes did not exceed the bound"
        );
        lister.join().unwrap();
        let mut consumer = Consumer::default();
        consumer.drain_bounded(&mut changes);
        consumer.agrees(&store);
    });
}

#[test]
fn restart_vs_write() {
    let claim = Model {
        name: "informer_cache::restart_vs_write",
        threads: 2,
        floor: 120,
        catches: "a consumer that restarts from a published state whose changes are not delivered yet, and receives them again",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscription().max_pending(1.try_into().unwrap()).subscribe();
        store.replace([object(1, 1), object(2, 1)], Version::new(1));
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        let mut consumer = Consumer::default();
        consumer.drain_bounded(&mut changes);
        writer.join().unwrap();
        consumer.drain_bounded(&mut changes);
        consumer.agrees(&store);
    });
}

#[test]
fn two_writers_one_order() {
    let claim = Model {
        name: "informer_cache::two_writers_one_order",
        threads: 3,
        floor: 166,
        catches: "a write that is not ordered with others, and is delivered in another order than it was published",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let writers = [0, 1].map(|uid| {
            // The two writers write different objects with the same key: the last write wins.
            beside(&store, move |store| store.upsert(Object { key: 1, uid, version: 1 }))
        });
        for writer in writers {
            writer.join().unwrap();
        }
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        consumer.agrees(&store);
    });
}

#[test]
fn fan_out_vs_two_consumers() {
    let claim = Model {
        name: "informer_cache::fan_out_vs_two_consumers",
        threads: 3,
        floor: 770,
        catches: "a write that delivers the changes prepared for one consumer to another, after one unsubscribed and another subscribed in the meantime",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let (mut gone, mut second) = (store.subscribe(), store.subscribe());
        store.delete(&1, None);
        // The deletion is pending in the second subscription only, so the write finds something else in each.
        Consumer::default().drain(&mut gone);
        let writer = beside(&store, |store| store.upsert(object(1, 3)));
        let reader = loom_tests::thread::spawn(move || {
            let mut consumer = Consumer::default();
            consumer.drain(&mut second);
            (second, consumer)
        });
        drop(gone);
        let mut third = store.subscribe();
        writer.join().unwrap();
        store.check().unwrap();
        let (mut second, mut second_consumer) = reader.join().unwrap();
        let mut third_consumer = Consumer::default();
        second_consumer.drain(&mut second);
        third_consumer.drain(&mut third);
        second_consumer.agrees(&store);
        third_consumer.agrees(&store);
    });
}

#[test]
fn two_upserts_never_go_back() {
    let claim = Model {
        name: "informer_cache::two_upserts_never_go_back",
        threads: 2,
        floor: 23,
        catches: "a write that is checked before it is ordered with others, and commits after another one",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let newer = beside(&store, |store| assert!(store.upsert(object(1, 3)).is_change()));
        store.upsert(object(1, 2));
        newer.join().unwrap();
        assert_eq!(store.get(&1).unwrap().version, 3);
        store.check().unwrap();
    });
}

#[test]
fn next_vs_write() {
    let claim = Model {
        name: "informer_cache::next_vs_write",
        threads: 2,
        floor: 72,
        catches: "a consumer that checks for changes in one critical section and registers its waker in another",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let writer = beside(&store, |store| store.upsert(object(1, 1)));
        let change = block_on(changes.next()).expect("the store is closed");
        let seen = store.get(change.key()).expect("a delivered object is missing in the store");
        assert_eq!(seen.version, change.object().version);
        writer.join().unwrap();
    });
}

#[test]
fn close_vs_write() {
    let claim = Model {
        name: "informer_cache::close_vs_write",
        threads: 3,
        floor: 19432,
        catches: "a close that is not ordered with writes, and is delivered before a change that is already published",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let writer = beside(&store, |store| store.upsert(object(1, 1)));
        let closer = beside(&store, |store| {
            let there = store.get(&1).is_some();
            store.close();
            there
        });
        let mut reported = 0;
        while block_on(changes.next()).is_some() {
            reported += 1;
        }
        let there = closer.join().unwrap();
        assert!(reported == 1 || !there, "a change from before the end was lost");
        writer.join().unwrap();
        assert!(changes.try_next().is_none(), "a change was delivered after the end");
    });
}

#[test]
fn drop_subscription_vs_write() {
    let claim = Model {
        name: "informer_cache::drop_subscription_vs_write",
        threads: 2,
        floor: 5,
        catches: "a consumer that drops its pending changes in one critical section and unsubscribes in another",
    };
    model(claim, || {
        let store = store();
        let changes = store.subscribe();
        let writer = beside(&store, |store| store.upsert(object(1, 1)));
        drop(changes);
        writer.join().unwrap();
        store.check().unwrap();
    });
}

#[test]
fn resync_vs_write() {
    let claim = Model {
        name: "informer_cache::resync_vs_write",
        threads: 2,
        floor: 39,
        catches: "a resync from a published state whose changes are not delivered yet",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let mut changes = store.subscribe();
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        changes.resync();
        consumer.drain(&mut changes);
        writer.join().unwrap();
        consumer.drain(&mut changes);
        consumer.agrees(&store);
    });
}

#[test]
fn resync_of_a_key_vs_write_of_another() {
    let claim = Model {
        name: "informer_cache::resync_of_a_key_vs_write_of_another",
        threads: 2,
        floor: 20,
        catches: "a resync that waits for a write in progress, and is not woken when the write has no change for it",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let mut changes = store.subscription().for_key(1).subscribe();
        assert!(changes.try_next().is_some());
        let writer = beside(&store, |store| store.upsert(object(2, 2)));
        changes.resync();
        let change = block_on(changes.next()).expect("the store is closed");
        assert!(*change.key() == 1 && change.old().is_some());
        writer.join().unwrap();
        assert!(changes.try_next().is_none());
    });
}

#[test]
fn nested_write_vs_write() {
    thread_local! { static WRITES: std::cell::RefCell<Option<Objects>> = const { std::cell::RefCell::new(None) }; }
    let claim = Model {
        name: "informer_cache::nested_write_vs_write",
        threads: 2,
        floor: 23,
        catches: "a writer that is recorded before it owns the write lock: a nested write waits for itself instead of failing",
    };
    // The identity function runs while the writer owns the write lock.
    let schema = Schema::new(|object: &Object| object.key, |object| Version::new(object.version));
    let schema = schema.with_identity(|_, _| {
        if let Some(store) = WRITES.take() {
            // The panic is caught here, because loom's locks do not survive a panic.
            let refused = catch_unwind(AssertUnwindSafe(|| store.upsert(object(2, 1))));
            assert!(refused.is_err(), "a nested write succeeded");
        }
        true
    });
    model(claim, move || {
        let store = Store::builder(schema).seed(1).reader_slots(0, 1).build().unwrap().into_shared();
        store.upsert(object(1, 1));
        WRITES.set(Some(store.clone()));
        let writer = beside(&store, |store| store.upsert(object(3, 1)));
        assert!(store.upsert(object(1, 2)).is_change());
        writer.join().unwrap();
        assert_eq!(content(&store.snapshot()).0, [(1, 2), (3, 1)]);
        store.check().unwrap();
    });
}

#[test]
fn synced_vs_two_waiters() {
    let claim = Model {
        name: "informer_cache::synced_vs_two_waiters",
        threads: 3,
        floor: 3813,
        catches: "a waiter that checks in one critical section and registers its waker in another",
    };
    model(claim, || {
        let store = store();
        let waiters = [(); 2].map(|()| beside(&store, |store| block_on(store.synced()).unwrap()));
        store.replace([], Version::new(1));
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn wait_for_vs_publish() {
    let claim = Model {
        name: "informer_cache::wait_for_vs_publish",
        threads: 2,
        floor: 80,
        catches: "a wait that reads the version in one critical section and registers its waker in another",
    };
    model(claim, || {
        let store = store();
        let writer = beside(&store, |store| store.upsert(object(1, 7)));
        assert_eq!(block_on(store.wait_for_version(Version::new(7))), Ok(Version::new(7)));
        assert!(store.get(&1).is_some(), "the awaited object is missing");
        writer.join().unwrap();
        store.close();
        assert_eq!(block_on(store.wait_for_version(Version::new(8))), Err(WaitForError::Closed));
    });
}

#[test]
fn replace_vs_upsert() {
    let claim = Model {
        name: "informer_cache::replace_vs_upsert",
        threads: 2,
        floor: 23,
        catches: "a list that starts before it is ordered with writes, beside another writer's changes",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 5));
        let mut changes = store.subscribe();
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        let writer = beside(&store, |store| store.upsert(object(1, 9)));
        store.replace([object(1, 5)], Version::new(5));
        writer.join().unwrap();
        let version = store.get(&1).unwrap().version;
        assert_eq!(
            Version::new(version),
            store.version(),
            "the result fits neither order of the list and the event"
        );
        store.check().unwrap();
        consumer.drain(&mut changes);
        consumer.agrees(&store);
    });
}

#[test]
fn get_vs_row_of_another() {
    let claim = Model {
        name: "informer_cache::get_vs_row_of_another",
        threads: 2,
        floor: 5,
        catches: "a read that finds the row in one critical section and the object in another",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| {
            store.delete(&1, None);
            store.upsert(object(2, 2))
        });
        assert!(store.get(&1).is_none_or(|object| object.key == 1), "the object of another key");
        writer.join().unwrap();
        assert!(store.get(&1).is_none() && store.get(&2).is_some());
        store.check().unwrap();
    });
}

#[test]
fn by_index_vs_upsert() {
    let claim = Model {
        name: "informer_cache::by_index_vs_upsert",
        threads: 2,
        floor: 19,
        catches: "a read by index that takes the keys from one state and the objects from another",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| store.upsert(object(1, 2)));
        let by = |version| {
            let hits = store.by_index(&BY_VERSION, &version).unwrap();
            assert!(hits.iter().all(|object| object.version == version), "an object with another value");
            !hits.is_empty()
        };
        let (old, new) = (by(1), by(2));
        let (got, version) = (store.get(&1).unwrap().version, store.version());
        assert!(old || new, "the object has no value");
        assert!(!new || got == 2, "the object is older than its index");
        assert!(version >= Version::new(got), "the version is older than the object");
        writer.join().unwrap();
    });
}

#[test]
fn snapshot_vs_two_writes() {
    let claim = Model {
        name: "informer_cache::snapshot_vs_two_writes",
        threads: 2,
        floor: 5,
        catches: "a write that publishes the object in one critical section and its index values in another",
    };
    model(claim, || {
        let store = holding([object(1, 1)]);
        let writer = beside(&store, |store| {
            store.upsert(object(1, 2));
            store.upsert(object(2, 3));
        });
        let view = store.snapshot();
        let seen = content(&view);
        let states = [(vec![(1, 1)], 1), (vec![(1, 2)], 2), (vec![(1, 2), (2, 3)], 3)];
        assert!(states.contains(&seen), "one instant: {seen:?}");
        assert!(is_exact(&view, &BY_VERSION));
        writer.join().unwrap();
        assert_eq!(content(&view), seen, "the snapshot changed");
        assert!(is_exact(&view, &BY_VERSION));
        view.check().unwrap();
        store.check().unwrap();
    });
}
