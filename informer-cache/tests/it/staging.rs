//! Tests of lists while they are being received: what they cost until they are complete, and how the run future divides the work into polls.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use drivers::cache::fixture::{EXPIRED, Object, World, error, object};
use flyball_informer_cache::testing::{ScriptedSource, SourceRequest};
use flyball_informer_cache::{
    Index, Informer, Observer, Page, Schema, Store, Subscription, Version, WatchEvent,
};
use flyball_sync::ManualClock;
use parking_lot::Mutex;
use testkit::wakers::poll_once;

/// An object with which the test counts how many objects exist.
struct Counted {
    key: u32,
    version: u64,
    _alive: Arc<()>,
}

const COUNTED: Schema<u32, Counted> =
    Schema::new(|counted: &Counted| counted.key, |counted| Version::new(counted.version));

/// client-go#1415 and decision 0025: the objects of a streaming list, too, are compared with the stored objects as they arrive.
#[test]
fn drops_a_known_streamed_object_immediately() {
    let alive = Arc::new(());
    let counted = |key, version| Counted { key, version, _alive: alive.clone() };
    let source = ScriptedSource::new();
    let clock = ManualClock::new();
    let builder = Informer::builder(COUNTED, source.clone()).streaming_lists().seed(1);
    let (informer, run) = builder.timer(clock.timer()).build().unwrap();
    let mut run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(run);
    // `settle` polls the future even if it was not woken.
    let mut settle = || (0..100).for_each(|_| assert!(poll_once(run.as_mut()).is_pending()));
    source.answer_watch(Ok(()));
    (0..1_000).for_each(|key| source.send(WatchEvent::Added(counted(key, 1))));
    source.send(WatchEvent::InitialListEnd(Version::new(1)));
    settle();
    assert_eq!(informer.snapshot().len(), 1_000);
    source.fail_watch(error(EXPIRED));
    source.answer_watch(Ok(()));
    settle();
    while source.open_watches() == 0 {
        clock.set(clock.next_alarm().expect("an alarm for the next list is set"));
        settle();
    }
    let before = Arc::strong_count(&alive);
    assert_eq!(before, 1_001);
    for key in 0..1_000 {
        source.send(WatchEvent::Added(counted(key, 1)));
        settle();
        assert_eq!(Arc::strong_count(&alive), before, "an unchanged object was kept");
    }
    for key in 2_000..2_100 {
        source.send(WatchEvent::Added(counted(key, 2)));
        source.send(WatchEvent::Modified(counted(key, 3)));
        source.send(WatchEvent::Deleted(counted(key, 4)));
        settle();
        assert_eq!(Arc::strong_count(&alive), before, "an object that was added and deleted was kept");
    }
    source.send(WatchEvent::Deleted(counted(7, 5)));
    source.send(WatchEvent::Modified(counted(8, 6)));
    source.send(WatchEvent::InitialListEnd(Version::new(6)));
    settle();
    assert_eq!(informer.snapshot().version(), Version::new(6));
    assert!(!informer.snapshot().contains_key(&7));
    assert_eq!(informer.store().get(&8).unwrap().version, 6);
    assert_eq!(Arc::strong_count(&alive), 1_000);
}

#[test]
fn a_key_taken_off_the_list_leaves_no_trace() {
    let schema = Schema::new(|object: &(&str, u64)| object.0, |object| Version::new(object.1));
    let mut store = Store::builder(schema).seed(1).build().unwrap();
    store.replace([("same", 1), ("newer", 1), ("gone", 1)], Version::new(1));
    let mut list = store.relist();
    for object in [("new", 2), ("same", 1), ("newer", 2), ("last", 2)] {
        list.insert(object);
    }
    for key in ["new", "same", "newer", "last", "gone", "never", "new"] {
        list.remove(key);
    }
    // A key that is inserted again gets a new position.
    for object in [("last", 3), ("new", 3), ("same", 1)] {
        list.insert(object);
    }
    list.remove("last");
    list.insert(("last", 4));
    let changes = list.publish(Version::new(4));
    let received: Vec<_> =
        changes.iter().map(|change| (*change.key(), change.new().map(|new| new.1))).collect();
    assert_eq!(received[2..], [("new", Some(3)), ("last", Some(4))]);
    assert_eq!(received.len(), 4, "not exactly two objects were deleted: {received:?}");
    store.check().unwrap();
}

