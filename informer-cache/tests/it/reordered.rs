//! Tests with events that are late, repeated, or not in the order of their versions.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use drivers::cache::fixture::{self, Object, SCHEMA, World, bookmark, error, object};
use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    Informer, InformerState, ListRequest, Page, Schema, SourceError, Version, WatchEvent, WatchRequest,
};
use flyball_sync::ManualClock;
use parking_lot::Mutex;
use testkit::wakers::poll_once;

type Source = ScriptedSource<Object>;

/// Returns an informer that has listed these objects and is now watching.
fn watching(source: &Source, items: Vec<Object>, version: u64) -> World {
    source.answer_list(Ok(Page { items, version: Version::new(version), continuation: None }));
    source.answer_watch(Ok(()));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    world.settle();
    world
}

fn put(key: u8, version: u64) -> WatchEvent<Object> {
    WatchEvent::Modified(object(key, version))
}

fn gone(key: u8, version: u64) -> WatchEvent<Object> {
    WatchEvent::Deleted(object(key, version))
}

fn deliver(source: &Source, world: &mut World, events: impl IntoIterator<Item = WatchEvent<Object>>) -> u64 {
    let before = world.informer.status().stale_events;
    events.into_iter().for_each(|event| source.send(event));
    world.settle();
    world.informer.store().check().unwrap();
    world.informer.status().stale_events - before
}

#[test]
fn an_event_that_comes_after_newer_ones_of_other_objects_is_applied() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 1);
    let stale = deliver(&source, &mut world, [put(1, 5), put(2, 4), put(3, 6)]);
    assert_eq!((world.stored(), stale), (vec![object(1, 5), object(2, 4), object(3, 6)], 0));
    // The next watch starts at the newest version.
    source.close_watch();
    source.answer_watch(Ok(()));
    world.advance(Duration::from_secs(2));
    let asked = source.requests();
    let Some(flyball_informer_cache::testing::SourceRequest::Watch(last)) = asked.last() else {
        panic!("{asked:?}")
    };
    assert_eq!(last.from_version, Version::new(6));
}

#[test]
fn a_late_event_of_one_object_is_stale_and_counted() {
    let source = Source::new();
    let mut world = watching(&source, vec![object(1, 3)], 3);
    let stale = deliver(&source, &mut world, [put(1, 5), put(1, 4), put(1, 5), gone(1, 4)]);
    assert_eq!((world.stored(), stale), (vec![object(1, 5)], 3));
}

#[test]
fn a_late_event_does_not_bring_back_what_is_deleted() {
    let source = Source::new();
    let mut world = watching(&source, vec![object(1, 3)], 3);
    let stale = deliver(&source, &mut world, [gone(1, 7), put(1, 5), put(2, 6)]);
    assert_eq!((world.stored(), stale), (vec![object(2, 6)], 1));
    // An object with the same key and a different `uid` counts as newer than the deleted object, even if its version equals the version of the
    // deletion.
    let other = Object { key: 1, uid: 2, version: 7 };
    assert_eq!(deliver(&source, &mut world, [WatchEvent::Added(other)]), 0);
    assert_eq!(world.stored(), [other, object(2, 6)]);
}

#[test]
fn a_deletion_that_says_the_version_of_the_last_update_keeps_that_update_away() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 1);
    assert_eq!(deliver(&source, &mut world, [put(1, 5), gone(1, 5), put(1, 5)]), 1);
    assert_eq!(world.stored(), []);
    // A deletion without a version counts as a deletion with the version of the stored object.
    assert_eq!(deliver(&source, &mut world, [put(2, 8), gone(2, 0), put(2, 8)]), 1);
    assert_eq!(deliver(&source, &mut world, [put(2, 9)]), 0);
    assert_eq!(world.stored(), [object(2, 9)]);
}

#[test]
fn a_deletion_may_come_before_what_it_deletes() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 1);
    assert_eq!(deliver(&source, &mut world, [gone(1, 7), put(1, 5)]), 1);
    assert_eq!(world.stored(), []);
}

#[test]
fn after_a_bookmark_and_a_list_no_event_is_late() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 10);
    assert_eq!(deliver(&source, &mut world, [put(1, 9)]), 1, "an event older than the list was not stale");
    assert_eq!(deliver(&source, &mut world, [put(2, 14), put(3, 12), bookmark(14), put(4, 13)]), 1);
    assert_eq!(world.stored(), [object(2, 14), object(3, 12)]);
}

#[test]
fn so_many_deletions_are_remembered_and_nothing_comes_back_after_them() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 1);
    deliver(&source, &mut world, [put(1, 2)]);
    // Key 1 is deleted first. Then a different key is added and deleted many times.
    let churn = (0..4_000).flat_map(|turn| [put(2, 10 + 2 * turn), gone(2, 11 + 2 * turn)]);
    assert_eq!(deliver(&source, &mut world, std::iter::once(gone(1, 3)).chain(churn)), 0);
    assert_eq!(deliver(&source, &mut world, [put(1, 2)]), 1);
    assert_eq!(world.stored(), []);
}

#[test]
fn a_streaming_list_is_judged_by_key_too() {
    let source = Source::new();
    source.answer_watch(Ok(()));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()).streaming_lists());
    world.settle();
    let events = [
        WatchEvent::Added(object(1, 5)),
        WatchEvent::Added(object(2, 3)),
        put(1, 4),
        put(3, 6),
        gone(3, 8),
        put(3, 7),
        gone(2, 2),
        gone(4, 9),
        put(4, 8),
        put(5, 12),
        gone(5, 13),
        WatchEvent::InitialListEnd(Version::new(10)),
        put(5, 11),
    ];
    assert_eq!(deliver(&source, &mut world, events), 5);
    assert_eq!(world.stored(), [object(1, 5), object(2, 3)]);
}

