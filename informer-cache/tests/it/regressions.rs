//! One short test for each defect that was found and fixed.

use std::cell::{Cell, RefCell};
use std::ops::Bound;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flyball_informer_cache::{
    ChangeKind, EventVerdict, Index, IndexError, ListVersion, OrderedIndex, Reflector, ReflectorConfig,
    ReflectorPhase, ReflectorRequest, Schema, SharedWriter, Snapshot, SourceErrorKind, Store, Version,
    WaitForError, WatchEvent, WriteOutcome,
};
use flyball_sync::Nanos;
use parking_lot::Mutex;
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

/// A key, a version, and an identity.
type Named = (u8, u64, u8);

type Write = fn(&SharedWriter<u8, Named>) -> WriteOutcome;

fn store() -> SharedWriter<u8, Named> {
    let schema = Schema::new(|object: &Named| object.0, |object| Version::new(object.1));
    Store::builder(schema.with_identity(|a, b| a.2 == b.2)).build().unwrap().into_shared()
}

fn version(version: u64) -> Version {
    Version::new(version)
}

#[test]
fn a_late_event_of_the_object_before_took_the_key_back() {
    let store = store();
    store.upsert((1, 5, 1));
    assert_eq!(store.upsert((1, 8, 2)), WriteOutcome::Replaced);
    assert_eq!(store.upsert((1, 6, 1)), WriteOutcome::Stale { stored: version(8) });
    assert_eq!(store.get(&1).as_deref(), Some(&(1, 8, 2)));
    assert_eq!(
        store.upsert((1, 8, 3)),
        WriteOutcome::Replaced,
        "another object with the same version did not replace the first one"
    );
    assert_eq!(
        store.upsert((1, 0, 4)),
        WriteOutcome::Replaced,
        "an object without a version did not replace the first one"
    );
}

#[test]
fn a_stale_event_did_not_advance_the_store() {
    // The version of the list is lower than the version of an object in the list.
    let stale: [Write; 4] = [
        |store| store.upsert((1, 7, 1)),
        |store| store.upsert((1, 7, 2)),
        |store| store.delete(&1, Some((1, 7, 1))),
        |store| store.apply(WatchEvent::Deleted((1, 7, 2))),
    ];
    for event in stale {
        let store = store();
        store.replace([(1, 9, 1)], version(5));
        let (wakes, waker) = Counting::waker();
        let mut wait = Box::pin(store.wait_for_version(version(7)));
        assert!(poll_with(wait.as_mut(), &waker).is_pending());
        assert_eq!(event(&store), WriteOutcome::Stale { stored: version(9) });
        assert_eq!((store.version(), wakes.wakes()), (version(7), 1));
        assert_eq!(poll_once(wait.as_mut()), Poll::Ready(Ok(version(7))));
        assert_eq!(store.get(&1).as_deref(), Some(&(1, 9, 1)));
        store.check().unwrap();
    }
}

#[test]
fn a_wait_for_a_version_kept_the_store_open() {
    let store = store();
    let (wakes, waker) = Counting::waker();
    let (mut asked, mut never) =
        (Box::pin(store.wait_for_version(version(7))), Box::pin(store.wait_for_version(version(7))));
    let mut reached = Box::pin(store.wait_for_version(version(3)));
    let forgotten = Box::pin(store.wait_for_version(version(7)));
    let mut changes = store.subscribe();
    assert!(poll_with(asked.as_mut(), &waker).is_pending());
    assert!(poll_with(reached.as_mut(), Waker::noop()).is_pending());
    store.apply(WatchEvent::Bookmark(version(4)));
    drop(store);
    assert!(
        matches!(poll_once(Box::pin(changes.next()).as_mut()), Poll::Ready(None)),
        "the store is still open"
    );
    assert_eq!(wakes.wakes(), 1);
    assert_eq!(poll_once(asked.as_mut()), Poll::Ready(Err(WaitForError::Closed)));
    assert_eq!(poll_once(never.as_mut()), Poll::Ready(Err(WaitForError::Closed)));
    assert_eq!(
        poll_once(reached.as_mut()),
        Poll::Ready(Ok(version(4))),
        "a version that was reached before the end was not reported"
    );
    drop(forgotten);
}

fn reflector() -> Reflector {
    Reflector::new(ReflectorConfig::default(), Nanos::ZERO, 0).unwrap()
}

