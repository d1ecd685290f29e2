//! Tests that a user function that panics on one object affects only that object, and not the informer.

use std::error::Error;
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use drivers::cache::fixture::{self, Object, SCHEMA, World, error, object};
use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    BackoffCause, Index, Informer, InformerBuilder, InformerState, Page, Schema, Version, WatchEvent,
};
use flyball_sync::ManualClock;
use parking_lot::Mutex;
use testkit::wakers::poll_once;

/// An object with this version makes the function under test panic.
const BAD: u64 = 13;

fn good(object: &Object) {
    assert_ne!(object.version, BAD, "a bad object");
}

type Source = ScriptedSource<Object>;
type Builder = InformerBuilder<u8, Object, Source>;

/// The name of a user function that panics, and a function that returns the builder of an informer with this user function.
type Fragile = (&'static str, fn(Source) -> Builder);

/// Returns an entry for each user function that an informer calls.
fn builders() -> Vec<Fragile> {
    const KEY: Schema<u8, Object> = Schema::new(
        |object: &Object| {
            good(object);
            object.key
        },
        |object| Version::new(object.version),
    );
    const VERSION: Schema<u8, Object> = Schema::new(
        |object: &Object| object.key,
        |object| {
            good(object);
            Version::new(object.version)
        },
    );
    const IDENTITY: Schema<u8, Object> = SCHEMA.with_identity(|a, b| {
        good(a);
        good(b);
        a.uid == b.uid
    });
    vec![
        ("key", |source| Informer::builder(KEY, source)),
        ("version", |source| Informer::builder(VERSION, source)),
        ("identity", |source| Informer::builder(IDENTITY, source)),
        ("transformation", |source| {
            Informer::builder(SCHEMA, source).transform(|object| {
                good(&object);
                object
            })
        }),
    ]
}

fn page(items: Vec<Object>, version: u64) -> Page<Object> {
    Page { items, version: Version::new(version), continuation: None }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delivery {
    Watch,
    List,
    Stream,
}

#[test]
fn a_panic_on_one_object_leaves_that_object_as_it_was() {
    for (name, builder) in builders() {
        for delivery in [Delivery::Watch, Delivery::List, Delivery::Stream] {
            let received = Arc::new(Mutex::new(Vec::new()));
            let source = Source::new();
            let builder = builder(source.clone()).on_error({
                let received = received.clone();
                move |failure| received.lock().push((failure.cause, failure.to_string()))
            });
            let builder = if delivery == Delivery::Stream { builder.streaming_lists() } else { builder };
            let mut world = World::new(builder);
            source.answer_watch(Ok(()));
            match delivery {
                Delivery::Stream => {
                    source.send(WatchEvent::Added(object(1, 1)));
                    source.send(WatchEvent::Added(object(2, 2)));
                    source.send(WatchEvent::InitialListEnd(Version::new(5)));
                }
                _ => source.answer_list(Ok(page(vec![object(1, 1), object(2, 2)], 5))),
            }
            world.settle();
            assert_eq!(world.stored(), [object(1, 1), object(2, 2)]);
            if delivery == Delivery::Watch {
                for (key, version) in [(1, 12), (2, BAD), (3, 14)] {
                    source.send(WatchEvent::Modified(object(key, version)));
                }
                world.settle();
            } else {
                source.fail_watch(error(fixture::OTHER));
                source.answer_watch(Ok(()));
                if delivery == Delivery::Stream {
                    for (key, version) in [(1, 12), (2, BAD), (3, 14)] {
                        source.send(WatchEvent::Added(object(key, version)));
                    }
                    source.send(WatchEvent::InitialListEnd(Version::new(15)));
                } else {
                    source.answer_list(Ok(page(vec![object(1, 12), object(2, BAD), object(3, 14)], 15)));
                }
                world.settle();
                received.lock().clear();
                world.advance_to_alarm();
            }
            let status = world.informer.status();
            assert_eq!(status.state, InformerState::Watching, "{name} {delivery:?}");
            world.informer.store().check().unwrap();
            assert_eq!(world.stored(), [object(1, 12), object(2, 2), object(3, 14)], "{name} {delivery:?}");
            // The panic is counted and reported as a panic, and not as an error of the source.
            // If the key of a listed object is unknown, deletions are withheld, which is an error until the next list.
            let withheld = name == "key" && delivery != Delivery::Watch;
            assert_eq!((status.panics, status.last_error.is_some()), (1, withheld), "{name} {delivery:?}");
            assert!(status.last_panic.unwrap().message.contains("a bad object"));
            let received = std::mem::take(&mut *received.lock());
            assert_eq!(received.len(), 1 + usize::from(withheld), "{name} {delivery:?}: {received:?}");
            for (cause, message) in &received {
                assert_eq!(*cause, BackoffCause::Panicked);
                assert!(message.contains("a bad object"), "{received:?}");
            }
            // The function does not panic on the next state of the object, so this state is stored.
            source.send(WatchEvent::Modified(object(2, 16)));
            world.settle();
            assert!(world.stored().contains(&object(2, 16)), "{name} {delivery:?}");
        }
    }
}

/// If the key function panics on a listed object, the key of this object is unknown: it may be the key of any stored object that seems to be missing
/// in the list. So none of the missing objects is deleted.
#[test]
fn a_list_with_an_object_without_a_key_deletes_nothing() {
    let source = Source::new();
    let (_, builder) = builders()[0];
    let mut world = World::new(builder(source.clone()));
    source.answer_list(Ok(page(vec![object(1, 1), object(2, 2), object(3, 3)], 5)));
    source.answer_watch(Ok(()));
    world.settle();
    source.fail_watch(error(fixture::OTHER));
    source.answer_list(Ok(page(vec![object(1, 12), object(2, BAD)], 15)));
    source.answer_watch(Ok(()));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(1, 12), object(2, 2), object(3, 3)]);
    // A deletion that the watch delivers is still applied.
    source.send(WatchEvent::Deleted(object(3, 16)));
    source.fail_watch(error(fixture::OTHER));
    world.settle();
    source.answer_list(Ok(page(vec![object(1, 12)], 17)));
    source.answer_watch(Ok(()));
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(1, 12)]);
}