/// A source that merges several streams may deliver changes of one stream before the existing objects of another stream.
#[test]
fn a_streaming_list_is_complete_after_any_number_of_deletions() {
    type Pod = (u32, u64);
    const PODS: Schema<u32, Pod> = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    let source = ScriptedSource::<Pod>::new();
    source.answer_watch(Ok(()));
    source.send(WatchEvent::Added((1, 5)));
    (0..3_000).for_each(|at| source.send(WatchEvent::Deleted((100 + at, 1_000 + u64::from(at)))));
    source.send(WatchEvent::Added((2, 7)));
    source.send(WatchEvent::Added((100, 999))); // late: it was deleted
    source.send(WatchEvent::InitialListEnd(Version::new(1_500)));
    source.send(WatchEvent::Added((102, 1_001))); // late, too
    let builder = Informer::builder(PODS, source).streaming_lists();
    let (informer, run) = builder.timer(ManualClock::new().timer()).build().unwrap();
    let mut run = pin!(run);
    (0..100).for_each(|_| assert!(poll_once(run.as_mut()).is_pending()));
    let mut stored: Vec<_> = informer.snapshot().objects().map(|pod| **pod).collect();
    stored.sort_unstable();
    assert_eq!((stored, informer.status().stale_events), (vec![(1, 5), (2, 7)], 2));
}

/// Each watch of the source delivers one newer event or bookmark and then ends immediately.
#[test]
fn watches_that_end_after_an_event_are_reopened_after_a_wait() {
    for news in [true, false] {
        let source = Source::new();
        let mut world = watching(&source, vec![], 1);
        for turn in 0..50 {
            source.send(if news { put(1, 10 + turn) } else { bookmark(10 + turn) });
            source.close_watch();
            source.answer_watch(Ok(()));
        }
        world.advance(Duration::from_secs(10));
        let status = world.informer.status();
        assert!((9..=11).contains(&status.watch_restarts), "{status:?}");
        assert_eq!((status.state, status.last_error, status.relists), (InformerState::Watching, None, 0));
    }
}

#[test]
fn a_watch_that_lasted_is_followed_by_another_at_once() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 1);
    world.advance(Duration::from_secs(1));
    source.close_watch();
    source.answer_watch(Ok(()));
    world.settle();
    assert_eq!((world.informer.status().watch_restarts, source.open_watches()), (1, 1));
}

#[test]
fn a_watch_that_does_not_end_by_itself_is_no_error() {
    let source = Source::new();
    let received = Arc::new(Mutex::new(Vec::new()));
    source.answer_list(Ok(Page { items: vec![object(1, 1)], version: Version::new(1), continuation: None }));
    let builder = Informer::builder(SCHEMA, source.clone()).on_error({
        let received = received.clone();
        move |failure| received.lock().push(failure.to_string())
    });
    let mut world = World::new(builder);
    for _ in 0..60 {
        source.answer_watch(Ok(()));
    }
    world.advance(Duration::from_secs(6 * 3600));
    let status = world.informer.status();
    assert!(status.watch_restarts > 30, "{status:?}");
    assert_eq!((status.last_error, status.relists), (None, 0));
    assert!(received.lock().is_empty());
}

#[test]
fn the_last_error_is_over_when_the_source_answers() {
    let source = Source::new();
    source.answer_list(Err(error(fixture::OTHER)));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()));
    world.settle();
    assert!(world.informer.status().last_error.is_some());
    source.answer_list(Ok(Page { items: vec![], version: Version::new(1), continuation: None }));
    source.answer_watch(Ok(()));
    world.advance_to_alarm();
    assert_eq!(world.informer.status().last_error, None);
}

/// A source whose watches end as soon as no event is left.
struct Polled(Source);

impl flyball_informer_cache::Source for Polled {
    type Object = Object;
    type Watch = <Source as flyball_informer_cache::Source>::Watch;

    async fn list(&self, request: ListRequest) -> Result<Page<Object>, SourceError> {
        flyball_informer_cache::Source::list(&self.0, request).await
    }

    async fn watch(&self, request: WatchRequest) -> Result<Self::Watch, SourceError> {
        self.0.answer_watch(Ok(()));
        let watch = flyball_informer_cache::Source::watch(&self.0, request).await?;
        self.0.close_watch();
        Ok(watch)
    }

    fn is_polling(&self) -> bool {
        true
    }
}

#[test]
fn polls_without_events_cause_no_error_and_no_list() {
    let source = Source::new();
    source.answer_list(Ok(Page { items: vec![object(1, 1)], version: Version::new(1), continuation: None }));
    let mut world = World::new(Informer::builder(SCHEMA, Polled(source)));
    world.advance(Duration::from_secs(600));
    let status = world.informer.status();
    assert!((590..=600).contains(&status.watch_restarts), "{status:?}");
    assert_eq!((status.state, status.last_error, status.relists), (InformerState::Watching, None, 0));
}

#[test]
fn an_empty_streaming_list_of_a_restored_source_takes_the_floor_back() {
    let source = Source::new();
    source.answer_watch(Ok(()));
    let mut world = World::new(Informer::builder(SCHEMA, source.clone()).streaming_lists());
    world.settle();
    deliver(
        &source,
        &mut world,
        [WatchEvent::Added(object(1, 50)), WatchEvent::InitialListEnd(Version::new(100))],
    );
    source.fail_watch(error(fixture::EXPIRED));
    source.answer_watch(Ok(()));
    world.settle();
    world.advance_to_alarm();
    let restored = [WatchEvent::InitialListEnd(Version::new(10)), WatchEvent::Added(object(2, 11))];
    assert_eq!(deliver(&source, &mut world, restored), 0);
    assert_eq!(world.stored(), [object(2, 11)]);
}