#[test]
fn a_watch_from_no_version_was_opened_again_without_a_list() {
    for kind in [SourceErrorKind::ConnectionRefused, SourceErrorKind::TooManyRequests { retry_after: None }] {
        let mut reflector = reflector();
        assert_eq!(reflector.page(Version::ZERO, None, Nanos::ZERO, 0), EventVerdict::Publish(Version::ZERO));
        reflector.watch_failed(kind, Nanos::ZERO, 0);
        assert!(
            matches!(reflector.phase(), ReflectorPhase::Waiting { .. }),
            "the reflector does not wait for its backoff"
        );
        reflector.deadline_reached(reflector.deadline(), 0);
        assert!(
            matches!(reflector.step(), ReflectorRequest::List(_)),
            "the next request is not a list, although only a list shows what was deleted meanwhile"
        );
    }
}

#[test]
fn continuations_in_a_circle_never_ended() {
    let mut reflector = reflector();
    let mut page = |token: &str| reflector.page(version(1), Some(token.into()), Nanos::ZERO, 0);
    assert_eq!(
        [page("a"), page("b"), page("a")],
        [EventVerdict::Stage, EventVerdict::Stage, EventVerdict::Ignore]
    );
    assert!(
        matches!(reflector.phase(), ReflectorPhase::Waiting { .. }),
        "the reflector does not wait for its backoff"
    );
    assert!(!reflector.has_partial_list());
    reflector.deadline_reached(reflector.deadline(), 0);
    let ReflectorRequest::List(request) = reflector.step() else { panic!("the next request is not a list") };
    assert_eq!((request.min_version, request.continuation), (ListVersion::Any, None));
    // A later list may use the same continuation tokens.
    assert_eq!(reflector.page(version(1), Some("a".into()), Nanos::ZERO, 0), EventVerdict::Stage);
}

#[test]
fn a_consumer_that_had_caught_up_was_not_any_more() {
    let store = store();
    store.replace([(1, 1, 1)], Version::new(1));
    let mut changes = store.subscribe();
    assert!(!changes.is_initial_delivered());
    assert!(changes.try_next().is_some_and(|change| change.is_initial()));
    assert!(changes.is_initial_delivered());
    // Later changes are not part of the initial state.
    store.upsert((1, 2, 2));
    assert!(changes.is_initial_delivered());
    assert_eq!(changes.pending(), 1);
    assert!(changes.try_next().is_some_and(|change| change.kind() == ChangeKind::Replaced));
    assert!(changes.is_initial_delivered());
}

#[test]
fn a_waker_that_panics_reached_the_writer() {
    let store = store();
    let mut changes = store.subscribe();
    let mut wait = Box::pin(store.wait_for_version(version(1)));
    let hostile = Waker::from(Arc::new(Panicking));
    let write: [&dyn Fn() -> bool; 4] = [
        &|| store.upsert((1, 1, 1)) == WriteOutcome::Added,
        &|| store.delete(&1, None) == WriteOutcome::Deleted,
        &|| store.replace([(2, 3, 1)], version(3)).len() == 1,
        &|| {
            store.apply(WatchEvent::Bookmark(version(4)));
            store.version() == version(4)
        },
    ];
    assert!(poll_with(wait.as_mut(), &hostile).is_pending());
    for write in write {
        while changes.try_next().is_some() {}
        assert!(poll_with(Box::pin(changes.next()).as_mut(), &hostile).is_pending());
        assert!(write(), "the writer did not receive its result");
    }
    assert_eq!(poll_once(wait.as_mut()), Poll::Ready(Ok(version(1))));
    store.close();
}

#[test]
fn a_range_from_after_its_end_panicked_only_where_values_lay_between() {
    static BY_VERSION: OrderedIndex<Named, u64> = OrderedIndex::new("version", |object| object.1);
    let store = store();
    store.add_index(&BY_VERSION).unwrap();
    store.upsert((1, 5, 1));
    let view = store.snapshot();
    #[expect(clippy::reversed_empty_ranges, reason = "it has to panic")]
    for backwards in [3..1, 7..6, 9..3] {
        let panic =
            catch_unwind(AssertUnwindSafe(|| view.range(&BY_VERSION, backwards).map(Iterator::count)));
        let panic = *panic.unwrap_err().downcast::<&str>().unwrap();
        assert_eq!(panic, "a range that begins after its end");
    }
    let nothing = (Bound::Excluded(5), Bound::Excluded(5));
    assert_eq!(view.range(&BY_VERSION, nothing).unwrap().count(), 0);
}