#[test]
fn a_panic_of_an_index_function_is_an_error_of_that_object_and_index() {
    static FRAGILE: Index<Object, u8> = Index::new("fragile", |object| {
        good(object);
        object.key
    });
    static SOUND: Index<Object, u64> = Index::new("sound", |object| object.version);
    for listed in [true, false] {
        let source = Source::new();
        source.answer_list(Ok(page(vec![object(1, 1)], 5)));
        source.answer_watch(Ok(()));
        let mut world = World::new(Informer::builder(SCHEMA, source.clone()).index(&FRAGILE).index(&SOUND));
        world.settle();
        if listed {
            source.fail_watch(error(fixture::OTHER));
            source.answer_list(Ok(page(vec![object(1, 12), object(2, BAD), object(3, 14)], 14)));
            source.answer_watch(Ok(()));
            world.settle();
            world.advance_to_alarm();
        } else {
            source.send(WatchEvent::Modified(object(1, 12)));
            source.send(WatchEvent::Added(object(2, BAD)));
            source.send(WatchEvent::Added(object(3, 14)));
            world.settle();
        }
        let store = world.informer.store();
        assert_eq!(world.informer.status().state, InformerState::Watching);
        assert_eq!(world.informer.status().last_error, None);
        store.check().unwrap();
        assert_eq!(world.stored(), [object(1, 12), object(2, BAD), object(3, 14)]);
        assert!(store.by_index(&FRAGILE, &2).unwrap().is_empty());
        assert_eq!(store.by_index(&FRAGILE, &3).unwrap().len(), 1);
        assert_eq!(store.by_index(&SOUND, &BAD).unwrap().len(), 1);
        let errors = store.index_errors();
        let [(key, index, error)] = &errors[..] else { panic!("{errors:?}") };
        assert_eq!((*key, *index), (2, "fragile"));
        assert!(error.source().unwrap().to_string().contains("a bad object"));
        source.send(WatchEvent::Modified(object(2, 15)));
        world.settle();
        assert!(world.informer.store().index_errors().is_empty());
        assert_eq!(world.informer.store().by_index(&FRAGILE, &2).unwrap().len(), 1);
    }
}

