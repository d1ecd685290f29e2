//! Tests that correspond to client-go's tests of the queue between its reflector and its handlers (`DeltaFIFO`, `RealFIFO`), of its controller, and
//! of its shared informer. Each test names its counterpart. A number in parentheses is the number of cases of the counterpart. Here, there is no such
//! queue: the store is written first, and then subscribers receive the changes. So each test checks the received changes: an observer receives each
//! change, and a subscription receives coalesced changes.
//!
//! Tests of client-go whose counterparts are in other files, or that have none:
//! - `TestDeltaFIFO_transformer`, `TestTransformingInformer` and its race, `TestSharedInformerTransformer`, `…NonMetaTransform`:
//!   `objects_are_transformed_once_whatever_brings_them` in `upstream_informer.rs`; the version is read before the object is transformed.
//! - `TestDeltaFIFO_ReplaceMakesDeletionsReplaced`, `…ReplaceDeltaType`: here, there is only one kind of replacement. `TestDeltaFIFO_KeyOf`, and all
//!   tests about the type of tombstones: here, a deletion always has an object, which is the last known state.
//! - `TestDeltaFIFO_HasSynced` (7), `…HasSyncedCorrectOnDeletion`, the second half of `TestAddWhileActive`: `caught_up.rs`.
//! - `TestRealFIFO_PopMultipleDeltaInBatch` (8), `…PopBrokenItemsInBatch` (4), `TestProcessDeltasInBatch` (4): here, changes are not taken in
//!   batches, and applying a change cannot fail; a transaction is applied as one write. `…ReplaceAtomic` (4), `…ReplaceAtomicPop`: here, every reader
//!   sees a list as a single step.
//! - `Example`, `ExampleNewInformer`: `examples/informer.rs`. `TestPanicPropagated`: `informer.rs`. `TestEventPanics` and the tests of the
//!   end of a handler: `handler.rs`, `observer.rs`.
//! - `TestListenerResyncPeriods`, `TestResyncCheckPeriod`: `resync_every.rs`; `TestTypedFilteringResourceEventHandler`: `filter.rs`.
//! - `TestSharedInformerStartRace`, `TestStateSharedInformer`'s panics, running twice: here, the builder has all settings, and the run future exists
//!   only once.
//! - `TestSharedInformerRemoveForeignHandler`, `TestRemovingRemovedSharedInformer`, `TestRemoveOnStoppedSharedInformer`: here, a registration is a
//!   value that belongs to one handler, is dropped once, and may be dropped at any time.
//! - `TestShutdown` (3): `an_informer_that_ended_holds_no_waker` in `informer.rs`; here, no code runs unless a future is polled.
//! - `TestTypedResourceEventHandlerFuncs`, `…Adapter`, `TestTypedSharedIndexInformer*`, `TestNameForHandler`: here, all types are static, and
//!   closures have no names.

use std::sync::Arc;
use std::thread;

use drivers::cache::fixture::{EXPIRED, INTERNAL, OTHER, Object, REFUSED, SCHEMA, World, object};
use drivers::cache::server::{Server, server};
use flyball_informer_cache::{
    BackoffCause, Change, ChangeKind, Informer, InformerState, Observer, Schema, SharedWriter, Store,
    Subscription, Version, WatchEvent, WriteOutcome,
};
use parking_lot::Mutex;
use testkit::wakers::{Counting, poll_with};

type Objects = SharedWriter<u8, Object>;

fn store() -> Objects {
    Store::builder(SCHEMA).seed(1).build().unwrap().into_shared()
}

/// Replaces the content of the store by a list with these objects and this version.
fn replace(store: &Objects, objects: impl IntoIterator<Item = Object>, version: u64) {
    store.replace(objects, Version::new(version));
}

/// Formats a change: `=1@2` is an initial object, `+1@2` an addition, `1@2>3` an update, `1@2!3` a replacement, `-1@3` a deletion, and `-1@3?` a
/// deletion that was missed.
fn brief(change: Change<u8, Object>) -> String {
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

fn received(changes: &mut Subscription<u8, Object>) -> Vec<String> {
    std::iter::from_fn(|| changes.try_next()).map(brief).collect()
}

/// The changes that an observer has received.
#[derive(Clone, Default)]
struct Observed(Arc<Mutex<Vec<String>>>);

impl Observed {
    fn of(store: &Objects) -> (Self, Observer<u8, Object>) {
        let observed = Self::default();
        let words = observed.clone();
        (observed, store.observe(move |change| words.0.lock().push(brief(change.clone()))))
    }

    fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock())
    }
}

