//! Tests of operations in which two pieces of user code panic: while the panic of a function or a destructor unwinds, another destructor panics. If the
//! second panic left its destructor, the process would abort.

use std::cell::Cell;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::time::Duration;

use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    Index, Informer, InformerBuilder, InformerState, ManualClock, Page, Schema, SourceErrorKind, Store,
    Version, WatchEvent,
};
use testkit::wakers::poll_once;

thread_local! {
    static ARMED: Cell<bool> = const { Cell::new(false) };
    /// The number of destructors that have panicked.
    static DROPPED: Cell<usize> = const { Cell::new(0) };
}

fn panic_if(is_hostile: bool) {
    if is_hostile && ARMED.get() {
        resume_unwind(Box::new("user code panics"));
    }
}

/// A key. If it is 72, its comparison panics.
#[derive(Clone)]
struct Key(u32);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        panic_if(self.0 == 72 && other.0 == 72);
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

/// The functions that panic on an object, as a sum.
const DROP: u8 = 1;
const VERSION: u8 = 2;
const IDENTITY: u8 = 4;
const KEY: u8 = 8;
const TRANSFORM: u8 = 16;
const INDEX: u8 = 32;

struct Object {
    key: u32,
    version: u64,
    hostile: u8,
}

fn object(key: u32, version: u64, hostile: u8) -> Object {
    Object { key, version, hostile }
}

impl Drop for Object {
    fn drop(&mut self) {
        if self.hostile & DROP != 0 && ARMED.get() {
            DROPPED.set(DROPPED.get() + 1);
        }
        panic_if(self.hostile & DROP != 0);
    }
}

const SCHEMA: Schema<Key, Object> = Schema::new(
    |object: &Object| {
        panic_if(object.hostile & KEY != 0);
        Key(object.key)
    },
    |object: &Object| {
        panic_if(object.hostile & VERSION != 0);
        Version::new(object.version)
    },
)
.with_identity(|_, new| {
    panic_if(new.hostile & IDENTITY != 0);
    true
});

/// Calls `operation`, in which user code panics. Returns whether a panic reached the caller, and how many destructors panicked.
fn armed(operation: impl FnOnce()) -> (bool, usize) {
    DROPPED.set(0);
    ARMED.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(operation));
    ARMED.set(false);
    (outcome.is_err(), DROPPED.get())
}

type Builder = InformerBuilder<Key, Object, ScriptedSource<Object>>;