#[test]
fn a_panic_in_keep_stored_has_no_effect() {
    let schema = Schema::new(|object: &(u32, u64)| object.0, |object| Version::new(object.1));
    let mut store = Store::builder(schema).seed(1).build().unwrap();
    store.replace((0..10).map(|key| (key, 1)), Version::new(1));
    let mut list = store.relist();
    list.insert((0, 1));
    list.insert((1, 2));
    let mut asked = 0;
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        list.keep_stored(|_| {
            asked += 1;
            assert!(asked <= 3, "a hostile filter panics");
            true
        });
    }));
    assert!(panicked.is_err());
    list.keep_stored(|(key, _)| *key == 9);
    // All objects that are not listed are already kept, so the function is not called.
    list.keep_stored(|_| true);
    list.keep_stored(|_| unreachable!("all objects are listed or kept"));
    (2..10).for_each(|key| list.remove(&key));
    list.keep_stored(|(key, _)| *key == 5);
    let changes = list.publish(Version::new(2));
    let gone = changes.iter().filter(|change| change.new().is_none()).count();
    assert_eq!((gone, changes.len()), (7, 8), "not seven deletions and one update");
    store.check().unwrap();
}

thread_local! { static READ: Cell<usize> = const { Cell::new(0) }; }

const READING: Schema<u8, Object> = Schema::new(
    |object: &Object| object.key,
    |object| {
        READ.set(READ.get() + 1);
        Version::new(object.version)
    },
);

/// Returns a source and an informer that lists it. The list is so long that the run future must return to the executor in between.
fn long() -> (ScriptedSource<Object>, World) {
    let source = ScriptedSource::new();
    let items = (0..10_000).map(|at| object((at % 256) as u8, at)).collect();
    source.answer_list(Ok(Page { items, version: Version::new(10_000), continuation: None }));
    READ.set(0);
    let world = World::new(Informer::builder(READING, source.clone()));
    (source, world)
}

#[test]
fn a_long_page_is_staged_in_turns() {
    let (source, mut world) = long();
    let mut turns = 0;
    while !world.informer.is_synced() {
        let before = READ.get();
        assert!(world.poll(), "the future yielded without waking itself");
        assert!(READ.get() - before <= 256, "one poll handled too many objects");
        turns += 1;
    }
    // The 256 keys are turned into writes in two polls, computed and published in the next one, and then delivered.
    assert_eq!((turns, READ.get()), (10_000_usize.div_ceil(256) + 4, 10_000));
    assert_eq!(world.stored().len(), 256);
    drop(source);
}

#[test]
fn a_stop_within_a_long_page_publishes_none_of_it() {
    for dropped in [false, true] {
        let (source, mut world) = long();
        (0..3).for_each(|_| assert!(world.poll()));
        assert!(READ.get() > 0);
        if dropped {
            world.cancel();
        } else {
            world.informer.shut_down();
            assert!(world.poll() && world.is_over());
        }
        assert!(!world.informer.is_synced() && world.stored().is_empty());
        assert!(READ.get() < 1_000);
        assert_eq!(source.open_watches(), 0);
    }
}

type Wide = (u32, u64);

const WIDE: Schema<u32, Wide> = Schema::new(|object: &Wide| object.0, |object| Version::new(object.1));

thread_local! { static INDEXED: Cell<usize> = const { Cell::new(0) }; }

static BY_DIGIT: Index<Wide, u32> = Index::new("digit", |object| {
    INDEXED.set(INDEXED.get() + 1);
    object.0 % 10
});

static BY_HUNDRED: Index<Wide, u32> = Index::new("hundred", |object| object.0 / 100);