/// `TestDeltaFIFO_basic`.
#[test]
fn writes_of_two_writers_are_delivered_in_order() {
    let store = store();
    let (observed, _observer) = Observed::of(&store);
    thread::scope(|scope| {
        for key in [1, 2] {
            let store = &store;
            scope.spawn(move || (1..=500).for_each(|version| _ = store.upsert(object(key, version))));
        }
    });
    let observed = observed.take();
    for key in ["1", "2"] {
        let of_one =
            observed.iter().filter(|word| word.trim_start_matches('+').starts_with(&format!("{key}@")));
        let mut expected = vec![format!("+{key}@1")];
        expected.extend((1..500).map(|version| format!("{key}@{version}>{}", version + 1)));
        assert_eq!(of_one.cloned().collect::<Vec<_>>(), expected);
    }
}

/// `TestDeltaFIFO_replaceWithDeleteDeltaIn` (kubernetes#83810): a deletion is pending when a list contains the key again.
#[test]
fn a_deletion_that_is_pending_survives_the_list_that_has_another_under_its_key() {
    let store = store();
    replace(&store, [object(1, 1)], 1);
    let mut changes = store.subscribe();
    assert_eq!(received(&mut changes), ["=1@1"]);
    store.apply(WatchEvent::Deleted(object(1, 2)));
    replace(&store, [Object { uid: 1, ..object(1, 3) }], 3);
    assert_eq!(received(&mut changes), ["1@2!3"]);
}

/// `TestDeltaFIFOW_ReplaceMakesDeletionsForObjectsOnlyInQueue` (6): an object was added by an event and is missing from the next list.
#[test]
fn a_list_deletes_an_object_known_only_by_an_event() {
    let store = store();
    replace(&store, [], 1);
    let (observed, _observer) = Observed::of(&store);
    let mut prompt = store.subscribe();
    let mut late = store.subscribe();
    store.upsert(object(1, 2));
    assert_eq!(received(&mut prompt), ["+1@2"]);
    replace(&store, [], 3);
    replace(&store, [], 4);
    assert_eq!(observed.take(), ["+1@2", "-1@2?"]);
    assert_eq!(received(&mut prompt), ["-1@2?"]);
    assert!(
        received(&mut late).is_empty(),
        "an object that was deleted before it was received was delivered"
    );
    // If an event has already deleted the object, the list does not delete anything.
    store.upsert(object(2, 5));
    store.apply(WatchEvent::Deleted(object(2, 6)));
    replace(&store, [], 7);
    assert_eq!(observed.take(), ["+2@5", "-2@6"]);
    // If the object was deleted and added again, the list deletes the new object.
    store.upsert(object(3, 8));
    store.apply(WatchEvent::Deleted(object(3, 9)));
    store.upsert(object(3, 10));
    replace(&store, [], 11);
    assert_eq!(observed.take(), ["+3@8", "-3@9", "+3@10", "-3@10?"]);
    assert!(received(&mut prompt).is_empty());
    store.check().unwrap();
}

/// `TestDeltaFIFO_addUpdate`, `…_addReplace`: three pending changes are delivered as one change, with the state of the last one. The changes by an
/// update and by a list are also delivered as one change, with the newest state.
#[test]
fn pending_changes_of_a_key_merge_into_one() {
    let store = store();
    replace(&store, [], 1);
    let mut changes = store.subscribe();
    store.upsert(object(1, 2));
    store.upsert(object(1, 3));
    assert_eq!(changes.pending(), 1);
    assert_eq!(received(&mut changes), ["+1@3"]);
    store.upsert(object(1, 4));
    store.apply(WatchEvent::Deleted(object(1, 5)));
    assert_eq!(changes.pending(), 1);
    assert_eq!(received(&mut changes), ["-1@5"]);
    store.upsert(object(2, 6));
    replace(&store, [object(2, 7)], 7);
    assert_eq!(received(&mut changes), ["+2@7"]);
}

