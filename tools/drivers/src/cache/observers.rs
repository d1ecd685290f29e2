//! Runs random operations on a store with observers. After each operation, every observer must have received every step of the reference store.

use std::sync::Arc;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    Change, ChangeKind, Observer, Schema, SharedWriter, Store, Version, WatchEvent,
};
use parking_lot::Mutex;
use testkit::oracle::store::{OracleChange, OracleStage, OracleStep, OracleStore, Rules};
use testkit::store_op::{Draft, StoreOp, TestObject};

/// A change as an observer receives it, with the objects themselves.
pub type Delivered = OracleChange<u8, TestObject>;

const SCHEMA: Schema<u8, TestObject> =
    Schema::new(|thing: &TestObject| thing.key, |thing| Version::new(thing.version))
        .with_identity(|a, b| a.uid == b.uid);
const RULES: Rules<u8, TestObject> =
    Rules { key: |thing| thing.key, version: |thing| thing.version, same: |a, b| a.uid == b.uid };

/// Creates an empty store.
///
/// # Panics
/// Never, because the store has no index.
#[must_use]
pub fn store() -> SharedWriter<u8, TestObject> {
    Store::builder(SCHEMA).seed(7).build().unwrap().into_shared()
}

/// Returns the change with copies of its objects.
#[must_use]
pub fn plain(change: &Change<u8, TestObject>) -> Delivered {
    let key = *change.key();
    let object = TestObject::clone(change.object());
    let old = change.old().map(|old| TestObject::clone(old));
    match (change.kind(), old) {
        (ChangeKind::Updated, Some(old)) => Delivered::Updated { key, old, new: object },
        (ChangeKind::Replaced, Some(last)) => Delivered::Replaced { key, last, new: object },
        (ChangeKind::Deleted, Some(last)) => Delivered::Deleted { key, last, missed: false },
        (ChangeKind::Missed, Some(last)) => Delivered::Deleted { key, last, missed: true },
        (kind, _) => Delivered::Added { key, object, initial: kind == ChangeKind::Initial },
    }
}

/// The changes that an observer has received, in order.
#[derive(Clone, Debug, Default)]
pub struct Observed(pub Arc<Mutex<Vec<Delivered>>>);

impl Observed {
    /// Subscribes to the store.
    pub fn of(store: &SharedWriter<u8, TestObject>) -> (Self, Observer<u8, TestObject>) {
        let observed = Self::default();
        let noting = observed.clone();
        let observer = store.observe(move |change| noting.0.lock().push(plain(change)));
        (observed, observer)
    }

    /// Returns the changes since the last call.
    pub fn take(&self) -> Vec<Delivered> {
        std::mem::take(&mut self.0.lock())
    }
}

/// Converts the steps of the reference store to changes, deletions first.
fn changes(steps: impl IntoIterator<Item = OracleStep<u8, TestObject>>) -> Vec<Delivered> {
    let (mut deleted, mut rest) = (Vec::new(), Vec::new());
    for step in steps {
        match step {
            OracleStep::Added { key, new, initial } => {
                rest.push(Delivered::Added { key, object: new, initial })
            }
            OracleStep::Updated { key, old, new } => rest.push(Delivered::Updated { key, old, new }),
            OracleStep::Deleted { key, last, missed, .. } => {
                deleted.push(Delivered::Deleted { key, last, missed })
            }
            OracleStep::Replaced { key, old, new } => rest.push(Delivered::Replaced { key, last: old, new }),
        }
    }
    deleted.extend(rest);
    deleted
}

/// Runs a random sequence of operations on a store with one writer. After each write, checks that the observers have received every step of the
/// reference store exactly once, and in the same order. Returns the number of steps.
///
/// # Panics
/// If an observer did not.
pub fn run(bytes: &[u8]) -> u64 {
    let mut bytes = Unstructured::new(bytes);
    let (store, mut naive) = (store(), OracleStore::new(RULES));
    let (mut latest, mut serial) = (1, 0);
    let mut observers = vec![Observed::of(&store)];
    let mut closed = false;
    let mut received = 0;
    for _ in 0..200 {
        let Ok(op) = StoreOp::arbitrary(&mut bytes) else { break };
        let mut draw = |draft: Draft| draft.thing(&mut latest, &mut serial);
        let mut relist = None;
        let mut expected = Vec::new();
        match op {
            StoreOp::Upsert(draft) => {
                let thing = draw(draft);
                store.upsert(thing.clone());
                expected = changes(naive.upsert(thing).1);
            }
            StoreOp::Delete(draft) => {
                let last = draw(draft);
                store.apply(WatchEvent::Deleted(last.clone()));
                expected = changes(naive.delete(&last.key.clone(), Some(last)).1);
            }
            StoreOp::Forget(key) => {
                store.delete(&key.0, None);
                expected = changes(naive.delete(&key.0, None).1);
            }
            StoreOp::Bookmark(stamp) => {
                let version = stamp.version(&mut latest);
                store.apply(WatchEvent::Bookmark(Version::new(version)));
                naive.bookmark(version);
            }
            StoreOp::Replace(drafts, stamp) => {
                let listed: Vec<_> = drafts.into_iter().map(&mut draw).collect();
                let version = stamp.version(&mut latest);
                let mut whole = OracleStage::new(&naive);
                listed.iter().cloned().for_each(|thing| whole.put(thing));
                relist = Some((store.replace(listed, Version::new(version)), whole, version));
            }
            StoreOp::Subscribe if observers.len() < 4 => {
                let (observed, observer) = Observed::of(&store);
                let mut initial = observed.take();
                initial.sort_by_key(|change| *change.key());
                let objects = naive.objects.iter();
                let there = objects.map(|(&key, object)| Delivered::Added {
                    key,
                    object: object.clone(),
                    initial: true,
                });
                assert_eq!(initial, there.collect::<Vec<_>>(), "the initial changes are not one snapshot");
                observers.push((observed, observer));
            }
            StoreOp::Unsubscribe(which) if observers.len() > 1 => {
                let (observed, observer) = observers.swap_remove(usize::from(which) % observers.len());
                drop(observer);
                assert_eq!(
                    Arc::strong_count(&observed.0),
                    1,
                    "the function was not dropped with the observer"
                );
            }
            StoreOp::Close => {
                store.close();
                closed = true;
            }
            _ => {}
        }
        if let Some((diff, listed, version)) = relist {
            expected = changes(listed.publish(&mut naive, version));
            let diff: Vec<_> = diff.iter().map(plain).collect();
            // The store may report the deletions in any order, so they are sorted before the comparison.
            let sorted = |mut changes: Vec<Delivered>| {
                let deleted =
                    changes.iter().take_while(|change| matches!(change, Delivered::Deleted { .. })).count();
                changes[..deleted].sort_by_key(|change| *change.key());
                changes
            };
            assert_eq!(sorted(diff.clone()), sorted(expected));
            expected = diff;
        }
        if closed {
            expected.clear();
        }
        received += expected.len() as u64;
        for (observed, observer) in &observers {
            assert_eq!(
                observed.take(),
                expected,
                "the observer did not receive every step once and in order"
            );
            assert_eq!(observer.panic_count(), 0);
            assert_eq!(Arc::strong_count(&observed.0), if closed { 1 } else { 2 });
        }
        store.check().unwrap();
    }
    received
}
