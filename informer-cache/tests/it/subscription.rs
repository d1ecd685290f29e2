//! Tests of several subscriptions of one store: how they end, and how they work with real threads.

use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use flyball_informer_cache::{
    Change, ChangeKind, Schema, SharedWriter, Stopped, Store, Subscription, Version, WaitForError,
    WriteOutcome, block_on, block_on_timeout,
};
use testkit::wakers::{Counting, HostileWaker, WakerCall, poll_once, poll_with};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pod {
    key: u32,
    uid: u32,
    version: u64,
}

const PODS: Schema<u32, Pod> =
    Schema::new(|pod: &Pod| pod.key, |pod| Version::new(pod.version)).with_identity(|a, b| a.uid == b.uid);

fn store() -> SharedWriter<u32, Pod> {
    Store::builder(PODS).seed(1).build().unwrap().into_shared()
}

fn pod(key: u32, uid: u32, version: u64) -> Pod {
    Pod { key, uid, version }
}

fn received(changes: &mut Subscription<u32, Pod>) -> Vec<String> {
    std::iter::from_fn(|| changes.try_next()).map(text).collect()
}

/// Formats a change: `=1@2` is an initial object, `+1@2` an addition, `1@2>3` an update, `1@2!3` a replacement, `-1@2` a deletion, and `-1@2?` a
/// deletion that was missed.
fn text(change: Change<u32, Pod>) -> String {
    let object = change.object();
    let old = change.old().map_or(0, |old| old.version);
    match change.kind() {
        ChangeKind::Initial => format!("={}@{}", object.key, object.version),
        ChangeKind::Added => format!("+{}@{}", object.key, object.version),
        ChangeKind::Updated => format!("{}@{old}>{}", object.key, object.version),
        ChangeKind::Replaced => format!("{}@{old}!{}", object.key, object.version),
        ChangeKind::Deleted => format!("-{}@{}", object.key, object.version),
        ChangeKind::Missed => format!("-{}@{}?", object.key, object.version),
    }
}

#[test]
fn a_key_recreated_is_a_replacement_or_an_update_by_its_identity() {
    let store = store();
    store.upsert(pod(1, 1, 1));
    store.upsert(pod(2, 1, 2));
    let mut changes = store.subscribe();
    assert_eq!(changes.pending(), 2);
    assert_eq!(received(&mut changes).len(), 2);
    for key in [1, 2] {
        store.delete(&key, Some(pod(key, 1, 5)));
    }
    store.upsert(pod(1, 2, 6));
    store.upsert(pod(2, 1, 7));
    assert_eq!(received(&mut changes), ["1@5!6", "2@2>7"]);
    // The object is replaced by an event, and then by a list.
    assert_eq!(store.upsert(pod(1, 3, 8)), WriteOutcome::Replaced);
    assert_eq!(received(&mut changes), ["1@6!8"]);
    let diff = store.replace([pod(1, 4, 9), pod(2, 1, 7)], Version::new(9));
    assert_eq!(diff.len(), 1);
    assert_eq!(received(&mut changes), ["1@8!9"]);
}

#[test]
fn a_deletion_of_an_undelivered_object_is_not_that_of_the_delivered_one() {
    let store = store();
    store.upsert(pod(1, 1, 1));
    let mut changes = store.subscribe();
    received(&mut changes);
    store.delete(&1, Some(pod(1, 1, 2)));
    store.upsert(pod(1, 2, 3));
    store.delete(&1, Some(pod(1, 2, 4)));
    assert_eq!(received(&mut changes), ["-1@2"]);
    // If the same object was deleted, added again and deleted again, a single deletion is delivered, with the last state that the second deletion
    // reports.
    store.upsert(pod(1, 5, 5));
    received(&mut changes);
    store.replace([], Version::new(6));
    store.upsert(pod(1, 5, 7));
    store.delete(&1, Some(pod(1, 5, 8)));
    assert_eq!(received(&mut changes), ["-1@8"]);
}