/// `TestDeltaFIFO_enqueueingNoLister`, `…WithLister`: the deletion of an unknown object is not delivered. (client-go's newer queue delivers
/// it, because handlers may not have received the object yet. Here, every object of the store was delivered or is pending, so this is not necessary.)
#[test]
fn only_the_deletion_of_a_stored_object_is_delivered() {
    let store = store();
    replace(&store, [object(1, 1)], 1);
    let (observed, _observer) = Observed::of(&store);
    assert_eq!(observed.take(), ["=1@1"]);
    assert_eq!(store.apply(WatchEvent::Deleted(object(2, 2))), WriteOutcome::Absent);
    assert!(observed.take().is_empty());
    store.apply(WatchEvent::Deleted(object(1, 3)));
    assert_eq!(observed.take(), ["-1@3"]);
}

/// `TestDeltaFIFO_ResyncNonExisting`, `…_Resync`, `…_UpdateResyncRace`, `TestRealFIFO_ResyncAtomic`. (In client-go, a resync skips the keys that are
/// pending when it begins. Here, it begins when no change is pending, so it covers all objects.)
#[test]
fn a_resync_delivers_existing_objects_and_replaces_no_pending_change() {
    let store = store();
    replace(&store, [], 1);
    let mut changes = store.subscribe();
    changes.resync();
    assert!(received(&mut changes).is_empty());
    store.upsert(object(1, 2));
    store.upsert(object(2, 2));
    assert_eq!(received(&mut changes), ["+1@2", "+2@2"]);
    store.apply(WatchEvent::Deleted(object(1, 3)));
    store.upsert(object(2, 4));
    changes.resync();
    assert_eq!(received(&mut changes), ["-1@3", "2@2>4", "2@4>4"]);
    changes.resync();
    assert_eq!(received(&mut changes), ["2@4>4"]);
}

/// `TestDeltaFIFO_DeleteExistingNonPropagated`: client-go delivers both changes. Here, a subscriber that has not received the insert when the
/// deletion comes receives neither of them. An observer receives both.
#[test]
fn an_insert_and_a_deletion_are_two_events_and_no_change() {
    let store = store();
    replace(&store, [], 1);
    let (observed, _observer) = Observed::of(&store);
    let mut changes = store.subscribe();
    store.upsert(object(1, 2));
    store.apply(WatchEvent::Deleted(object(1, 3)));
    assert_eq!(observed.take(), ["+1@2", "-1@3"]);
    assert_eq!((changes.pending(), received(&mut changes).len()), (0, 0));
}

/// `TestDeltaFIFO_ReplaceMakesDeletions` (5), `TestReplaceEvents` (3, atomic and not): there are three known objects and an operation, and then a
/// list. The test checks the exact changes and their order. If an object is missing from the list, its deletion has the newest known state.
#[test]
fn a_list_deletes_first_and_then_goes_through_in_its_order() {
    type Before = fn(&Objects);
    let scripts: [(&str, Before, &[&str], &[&str]); 5] = [
        ("nothing", |_| {}, &["-2@1?", "-3@1?", "1@1>9"], &["-2@1?", "-3@1?", "1@1>9"]),
        (
            "a deletion",
            |store| _ = store.apply(WatchEvent::Deleted(object(3, 5))),
            &["-3@5", "-2@1?", "1@1>9"],
            &["-3@5", "-2@1?", "1@1>9"],
        ),
        (
            "an addition",
            |store| _ = store.upsert(object(4, 5)),
            &["+4@5", "-2@1?", "-3@1?", "-4@5?", "1@1>9"],
            &["-2@1?", "-3@1?", "1@1>9"],
        ),
        (
            "an update",
            |store| _ = store.upsert(object(2, 5)),
            &["2@1>5", "-2@5?", "-3@1?", "1@1>9"],
            &["-2@5?", "-3@1?", "1@1>9"],
        ),
        (
            "a deletion, and an addition under the key",
            |store| {
                store.apply(WatchEvent::Deleted(object(3, 5)));
                store.upsert(object(3, 6));
            },
            &["-3@5", "+3@6", "-2@1?", "-3@6?", "1@1>9"],
            // The subscriber had received the first object under this key. A second one was added and deleted before the subscriber received it.
            &["-3@6?", "-2@1?", "1@1>9"],
        ),
    ];
    for (name, before, steps, changes) in scripts {
        let store = store();
        replace(&store, [object(1, 1), object(2, 1), object(3, 1)], 1);
        let (observed, _observer) = Observed::of(&store);
        let mut subscription = store.subscribe();
        assert_eq!((observed.take().len(), received(&mut subscription).len()), (3, 3));
        before(&store);
        replace(&store, [object(1, 9)], 9);
        let sorted = |words: Vec<String>| {
            // The deletions that a relist publishes have no defined order, so they are sorted.
            let mut words = words;
            words.sort_by_key(|word| if word.ends_with('?') { word.clone() } else { String::new() });
            words
        };
        let steps: Vec<_> = steps.iter().map(|word| (*word).to_owned()).collect();
        let changes: Vec<_> = changes.iter().map(|word| (*word).to_owned()).collect();
        let (observed, received) = (observed.take(), received(&mut subscription));
        assert_eq!(observed.last(), steps.last(), "{name}");
        assert_eq!(received.last(), changes.last(), "{name}");
        assert_eq!(sorted(observed), sorted(steps), "{name}");
        assert_eq!(sorted(received), sorted(changes), "{name}");
    }
}

