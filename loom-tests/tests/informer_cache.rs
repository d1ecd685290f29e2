//! Models of the store: writers, readers, consumers and those who wait, beside each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use flyball_informer_cache::{ChangeKind, Index, Schema, Store, Subscription, Version, WaitForError};
use loom_tests::{Model, block_on, model, thread};

/// One state of the object `key`; `uid` tells objects of one key apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    key: u8,
    uid: u8,
    version: u64,
}

type Objects = Store<u8, Object>;

static BY_VERSION: Index<Object, u64> = Index::new("version", |object| object.version);

fn store() -> Objects {
    let schema = Schema::new(|object: &Object| object.key, |object| Version::new(object.version))
        .identity(|a, b| a.uid == b.uid);
    Store::builder(schema).index(&BY_VERSION).seed(1).build().unwrap()
}

fn object(key: u8, version: u64) -> Object {
    Object { key, uid: 0, version }
}

/// What a consumer holds that was told nothing illegal.
#[derive(Default)]
struct Consumer(BTreeMap<u8, Arc<Object>>);

impl Consumer {
    /// Takes what there is now.
    fn drain(&mut self, changes: &mut Subscription<u8, Object>) {
        while let Some(change) = changes.try_next() {
            self.hear(*change.key(), change.kind);
        }
    }

    fn hear(&mut self, key: u8, kind: ChangeKind<Object>) {
        match kind {
            ChangeKind::Added { object, .. } => assert!(self.0.insert(key, object).is_none(), "added twice"),
            ChangeKind::Updated { old, new } => {
                let held = self.0.insert(key, new).expect("an update of something known");
                assert!(Arc::ptr_eq(&held, &old), "an update from what was told");
            }
            ChangeKind::Deleted { .. } => {
                assert!(self.0.remove(&key).is_some(), "a deletion of something known")
            }
        }
    }

    fn agrees(&self, store: &Objects) {
        let view = store.snapshot();
        assert_eq!(self.0.len(), view.len(), "no change is lost");
        for (key, object) in view.iter() {
            assert!(
                self.0.get(key).is_some_and(|held| Arc::ptr_eq(held, object)),
                "the newest state was told"
            );
        }
    }
}

#[test]
fn write_vs_snapshot() {
    let claim = Model {
        name: "informer_cache::write_vs_snapshot",
        threads: 2,
        floor: 6,
        catches: "a write that publishes the objects in one critical section and the version in another",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert(object(1, 2))
        });
        let view = store.snapshot();
        let version = view.version();
        assert_eq!(Version::new(view.get(&1).unwrap().version), version);
        assert_eq!(view.by_index(&BY_VERSION, &version.get()).unwrap().len(), 1);
        assert_eq!(view.index_values(&BY_VERSION).unwrap().len(), 1);
        writer.join().unwrap();
        assert_eq!(view.version(), version, "a view does not change");
        view.check().unwrap();
        store.check().unwrap();
    });
}