#[test]
fn subscriptions_are_independent_and_end_with_the_store() {
    let store = store();
    let mut early = store.subscribe();
    store.upsert(pod(1, 1, 1));
    let mut late = store.subscribe();
    assert!(late.pending() == 1 && !late.is_initial_delivered());
    store.upsert(pod(1, 1, 2));
    assert_eq!(late.pending(), 2, "not an object of the snapshot and its change");
    assert_eq!(received(&mut late), ["=1@2"]);
    assert!(!late.is_initial_delivered(), "complete without a list");
    assert_eq!((late.pending(), early.pending()), (0, 1));
    store.upsert(pod(2, 1, 3));
    let (counting, waker) = Counting::waker();
    assert_eq!(received(&mut late), ["+2@3"]);
    assert!(poll_with(pin!(late.next()), &waker).is_pending());
    store.close();
    store.close();
    assert_eq!(counting.wakes(), 1);
    store.upsert(pod(3, 1, 4));
    assert!(matches!(poll_once(pin!(late.next())), Poll::Ready(None)));
    assert_eq!(received(&mut early), ["+1@2", "+2@3"], "pending changes were not delivered after the end");
    assert!(matches!(poll_once(pin!(early.next())), Poll::Ready(None)));
    assert_eq!(store.len(), 3, "the closed store has lost objects");
    let mut after = store.subscribe();
    assert_eq!(received(&mut after).len(), 3);
    assert!(matches!(poll_once(pin!(after.next())), Poll::Ready(None)));
    assert_eq!(
        poll_once(pin!(store.wait_for_version(Version::new(9)))),
        Poll::Ready(Err(WaitForError::Closed))
    );
    assert!(poll_once(pin!(store.wait_for_version(Version::new(4)))).is_ready());
    assert!(matches!(poll_once(pin!(store.synced())), Poll::Ready(Err(_))));
}

#[test]
fn a_dropped_subscription_holds_nothing() {
    let store = store();
    let mut changes = store.subscribe();
    store.upsert(pod(1, 1, 1));
    let held: Weak<Pod> = Arc::downgrade(&store.get(&1).unwrap());
    store.delete(&1, None);
    store.upsert(pod(2, 1, 2));
    assert!(held.upgrade().is_none(), "an object that was deleted before it was received is kept");
    assert_eq!(received(&mut changes), ["+2@2"]);
    let held = Arc::downgrade(&store.get(&2).unwrap());
    store.delete(&2, None);
    assert!(held.upgrade().is_some(), "the deleted object was dropped before its deletion was received");
    drop(changes);
    assert!(held.upgrade().is_none());
    // This also applies to an object of the initial snapshot.
    store.upsert(pod(3, 1, 3));
    let held = Arc::downgrade(&store.get(&3).unwrap());
    let changes = store.subscribe();
    store.delete(&3, None);
    assert!(held.upgrade().is_some());
    drop(changes);
    assert!(held.upgrade().is_none());
    store.check().unwrap();
}

#[test]
fn a_resync_overwrites_nothing() {
    let store = store();
    store.replace([pod(1, 1, 1), pod(2, 1, 1), pod(3, 1, 1)], Version::new(1));
    let mut changes = store.subscribe();
    changes.resync();
    assert_eq!(received(&mut changes).len(), 3, "a resync during the snapshot delivered an object twice");
    store.upsert(pod(1, 1, 2));
    changes.resync();
    let mut first = received(&mut changes);
    first[1..].sort_unstable();
    assert_eq!(first, ["1@1>2", "1@2>2", "2@1>1", "3@1>1"]);
    changes.resync();
    assert!(changes.try_next().is_some(), "the resync has no change");
    store.upsert(pod(1, 1, 3));
    store.upsert(pod(2, 1, 3));
    store.upsert(pod(3, 1, 3));
    let rest = received(&mut changes);
    assert_eq!(rest.len(), 3, "{rest:?}");
    assert!(rest.iter().all(|change| change.ends_with(">3")), "{rest:?}");
}