/// `cmp` of an index value panics, so the store rejects the whole list.
#[test]
fn a_list_that_cannot_be_published_is_asked_for_again() {
    static PANICS: AtomicBool = AtomicBool::new(false);
    #[derive(Clone, Debug)]
    struct Moody(u64);
    impl PartialEq for Moody {
        fn eq(&self, other: &Self) -> bool {
            assert!(!PANICS.load(Ordering::SeqCst), "a bad value");
            self.0 == other.0
        }
    }
    impl Eq for Moody {}
    impl Hash for Moody {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    static MOODY: Index<Object, Moody> = Index::new("moody", |object: &Object| Moody(object.version));
    let source = Source::new();
    source.answer_list(Ok(page(vec![object(1, 1), object(3, 3)], 5)));
    source.answer_watch(Ok(()));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()).index(&MOODY));
    world.settle();
    // A write of object 3 compares its value with that of the subscription.
    let changes = world.informer.subscription().by_index(&MOODY, Moody(3)).unwrap().subscribe();
    PANICS.store(true, Ordering::SeqCst);
    source.send(WatchEvent::Modified(object(3, 6)));
    source.send(WatchEvent::Modified(object(1, 14)));
    world.settle();
    assert_eq!((world.stored(), world.informer.status().panics), (vec![object(1, 14), object(3, 3)], 1));
    source.fail_watch(error(fixture::OTHER));
    source.answer_list(Ok(page(vec![object(1, 15), object(3, 13)], 15)));
    source.answer_watch(Ok(()));
    world.settle();
    world.advance_to_alarm();
    let status = world.informer.status();
    assert!(matches!(status.state, InformerState::Waiting { .. }), "{status:?}");
    assert_eq!(world.stored(), [object(1, 14), object(3, 3)], "the list was published in part");
    PANICS.store(false, Ordering::SeqCst);
    source.answer_list(Ok(page(vec![object(1, 16), object(3, 15)], 16)));
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(1, 16), object(3, 15)]);
    let status = world.informer.status();
    assert_eq!(
        (status.state, status.relists),
        (InformerState::Watching, 1),
        "a list that failed was counted"
    );
    world.informer.store().check().unwrap();
    drop(changes);
}

#[test]
fn a_deletion_is_applied_though_its_last_state_is_bad() {
    for (name, builder) in builders().into_iter().filter(|(name, _)| *name != "key") {
        let source = Source::new();
        source.answer_list(Ok(page(vec![object(1, 1), object(2, 2)], 5)));
        source.answer_watch(Ok(()));
        let mut world = World::new(builder(source.clone()));
        world.settle();
        source.send(WatchEvent::Deleted(object(2, BAD)));
        world.settle();
        assert_eq!((world.stored(), world.informer.status().panics), (vec![object(1, 1)], 1), "{name}");
        // A late event does not restore the object.
        source.send(WatchEvent::Modified(object(2, 2)));
        world.settle();
        assert_eq!(world.stored(), [object(1, 1)], "{name}");
    }
}

#[test]
fn a_deletion_at_a_bad_version_is_one_of_a_streaming_list_too() {
    let (_, builder) = builders()[1];
    let source = Source::new();
    source.answer_watch(Ok(()));
    let mut world = World::new(builder(source.clone()).streaming_lists());
    for event in [
        WatchEvent::Added(object(1, 1)),
        WatchEvent::Added(object(2, 2)),
        WatchEvent::Deleted(object(2, BAD)),
        WatchEvent::InitialListEnd(Version::new(15)),
    ] {
        source.send(event);
    }
    world.settle();
    assert_eq!((world.stored(), world.informer.status().panics), (vec![object(1, 1)], 1));
}

