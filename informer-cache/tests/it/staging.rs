//! Lists on their way into the store: what they cost until they are complete, and whose turn it is meanwhile.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::Arc;

use drivers::cache::fixture::{EXPIRED, Object, World, error, object};
use flyball_informer_cache::{Event, Informer, Page, Schema, ScriptedSource, Store, Version};
use flyball_sync::ManualClock;
use testkit::wakers::poll_once;

/// Counts itself.
struct Counted {
    key: u32,
    version: u64,
    _alive: Arc<()>,
}

const COUNTED: Schema<u32, Counted> =
    Schema::new(|counted: &Counted| counted.key, |counted| Version::new(counted.version));

/// client-go#1415 and decision 0025: a streaming list is judged as it comes, too.
#[test]
fn a_streamed_object_that_is_known_is_let_go_at_once() {
    let alive = Arc::new(());
    let counted = |key, version| Counted { key, version, _alive: alive.clone() };
    let source = ScriptedSource::new();
    let clock = ManualClock::new();
    let builder = Informer::builder(COUNTED, source.clone()).streaming_lists().seed(1);
    let (informer, run) = builder.timer(clock.timer()).build().unwrap();
    let mut run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(run);
    // Also where nobody wakes it.
    let mut settle = || (0..100).for_each(|_| assert!(poll_once(run.as_mut()).is_pending()));
    source.watch(Ok(()));
    (0..1_000).for_each(|key| source.tell(Event::Added(counted(key, 1))));
    source.tell(Event::InitialEnd(Version::new(1)));
    settle();
    assert_eq!(informer.snapshot().len(), 1_000);
    source.fail(error(EXPIRED));
    source.watch(Ok(()));
    settle();
    while source.open_watches() == 0 {
        clock.set(clock.next_alarm().expect("it waits, and lists again"));
        settle();
    }
    let before = Arc::strong_count(&alive);
    assert_eq!(before, 1_001);
    for key in 0..1_000 {
        source.tell(Event::Added(counted(key, 1)));
        settle();
        assert_eq!(Arc::strong_count(&alive), before, "it is the stored one");
    }
    for key in 2_000..2_100 {
        source.tell(Event::Added(counted(key, 2)));
        source.tell(Event::Modified(counted(key, 3)));
        source.tell(Event::Deleted(counted(key, 4)));
        settle();
        assert_eq!(Arc::strong_count(&alive), before, "it came and went");
    }
    source.tell(Event::Deleted(counted(7, 5)));
    source.tell(Event::Modified(counted(8, 6)));
    source.tell(Event::InitialEnd(Version::new(6)));
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
    // What comes again comes at its new place.
    for object in [("last", 3), ("new", 3), ("same", 1)] {
        list.insert(object);
    }
    list.remove("last");
    list.insert(("last", 4));
    let changes = list.publish(Version::new(4));
    let told: Vec<_> = changes.iter().map(|change| (*change.key(), change.new().map(|new| new.1))).collect();
    assert_eq!(told[2..], [("new", Some(3)), ("last", Some(4))]);
    assert_eq!(told.len(), 4, "and two are gone: {told:?}");
    store.check().unwrap();
}

#[test]
fn a_panic_of_who_says_what_to_keep_harms_nobody() {
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
            assert!(asked <= 3, "a bad day");
            true
        });
    }));
    assert!(panicked.is_err());
    list.keep_stored(|(key, _)| *key == 9);
    // Everything is listed, so nobody is asked.
    list.keep_stored(|_| true);
    list.keep_stored(|_| unreachable!("all are listed"));
    (2..10).for_each(|key| list.remove(&key));
    list.keep_stored(|(key, _)| *key == 5);
    let changes = list.publish(Version::new(2));
    let gone = changes.iter().filter(|change| change.new().is_none()).count();
    assert_eq!((gone, changes.len()), (7, 8), "and one is newer");
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

/// A list of so many objects that the run future has to let others have a turn.
fn long() -> (ScriptedSource<Object>, World) {
    let source = ScriptedSource::new();
    let items = (0..10_000).map(|at| object((at % 256) as u8, at)).collect();
    source.list(Ok(Page { items, version: Version::new(10_000), continuation: None }));
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
        assert!(world.turn(), "it goes on by itself");
        assert!(READ.get() - before <= 256, "in one turn");
        turns += 1;
    }
    assert_eq!((turns, READ.get()), (10_000_usize.div_ceil(256), 10_000));
    assert_eq!(world.stored().len(), 256);
    drop(source);
}

#[test]
fn an_end_in_the_midst_of_a_long_page_shows_nothing_of_it() {
    for dropped in [false, true] {
        let (source, mut world) = long();
        (0..3).for_each(|_| assert!(world.turn()));
        assert!(READ.get() > 0);
        if dropped {
            world.cancel();
        } else {
            world.informer.shut_down();
            assert!(world.turn() && world.is_over());
        }
        assert!(!world.informer.is_synced() && world.stored().is_empty());
        assert!(READ.get() < 1_000);
        assert_eq!(source.open_watches(), 0);
    }
}
