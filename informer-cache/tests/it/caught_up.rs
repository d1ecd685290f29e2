//! Tests of the initial objects of a subscriber: which changes are initial, and when all initial objects were delivered or processed.
//!
//! These tests correspond to tests of client-go, whose names are given at each case. From client-go's queue: `TestFIFO_HasSynced` (7) and
//! `…_HasSyncedCorrectOnDeletion`; the two levels of `TestAddWhileActive` (the store has its list, and the subscriber has received it); and the flags
//! of `TestResetWatch`. From client-go's `synctrack`: `TestSingleFile` (6) and `TestBasicLogic` (6). A subscriber processes one change at a time, so
//! flyball has only one kind of tracker. `…SingleFileCounting` has no counterpart, because nothing is counted; the counterpart of `…AsyncLocking` is
//! the loom model `caught_up_vs_two_waiters`. kubernetes#113763 requests a way to find out whether one particular handler has processed the initial
//! list.

use drivers::cache::fixture::{EXPIRED, SCHEMA, World, object};
use drivers::cache::server::server;
use flyball_informer_cache::{
    Change, ChangeKind, Informer, InitialProcessed, Schema, SharedWriter, Stopped, Store, Subscription,
    Version,
};
use parking_lot::Mutex;
use std::future::Future;
use std::num::NonZeroU32;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, Waker};
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

type Objects = SharedWriter<u32, (u32, u64)>;

fn store() -> Objects {
    Store::builder(Schema::new(|object: &(u32, u64)| object.0, |object| Version::new(object.1)))
        .seed(1)
        .build()
        .unwrap()
        .into_shared()
}

/// Replaces the content of the store by objects with these keys. Each object and the list have the version `version`.
fn list(store: &Objects, keys: impl IntoIterator<Item = u32>, version: u64) {
    store.replace(keys.into_iter().map(|key| (key, version)), Version::new(version));
}

/// Formats a change as a sign, followed by its key: `=` for an initial change, `+` for an addition, `~` for an update, `!` for a replacement, `-` for
/// a deletion.
fn brief<K: std::fmt::Display, V>(change: &Change<K, V>) -> String {
    let sign = match change.kind() {
        ChangeKind::Initial => '=',
        ChangeKind::Added => '+',
        ChangeKind::Updated => '~',
        ChangeKind::Replaced => '!',
        ChangeKind::Deleted | ChangeKind::Missed => '-',
    };
    format!("{sign}{}", change.key())
}

/// Takes the next change. Returns its text, and whether all initial objects have now been delivered.
fn next<K: Clone + Eq + std::hash::Hash + std::fmt::Display, V>(
    changes: &mut Subscription<K, V>,
) -> (String, bool) {
    let received = changes.try_next().map_or_else(String::new, |change| brief(&change));
    (received, changes.is_initial_delivered())
}

fn received(text: &str, initial_processed: bool) -> (String, bool) {
    (text.to_owned(), initial_processed)
}

#[test]
fn nothing_has_come_yet() {
    let store = store();
    let mut changes = store.subscribe();
    assert_eq!(next(&mut changes), received("", false));
    // If the store is closed without a list, the initial state is not complete.
    store.close();
    assert_eq!(next(&mut changes), received("", false));
    assert!(!store.subscribe().is_initial_delivered());
}

#[test]
fn events_before_the_list_are_not_initial() {
    let store = store();
    store.upsert((1, 1));
    let mut changes = store.subscribe();
    store.upsert((2, 2));
    assert_eq!(next(&mut changes), received("=1", false), "an object of the snapshot is not initial");
    assert_eq!(next(&mut changes), received("+2", false));
    store.upsert((3, 3));
    list(&store, [1, 2, 3, 4], 9);
    // Object 3 was added by an event before the list, so it is not initial. Object 4 was added by the list, so it is initial.
    assert_eq!(next(&mut changes), received("+3", false));
    assert_eq!(next(&mut changes), received("~1", false));
    assert_eq!(next(&mut changes), received("~2", false));
    assert_eq!(next(&mut changes), received("=4", true));
}

#[test]
fn an_empty_list_is_a_list() {
    let store = store();
    let mut changes = store.subscribe();
    list(&store, [], 1);
    assert_eq!(next(&mut changes), received("", true));
    assert!(store.subscribe().is_initial_delivered(), "a later subscription is not complete");
}

#[test]
fn the_whole_first_list_must_be_delivered() {
    let store = store();
    let mut changes = store.subscribe();
    list(&store, [1, 2, 1], 1);
    store.upsert((2, 2));
    store.upsert((3, 3));
    assert!(!changes.is_initial_delivered());
    assert_eq!(
        next(&mut changes),
        received("=1", false),
        "a key that is listed twice was not delivered exactly once"
    );
    assert_eq!(next(&mut changes), received("=2", true), "the newest state was not delivered");
    assert_eq!(next(&mut changes), received("+3", true));
}