#[test]
fn the_objects_that_a_subscription_has_not_delivered_were_not_counted_as_a_retained_state() {
    let store = store();
    store.upsert((1, 1, 1));
    store.upsert((2, 2, 1));
    let states = || store.retained_snapshots();
    let (mut all, mut one) = (store.subscribe(), store.subscription().for_key(1).subscribe());
    assert_eq!(states().states, 0, "the current state is counted");
    let freed = Arc::downgrade(&store.get(&1).unwrap());
    store.upsert((1, 3, 1));
    assert!(freed.upgrade().is_some());
    let held = states();
    assert_eq!((held.states, held.oldest_version, held.changes_behind), (1, Some(version(2)), 1));
    let snapshot = store.snapshot();
    store.upsert((1, 4, 1));
    assert_eq!(states().states, 2);
    drop(snapshot);
    while one.try_next().is_some() {}
    assert_eq!(states().states, 1);
    while all.try_next().is_some() {}
    assert_eq!((states().states, freed.upgrade()), (0, None));
}

#[test]
fn a_state_that_a_new_index_left_behind_counted_twice() {
    type Kept = (SharedWriter<u8, Named>, Option<Snapshot<u8, Named>>);
    static KEPT: Mutex<Option<Kept>> = Mutex::new(None);
    // While the index function runs on the first state of the object, a new state is written, and a snapshot keeps it.
    static LATE: Index<Named, u8> = Index::new("late", |object| {
        if object.1 == 1 {
            let store = KEPT.lock().as_ref().unwrap().0.clone();
            store.upsert((1, 2, 0));
            KEPT.lock().as_mut().unwrap().1 = Some(store.snapshot());
        }
        object.2
    });
    let store = store();
    store.upsert((1, 1, 0));
    *KEPT.lock() = Some((store.clone(), None));
    store.add_index(&LATE).unwrap();
    assert_eq!(store.retained_snapshots().states, 1);
    *KEPT.lock() = None;
    assert_eq!(store.retained_snapshots().states, 0);
}

thread_local! {
    /// A function that runs at the start of the next call of an index function.
    static FIRST: RefCell<Option<Box<dyn FnOnce()>>> = const { RefCell::new(None) };
}

static BY_WHICH_MEANWHILE: Index<Named, u8> = Index::new("which", |object| {
    let first = FIRST.with(RefCell::take);
    first.into_iter().for_each(|first| first());
    object.2
});

/// Runs `first` at the start of the next call of the index function.
fn before_next_call(first: impl FnOnce() + 'static) {
    FIRST.with(|slot| *slot.borrow_mut() = Some(Box::new(first)));
}

#[test]
fn an_index_function_that_is_not_pure_put_an_object_in_two_places() {
    thread_local! { static CALLS: Cell<u8> = const { Cell::new(0) }; }
    // Returns a different result in each call, and sometimes an error.
    fn moody() -> Result<Vec<u8>, IndexError> {
        let first = FIRST.with(RefCell::take);
        // The call number is taken before `first` runs, so the calls within `first` have higher numbers.
        let calls = CALLS.replace(CALLS.get() + 1);
        first.into_iter().for_each(|first| first());
        if calls % 3 == 2 { Err(IndexError::new("moody")) } else { Ok(vec![calls, 100 + calls / 2]) }
    }
    static MANY: OrderedIndex<Named, u8> = OrderedIndex::fallible("many", |_| moody());
    static ONE: Index<Named, u8> = Index::new("one", |_| moody().map_or(200, |values| values[0])).unique();
    for first_call in 0..3 {
        for one in [false, true] {
            CALLS.set(first_call);
            let store = store();
            store.upsert((1, 5, 1));
            store.upsert((2, 5, 1));
            let inside = store.clone();
            // While the index function runs on the first record, this record is updated, and then a list sets it back.
            before_next_call(move || {
                assert!(inside.upsert((1, 6, 1)).is_change());
                assert!(!inside.replace([(1, 5, 1), (2, 5, 1)], version(5)).is_empty());
            });
            match one {
                true => store.add_index(&ONE).unwrap(),
                false => store.add_index(&MANY).unwrap(),
            }
            store.check().unwrap();
            store.delete(&1, None);
            store.check().unwrap();
        }
    }
}

#[test]
fn the_present_state_was_counted_among_those_held() {
    let store = store();
    store.upsert((1, 1, 1));
    let present = Rc::new(RefCell::new(None));
    let (inside, kept) = (store.clone(), present.clone());
    // While the index is being filled, this function overwrites every object with which it will be filled. So the states in the snapshot of the fill
    // are no longer the current ones.
    before_next_call(move || {
        inside.upsert((1, 2, 1));
        let snapshot = inside.snapshot();
        let states = inside.retained_snapshots().states;
        *kept.borrow_mut() = Some((snapshot, states));
    });
    store.add_index(&BY_WHICH_MEANWHILE).unwrap();
    let (snapshot, states) = present.take().unwrap();
    assert_eq!(states, 1, "the count includes more than the state that the index is filled from");
    assert_eq!(
        store.retained_snapshots().states,
        1,
        "the count includes more than the state before the index was added"
    );
    drop(snapshot);
    assert_eq!(store.retained_snapshots().states, 0);
}