#[test]
fn subscribe_vs_write() {
    let claim = Model {
        name: "informer_cache::subscribe_vs_write",
        threads: 2,
        floor: 49,
        catches: "a subscription that takes its snapshot in one critical section and registers in another",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let writer = thread::spawn({
            let store = store.clone();
            move || {
                store.upsert(object(1, 2));
                store.upsert(object(2, 3));
            }
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
fn two_writers_one_order() {
    let claim = Model {
        name: "informer_cache::two_writers_one_order",
        threads: 3,
        floor: 94,
        catches: "a writer that lets the next one in before it has told what it published",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let writers = [0, 1].map(|uid| {
            let store = store.clone();
            // Different objects under one key: whoever comes last wins.
            thread::spawn(move || store.upsert(Object { key: 1, uid, version: 1 }))
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
fn two_upserts_never_go_back() {
    let claim = Model {
        name: "informer_cache::two_upserts_never_go_back",
        threads: 2,
        floor: 24,
        catches: "a write that commits what it judged before another one committed",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let newer = thread::spawn({
            let store = store.clone();
            move || assert!(store.upsert(object(1, 3)).is_change())
        });
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
        floor: 89,
        catches: "a consumer that looks in one critical section and parks in another",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert(object(1, 1))
        });
        let change = block_on(changes.next()).expect("the store is open");
        let seen = store.get(change.key()).expect("what is told is in the store");
        assert_eq!(seen.version, change.object().version);
        writer.join().unwrap();
    });
}

#[test]
fn close_vs_write() {
    let claim = Model {
        name: "informer_cache::close_vs_write",
        threads: 3,
        floor: 8164,
        catches: "an end that overtakes a change which is published and not told yet",
    };
    model(claim, || {
        let store = store();
        let mut changes = store.subscribe();
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert(object(1, 1))
        });
        let closer = thread::spawn({
            let store = store.clone();
            move || {
                let there = store.get(&1).is_some();
                store.close();
                there
            }
        });
        let mut told = 0;
        while block_on(changes.next()).is_some() {
            told += 1;
        }
        let there = closer.join().unwrap();
        assert!(told == 1 || !there, "what was there before the end is told before it");
        writer.join().unwrap();
        assert!(changes.try_next().is_none(), "nothing is told after the end");
    });
}

#[test]
fn drop_subscription_vs_write() {
    let claim = Model {
        name: "informer_cache::drop_subscription_vs_write",
        threads: 2,
        floor: 6,
        catches: "a consumer that leaves its pending changes in one critical section and is gone in another",
    };
    model(claim, || {
        let store = store();
        let changes = store.subscribe();
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert(object(1, 1))
        });
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
        floor: 57,
        catches: "a resync from a state that was published and not told yet",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 1));
        let mut changes = store.subscribe();
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert(object(1, 2))
        });
        changes.resync();
        consumer.drain(&mut changes);
        writer.join().unwrap();
        consumer.drain(&mut changes);
        consumer.agrees(&store);
    });
}

#[test]
fn synced_vs_two_waiters() {
    let claim = Model {
        name: "informer_cache::synced_vs_two_waiters",
        threads: 3,
        floor: 3813,
        catches: "a waiter that looks in one critical section and parks in another",
    };
    model(claim, || {
        let store = store();
        let waiters = [(); 2].map(|()| {
            let store = store.clone();
            thread::spawn(move || block_on(store.synced()).unwrap())
        });
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
        floor: 102,
        catches: "a wait that looks at the version in one critical section and parks in another",
    };
    model(claim, || {
        let store = store();
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert(object(1, 7))
        });
        assert_eq!(block_on(store.wait_for(Version::new(7))), Ok(Version::new(7)));
        assert!(store.get(&1).is_some(), "what was waited for is there");
        writer.join().unwrap();
        store.close();
        assert_eq!(block_on(store.wait_for(Version::new(8))), Err(WaitForError::Closed));
    });
}

#[test]
fn stage_publish_vs_upsert() {
    let claim = Model {
        name: "informer_cache::stage_publish_vs_upsert",
        threads: 2,
        floor: 38,
        catches: "a relist that publishes what it found before another writer came",
    };
    model(claim, || {
        let store = store();
        store.upsert(object(1, 5));
        let mut changes = store.subscribe();
        let mut consumer = Consumer::default();
        consumer.drain(&mut changes);
        let writer = thread::spawn({
            let store = store.clone();
            move || store.upsert(object(1, 9))
        });
        let mut stage = store.stage();
        stage.put(object(1, 5));
        stage.publish(Version::new(5));
        writer.join().unwrap();
        let version = store.get(&1).unwrap().version;
        assert_eq!(Version::new(version), store.version(), "the list first, or the event first");
        store.check().unwrap();
        consumer.drain(&mut changes);
        consumer.agrees(&store);
    });
}
