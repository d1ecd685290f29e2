//! Versions that repeat: several changes, or two objects under one key, may have the same version, and a watch may be interrupted between them.

use std::num::NonZeroU64;
use std::time::Duration;

use drivers::cache::fixture::{
    BUSY, EXPIRED, INTERNAL, OTHER, Object, REFUSED, SCHEMA, World, bookmark, error,
};
use flyball_informer_cache::testing::{ScriptedSource, SourceRequest, TestServer};
use flyball_informer_cache::{
    ChangeKind, Informer, Page, SharedWriter, Store, Version, WatchEvent, WriteOutcome, Writer,
};

const fn of(uid: u64, version: u64) -> Object {
    Object { key: 1, uid, version }
}

const fn other(version: u64) -> Object {
    Object { key: 2, uid: 20, version }
}

fn store() -> Writer<u8, Object> {
    Store::builder(SCHEMA).build().unwrap()
}

fn stale(stored: u64) -> WriteOutcome {
    WriteOutcome::Stale { stored: Version::new(stored) }
}

fn page(items: Vec<Object>, version: u64) -> Page<Object> {
    Page { items, version: Version::new(version), continuation: None }
}

/// An informer with these objects, which were listed at version 5, and an open watch.
fn watching(source: &ScriptedSource<Object>, objects: Vec<Object>) -> World {
    source.answer_list(Ok(page(objects, 5)));
    source.answer_watch(Ok(()));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    world.settle();
    drop(source.requests());
    world
}

/// The version of the next watch that is requested after a wait.
fn next_watch(source: &ScriptedSource<Object>, world: &mut World) -> Option<NonZeroU64> {
    world.settle().advance(Duration::from_secs(60));
    match &source.requests()[..] {
        [SourceRequest::Watch(watch)] => NonZeroU64::new(watch.from_version.get()),
        other => panic!("not a watch: {other:?}"),
    }
}

#[test]
fn deletion_of_another_identity_is_stale_unless_it_is_newer() {
    let deleted = |store: &mut Writer<_, _>, last| store.apply(WatchEvent::Deleted(last));
    let mut store = store();
    store.upsert(of(1, 5));
    store.upsert(of(2, 9));
    assert_eq!(deleted(&mut store, of(1, 8)), stale(9));
    assert_eq!(deleted(&mut store, of(1, 9)), stale(9));
    assert_eq!(store.get(&1).as_deref(), Some(&of(2, 9)));
    assert_eq!(deleted(&mut store, of(2, 9)), WriteOutcome::Deleted, "the object itself, at its own version");
    store.upsert(of(2, 9));
    assert_eq!(deleted(&mut store, of(1, 10)), WriteOutcome::Deleted, "a newer deletion");
    assert_eq!(store.version(), Version::new(10));

    let store: SharedWriter<_, _> = store.into_shared();
    store.upsert(of(2, 11));
    assert_eq!(store.apply(WatchEvent::Deleted(of(1, 11))), stale(11));
    assert_eq!(store.delete(&1, Some(of(1, 11))), stale(11));
    assert_eq!(store.len(), 1);
}

#[test]
fn deletions_without_versions_apply_in_order() {
    let mut store = store();
    store.upsert(of(1, 0));
    store.upsert(of(2, 0));
    assert_eq!(store.apply(WatchEvent::Deleted(of(1, 0))), WriteOutcome::Deleted);
    store.upsert(of(2, 9));
    assert_eq!(store.apply(WatchEvent::Deleted(of(1, 0))), WriteOutcome::Deleted);
    store.upsert(of(2, 0));
    assert_eq!(store.apply(WatchEvent::Deleted(of(1, 9))), WriteOutcome::Deleted);
    store.upsert(of(2, 9));
    assert_eq!(store.delete(&1, None), WriteOutcome::Deleted);
}

#[test]
fn transaction_ignores_a_late_deletion_of_another_identity() {
    let mut store = store();
    store.upsert(of(2, 9));
    let mut late = store.transaction();
    late.delete(1, Some(of(1, 9)));
    assert!(late.commit().is_empty());
    // The same if the transaction itself creates the object.
    let mut both = store.transaction();
    both.upsert(of(3, 12));
    both.delete(1, Some(of(2, 12)));
    let changes = both.commit();
    assert_eq!(changes.iter().map(|change| change.kind()).collect::<Vec<_>>(), [ChangeKind::Replaced]);
    assert_eq!(store.get(&1).as_deref(), Some(&of(3, 12)));
    let mut newer = store.transaction();
    newer.delete(1, Some(of(2, 13)));
    assert_eq!(newer.commit().len(), 1);
}