/// `TestReplaceEvents`: when a change is delivered, the store already contains the whole list.
#[test]
fn changes_of_a_list_are_delivered_after_its_publication() {
    let store = store();
    replace(&store, [object(1, 1), object(2, 1)], 1);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let _observer = {
        let (seen, weak) = (seen.clone(), store.clone());
        store.observe(move |_| seen.lock().push(weak.len()))
    };
    seen.lock().clear();
    replace(&store, [object(2, 2), object(3, 2), object(4, 2)], 2);
    assert_eq!(*seen.lock(), [3; 4]);
}

/// `TestDeltaFIFO_detectLineJumpers`: a subscriber that takes changes late receives the newest state of a key at the position of the first pending
/// change of the key. After this delivery, the next change of the key is appended at the end.
#[test]
fn a_key_keeps_its_place_until_it_is_delivered() {
    let store = store();
    replace(&store, [], 1);
    let mut changes = store.subscribe();
    for key in [1, 2, 3] {
        store.upsert(object(key, 2));
    }
    store.upsert(object(1, 3));
    assert_eq!(changes.try_next().map(brief).as_deref(), Some("+1@3"));
    store.upsert(object(1, 4));
    assert_eq!(received(&mut changes), ["+2@2", "+3@2", "1@3>4"]);
}

/// `TestDeltaFIFO_PopShouldUnblockWhenClosed`.
#[test]
fn ten_that_wait_are_all_woken_by_the_end() {
    let store = store();
    let mut waiting: Vec<_> = (0..10).map(|_| (store.subscribe(), Counting::waker())).collect();
    for (changes, (_, waker)) in &mut waiting {
        assert!(poll_with(std::pin::pin!(changes.next()), waker).is_pending());
    }
    store.close();
    for (changes, (wakes, waker)) in &mut waiting {
        assert_eq!(wakes.wakes(), 1);
        assert!(poll_with(std::pin::pin!(changes.next()), waker).is_ready());
    }
}

/// A subscriber that stores the received state, and checks that every change is possible in this state.
struct Follower {
    changes: Subscription<u8, Object>,
    held: Vec<Object>,
}

impl Follower {
    fn of(world: &World) -> Self {
        Self { changes: world.informer.store().subscribe(), held: Vec::new() }
    }

    fn read(&mut self) {
        while let Some(change) = self.changes.try_next() {
            let known = self.held.iter().position(|object| object.key == *change.key());
            // client-go's table of valid transitions: a key is added only if it is unknown, and updated or deleted only if it is known; an update
            // never changes the identity.
            let object = change.object();
            match (change.kind(), change.old()) {
                (ChangeKind::Updated, Some(old)) => {
                    assert_eq!(self.held[known.expect("the updated object is known")], **old);
                    assert!(old.uid == object.uid && old.version <= object.version);
                }
                (kind, Some(old)) => {
                    assert_eq!(self.held[known.expect("the deleted object is known")].uid, old.uid);
                    assert_eq!(kind == ChangeKind::Replaced, old.uid != object.uid);
                }
                (_, None) => assert_eq!(known, None),
            }
            if let Some(known) = known {
                self.held.remove(known);
            }
            self.held.extend(change.new().map(|new| **new));
        }
        self.held.sort_by_key(|object| object.key);
    }
}

/// Returns an informer that has listed the objects of the server and is now watching.
fn watching(server: &Server) -> World {
    let mut world = World::new(Informer::builder(SCHEMA, server.clone()));
    world.settle();
    world
}

