//! A key function that panics on a listed object, list after list: only the stored objects that it may be are kept, and the status says so.

use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use drivers::cache::fixture::{EXPIRED, Object, World, error};
use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{Informer, Page, Schema, Version, WatchEvent};
use flyball_sync::ManualClock;
use parking_lot::Mutex;
use testkit::wakers::poll_once;

/// The key of an object whose key cannot be read.
const UNNAMED: u8 = 99;

const NAMED: Schema<u8, Object> = Schema::new(
    |object: &Object| match object.key {
        UNNAMED => resume_unwind(Box::new("no name")),
        key => key,
    },
    |object| Version::new(object.version),
);
const IDENTIFIED: Schema<u8, Object> = NAMED.with_identity(|a, b| a.uid == b.uid);

fn object(key: u8, uid: u64) -> Object {
    Object { key, uid, version: 1 }
}

fn listed(schema: Schema<u8, Object>, streaming: bool) -> (ScriptedSource<Object>, World) {
    let source = ScriptedSource::new();
    let mut builder = Informer::builder(schema, source.clone());
    if streaming {
        builder = builder.streaming_lists();
    }
    let mut world = World::new(builder);
    list(&source, &mut world, streaming, (1..=4).map(|number| object(number, number.into())).collect());
    (source, world)
}

/// Answers the next list, which may be one after the end of the open watch.
fn list(source: &ScriptedSource<Object>, world: &mut World, streaming: bool, items: Vec<Object>) {
    if source.open_watches() > 0 {
        source.fail_watch(error(EXPIRED));
        world.settle();
    }
    let version = Version::new(10);
    if streaming {
        source.answer_watch(Ok(()));
        items.into_iter().for_each(|item| source.send(WatchEvent::Added(item)));
        source.send(WatchEvent::InitialListEnd(version));
    } else {
        source.answer_list(Ok(Page { items, version, continuation: None }));
        source.answer_watch(Ok(()));
    }
    world.advance(Duration::from_secs(60));
}

fn keys(world: &World) -> Vec<u8> {
    world.stored().iter().map(|object| object.key).collect()
}

#[test]
fn unreadable_key_withholds_only_the_deletion_of_its_identity() {
    for streaming in [false, true] {
        let (source, mut world) = listed(IDENTIFIED, streaming);
        for _ in 0..3 {
            // Object 2 cannot be read, object 3 is listed, and objects 1 and 4 are gone.
            list(&source, &mut world, streaming, vec![object(UNNAMED, 2), object(3, 3)]);
            assert_eq!(keys(&world), [2, 3]);
            let status = world.informer.status();
            assert_eq!(status.withheld_deletions, 1);
            assert!(status.last_error.unwrap().message.contains("no name"));
        }
        // An object that was never stored withholds nothing.
        list(&source, &mut world, streaming, vec![object(UNNAMED, 7), object(3, 3)]);
        assert_eq!(keys(&world), [3]);
        let status = world.informer.status();
        assert_eq!((status.withheld_deletions, status.last_error), (0, None));
    }
}

#[test]
fn status_reports_withheld_deletions_until_a_list_without_them() {
    let (source, mut world) = listed(NAMED, false);
    list(&source, &mut world, false, vec![object(UNNAMED, 2), object(3, 3)]);
    assert_eq!(keys(&world), [1, 2, 3, 4], "without identities, each of them may be the unreadable one");
    // The watch opens and delivers events, and the error stays.
    source.send(WatchEvent::Modified(Object { version: 12, ..object(3, 3) }));
    let status = world.settle().informer.status();
    assert_eq!(status.withheld_deletions, 3);
    let message = status.last_error.unwrap().message;
    assert!(message.contains("3 stored objects") && message.contains("no name"), "{message}");
    list(&source, &mut world, false, vec![object(2, 2), object(3, 3)]);
    let status = world.informer.status();
    assert_eq!((keys(&world), status.withheld_deletions, status.last_error), (vec![2, 3], 0, None));
}

#[test]
fn many_unreadable_keys_are_not_all_compared() {
    let (source, mut world) = listed(IDENTIFIED, false);
    list(&source, &mut world, false, (100..200).map(|uid| object(UNNAMED, uid)).collect());
    assert_eq!(
        world.informer.status().withheld_deletions,
        4,
        "100 objects are not compared with each stored object"
    );
    list(&source, &mut world, false, (100..110).map(|uid| object(UNNAMED, uid)).collect());
    assert!(keys(&world).is_empty());
}

#[test]
fn on_error_receives_the_withheld_deletions_of_each_list() {
    for streaming in [false, true] {
        let (source, received) = (ScriptedSource::new(), Arc::new(Mutex::new(Vec::new())));
        let mut builder = Informer::builder(IDENTIFIED, source.clone()).on_error({
            let received = received.clone();
            move |failure| received.lock().push(failure.to_string())
        });
        if streaming {
            builder = builder.streaming_lists();
        }
        let mut world = World::new(builder);
        list(&source, &mut world, streaming, vec![object(1, 1), object(2, 2)]);
        for lists in 1..=3 {
            list(&source, &mut world, streaming, vec![object(1, 1), object(UNNAMED, 2)]);
            let reports = received.lock().iter().filter(|text| text.contains("1 stored objects")).count();
            assert_eq!(reports, lists, "{:?}", received.lock());
        }
        list(&source, &mut world, streaming, vec![object(1, 1)]);
        assert_eq!((keys(&world), world.informer.status().last_error), (vec![1], None));
    }
}

/// The list is complete without such an object, so a panic of its destructor must not fail the list.
#[test]
fn destructor_of_an_object_without_a_key_does_not_fail_its_list() {
    struct Hostile(u8);
    impl Drop for Hostile {
        fn drop(&mut self) {
            assert!(self.0 != UNNAMED || std::thread::panicking(), "a hostile drop panics");
        }
    }
    let schema = Schema::new(
        |object: &Hostile| match object.0 {
            UNNAMED => resume_unwind(Box::new("no name")),
            key => key,
        },
        |_| Version::new(1),
    );
    // More than 16 such objects are not kept for a comparison.
    for unnamed in [1, 17] {
        let source = ScriptedSource::new();
        let (informer, run) =
            Informer::builder(schema, source.clone()).timer(ManualClock::new().timer()).build().unwrap();
        let mut run = std::pin::pin!(run);
        let items = (0..unnamed).map(|_| Hostile(UNNAMED)).chain([Hostile(1)]).collect();
        source.answer_list(Ok(Page { items, version: Version::new(2), continuation: None }));
        source.answer_watch(Ok(()));
        (0..10).for_each(|_| assert!(poll_once(run.as_mut()).is_pending()));
        assert_eq!(
            (informer.store().len(), source.open_watches()),
            (1, 1),
            "{unnamed} objects without a key"
        );
    }
}