static BY_PARITY: Index<Wide, u32> = Index::new("parity", |object| object.0 % 2);

/// An informer that publishes a long list, with an observer and a subscription that receive its changes.
struct Publishing {
    source: ScriptedSource<Wide>,
    informer: Informer<u32, Wide>,
    run: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    changes: Subscription<u32, Wide>,
    reported: Arc<Mutex<BTreeMap<u32, u64>>>,
    calls: Arc<AtomicUsize>,
    _observer: Observer<u32, Wide>,
}

impl Publishing {
    /// Creates an informer whose first list has `before` objects, and whose second list is `listed`.
    fn new(before: u32, listed: impl IntoIterator<Item = Wide>) -> Self {
        let source = ScriptedSource::new();
        let page = |items, version| Page { items, version: Version::new(version), continuation: None };
        source.answer_list(Ok(page((0..before).map(|key| (key, 1)).collect(), 1)));
        let builder = Informer::builder(WIDE, source.clone()).index(&BY_DIGIT).index(&BY_HUNDRED);
        let clock = ManualClock::new();
        let (informer, run) = builder.timer(clock.timer()).build().unwrap();
        source.answer_watch(Ok(()));
        let (reported, calls) = (Arc::new(Mutex::new(BTreeMap::new())), Arc::new(AtomicUsize::new(0)));
        let (map, called) = (reported.clone(), calls.clone());
        let observer = informer.observe(move |change| {
            called.fetch_add(1, Ordering::Relaxed);
            match change.new() {
                Some(new) => map.lock().insert(new.0, new.1),
                None => map.lock().remove(change.key()),
            };
        });
        let changes = informer.subscribe();
        let run: Pin<Box<dyn Future<Output = ()> + Send>> = Box::pin(run);
        let mut this =
            Self { source, informer, run: Some(run), changes, reported, calls, _observer: observer };
        while this.source.open_watches() == 0 {
            this.turn();
        }
        drop(this.source.requests());
        this.source.fail_watch(error(EXPIRED));
        while !this.source.requests().iter().any(|asked| matches!(asked, SourceRequest::List(_))) {
            this.turn();
            if let Some(alarm) = clock.next_alarm() {
                clock.set(alarm);
            }
        }
        this.source.answer_list(Ok(page(listed.into_iter().collect(), 9)));
        this.source.answer_watch(Ok(()));
        this.calls.store(0, Ordering::Relaxed);
        this
    }

    fn turn(&mut self) {
        let _ = poll_once(self.run.as_mut().unwrap().as_mut());
    }

    /// Asserts that the changes of the observer and those of the subscription lead to the state of the store.
    fn assert_matches(&mut self, known: &mut BTreeMap<u32, u64>) {
        while let Some(change) = self.changes.try_next() {
            match change.new() {
                Some(new) => known.insert(new.0, new.1),
                None => known.remove(change.key()),
            };
        }
        let stored: BTreeMap<_, _> =
            self.informer.snapshot().objects().map(|object| (object.0, object.1)).collect();
        assert_eq!(*known, stored, "the subscription differs from the store");
        assert_eq!(*self.reported.lock(), stored, "the observer differs from the store");
        self.informer.store().check().unwrap();
    }
}

const LISTED: u32 = 1_500;

/// The list deletes 500 of 1000 stored objects, updates the other 500, and adds 1000 new objects.
fn relist() -> Publishing {
    Publishing::new(1_000, (500..500 + LISTED).map(|key| (key, 5)))
}

#[test]
fn a_long_list_is_published_in_pieces() {
    let mut publishing = relist();
    let (mut turns, mut longest) = (0, 0);
    while publishing.reported.lock().len() < LISTED as usize || publishing.source.open_watches() == 0 {
        let (indexed, called) = (INDEXED.get(), publishing.calls.load(Ordering::Relaxed));
        publishing.turn();
        let called = publishing.calls.load(Ordering::Relaxed) - called;
        assert!(INDEXED.get() - indexed <= 256 && called <= 256, "one poll handled too many objects");
        longest = longest.max(called);
        turns += 1;
        assert!(turns < 1_000);
    }
    assert_eq!((longest, publishing.calls.load(Ordering::Relaxed)), (256, 500 + LISTED as usize));
    publishing.assert_matches(&mut BTreeMap::new());
}