#[test]
fn transaction_ignores_a_write_that_is_older_than_its_earlier_write() {
    let mut store = store();
    store.upsert(of(1, 5));
    let mut writes = store.transaction();
    writes.upsert(of(1, 9));
    writes.upsert(of(1, 7));
    writes.delete(1, Some(of(1, 8)));
    writes.commit();
    assert_eq!(store.get(&1).as_deref(), Some(&of(1, 9)));
    let mut unversioned = store.transaction();
    unversioned.upsert(of(1, 12));
    unversioned.upsert(of(1, 0));
    unversioned.commit();
    assert_eq!(store.get(&1).as_deref(), Some(&of(1, 0)), "without a version, the last write counts");
}

/// A write of the object with the key 1.
#[derive(Clone, Copy, Debug)]
enum Write {
    Upsert(Object),
    Delete(Option<Object>),
}

/// All sequences of up to three writes of one key, to each stored state. For example, an upsert after a deletion does not depend on the version of the
/// object that the deletion deletes.
#[test]
fn a_transaction_stores_what_the_same_single_writes_store() {
    let states = || [1, 2].into_iter().flat_map(|uid| [0, 3, 4, 5].map(|version| of(uid, version)));
    let writes = || states().flat_map(|state| [Write::Upsert(state), Write::Delete(Some(state))]);
    let writes: Vec<_> = writes().chain([Write::Delete(None)]).collect();
    let mut sequences: Vec<_> = writes.iter().map(|write| vec![*write]).collect();
    for _ in 0..2 {
        let longer = |before: &Vec<Write>| {
            let before = before.clone();
            writes.iter().map(move |write| before.iter().chain([write]).copied().collect::<Vec<_>>())
        };
        sequences.extend(sequences.iter().flat_map(longer).collect::<Vec<_>>());
    }
    for stored in states().map(Some).chain([None]) {
        for sequence in &sequences {
            let (mut single, mut together) = (store(), store());
            stored.into_iter().for_each(|stored| {
                single.upsert(stored);
                together.upsert(stored);
            });
            let mut changes = together.subscribe();
            let mut transaction = together.transaction();
            for write in sequence {
                match *write {
                    Write::Upsert(object) => {
                        single.upsert(object);
                        transaction.upsert(object);
                    }
                    Write::Delete(last) => {
                        single.delete(&1, last);
                        transaction.delete(1, last);
                    }
                }
            }
            assert!(transaction.commit().len() <= 1);
            let state = |store: &Store<u8, Object>| (store.get(&1).as_deref().copied(), store.version());
            assert_eq!(state(&together), state(&single), "{stored:?}, {sequence:?}");
            let delivered = std::iter::from_fn(|| changes.try_next()).last();
            assert_eq!(delivered.and_then(|change| change.new().map(|new| **new)), state(&single).0);
            together.check().unwrap();
        }
    }
}

#[test]
fn a_transaction_of_a_shared_writer_is_compared_with_what_its_commit_finds() {
    let store = store().into_shared();
    store.upsert(of(1, 5));
    let mut stale = store.transaction();
    stale.upsert(of(1, 7));
    let mut deletes = store.transaction();
    deletes.delete(1, Some(of(1, 8)));
    assert_eq!(
        store.upsert(of(1, 9)),
        WriteOutcome::Updated,
        "a transaction does not keep others from writing"
    );
    assert!(stale.commit().is_empty() && deletes.commit().is_empty());
    assert_eq!(store.get(&1).as_deref(), Some(&of(1, 9)));
    let mut newer = store.transaction();
    newer.delete(1, Some(of(1, 9)));
    assert_eq!(newer.commit().len(), 1);
    store.check().unwrap();
}

#[test]
fn streaming_list_ignores_a_late_deletion_of_another_identity() {
    let source = ScriptedSource::new();
    source.answer_watch(Ok(()));
    for event in [
        WatchEvent::Added(of(1, 5)),
        WatchEvent::Deleted(of(1, 9)),
        WatchEvent::Added(of(2, 9)),
        WatchEvent::Deleted(of(1, 9)),
        WatchEvent::Added(of(2, 9)),
        WatchEvent::InitialListEnd(Version::new(9)),
    ] {
        source.send(event);
    }
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()).streaming_lists());
    assert_eq!(world.settle().stored(), [of(2, 9)]);
}