/// `TestUpdate`, `TestHammerController`: twenty objects are added, changed and deleted hundreds of times. Only valid transitions are delivered, and
/// every deletion is delivered.
#[test]
fn only_valid_transitions_and_every_deletion_are_delivered() {
    let server = server();
    let mut world = watching(&server);
    let mut followers = [Follower::of(&world), Follower::of(&world), Follower::of(&world)];
    for round in 0_u32..300 {
        let key = u8::try_from(round.wrapping_mul(97) % 20).unwrap();
        match round % 5 {
            0 | 1 => _ = server.put(object(key, 0)),
            2 => _ = server.delete(&key),
            3 => {
                server.put(object(key, 0));
                server.put(object(key, 0));
            }
            _ => server.break_watches(EXPIRED),
        }
        // The first follower takes all changes immediately, the second one from time to time, and the third one at the end.
        if round % 3 == 0 {
            world.advance(std::time::Duration::from_secs(2));
        }
        followers[0].read();
        if round % 50 == 0 {
            followers[1].read();
        }
    }
    for key in 0..20 {
        _ = server.delete(&key);
    }
    world.advance(std::time::Duration::from_secs(60));
    assert!(world.stored().is_empty());
    for follower in &mut followers {
        follower.read();
        assert!(follower.held.is_empty());
    }
}

/// `TestResetWatch` (2): a watch is lost. The changes that the next list then delivers are not initial.
///
/// `TestSharedInformerWatchDisruption`: the list delivers only the objects that have changed. A subscriber receives the other objects again only with
/// a resync.
#[test]
fn exactly_the_missed_changes_are_delivered() {
    let server = server();
    for key in 1..4 {
        server.put(object(key, 0));
    }
    let mut world = watching(&server);
    let store = world.informer.store();
    let (mut changes, mut resyncing) = (store.subscribe(), store.subscribe());
    assert_eq!(received(&mut changes), ["=1@2", "=2@3", "=3@4"]);
    assert_eq!(received(&mut resyncing).len(), 3);
    // The run future is not polled during these operations.
    server.put(object(2, 0));
    server.put(object(4, 0));
    _ = server.delete(&3);
    server.compact();
    server.break_watches(EXPIRED);
    world.advance(std::time::Duration::from_secs(60));
    let expected = ["-3@4?", "2@3>5", "+4@6"];
    assert_eq!(received(&mut changes), expected);
    resyncing.resync();
    let mut received = received(&mut resyncing);
    received.sort_unstable();
    assert_eq!(received, ["+4@6", "-3@4?", "1@2>2", "2@3>5", "2@5>5", "4@6>6"]);
}

/// `TestStoreResourceVersion`: when the change of an event is delivered, the store already has the version of this event, even if it is a deletion.
#[test]
fn the_version_of_the_store_matches_the_delivered_change() {
    let store = store();
    replace(&store, [object(1, 1)], 1);
    let versions = Arc::new(Mutex::new(Vec::new()));
    let _observer = {
        let (versions, reader) = (versions.clone(), store.clone());
        store.observe(move |_| versions.lock().push(reader.version().get()))
    };
    versions.lock().clear();
    store.apply(WatchEvent::Modified(object(1, 2)));
    store.apply(WatchEvent::Added(object(2, 3)));
    store.apply(WatchEvent::Deleted(object(1, 4)));
    store.apply(WatchEvent::Bookmark(Version::new(7)));
    assert_eq!(*versions.lock(), [2, 3, 4]);
    assert_eq!(store.version(), Version::new(7));
}

/// `TestAddWhileActive`, `TestRemoveWhileActive`, `TestSharedInformerMultipleRegistration`, `…RemoveHandler`: a late observer receives all
/// existing objects and then the changes; an observer that has ended receives nothing.
#[test]
fn a_late_observer_receives_all_objects() {
    let store = store();
    replace(&store, [object(1, 1)], 1);
    let (first, observer) = Observed::of(&store);
    store.upsert(object(2, 2));
    let (second, _second) = Observed::of(&store);
    let mut words = second.take();
    words.sort_unstable();
    assert_eq!(words, ["=1@1", "=2@2"]);
    assert_eq!(first.take(), ["=1@1", "+2@2"]);
    drop(observer);
    store.upsert(object(2, 3));
    assert_eq!(second.take(), ["2@2>3"]);
    assert!(first.take().is_empty());
}