#[test]
fn a_later_list_is_not_initial() {
    let store = store();
    let mut early = store.subscribe();
    list(&store, [1], 1);
    list(&store, [1, 2], 2);
    let mut late = store.subscribe();
    assert_eq!([next(&mut early), next(&mut early)], [received("=1", true), received("+2", true)]);
    let mut snapshot = [next(&mut late), next(&mut late)].map(|received| received.0);
    snapshot.sort_unstable();
    assert_eq!(snapshot, ["=1", "=2"]);
    list(&store, [3], 3);
    assert!(early.is_initial_delivered() && late.is_initial_delivered(), "a later list reset the flag");
    assert_eq!(next(&mut early).0, next(&mut late).0);
}

/// `TestFIFO_HasSyncedCorrectOnDeletion`: if the list deletes an object, the deletion belongs to the initial state. If an object is deleted before it
/// is delivered, the wait ignores it.
#[test]
fn counts_deletions_and_no_vanished_objects() {
    let store = store();
    store.upsert((1, 1));
    let mut changes = store.subscribe();
    assert_eq!(next(&mut changes), received("=1", false));
    list(&store, [2, 3], 2);
    for key in [2, 3] {
        store.delete(&key, None);
    }
    assert_eq!(next(&mut changes), received("-1", true));
    assert_eq!(next(&mut changes), received("", true));
}

/// An object of the list is deleted and added again before it is delivered. Then a single change is delivered, which is not initial.
#[test]
fn a_recreated_object_is_not_initial() {
    let store = store();
    let mut changes = store.subscribe();
    list(&store, [1, 2], 1);
    assert_eq!(next(&mut changes), received("=1", false));
    for key in [1, 2] {
        store.delete(&key, None);
        store.upsert((key, 5));
    }
    assert_eq!(next(&mut changes), received("~1", true), "without an identity, a new object is an update");
    assert_eq!(next(&mut changes), received("+2", true));
}

/// The objects of an informer's first list are initial for subscribers that exist before it, with every kind of list request. Those of a relist after
/// a lost watch are not initial.
#[test]
fn the_first_list_is_initial_for_earlier_subscribers() {
    for (pages, streaming) in [(0, false), (2, false), (0, true)] {
        let server = server();
        for key in 0..5 {
            server.put(object(key, 0));
        }
        let mut builder = Informer::builder(SCHEMA, server.clone());
        if let Some(size) = NonZeroU32::new(pages) {
            builder = builder.page_size(size);
        }
        if streaming {
            builder = builder.streaming_lists();
        }
        let mut world = World::new(builder);
        let mut changes = world.informer.subscribe();
        let observed = Arc::new(Mutex::new(Vec::new()));
        let noting = observed.clone();
        let _observer = world.informer.observe(move |change| noting.lock().push(brief(change)));
        assert!(!changes.is_initial_delivered());
        world.settle();
        assert!(world.informer.is_synced() && !changes.is_initial_delivered());
        let first: Vec<_> = (0..5).map(|_| next(&mut changes)).collect();
        let flags: Vec<_> = ["=0", "=1", "=2", "=3", "=4"].into_iter().map(String::from).collect();
        assert_eq!(first.iter().map(|received| received.0.clone()).collect::<Vec<_>>(), flags);
        assert_eq!(
            first.iter().map(|received| received.1).collect::<Vec<_>>(),
            [false, false, false, false, true]
        );
        assert_eq!(std::mem::take(&mut *observed.lock()), flags);
        // The watch misses changes, and the next list delivers them.
        server.break_watches(EXPIRED);
        server.put(object(0, 0));
        server.put(object(5, 0));
        world.advance(std::time::Duration::from_secs(60));
        assert_eq!([next(&mut changes), next(&mut changes)], [received("~0", true), received("+5", true)]);
        assert_eq!(*observed.lock(), ["~0", "+5"]);
    }
}

/// Returns `Some(true)` if a wait has completed, `Some(false)` if it has failed, and `None` if it is pending. Asserts that `is_done` returns the
/// corresponding result.
fn wait_state(initial_processed: &InitialProcessed) -> Option<bool> {
    let now = match poll_once(pin!(initial_processed.clone())) {
        Poll::Ready(Ok(())) => Some(true),
        Poll::Ready(Err(Stopped)) => Some(false),
        Poll::Pending => None,
    };
    assert_eq!(initial_processed.is_done(), now == Some(true));
    now
}