#[test]
fn late_upsert_of_an_earlier_identity_is_stale() {
    let mut store = store();
    store.upsert(of(2, 9));
    assert_eq!(store.upsert(of(1, 8)), stale(9));
    assert_eq!(store.apply(WatchEvent::Modified(of(1, 8))), stale(9));
    let mut late = store.transaction();
    late.upsert(of(1, 8));
    assert!(late.commit().is_empty());
    // The same if the transaction itself creates the newer object.
    let mut both = store.transaction();
    both.upsert(of(3, 12));
    both.upsert(of(2, 11));
    both.commit();
    assert_eq!(store.get(&1).as_deref(), Some(&of(3, 12)));
    let store: SharedWriter<_, _> = store.into_shared();
    assert_eq!(store.upsert(of(2, 11)), stale(12));
    assert_eq!(
        store.upsert(of(4, 12)),
        WriteOutcome::Replaced,
        "another identity of one version is not older"
    );
}

#[test]
fn informer_ignores_a_late_upsert_of_an_earlier_identity() {
    // In a streaming list.
    let source = ScriptedSource::new();
    source.answer_watch(Ok(()));
    for event in [
        WatchEvent::Deleted(of(1, 9)),
        WatchEvent::Added(of(2, 9)),
        WatchEvent::Added(of(1, 8)),
        WatchEvent::InitialListEnd(Version::new(9)),
    ] {
        source.send(event);
    }
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()).streaming_lists());
    assert_eq!(world.settle().stored(), [of(2, 9)]);
    // In the watch after it, while an object is stored, and after its deletion.
    source.send(WatchEvent::Modified(of(1, 8)));
    assert_eq!(world.settle().stored(), [of(2, 9)]);
    source.send(WatchEvent::Deleted(of(2, 12)));
    source.send(WatchEvent::Added(of(2, 11)));
    assert_eq!(world.settle().stored(), []);
    assert_eq!(world.informer.status().stale_events, 3);
}

#[test]
fn informer_keeps_an_object_whose_creation_is_delivered_twice() {
    let source = ScriptedSource::new();
    let mut world = watching(&source, vec![of(1, 5)]);
    for _ in 0..2 {
        source.send(WatchEvent::Deleted(of(1, 9)));
        source.send(WatchEvent::Added(of(2, 9)));
        assert_eq!(world.settle().stored(), [of(2, 9)]);
    }
    assert_eq!(world.informer.status().stale_events, 2);
    // In another order.
    source.send(WatchEvent::Added(of(3, 12)));
    source.send(WatchEvent::Deleted(of(2, 12)));
    assert_eq!(world.settle().stored(), [of(3, 12)]);
}

#[test]
fn second_event_of_a_version_is_delivered_after_an_interruption() {
    for interruption in [BUSY, REFUSED, INTERNAL] {
        let source = ScriptedSource::new();
        let mut world = watching(&source, vec![of(1, 5), other(5)]);
        source.send(WatchEvent::Modified(of(1, 9)));
        source.fail_watch(error(interruption));
        source.answer_watch(Ok(()));
        if interruption == INTERNAL {
            // Such an error leads to a list.
            source.answer_list(Ok(page(vec![of(1, 9), other(9)], 9)));
            world.settle().advance(Duration::from_secs(60));
        } else {
            assert_eq!(next_watch(&source, &mut world), NonZeroU64::new(8), "{interruption:?}");
            source.send(WatchEvent::Modified(of(1, 9)));
            source.send(WatchEvent::Modified(other(9)));
        }
        assert_eq!(world.settle().stored(), [of(1, 9), other(9)]);
        assert_eq!(world.informer.status().version, Version::new(9));
    }
}

#[test]
fn watch_that_exceeds_its_age_between_two_events_of_a_version_is_resumed_before_it() {
    let source = ScriptedSource::new();
    let mut world = watching(&source, vec![of(1, 5), other(5)]);
    source.send(WatchEvent::Modified(of(1, 9)));
    source.answer_watch(Ok(()));
    world.settle().advance(Duration::from_secs(3_600));
    let requests = source.requests();
    let [SourceRequest::Watch(next), ..] = &requests[..] else { panic!("{requests:?}") };
    assert_eq!(next.from_version, Version::new(8));
}