#[test]
fn a_list_that_is_dropped_at_any_turn_is_delivered_or_not_published() {
    let (mut whole, mut nothing) = (0, 0);
    for turns in 0.. {
        let mut publishing = relist();
        (0..turns).for_each(|_| publishing.turn());
        let is_done = publishing.source.open_watches() > 0;
        drop(publishing.run.take());
        match publishing.informer.store().len() {
            1_000 => nothing += 1,
            1_500 => whole += 1,
            other => panic!("{other} objects"),
        }
        publishing.assert_matches(&mut BTreeMap::new());
        if is_done {
            break;
        }
    }
    assert!(whole > 10 && nothing > 10, "{whole} whole, {nothing} not at all");
}

#[test]
fn an_index_that_comes_at_any_turn_of_a_list_shows_all_of_it() {
    for turns in 0.. {
        let mut publishing = relist();
        (0..turns).for_each(|_| publishing.turn());
        let is_done = publishing.source.open_watches() > 0;
        publishing.informer.add_index(&BY_PARITY).unwrap();
        if turns % 2 == 0 {
            publishing.informer.writer().remove_index(&BY_DIGIT).unwrap();
        }
        while publishing.source.open_watches() == 0 {
            publishing.turn();
        }
        let even = publishing.informer.store().by_index(&BY_PARITY, &0).unwrap();
        assert_eq!(even.len(), LISTED as usize / 2);
        publishing.assert_matches(&mut BTreeMap::new());
        if is_done {
            break;
        }
    }
}

#[test]
fn a_subscription_that_comes_at_any_turn_of_a_list_misses_and_repeats_nothing() {
    for turns in 0.. {
        let mut publishing = relist();
        (0..turns).for_each(|_| publishing.turn());
        let is_done = publishing.source.open_watches() > 0;
        publishing.changes = publishing.informer.subscribe();
        let selected = publishing.informer.subscription().by_index(&BY_DIGIT, 3).unwrap();
        let mut selected = selected.subscribe();
        let mut known = BTreeMap::new();
        // The subscriber takes changes between the pieces in which the list is delivered.
        while publishing.source.open_watches() == 0 {
            publishing.turn();
            while let Some(change) = publishing.changes.try_next() {
                let before = match change.new() {
                    Some(new) => known.insert(new.0, new.1),
                    None => known.remove(change.key()),
                };
                assert_eq!(before, change.old().map(|old| old.1));
            }
        }
        publishing.assert_matches(&mut known);
        let mut of_digit = BTreeSet::new();
        while let Some(change) = selected.try_next() {
            match change.new() {
                Some(new) => of_digit.insert(new.0),
                None => of_digit.remove(change.key()),
            };
        }
        assert!(of_digit.iter().copied().eq((500..2_000).filter(|key| key % 10 == 3)));
        if is_done {
            break;
        }
    }
}

#[test]
fn changing_subscribers_do_not_lengthen_a_write() {
    let mut publishing = relist();
    let mut turns = 0;
    while publishing.source.open_watches() == 0 {
        let (indexed, called) = (INDEXED.get(), publishing.calls.load(Ordering::Relaxed));
        // Subscriptions are added and dropped at every poll.
        let passing = publishing.informer.subscribe();
        let selected = publishing.informer.subscription().for_key(turns).subscribe();
        publishing.turn();
        drop((passing, selected));
        let called = publishing.calls.load(Ordering::Relaxed) - called;
        assert!(INDEXED.get() - indexed <= 256 && called <= 256, "one poll handled too many objects");
        turns += 1;
        assert!(turns < 1_000, "the list is never committed");
    }
    publishing.assert_matches(&mut BTreeMap::new());
}