struct World {
    source: ScriptedSource<Object>,
    clock: ManualClock,
    informer: Informer<Key, Object>,
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl World {
    /// Creates an informer that has listed these objects, and watches.
    fn new(with: impl FnOnce(Builder) -> Builder, listed: Vec<Object>) -> Self {
        let (source, clock) = (ScriptedSource::new(), ManualClock::new());
        let builder = with(Informer::builder(SCHEMA, source.clone()));
        let (informer, run) = builder.timer(clock.timer()).build().unwrap();
        let mut world = Self { source, clock, informer, run: Box::pin(run) };
        world.list(listed, 1);
        while world.source.open_watches() == 0 {
            world.settle();
        }
        world
    }

    fn list(&self, items: Vec<Object>, version: u64) {
        self.source.answer_list(Ok(Page { items, version: Version::new(version), continuation: None }));
        self.source.answer_watch(Ok(()));
    }

    fn settle(&mut self) {
        (0..10).for_each(|_| assert!(poll_once(self.run.as_mut()).is_pending(), "the informer has ended"));
    }

    /// Interrupts the watch, and answers the list that follows.
    fn relist(&mut self, items: Vec<Object>) {
        self.source.fail_watch(SourceErrorKind::Expired.into());
        self.settle();
        self.list(items, 2);
        self.clock.advance(Duration::from_secs(5));
    }
}

#[test]
fn two_states_of_one_object_that_panic_in_their_drop_do_not_abort() {
    for is_observed in [false, true] {
        for is_deleted in [false, true] {
            let mut world = World::new(|builder| builder, vec![object(1, 1, DROP)]);
            let observer = is_observed.then(|| world.informer.observe(|_| {}));
            let event = if is_deleted { WatchEvent::Deleted } else { WatchEvent::Modified };
            world.source.send(event(object(1, 2, DROP)));
            let dropped = if is_deleted { 2 } else { 1 };
            assert_eq!(armed(|| world.settle()), (false, dropped));
            assert_eq!(world.informer.status().panics, 1);
            drop(observer);
        }
    }
}

#[test]
fn a_subscription_that_is_dropped_with_undelivered_objects_does_not_abort() {
    for is_pending in [false, true] {
        let mut writer = Store::builder(SCHEMA).build().unwrap();
        (1..=3).for_each(|key| _ = writer.upsert(object(key, 1, DROP)));
        let mut changes = writer.subscribe();
        if is_pending {
            while changes.try_next().is_some() {}
        }
        // The subscription holds two states of each object: of its deletion, or of the snapshot and of its deletion.
        (1..=3).for_each(|key| _ = writer.delete(&Key(key), Some(object(key, 2, DROP))));
        assert_eq!(armed(|| drop(changes)), (true, 6));
    }
}

#[test]
fn a_function_and_the_drop_of_the_same_object_that_panic_do_not_abort() {
    for function in [VERSION, IDENTITY, KEY] {
        for is_listed in [false, true] {
            let mut world = World::new(|builder| builder, vec![object(1, 1, 0), object(2, 1, 0)]);
            let hostile = object(2, 2, function | DROP);
            if is_listed {
                world.relist(vec![object(1, 2, 0), hostile]);
            } else {
                world.source.send(WatchEvent::Modified(hostile));
            }
            assert_eq!(armed(|| world.settle()), (false, 1), "function {function}, listed {is_listed}");
            assert_eq!(world.informer.snapshot().len(), 2);
            assert!(world.informer.status().panics > 0);
        }
    }
}

static BY_VALUE: Index<Object, Value> = Index::many("value", |object: &Object| {
    panic_if(object.hostile & INDEX != 0);
    vec![Value(object.key), Value(object.key + 1)]
});

/// An index value, whose destructor and comparison panic.
struct Value(u32);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        panic_if(true);
        self.0 == other.0
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

impl Drop for Value {
    fn drop(&mut self) {
        panic_if(true);
    }
}

#[test]
fn index_values_whose_comparison_and_drop_panic_do_not_abort() {
    let mut writer = Store::builder(SCHEMA).index(&BY_VALUE).build().unwrap();
    writer.upsert(object(1, 1, 0));
    armed(|| _ = writer.upsert(object(1, 2, 0)));
    armed(|| _ = writer.upsert(object(1, 3, INDEX | DROP)));
    writer.check().unwrap();
    armed(|| _ = writer.delete(&Key(1), None));
    assert!(writer.is_empty());
}

#[test]
fn objects_without_a_key_that_panic_in_their_drop_do_not_abort() {
    let transform = |object: Object| {
        panic_if(object.hostile & TRANSFORM != 0);
        object
    };
    let mut world = World::new(|builder| builder.transform(transform), vec![object(1, 1, 0)]);
    world.relist(vec![object(2, 2, KEY | TRANSFORM), object(3, 2, KEY | DROP)]);
    assert_eq!(armed(|| world.settle()), (false, 1));
    assert_eq!((world.informer.snapshot().len(), world.informer.status().withheld_deletions), (1, 1));
}

/// A list looks for stored objects that may be one of two listed objects without a key. The shutdown drops it in the middle.
#[test]
fn a_shutdown_that_drops_a_list_does_not_abort() {
    for polls in 0..12 {
        let mut world = World::new(|builder| builder, (100..3_000).map(|key| object(key, 1, 0)).collect());
        world.relist(vec![object(2, 2, KEY | DROP), object(3, 2, KEY | DROP)]);
        let World { informer, run, .. } = &mut world;
        let (is_raised, _) = armed(|| {
            (0..polls).for_each(|_| _ = poll_once(run.as_mut()));
            informer.shut_down();
            while poll_once(run.as_mut()).is_pending() {}
        });
        assert!(!is_raised && informer.status().state == InformerState::Stopped, "{polls} polls");
    }
}

#[test]
fn a_list_in_which_a_key_and_objects_panic_does_not_abort() {
    let items = || vec![object(1, 2, DROP), object(72, 2, DROP), object(3, 2, DROP)];
    for is_shared in [false, true] {
        let mut writer = Store::builder(SCHEMA).build().unwrap();
        writer.upsert(object(72, 1, 0));
        let (store, items) = (writer.store(), items());
        let outcome = if is_shared {
            let shared = writer.into_shared();
            let outcome = armed(|| drop(shared.replace(items, Version::new(2))));
            drop(shared);
            outcome
        } else {
            armed(|| drop(writer.replace(items, Version::new(2))))
        };
        assert_eq!(outcome, (true, 3));
        assert_eq!(store.len(), 1);
    }
}

#[test]
fn a_store_and_changes_whose_objects_panic_in_their_drop_do_not_abort() {
    let list = || (1..=100).map(|key| object(key, 1, DROP));
    let mut writer = Store::builder(SCHEMA).build().unwrap();
    writer.replace(list(), Version::new(1));
    let changes = writer.replace([], Version::new(2));
    assert_eq!(armed(|| drop(changes)), (true, 100));
    writer.replace(list(), Version::new(3));
    assert_eq!(armed(|| drop(writer)), (true, 100));
}