#[test]
fn watch_is_resumed_at_a_version_that_is_known_to_be_complete() {
    // A bookmark, a normal end, a newer event.
    let source = ScriptedSource::new();
    let mut world = watching(&source, vec![of(1, 5)]);
    source.send(WatchEvent::Modified(of(1, 9)));
    source.send(bookmark(9));
    source.fail_watch(error(REFUSED));
    source.answer_watch(Ok(()));
    assert_eq!(next_watch(&source, &mut world), NonZeroU64::new(9));
    source.send(WatchEvent::Modified(of(1, 11)));
    source.close_watch();
    source.answer_watch(Ok(()));
    assert_eq!(next_watch(&source, &mut world), NonZeroU64::new(11));
    source.send(WatchEvent::Modified(of(1, 12)));
    source.send(bookmark(11));
    source.send(WatchEvent::Modified(of(1, 20)));
    source.fail_watch(error(REFUSED));
    source.answer_watch(Ok(()));
    assert_eq!(next_watch(&source, &mut world), NonZeroU64::new(19));
    // Without any event, the watch is resumed where it began, and an error that leads to a list does so.
    source.fail_watch(error(REFUSED));
    source.answer_watch(Ok(()));
    assert_eq!(next_watch(&source, &mut world), NonZeroU64::new(19));
    for kind in [EXPIRED, OTHER] {
        source.fail_watch(error(kind));
        source.answer_list(Ok(page(vec![of(1, 20)], 20)));
        source.answer_watch(Ok(()));
        world.settle().advance(Duration::from_secs(60));
        assert!(matches!(&source.requests()[..], [SourceRequest::List(_), SourceRequest::Watch(_)]));
    }
}

/// An informer whose watch was interrupted after the addition of `other(9)`, and that watches again from version 8.
fn watching_again(source: &ScriptedSource<Object>) -> World {
    let mut world = watching(source, vec![of(1, 5)]);
    source.send(WatchEvent::Added(other(9)));
    source.fail_watch(error(REFUSED));
    source.answer_watch(Ok(()));
    assert_eq!(next_watch(source, &mut world), NonZeroU64::new(8));
    world
}

#[test]
fn change_that_is_not_delivered_again_causes_a_list() {
    type Ends = fn(&ScriptedSource<Object>, &mut World);
    let ends: [(&str, Ends); 6] = [
        ("nothing", |_, world| _ = world.advance(Duration::from_secs(119))),
        ("a newer change", |source, _| source.send(WatchEvent::Modified(of(1, 12)))),
        ("both changes of a newer version", |source, _| {
            source.send(WatchEvent::Deleted(of(1, 12)));
            source.send(WatchEvent::Added(of(3, 12)));
        }),
        ("a bookmark of its version", |source, _| source.send(bookmark(9))),
        ("the end", |source, _| source.close_watch()),
        ("a newer change and an error", |source, _| {
            source.send(WatchEvent::Modified(of(1, 12)));
            source.fail_watch(error(REFUSED));
        }),
    ];
    for (what, end) in ends {
        let source = ScriptedSource::new();
        let mut world = watching_again(&source);
        assert_eq!(world.stored(), [of(1, 5), other(9)]);
        end(&source, &mut world);
        world.settle();
        source.answer_list(Ok(page(vec![of(1, 5)], 8)));
        source.answer_watch(Ok(()));
        world.advance(Duration::from_secs(60));
        let requests = source.requests();
        assert!(
            matches!(&requests[..], [SourceRequest::List(_), SourceRequest::Watch(watch)] if watch.from_version == Version::new(8)),
            "{what}: {requests:?}"
        );
        assert_eq!(world.stored(), [of(1, 5)], "{what}");
    }
}

#[test]
fn change_that_is_delivered_again_causes_no_list() {
    let source = ScriptedSource::new();
    let mut world = watching_again(&source);
    source.send(bookmark(8));
    source.send(WatchEvent::Added(other(9)));
    source.send(WatchEvent::Modified(of(1, 12)));
    world.settle().advance(Duration::from_secs(200));
    assert!(source.requests().is_empty());
    assert_eq!(world.stored(), [of(1, 12), other(9)]);
}

#[test]
fn change_that_a_restore_has_undone_is_undone() {
    let stamp = |object: &mut Object, uid, version: Version| {
        (object.uid, object.version) = (uid, version.get());
    };
    let server = TestServer::new(SCHEMA, stamp);
    server.put(of(0, 0));
    server.cache_state();
    let mut world = World::new(Informer::builder(SCHEMA, server.clone()));
    world.settle();
    server.put(other(0));
    assert_eq!(world.settle().stored(), server.objects());
    // The watch resumes before the addition, at the version that the server was restored to.
    server.break_watches(REFUSED);
    world.settle();
    server.restore_cached();
    world.advance(Duration::from_secs(180));
    assert_eq!(world.stored(), server.objects());
    assert_eq!(server.objects().len(), 1);
}