#[test]
fn poll_of_a_list_calls_all_observers_together_a_bounded_number_of_times() {
    let mut publishing = relist();
    let calls = publishing.calls.clone();
    let observe = |_| {
        let called = calls.clone();
        publishing.informer.observe_changes(move |_| _ = called.fetch_add(1, Ordering::Relaxed))
    };
    let more: Vec<_> = (0..9).map(observe).collect();
    while publishing.source.open_watches() == 0 {
        let called = calls.load(Ordering::Relaxed);
        publishing.turn();
        let called = calls.load(Ordering::Relaxed) - called;
        assert!(called <= 256 + 10, "one poll called the observers {called} times");
    }
    // 500 deletions, 500 updates and 1000 additions.
    assert_eq!(calls.load(Ordering::Relaxed), 10 * 2_000);
    drop(more);
}

/// Polls until these keys are listed, and calls `subscribe` before each poll. Returns the subscriptions.
fn list_while_subscribing<S>(
    listed: Range<u32>,
    mut subscribe: impl FnMut(&Informer<u32, Wide>, u32) -> S,
) -> Vec<S> {
    let mut publishing = Publishing::new(2 * listed.start, listed.map(|key| (key, 5)));
    let mut added = Vec::new();
    while publishing.source.open_watches() == 0 {
        added.push(subscribe(&publishing.informer, added.len() as u32));
        publishing.turn();
        assert!(added.len() < 2_000, "the list is never committed");
    }
    publishing.assert_matches(&mut BTreeMap::new());
    added
}

/// Returns the keys of the objects that a subscriber has.
fn held(changes: &mut Subscription<u32, Wide>) -> BTreeSet<u32> {
    let mut held = BTreeSet::new();
    while let Some(change) = changes.try_next() {
        match change.new() {
            Some(new) => assert_eq!(held.insert(new.0), change.kind().is_addition()),
            None => assert!(held.remove(change.key())),
        }
    }
    held
}

#[test]
fn subscriptions_that_are_added_all_the_time_do_not_keep_a_list_from_being_committed() {
    let listed = || 500..8_000;
    let of_keys = list_while_subscribing(listed(), |informer, turn| {
        informer.subscription().for_key(turn * 20).subscribe()
    });
    for (turn, mut changes) in of_keys.into_iter().enumerate() {
        let key = turn as u32 * 20;
        assert!(held(&mut changes).into_iter().eq(listed().filter(|listed| *listed == key)));
    }
    let of_values = list_while_subscribing(listed(), |informer, turn| {
        informer.subscription().by_index(&BY_HUNDRED, turn % 80).unwrap().subscribe()
    });
    for (turn, mut changes) in of_values.into_iter().enumerate() {
        let hundred = turn as u32 % 80;
        assert!(held(&mut changes).into_iter().eq(listed().filter(|listed| listed / 100 == hundred)));
    }
    // There are so many subscriptions that the run future returns to the executor before it has visited all of them.
    let of_all = list_while_subscribing(5..20, |informer, turn| {
        (0..if turn == 0 { 600 } else { 1 }).map(|_| informer.subscribe()).collect::<Vec<_>>()
    });
    for mut changes in of_all.into_iter().flatten() {
        assert!(held(&mut changes).into_iter().eq(5..20));
    }
}

#[test]
fn a_subscription_that_ends_under_a_list_receives_nothing_after_its_end() {
    for turns in 0.. {
        let mut publishing = relist();
        let selected = publishing.informer.subscription().by_index(&BY_DIGIT, 3).unwrap();
        let mut selected = selected.subscribe();
        (0..turns).for_each(|_| publishing.turn());
        let is_done = publishing.source.open_watches() > 0;
        publishing.informer.writer().remove_index(&BY_DIGIT).unwrap();
        let next = |changes: &mut Subscription<u32, Wide>| {
            changes.poll_next(&mut Context::from_waker(Waker::noop()))
        };
        while !matches!(next(&mut selected), Poll::Ready(None)) {}
        while publishing.source.open_watches() == 0 {
            publishing.turn();
            assert!(
                matches!(next(&mut selected), Poll::Ready(None)),
                "the subscription received a change after its end"
            );
        }
        if is_done {
            break;
        }
    }
}