/// `TestSharedInformerInitializationRace` (kubernetes#59822): a subscription that begins while the first list is published receives each
/// object once. (The model `informer_cache::subscribe_vs_first_list` checks every interleaving.)
#[test]
fn a_subscriber_during_the_first_list_receives_each_object_once() {
    for _ in 0..200 {
        let store = store();
        thread::scope(|scope| {
            let listing = scope.spawn(|| replace(&store, (0..20).map(|key| object(key, 1)), 1));
            let mut changes = store.subscribe();
            listing.join().unwrap();
            let mut words = received(&mut changes);
            words.sort_unstable();
            words.dedup();
            assert_eq!(words.len(), 20);
            assert!(words.iter().all(|word| word.starts_with('=')));
        });
    }
}

/// `TestSharedInformerErrorHandling`: every failure is reported to the callback with the time of the retry. The status contains the failure before
/// the callback runs. A panic in the callback is caught.
#[test]
fn every_failure_is_reported_to_its_callback() {
    let server = server();
    server.put(object(1, 0));
    server.fail_list(REFUSED);
    server.fail_list(EXPIRED);
    let failures = Arc::new(Mutex::new(Vec::new()));
    let builder = Informer::builder(SCHEMA, server.clone()).on_error({
        let failures = failures.clone();
        move |failure| {
            assert!(failure.retry_at.is_none_or(|until| until > failure.at));
            failures.lock().push((failure.cause, failure.error.is_some(), failure.retry_at.is_some()));
            std::panic::resume_unwind(Box::new("of the listener"));
        }
    });
    let mut world = World::new(builder);
    let minute = std::time::Duration::from_secs(60);
    world.advance(minute);
    assert_eq!(world.informer.status().state, InformerState::Watching);
    server.fail_watch(INTERNAL);
    server.break_watches(OTHER);
    world.advance(minute);
    server.set_faults(|faults| faults.unresponsive = true);
    server.break_watches(EXPIRED);
    world.settle();
    let received = std::mem::take(&mut *failures.lock());
    // If a list fails because its version is too old (`EXPIRED`), the newest list is requested immediately, so `retry_at` is `None`.
    let expected = [(REFUSED, true), (EXPIRED, false), (OTHER, true), (INTERNAL, true), (EXPIRED, true)];
    let expected = expected.map(|(kind, waits)| (BackoffCause::Failed(kind), true, waits));
    assert_eq!(received, expected);
    world.advance(20 * minute);
    let received = std::mem::take(&mut *failures.lock());
    // A timeout comes with the error before it.
    assert!(received.contains(&(BackoffCause::TimedOut, false, true)), "{received:?}");
    let last = world.informer.status().last_error.unwrap();
    assert_eq!(last.message.as_ref(), "no answer in time; before that: version expired");
}

/// In client-go, the buffer of a slow handler grows without bound (several kubernetes issues). Here the pending changes of a slow subscriber are
/// bounded by the number of keys, however many changes occur.
#[test]
fn pending_changes_are_bounded_by_the_keys() {
    struct Counted {
        key: u8,
        version: u64,
        _alive: Arc<()>,
    }
    const COUNTED: Schema<u8, Counted> =
        Schema::new(|object: &Counted| object.key, |object| Version::new(object.version));
    let store = Store::builder(COUNTED).seed(1).build().unwrap().into_shared();
    let alive = Arc::new(());
    let objects = || Arc::strong_count(&alive) - 1;
    let happens = |version: u64| {
        let key = |number: u64| u8::try_from(number % 10).unwrap();
        store.upsert(Counted { key: key(version), version, _alive: alive.clone() });
        if version % 7 == 0 {
            store.delete(&key(version / 7), None);
        }
    };
    let mut sleeping = [store.subscribe(), store.subscribe()];
    for version in 1..EVENTS {
        happens(version);
        // No object has been delivered to a subscriber yet, so no old state is kept.
        assert!(objects() <= 10);
    }
    while sleeping[1].try_next().is_some() {}
    for version in EVENTS..2 * EVENTS {
        happens(version);
        // At most four objects are alive per key: the newest one, the one that the subscriber received last, and the objects that the first and the
        // latest deletion since then removed.
        assert!(objects() <= 40, "{} objects", objects());
        assert!(sleeping.iter().all(|changes| changes.pending() <= 10));
    }
    for changes in &mut sleeping {
        while changes.try_next().is_some() {}
    }
    assert_eq!(objects(), store.len());
}

const EVENTS: u64 = if cfg!(debug_assertions) { 20_000 } else { 1_000_000 };