/// Subscribers run on their own threads while other threads write. Each change must be consistent with the changes before it. At the end, each
/// subscriber must have the state of the store.
#[test]
fn threads() {
    let store = store();
    let writers: Vec<_> = (0..2)
        .map(|writer| {
            let store = store.clone();
            thread::spawn(move || {
                for round in 1..2_000_u64 {
                    let key = (round % 7) as u32;
                    match round % 11 {
                        0 => {
                            store.delete(&key, None);
                        }
                        1 => drop(
                            store.replace((0..4).map(|key| pod(key, writer, round)), Version::new(round)),
                        ),
                        _ => {
                            store.upsert(pod(key, writer, round));
                        }
                    }
                }
            })
        })
        .collect();
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let store = store.clone();
            thread::spawn(move || {
                let mut changes = store.subscribe();
                let mut held = std::collections::BTreeMap::new();
                while let Some(change) = block_on(changes.next()) {
                    let key = *change.key();
                    let known = match change.new() {
                        Some(new) => held.insert(key, new.clone()),
                        None => held.remove(&key),
                    };
                    match (change.kind(), change.old()) {
                        (ChangeKind::Updated, Some(old)) => assert!(Arc::ptr_eq(&known.unwrap(), old)),
                        (_, Some(old)) => assert_eq!(known.unwrap().uid, old.uid),
                        (_, None) => assert!(known.is_none()),
                    }
                }
                held
            })
        })
        .collect();
    for writer in writers {
        writer.join().unwrap();
    }
    store.close();
    store.check().unwrap();
    let there: std::collections::BTreeMap<_, _> =
        store.snapshot().iter().map(|(key, pod)| (*key, pod.clone())).collect();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), there);
    }
}

#[test]
fn threads_wait_for_changes_and_for_the_first_list() {
    let store = store();
    let mut changes = store.subscribe();
    assert!(block_on_timeout(changes.next(), Duration::ZERO).is_none());
    assert_eq!(block_on_timeout(store.synced(), Duration::ZERO), None);
    let readers = store.store();
    let reader = thread::spawn(move || {
        block_on(readers.synced()).unwrap();
        let written = block_on(readers.wait_for_key(7, Version::new(2))).unwrap();
        (
            written.map(|pod| pod.version),
            block_on(changes.next()).map(text),
            block_on(changes.next()).map(text),
        )
    });
    store.replace([pod(7, 1, 1)], Version::new(1));
    store.upsert(pod(7, 1, 2));
    store.close();
    let (written, first, second) = reader.join().unwrap();
    assert_eq!(written, Some(2));
    // The subscriber receives one change or two, depending on how fast it is.
    assert!(first.is_some_and(
        |first| first == "=7@2" || first == "=7@1" && second.is_some_and(|second| second == "7@1>2")
    ));
    let (late, mut after) = (store.store(), store.subscribe());
    assert_eq!(block_on_timeout(late.synced(), Duration::from_secs(60)), Some(Ok(())));
    let first = block_on_timeout(after.next(), Duration::from_secs(60)).unwrap();
    assert!(first.is_some_and(|change| change.is_initial()));
    assert!(block_on(after.next()).is_none());
    let closed = self::store();
    closed.close();
    assert_eq!(block_on_timeout(closed.synced(), Duration::from_secs(60)), Some(Err(Stopped)));
}

#[test]
fn a_change_is_not_lost_if_the_drop_of_an_unused_waker_panics() {
    let store = store();
    let mut changes = store.subscribe();
    let hostile = HostileWaker::new();
    let waker = hostile.waker();
    let own = store.clone();
    hostile.run_in(WakerCall::Clone, move || _ = own.upsert(pod(1, 1, 1))); // after the first check
    hostile.run_in(WakerCall::Drop, || panic!("the drop of a waker panics"));
    let Poll::Ready(Some(change)) = poll_with(pin!(changes.next()).as_mut(), &waker) else {
        panic!("no change");
    };
    assert_eq!(text(change), "+1@1");
}
