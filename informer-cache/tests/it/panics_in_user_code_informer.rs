//! Tests of an informer whose objects or keys panic in their destructor.

use std::cell::Cell;
use std::cmp::Ordering;
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::time::Duration;

use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    Index, Informer, InformerBuilder, InformerState, ManualClock, Page, Schema, SourceErrorKind, Store,
    Version, WatchEvent,
};
use testkit::wakers::poll_once;

thread_local! {
    static PANICS: Cell<bool> = const { Cell::new(false) };
}

fn panic_if_set() {
    if PANICS.get() {
        std::panic::resume_unwind(Box::new("user code panics"));
    }
}

/// A key. If it is 7, its destructor panics; if it is 72, its comparison.
#[derive(Clone)]
struct Key(u32);

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        if self.0 == 72 {
            panic_if_set();
        }
        self.0 == other.0
    }
}

impl Eq for Key {}

impl Hash for Key {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.hash(hasher);
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        if self.0 == 7 {
            panic_if_set();
        }
    }
}

/// An object: its key, its version and a number. If the key is at least 70, the destructor panics.
struct Object(u32, u64, f64);

impl Drop for Object {
    fn drop(&mut self) {
        if self.0 >= 70 {
            panic_if_set();
        }
    }
}

/// A number that cannot be compared with NaN.
#[derive(Clone, PartialEq)]
struct Number(f64);

impl Eq for Number {}

impl Hash for Number {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.0.to_bits().hash(hasher);
    }
}

impl PartialOrd for Number {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Number {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).expect("a number")
    }
}

static BY_NUMBER: Index<Object, Number> = Index::new("number", |object: &Object| Number(object.2)).ordered();

type Source = ScriptedSource<Object>;

