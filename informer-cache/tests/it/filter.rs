//! Tests of subscriptions with a filter, like client-go's `FilteringResourceEventHandler`. Objects start to pass the filter, and stop passing it.
//!
//! The counterpart of client-go's `TestTypedFilteringResourceEventHandler` is `the_four_transitions`: additions and deletions that pass the filter or
//! do not, and the four kinds of updates. client-go applies the filter to the last state of a deleted object. So if this state does not pass, a
//! handler does not receive the deletion and keeps the object forever. Here, a deletion is delivered if the subscriber has the object, whatever its
//! last state is: `a_deletion_is_delivered_if_the_object_was`.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use flyball_informer_cache::{Schema, SharedWriter, Store, Subscription, Version};
use testkit::wakers::{Counting, poll_once, poll_with};

use crate::changes_as_text::changes_as_text;

/// A key, an identity, a version, and whether the object passes the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pod(u8, u8, u64, bool);

fn store() -> SharedWriter<u8, Pod> {
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.2)).with_identity(|a, b| a.1 == b.1);
    Store::builder(schema).seed(1).build().unwrap().into_shared()
}

fn passing(store: &SharedWriter<u8, Pod>) -> Subscription<u8, Pod> {
    store.subscription().filter(|pod| pod.3).subscribe()
}

fn received(changes: &mut Subscription<u8, Pod>) -> Vec<String> {
    changes_as_text(changes, |pod| (pod.0.into(), pod.2))
}

#[test]
fn the_four_transitions() {
    let store = store();
    store.upsert(Pod(1, 1, 1, true));
    store.upsert(Pod(2, 1, 2, false));
    let mut changes = passing(&store);
    assert_eq!(changes.pending(), 2, "an object was filtered before it was received");
    assert_eq!(received(&mut changes), ["=1@1"]);
    store.upsert(Pod(3, 1, 3, true));
    store.upsert(Pod(4, 1, 4, false));
    assert_eq!(received(&mut changes), ["+3@3"], "an added object that passes was not delivered");
    store.upsert(Pod(1, 1, 5, true));
    assert_eq!(received(&mut changes), ["1@1>5"], "an object that still passes was not updated");
    store.upsert(Pod(1, 1, 6, false));
    assert_eq!(
        received(&mut changes),
        ["-1@5"],
        "an object that ceases to pass is not deleted with the delivered state"
    );
    store.upsert(Pod(1, 1, 7, false));
    assert!(received(&mut changes).is_empty(), "an object that still does not pass was delivered");
    store.upsert(Pod(1, 1, 8, true));
    assert_eq!(received(&mut changes), ["+1@8"], "an object that begins to pass is not added");
    store.delete(&1, Some(Pod(1, 1, 9, true)));
    store.delete(&2, Some(Pod(2, 1, 9, true)));
    assert_eq!(
        received(&mut changes),
        ["-1@9"],
        "the only change is not the deletion of the delivered object"
    );
}

#[test]
fn merged_changes_are_filtered_by_both_states() {
    let store = store();
    let mut changes = passing(&store);
    store.upsert(Pod(1, 1, 1, true));
    assert_eq!(received(&mut changes), ["+1@1"]);
    store.upsert(Pod(1, 1, 2, false));
    store.upsert(Pod(1, 1, 3, true));
    assert_eq!(
        received(&mut changes),
        ["1@1>3"],
        "an object that passes again before it is received is not an update"
    );
    store.upsert(Pod(2, 1, 4, true));
    store.upsert(Pod(2, 1, 5, false));
    assert!(received(&mut changes).is_empty(), "an object that passed only in between was delivered");
    // An object of the snapshot changes before it is delivered.
    let mut late = passing(&store);
    store.upsert(Pod(1, 1, 6, false));
    store.upsert(Pod(2, 1, 7, true));
    assert_eq!(received(&mut late), ["=2@7"]);
}

#[test]
fn a_deletion_is_delivered_if_the_object_was() {
    let store = store();
    store.upsert(Pod(1, 1, 1, true));
    let mut changes = passing(&store);
    received(&mut changes);
    store.delete(&1, Some(Pod(1, 1, 2, false)));
    assert_eq!(received(&mut changes), ["-1@2"]);
    store.upsert(Pod(1, 1, 3, true));
    received(&mut changes);
    store.upsert(Pod(1, 1, 4, false));
    store.delete(&1, None);
    assert_eq!(received(&mut changes), ["-1@4?"]);
}

#[test]
fn another_object_is_judged_by_itself() {
    let store = store();
    store.upsert(Pod(1, 1, 1, true));
    let mut changes = passing(&store);
    received(&mut changes);
    store.upsert(Pod(1, 2, 2, true));
    assert_eq!(received(&mut changes), ["1@1!2"]);
    store.upsert(Pod(1, 3, 3, false));
    assert_eq!(received(&mut changes), ["-1@2?"]);
    store.upsert(Pod(1, 4, 4, true));
    assert_eq!(received(&mut changes), ["+1@4"]);
}