/// `TestSingleFile`, `TestBasicLogic`: the wait completes only after the store has a list, and the subscriber has received and processed its changes.
#[test]
fn a_change_counts_as_processed_at_the_next_poll() {
    // As long as the store has no list, the wait is not complete, even if changes were processed.
    let store = store();
    let mut changes = store.subscribe();
    let initial_processed = changes.initial_processed();
    assert_eq!(wait_state(&initial_processed), None);
    store.upsert((1, 1));
    assert_eq!(next(&mut changes), received("+1", false));
    assert_eq!(next(&mut changes), received("", false));
    assert_eq!(wait_state(&initial_processed), None);
    // With a list, the wait is complete only after each change was received and processed.
    list(&store, [1, 2, 3], 2);
    assert_eq!(wait_state(&initial_processed), None);
    for _ in 0..3 {
        assert!(changes.try_next().is_some());
        assert_eq!(
            wait_state(&initial_processed),
            None,
            "a change counts as processed before the next one is requested"
        );
    }
    assert!(changes.is_initial_delivered(), "the initial objects are not delivered");
    // When the subscriber requests the next change, the previous change counts as processed, even if the next change is not initial.
    store.upsert((9, 9));
    assert_eq!(wait_state(&initial_processed), None, "a later change completed the wait");
    assert_eq!(next(&mut changes), received("+9", true));
    assert_eq!(wait_state(&initial_processed), Some(true));
    // The wait stays complete.
    store.upsert((8, 10));
    list(&store, [], 11);
    assert_eq!(
        (wait_state(&initial_processed), wait_state(&changes.initial_processed())),
        (Some(true), Some(true))
    );
    drop(changes);
    store.close();
    assert_eq!(wait_state(&initial_processed), Some(true));
}

/// If the first list is empty, no change is delivered, but waiters must be woken.
#[test]
fn an_empty_first_list_wakes_waiters() {
    let store = store();
    let (mut parked, mut asked, idle) = (store.subscribe(), store.subscribe(), store.subscribe());
    let (next, next_waker) = Counting::waker();
    assert!(poll_with(pin!(parked.next()), &next_waker).is_pending());
    assert!(asked.try_next().is_none());
    let waits: Vec<_> =
        [&parked, &asked, &idle].into_iter().map(|changes| changes.initial_processed()).collect();
    let mut waits: Vec<_> = waits.into_iter().map(|wait| (Box::pin(wait), Counting::waker())).collect();
    for (wait, (_, waker)) in &mut waits {
        assert!(poll_with(wait.as_mut(), waker).is_pending());
    }
    list(&store, [], 1);
    assert_eq!(next.wakes(), 1, "`next` was not woken, so its task cannot check `is_initial_delivered`");
    let wakes: Vec<_> = waits.iter().map(|(_, (count, _))| count.wakes()).collect();
    assert_eq!(wakes, [1, 1, 0], "a subscriber that requested no change counts as complete");
    let has_ended = |wait: &mut Pin<Box<InitialProcessed>>| poll_once(wait.as_mut());
    assert_eq!(has_ended(&mut waits[0].0), Poll::Ready(Ok(())));
    assert_eq!(has_ended(&mut waits[1].0), Poll::Ready(Ok(())));
    assert_eq!(wait_state(&idle.initial_processed()), None);
    let mut idle = idle;
    assert!(idle.try_next().is_none());
    assert_eq!(waits[2].1.0.wakes(), 1);
    assert_eq!(has_ended(&mut waits[2].0), Poll::Ready(Ok(())));
}

/// If all objects of the first list are deleted before the subscriber requests a change, the wait completes as with an empty list.
#[test]
fn a_list_whose_objects_vanish_completes_the_wait() {
    let store = store();
    let mut changes = store.subscribe();
    let initial_processed = changes.initial_processed();
    assert!(changes.try_next().is_none());
    list(&store, [1, 2], 1);
    store.delete(&1, None);
    assert_eq!(wait_state(&initial_processed), None);
    store.delete(&2, None);
    assert_eq!(wait_state(&initial_processed), Some(true));
}

#[test]
fn a_late_subscriber_processes_the_snapshot_first() {
    let store = store();
    list(&store, [1, 2], 1);
    let mut changes = store.subscribe();
    let initial_processed = changes.initial_processed();
    store.upsert((1, 2));
    for _ in 0..2 {
        assert!(changes.try_next().is_some_and(|change| change.is_initial()));
        assert_eq!(wait_state(&initial_processed), None);
    }
    store.upsert((3, 3));
    assert!(changes.try_next().is_some_and(|change| !change.is_initial()));
    assert_eq!(wait_state(&initial_processed), Some(true));
}