#[test]
fn a_nameless_object_does_not_undo_a_deletion_that_was_delivered() {
    let source = Source::new();
    let (_, builder) = builders()[0];
    source.answer_watch(Ok(()));
    let mut world = World::new(builder(source.clone()).streaming_lists());
    let first = (1..=4).map(|key| WatchEvent::Added(object(key, key.into())));
    first.chain([WatchEvent::InitialListEnd(Version::new(5))]).for_each(|event| source.send(event));
    world.settle();
    source.fail_watch(error(fixture::OTHER));
    source.answer_watch(Ok(()));
    for event in [
        WatchEvent::Added(object(1, 1)),
        WatchEvent::Added(object(2, BAD)),
        WatchEvent::Added(object(3, 3)),
        WatchEvent::Deleted(object(3, 14)),
        // This object is stored, but it has not arrived in the new list yet.
        WatchEvent::Deleted(object(4, 14)),
        WatchEvent::InitialListEnd(Version::new(15)),
    ] {
        source.send(event);
    }
    world.settle();
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(1, 1), object(2, 2)]);
    world.informer.store().check().unwrap();
}

/// A `Drop` that panics once, if it is armed.
#[derive(Clone)]
struct Bomb(Arc<AtomicBool>);

impl Drop for Bomb {
    fn drop(&mut self) {
        assert!(!self.0.swap(false, Ordering::Relaxed), "a bad drop");
    }
}

/// An object whose drop panics, if its version is [`BAD`].
struct Armed {
    key: u8,
    version: u64,
    _bomb: Option<Bomb>,
}

/// An index value whose drop panics, if it is [`BAD`].
struct Value(u64, #[expect(dead_code, reason = "dropped with the value")] Option<Bomb>);

impl PartialEq for Value {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Value {}

impl Hash for Value {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

#[test]
fn a_panic_of_a_drop_does_not_end_the_informer() {
    const ARMED: Schema<u8, Armed> =
        Schema::new(|object: &Armed| object.key, |object| Version::new(object.version));
    for case in ["index value", "abandoned page", "repeated page", "stale event"] {
        let armed = Arc::new(AtomicBool::new(false));
        let bomb = Bomb(armed.clone());
        let object = |version| {
            let is_bad = version == BAD && case != "index value";
            Armed { key: 1, version, _bomb: is_bad.then(|| bomb.clone()) }
        };
        let page = |items, continuation: Option<&str>| Page {
            items,
            version: Version::new(5),
            continuation: continuation.map(Into::into),
        };
        let values = Index::capturing("value", {
            let bomb = bomb.clone();
            move |object: &Armed| {
                let is_bad = object.version == BAD && case == "index value";
                vec![Value(object.version, is_bad.then(|| bomb.clone()))]
            }
        });
        let source = ScriptedSource::<Armed>::new();
        let builder = Informer::builder(ARMED, source.clone()).seed(7).index(&values);
        let builder = if case == "stale event" { builder.streaming_lists() } else { builder };
        let clock = ManualClock::new();
        let (informer, run) = builder.timer(clock.timer()).build().unwrap();
        let mut run = pin!(run);
        let mut turns = || (0..20).for_each(|_| assert!(poll_once(run.as_mut()).is_pending(), "{case}"));
        source.answer_watch(Ok(()));
        match case {
            "index value" => source.answer_list(Ok(page(vec![object(BAD)], None))),
            "abandoned page" => source.answer_list(Ok(page(vec![object(BAD)], Some("c")))),
            "repeated page" => source.answer_list(Ok(page(vec![], Some("c")))),
            _ => source.send(WatchEvent::Added(object(14))),
        }
        turns();
        armed.store(true, Ordering::Relaxed);
        match case {
            "index value" => source.fail_watch(error(fixture::OTHER)),
            "abandoned page" => source.answer_list(Err(error(fixture::OTHER))),
            "repeated page" => source.answer_list(Ok(page(vec![object(BAD)], Some("c")))),
            _ => {
                source.send(WatchEvent::Added(object(BAD)));
                source.send(WatchEvent::InitialListEnd(Version::new(5)));
            }
        }
        turns();
        source.answer_list(Ok(page(vec![object(14)], None)));
        source.answer_watch(Ok(()));
        clock.advance(Duration::from_secs(2));
        turns();
        assert!(!armed.load(Ordering::Relaxed), "{case}: nothing was dropped");
        let status = informer.status();
        assert_eq!((status.state, status.panics), (InformerState::Watching, 1), "{case}: {status:?}");
        assert!(informer.store().get(&1).is_some_and(|object| object.version == 14), "{case}");
        informer.store().check().unwrap();
    }
}