#[test]
fn the_first_list_is_initial_as_far_as_it_passes() {
    let store = store();
    let mut changes = passing(&store);
    store.replace([Pod(1, 1, 1, true), Pod(2, 1, 1, false)], Version::new(1));
    assert!(!changes.is_initial_delivered());
    assert_eq!(received(&mut changes), ["=1@1"]);
    assert!(changes.is_initial_delivered());
    store.upsert(Pod(2, 1, 2, true));
    assert_eq!(received(&mut changes), ["+2@2"], "an object that begins to pass later is initial");
    changes.resync();
    store.upsert(Pod(1, 1, 3, false));
    assert_eq!(received(&mut changes), ["-1@1", "2@2>2"], "a resync delivered an object that does not pass");
}

#[test]
fn of_several_filters_all_have_to_pass() {
    let store = store();
    let mut changes = store.subscription().filter(|pod| pod.3).filter(|pod| pod.0 > 1).subscribe();
    for key in 0..4 {
        store.upsert(Pod(key, 1, 1, key != 3));
    }
    assert_eq!(received(&mut changes), ["+2@1"]);
}

#[test]
fn a_filter_may_use_the_store_and_runs_without_a_lock() {
    let store = store();
    let other = store.clone();
    let mut changes = store
        .subscription()
        .filter(move |pod| {
            other.upsert(Pod(100, 1, pod.2, false));
            pod.0 < 100 && other.len() > 1
        })
        .subscribe();
    store.upsert(Pod(1, 1, 1, true));
    assert!(changes.try_next().is_some_and(|change| *change.key() == 1));
    // The filter contains a handle to the store, so the store stays open.
    assert!(poll_once(std::pin::pin!(changes.next())).is_pending());
    store.check().unwrap();
}

#[test]
fn a_change_survives_a_panic_of_the_filter() {
    let store = store();
    let calls = Arc::new(AtomicUsize::new(0));
    let panics = calls.clone();
    // Two of every four calls panic. An update calls the filter twice.
    let hostile = move |pod: &Pod| match panics.fetch_add(1, Ordering::Relaxed) % 4 {
        1 | 2 => panic!("not now"),
        _ => pod.3,
    };
    let mut changes = store.subscription().filter(hostile).subscribe();
    let (mut known, mut panicked) = (None, 0);
    for version in 1..200 {
        store.upsert(Pod(1, 1, version, version % 3 > 0));
        loop {
            match catch_unwind(AssertUnwindSafe(|| changes.try_next())) {
                Ok(None) => break,
                Ok(Some(change)) => {
                    assert_eq!(change.old().map(|old| old.2), known, "{change:?}");
                    known = change.new().map(|new| new.2);
                }
                Err(_) => panicked += 1,
            }
            changes.check().unwrap();
        }
        assert_eq!(known, Some(version).filter(|version| version % 3 > 0));
    }
    assert!(panicked > 100, "{panicked} panics");
    assert_eq!(changes.pending(), 0);
}

#[test]
fn waiters_lose_no_change() {
    let store = store();
    let mut changes = passing(&store);
    for round in 0..100_u64 {
        let (counting, waker) = Counting::waker();
        // One future is dropped before its first poll, and one while it waits.
        drop(changes.next());
        assert!(poll_with(std::pin::pin!(changes.next()), &waker).is_pending());
        store.upsert(Pod(1, 1, 2 * round + 1, false));
        assert_eq!(counting.wakes(), 1);
        assert_eq!(
            received(&mut changes).len(),
            usize::from(round > 0),
            "the object that ceased to pass was not deleted"
        );
        assert!(poll_with(std::pin::pin!(changes.next()), &waker).is_pending());
        store.upsert(Pod(1, 1, 2 * round + 2, true));
        assert_eq!(counting.wakes(), 2);
        assert_eq!(received(&mut changes), [format!("+1@{}", 2 * round + 2)]);
    }
}

/// A subscription that skips many objects returns to the executor in between, so that other tasks can run.
#[test]
fn filtering_yields_to_other_tasks() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    let store = Store::builder(Schema::new(|n: &u32| *n, |_| Version::ZERO)).build().unwrap().into_shared();
    store.replace(0..10_000, Version::new(1));
    let filter = move |n: &u32| {
        counted.fetch_add(1, Ordering::Relaxed);
        *n >= 10_000
    };
    let mut changes = store.subscription().filter(filter).subscribe();
    let mut walk = |what: &str, last: Option<u32>| {
        let (counting, waker) = Counting::waker();
        let mut polls = 0;
        loop {
            let (before, woken) = (asked.load(Ordering::Relaxed), counting.wakes());
            let received = poll_with(std::pin::pin!(changes.next()), &waker);
            assert!(
                asked.load(Ordering::Relaxed) - before < 2_000,
                "{what}: one poll filtered too many objects"
            );
            polls += 1;
            let received = match received {
                Poll::Ready(change) => change.map(|change| *change.key()),
                // The task has woken itself.
                Poll::Pending if counting.wakes() > woken => continue,
                Poll::Pending => None,
            };
            assert_eq!((received, polls > 5), (last, true), "{what}, after {polls} polls");
            break;
        }
        assert_eq!(changes.pending(), 0);
        changes.resync();
    };
    walk("the snapshot", None);
    walk("a resync", None);
    store.replace(20..20, Version::new(2));
    store.replace(0..=10_000, Version::new(3));
    walk("changes", Some(10_000));
    // `try_next` does not stop in between: it returns the next change that passes the filter.
    assert_eq!(changes.try_next().map(|change| *change.key()), Some(10_000));
}