#[test]
fn it_fails_when_it_can_no_longer_happen() {
    // The subscription is dropped.
    let store = store();
    let changes = store.subscribe();
    let mut wait = Box::pin(changes.initial_processed());
    let (woken, waker) = Counting::waker();
    assert!(poll_with(wait.as_mut(), &waker).is_pending());
    list(&store, [1], 1);
    drop(changes);
    assert_eq!(woken.wakes(), 1);
    assert!(matches!(poll_once(wait.as_mut()), Poll::Ready(Err(_))));
    // If the store is closed after its first list, the subscriber can still process the initial objects.
    let mut changes = store.subscribe();
    let initial_processed = changes.initial_processed();
    store.close();
    assert_eq!(wait_state(&initial_processed), None);
    assert!(changes.try_next().is_some() && wait_state(&initial_processed).is_none());
    assert!(changes.try_next().is_none());
    assert_eq!(wait_state(&initial_processed), Some(true));
    // If the store is closed before its first list, every wait fails, even if its subscription began after the store was closed.
    let store = self::store();
    store.upsert((1, 1));
    let mut changes = store.subscribe();
    let initial_processed = changes.initial_processed();
    let dropped = store.clone();
    drop((store, dropped));
    assert_eq!(wait_state(&initial_processed), Some(false));
    assert!(changes.try_next().is_some() && changes.try_next().is_none());
    assert_eq!(wait_state(&initial_processed), Some(false));
    let store = self::store();
    store.close();
    assert_eq!(wait_state(&store.subscribe().initial_processed()), Some(false));
}

/// A wait that is dropped or whose waker panics does not affect other waits. A resync does not count as the initial list.
#[test]
fn waits_are_independent() {
    let store = store();
    let mut changes = store.subscribe();
    store.upsert((1, 1));
    assert!(changes.try_next().is_some() && changes.try_next().is_none());
    let (woken, waker) = Counting::waker();
    let mut waits: Vec<_> = (0..3).map(|_| Box::pin(changes.initial_processed())).collect();
    let hostile = Waker::from(Arc::new(Panicking));
    for (wait, waker) in waits.iter_mut().zip([&hostile, &waker, &waker]) {
        assert!(poll_with(wait.as_mut(), waker).is_pending());
        assert!(poll_with(wait.as_mut(), waker).is_pending(), "a second poll completed the wait");
    }
    drop(waits.pop());
    changes.resync();
    assert!(changes.try_next().is_some());
    assert_eq!(woken.wakes(), 0);
    list(&store, [1], 1);
    assert_eq!(woken.wakes(), 1, "a list without changes did not complete the wait");
    assert_eq!(poll_once(waits[1].as_mut()), Poll::Ready(Ok(())));
}

/// Another thread waits while the subscriber processes the changes.
#[test]
fn others_wait_elsewhere() {
    let store = store();
    let mut changes = store.subscribe();
    let waits: Vec<_> = (0..3).map(|_| changes.initial_processed()).collect();
    let waiting: Vec<_> =
        waits.into_iter().map(|wait| std::thread::spawn(move || on_this_thread(wait))).collect();
    let lister = std::thread::spawn({
        let store = store.clone();
        move || list(&store, 0..1_000, 1)
    });
    on_this_thread(async { while changes.next().await.is_some_and(|change| *change.key() < 999) {} });
    store.upsert((1_000, 2));
    on_this_thread(changes.next());
    for wait in waiting {
        wait.join().unwrap().unwrap();
    }
    lister.join().unwrap();
}

fn on_this_thread<F: Future>(future: F) -> F::Output {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

#[cfg(feature = "stream")]
#[test]
fn a_subscription_is_a_stream() {
    use futures_core::Stream;

    fn poll<S: Stream + Unpin>(stream: &mut S, waker: &Waker) -> Poll<Option<S::Item>> {
        Pin::new(stream).poll_next(&mut std::task::Context::from_waker(waker))
    }

    /// A key type that is not `Unpin`: the store does not require that keys are.
    #[derive(Clone, PartialEq, Eq, Hash)]
    struct Pinned(u32, std::marker::PhantomPinned);

    let schema = Schema::new(|object: &u32| Pinned(*object, std::marker::PhantomPinned), |_| Version::ZERO);
    let store = Store::builder(schema).build().unwrap().into_shared();
    let (woken, waker) = Counting::waker();
    store.upsert(1);
    let mut stream = store.subscribe();
    assert!(matches!(poll(&mut stream, &waker), Poll::Ready(Some(change)) if change.is_initial()));
    assert!(poll(&mut stream, &waker).is_pending());
    store.upsert(2);
    assert_eq!(woken.wakes(), 1);
    assert!(matches!(poll(&mut stream, &waker), Poll::Ready(Some(change)) if change.key().0 == 2));
    assert!(poll(&mut stream, &waker).is_pending());
    store.close();
    assert!(matches!(poll(&mut stream, &waker), Poll::Ready(None)));
    assert!(matches!(poll(&mut stream, &waker), Poll::Ready(None)), "the stream does not stay closed");
}