/// An object that writes to its store when it is dropped.
struct WritesOnDrop {
    key: u8,
    version: u64,
    store: Arc<std::sync::OnceLock<SharedWriter<u8, Self>>>,
}

impl Drop for WritesOnDrop {
    fn drop(&mut self) {
        if let Some(store) = self.store.get().filter(|_| self.key == 1) {
            store.upsert(Self { key: 2, version: self.version, store: Arc::default() });
        }
    }
}

#[test]
fn an_index_that_was_added_dropped_what_was_overwritten_in_the_turn_of_the_writer() {
    let itself: Arc<std::sync::OnceLock<SharedWriter<u8, WritesOnDrop>>> = Arc::default();
    let schema = Schema::new(|object: &WritesOnDrop| object.key, |object| Version::new(object.version));
    let store = Store::builder(schema).build().unwrap().into_shared();
    store.upsert(WritesOnDrop { key: 1, version: 1, store: itself.clone() });
    assert!(itself.set(store.clone()).is_ok());
    let seen = itself.clone();
    // Each time before the index catches up with the store, the object is overwritten. So when the index catches up under the lock `turn` of the
    // writer, only the index still has a reference to the last state but one.
    static BY_VERSION: Index<WritesOnDrop, u64> = Index::new("version", |object| object.version);
    let by_version = BY_VERSION.with_function(move |object: &WritesOnDrop| {
        if object.key == 1 && object.version <= 3 {
            let version = object.version + 1;
            seen.get().unwrap().upsert(WritesOnDrop { key: 1, version, store: seen.clone() });
        }
        vec![object.version]
    });
    store.add_index(&by_version).unwrap();
    assert_eq!(store.by_index(&BY_VERSION, &4).unwrap().len(), 1);
    assert_eq!(store.get(&2).unwrap().version, 3, "the object that was dropped last has not written");
}

/// A value that equals the values one below and one above it, so the equality is not transitive. All hashes are equal.
#[derive(Clone, Copy, Debug)]
struct NonTransitive(i32);

impl PartialEq for NonTransitive {
    fn eq(&self, other: &Self) -> bool {
        (self.0 - other.0).abs() <= 1
    }
}

impl Eq for NonTransitive {}

impl std::hash::Hash for NonTransitive {
    fn hash<H: std::hash::Hasher>(&self, _: &mut H) {}
}

#[test]
fn an_equality_that_contradicts_itself_took_another_object_out_of_the_index() {
    static NEAR: Index<(u8, &'static [NonTransitive]), NonTransitive> =
        Index::many("near", |object| object.1.to_vec());
    let schema = Schema::new(|object: &(u8, &'static [NonTransitive])| object.0, |_| Version::ZERO);
    let store = Store::builder(schema).index(&NEAR).build().unwrap().into_shared();
    store.upsert((1, &[NonTransitive(1)]));
    // The new values differ from each other, but each equals the value of the first object.
    store.upsert((2, &[NonTransitive(0), NonTransitive(2)]));
    store.check().unwrap();
    store.upsert((2, &[]));
    assert_eq!(
        store.by_index(&NEAR, &NonTransitive(1)).unwrap().len(),
        1,
        "the first object has lost its value"
    );
    store.check().unwrap();
}

#[test]
fn an_update_that_removed_one_of_seventeen_values_left_it_in_the_index() {
    static BY_LABEL: Index<(u64, Vec<u8>), u8> = Index::many("label", |object| object.1.clone());
    // The index stores the values of an object in its own order, so the test is repeated with each of the values removed.
    for removed in 0..17 {
        let schema = Schema::new(|_: &(u64, Vec<u8>)| "a", |object| Version::new(object.0));
        let mut store = Store::builder(schema).index(&BY_LABEL).build().unwrap();
        store.upsert((1, (0..17).collect()));
        store.upsert((2, (0..17).filter(|label| *label != removed).collect()));
        for label in 0..17 {
            let found = store.by_index(&BY_LABEL, &label).unwrap().len();
            assert_eq!(found, usize::from(label != removed), "label {label} without {removed}");
        }
    }
}