/// A running informer, which is polled by the test.
struct World {
    source: Source,
    clock: ManualClock,
    informer: Informer<Key, Object>,
    run: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl World {
    fn new(
        with: impl FnOnce(InformerBuilder<Key, Object, Source>) -> InformerBuilder<Key, Object, Source>,
    ) -> Self {
        PANICS.set(false);
        let schema = Schema::new(|object: &Object| Key(object.0), |object| Version::new(object.1));
        let (source, clock) = (Source::new(), ManualClock::new());
        let builder = with(Informer::builder(schema, source.clone()));
        let (informer, run) = builder.timer(clock.timer()).build().unwrap();
        Self { source, clock, informer, run: Box::pin(run) }
    }

    fn list(&self, keys: impl IntoIterator<Item = u32>, version: u64, continuation: Option<&str>) {
        let items = keys.into_iter().map(|key| Object(key, 1, 0.0)).collect();
        let continuation = continuation.map(Into::into);
        self.source.answer_list(Ok(Page { items, version: Version::new(version), continuation }));
    }

    /// Polls the informer a few times. Returns whether it has ended.
    fn settle(&mut self) -> bool {
        (0..5).any(|_| poll_once(self.run.as_mut()).is_ready())
    }

    fn keys(&self) -> Vec<u32> {
        let mut keys: Vec<_> = self.informer.snapshot().keys().map(|key| key.0).collect();
        keys.sort_unstable();
        keys
    }
}

#[test]
fn a_remembered_deletion_whose_key_panics_in_its_drop_does_not_end_the_informer() {
    for streaming in [false, true] {
        let mut world = World::new(|builder| if streaming { builder.streaming_lists() } else { builder });
        let list = |world: &World, keys: &[u32], version: u64| {
            if streaming {
                world.source.answer_watch(Ok(()));
                keys.iter().for_each(|key| world.source.send(WatchEvent::Added(Object(*key, 1, 0.0))));
                world.source.send(WatchEvent::InitialListEnd(Version::new(version)));
            } else {
                world.list(keys.iter().copied(), version, None);
                world.source.answer_watch(Ok(()));
            }
        };
        list(&world, &[7, 8], 1);
        world.settle();
        world.source.send(WatchEvent::Deleted(Object(7, 5, 0.0)));
        world.settle();
        assert_eq!(world.keys(), [8]);
        world.source.fail_watch(SourceErrorKind::Expired.into());
        world.settle();
        PANICS.set(true);
        list(&world, &[8, 9], 10);
        world.clock.advance(Duration::from_secs(2));
        world.settle();
        PANICS.set(false);
        assert_eq!(world.keys(), [8, 9]);
        let status = world.informer.status();
        assert_eq!((status.state, status.panics), (InformerState::Watching, 1));
    }
}

/// A second panic while the first one unwinds aborts the process.
#[test]
fn several_objects_of_a_page_may_panic_in_their_drop() {
    // The page is not staged, because it repeats a continuation.
    let mut world = World::new(|builder| builder);
    world.list([1], 1, Some("more"));
    world.list([70, 71], 1, Some("more"));
    PANICS.set(true);
    world.settle();
    PANICS.set(false);
    let status = world.informer.status();
    assert!(matches!(status.state, InformerState::Waiting { .. }) && status.panics == 1);

    // The informer is shut down before the whole page is staged.
    let mut world = World::new(|builder| builder);
    world.list((0..300).map(|number| if number < 290 { number % 6 } else { number }), 1, None);
    assert!(poll_once(world.run.as_mut()).is_pending());
    world.informer.shut_down();
    PANICS.set(true);
    assert!(world.settle());
    PANICS.set(false);
    let status = world.informer.status();
    assert_eq!((status.state, status.panics), (InformerState::Stopped, 1));
}

#[test]
fn several_objects_of_a_list_that_fails_may_panic_in_their_drop() {
    let mut world = World::new(|builder| builder);
    // The list is compared with the key of the subscription after its table was built.
    let changes = world.informer.subscription().for_key(Key(72)).subscribe();
    world.list([70, 71, 72], 1, None);
    PANICS.set(true);
    world.settle();
    PANICS.set(false);
    let status = world.informer.status();
    assert!(matches!(status.state, InformerState::Waiting { .. }) && status.panics > 0);
    drop(changes);
}

#[test]
fn an_index_value_that_cannot_be_compared_is_an_error_of_its_object() {
    let mut world = World::new(|builder| builder.index(&BY_NUMBER));
    let items = vec![Object(1, 1, f64::NAN), Object(2, 1, 2.0), Object(3, 1, f64::NAN), Object(4, 1, 1.0)];
    world.source.answer_list(Ok(Page { items, version: Version::new(1), continuation: None }));
    world.source.answer_watch(Ok(()));
    world.settle();
    let check = |world: &World, keys: &[u32], ordered: &[u32]| {
        assert_eq!(world.keys(), keys);
        let view = world.informer.snapshot();
        view.check().unwrap();
        let all = view.range::<_, Number, _>(&BY_NUMBER, ..).unwrap();
        assert_eq!(all.map(|(_, object)| object.0).collect::<Vec<_>>(), ordered);
        assert_eq!(view.index_errors().count(), keys.len() - ordered.len());
    };
    check(&world, &[1, 2, 3, 4], &[4, 2]);
    world.source.send(WatchEvent::Added(Object(5, 2, 1.5)));
    world.source.send(WatchEvent::Modified(Object(2, 3, f64::NAN)));
    world.source.send(WatchEvent::Modified(Object(1, 4, 0.5)));
    world.source.send(WatchEvent::Deleted(Object(3, 5, f64::NAN)));
    world.settle();
    check(&world, &[1, 2, 4, 5], &[1, 4, 5]);
    assert_eq!(world.informer.status().panics, 0);
}

/// `Ord` of this value panics while `PANICS` is set, even if both values are the same.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Rank(u32);

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        assert!(!PANICS.get(), "a comparison panics");
        self.0.cmp(&other.0)
    }
}

#[test]
fn a_value_can_be_removed_although_its_comparison_panics() {
    static BY_RANK: Index<u32, Rank> =
        Index::many("rank", |object| vec![Rank(*object), Rank(*object / 2)]).ordered();
    let mut store = Store::builder(Schema::new(|object: &u32| *object, |_| Version::ZERO))
        .index(&BY_RANK)
        .build()
        .unwrap();
    (0..200).for_each(|object| _ = store.upsert(object));
    PANICS.set(true);
    (0..199).for_each(|object| assert!(store.delete(&object, None).is_change()));
    PANICS.set(false);
    store.check().unwrap();
    let view = store.snapshot();
    assert!(view.range::<_, Rank, _>(&BY_RANK, ..).unwrap().map(|(rank, _)| rank.0).eq([99, 199]));
}

#[test]
fn a_subscription_may_hold_several_objects_that_panic_in_their_drop() {
    let schema = Schema::new(|object: &Object| object.0, |object| Version::new(object.1));
    let mut writer = Store::builder(schema).build().unwrap();
    writer.upsert(Object(70, 1, 0.0));
    let changes = writer.subscribe();
    writer.upsert(Object(71, 2, 0.0));
    drop(writer);
    PANICS.set(true);
    // One object of the snapshot, and one pending change.
    assert!(catch_unwind(AssertUnwindSafe(|| drop(changes))).is_err());
    PANICS.set(false);
}