#[test]
fn objects_whose_drops_panic_do_not_abort_the_drop_of_a_list() {
    struct PanicsOnDrop(u32, Arc<AtomicUsize>);
    impl Drop for PanicsOnDrop {
        fn drop(&mut self) {
            self.1.fetch_add(1, Ordering::Relaxed);
            std::panic::resume_unwind(Box::new("a drop that panics"));
        }
    }
    let dropped = Arc::new(AtomicUsize::new(0));
    let source = ScriptedSource::new();
    let page = |items, version| Page { items, version: Version::new(version), continuation: None };
    source.answer_list(Ok(page((0..10).map(|key| PanicsOnDrop(key, dropped.clone())).collect(), 1)));
    source.answer_watch(Ok(()));
    let schema = Schema::new(|object: &PanicsOnDrop| object.0, |_| Version::ZERO);
    let clock = ManualClock::new();
    let (informer, run) = Informer::builder(schema, source.clone()).timer(clock.timer()).build().unwrap();
    let mut run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(run);
    let mut settle = || (0..10).for_each(|_| assert!(poll_once(run.as_mut()).is_pending()));
    settle();
    source.fail_watch(error(EXPIRED));
    source.answer_list(Ok(page(Vec::new(), 2)));
    while !informer.store().is_empty() {
        settle();
        if let Some(alarm) = clock.next_alarm() {
            clock.set(alarm);
        }
    }
    settle();
    assert_eq!(dropped.load(Ordering::Relaxed), 10);
    assert!(informer.status().panics > 0);
}

static BY_LISTED: Index<Wide, u64> = Index::new("listed", |object| object.1);

#[test]
fn a_subscription_to_a_value_of_an_index_that_comes_under_a_list_receives_all_of_it() {
    for turns in 0.. {
        let mut publishing = relist();
        (0..turns).for_each(|_| publishing.turn());
        let is_done = publishing.source.open_watches() > 0;
        publishing.informer.add_index(&BY_LISTED).unwrap();
        let selected = publishing.informer.subscription().by_index(&BY_LISTED, 5).unwrap();
        let mut selected = selected.subscribe();
        while publishing.source.open_watches() == 0 {
            publishing.turn();
        }
        let mut known = BTreeSet::new();
        while let Some(change) = selected.try_next() {
            match change.new() {
                Some(new) => known.insert(new.0),
                None => known.remove(change.key()),
            };
        }
        assert!(known.into_iter().eq(500..500 + LISTED), "turn {turns}");
        if is_done {
            break;
        }
    }
}

#[test]
fn late_subscriptions_receive_the_objects_that_enter_and_leave_their_selection() {
    let version = |key: u32| [1, 5, 6][key as usize % 3];
    for turns in 0.. {
        let mut publishing = Publishing::new(1_000, (500..2_000).map(|key| (key, version(key))));
        publishing.informer.add_index(&BY_LISTED).unwrap();
        (0..turns).for_each(|_| publishing.turn());
        let is_done = publishing.source.open_watches() > 0;
        let subscription = || publishing.informer.subscription();
        let of_value = |value| subscription().by_index(&BY_LISTED, value).unwrap().subscribe();
        let mut of_values = [1, 5, 6].map(|value| (value, of_value(value)));
        // Of the keys, one is deleted, three are stored and listed, and one is added.
        let mut of_keys = [7, 501, 502, 503, 1_500].map(|key| (key, subscription().for_key(key).subscribe()));
        while publishing.source.open_watches() == 0 {
            publishing.turn();
        }
        for (value, changes) in &mut of_values {
            assert!(held(changes).into_iter().eq((500..2_000).filter(|key| version(*key) == *value)));
        }
        for (key, changes) in &mut of_keys {
            assert_eq!(held(changes), BTreeSet::from_iter((*key >= 500).then_some(*key)));
        }
        if is_done {
            break;
        }
    }
}
