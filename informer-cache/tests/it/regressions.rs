//! What went wrong once, each as short as it can be told.

use std::sync::Arc;
use std::task::{Poll, Waker};

use flyball_informer_cache::{
    Event, ListVersion, Outcome, Phase, Reflector, ReflectorConfig, Schema, SourceErrorKind, Step, Store,
    Verdict, Version, WaitForError,
};
use flyball_ratelimit::Nanos;
use testkit::wakers::{Counting, Panicking, poll_once, poll_with};

/// A key, a version, and which of the objects of that name it is.
type Named = (u8, u64, u8);

type Write = fn(&Store<u8, Named>) -> Outcome;

fn store() -> Store<u8, Named> {
    let schema = Schema::new(|object: &Named| object.0, |object| Version::new(object.1));
    Store::builder(schema.identity(|a, b| a.2 == b.2)).build().unwrap()
}

fn version(version: u64) -> Version {
    Version::new(version)
}

#[test]
fn a_late_event_of_the_object_before_took_the_key_back() {
    let store = store();
    store.upsert((1, 5, 1));
    assert_eq!(store.upsert((1, 8, 2)), Outcome::Replaced);
    assert_eq!(store.upsert((1, 6, 1)), Outcome::Stale { stored: version(8) });
    assert_eq!(store.get(&1).as_deref(), Some(&(1, 8, 2)));
    assert_eq!(store.upsert((1, 8, 3)), Outcome::Replaced, "another object of the same version");
    assert_eq!(store.upsert((1, 0, 4)), Outcome::Replaced, "an unknown version is not older");
}

#[test]
fn a_stale_event_did_not_advance_the_store() {
    // A list whose version is lower than that of an object in it.
    let stale: [Write; 4] = [
        |store| store.upsert((1, 7, 1)),
        |store| store.upsert((1, 7, 2)),
        |store| store.delete(&1, Some((1, 7, 1))),
        |store| store.apply(Event::Deleted((1, 7, 2))),
    ];
    for event in stale {
        let store = store();
        store.replace([(1, 9, 1)], version(5));
        let (wakes, waker) = Counting::waker();
        let mut wait = Box::pin(store.wait_for(version(7)));
        assert!(poll_with(wait.as_mut(), &waker).is_pending());
        assert_eq!(event(&store), Outcome::Stale { stored: version(9) });
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
    let (mut asked, mut never) = (Box::pin(store.wait_for(version(7))), Box::pin(store.wait_for(version(7))));
    let mut reached = Box::pin(store.wait_for(version(3)));
    let forgotten = Box::pin(store.wait_for(version(7)));
    let mut changes = store.subscribe();
    assert!(poll_with(asked.as_mut(), &waker).is_pending());
    assert!(poll_with(reached.as_mut(), Waker::noop()).is_pending());
    store.bookmark(version(4));
    drop(store);
    assert!(matches!(poll_once(Box::pin(changes.next()).as_mut()), Poll::Ready(None)), "the store is closed");
    assert_eq!(wakes.wakes(), 1);
    assert_eq!(poll_once(asked.as_mut()), Poll::Ready(Err(WaitForError::Closed)));
    assert_eq!(poll_once(never.as_mut()), Poll::Ready(Err(WaitForError::Closed)));
    assert_eq!(poll_once(reached.as_mut()), Poll::Ready(Ok(version(4))), "it was reached before");
    drop(forgotten);
}

fn reflector() -> Reflector {
    Reflector::new(ReflectorConfig::default(), Nanos::ZERO, 0).unwrap()
}

#[test]
fn a_watch_from_no_version_was_opened_again_without_a_list() {
    for kind in [SourceErrorKind::Refused, SourceErrorKind::TooManyRequests { retry_after: None }] {
        let mut reflector = reflector();
        assert_eq!(reflector.page(Version::ZERO, None, Nanos::ZERO, 0), Verdict::Publish(Version::ZERO));
        reflector.watch_failed(kind, Nanos::ZERO, 0);
        assert!(matches!(reflector.phase(), Phase::Waiting { .. }), "with backoff");
        reflector.time_passed(reflector.deadline(), 0);
        assert!(
            matches!(reflector.step(), Step::List(_)),
            "what was deleted meanwhile is told by a list only"
        );
    }
}

#[test]
fn continuations_in_a_circle_never_ended() {
    let mut reflector = reflector();
    let mut page = |token: &str| reflector.page(version(1), Some(token.into()), Nanos::ZERO, 0);
    assert_eq!([page("a"), page("b"), page("a")], [Verdict::Stage, Verdict::Stage, Verdict::Ignore]);
    assert!(matches!(reflector.phase(), Phase::Waiting { .. }), "with backoff");
    assert!(!reflector.holds_half_list());
    reflector.time_passed(reflector.deadline(), 0);
    let Step::List(request) = reflector.step() else { panic!("lists again") };
    assert_eq!((request.version, request.continuation), (ListVersion::Any, None));
    // Another list may have the same tokens.
    assert_eq!(reflector.page(version(1), Some("a".into()), Nanos::ZERO, 0), Verdict::Stage);
}

#[test]
fn a_consumer_that_had_caught_up_was_not_any_more() {
    let store = store();
    store.upsert((1, 1, 1));
    let mut changes = store.subscribe();
    assert!(!changes.is_caught_up());
    assert!(changes.try_next().is_some_and(|change| change.is_initial()));
    assert!(changes.is_caught_up());
    // Two changes at once: the second is taken out of the feed and not told yet.
    store.upsert((1, 2, 2));
    assert!(changes.try_next().is_some_and(|change| change.new().is_none()));
    assert!(changes.is_caught_up());
    assert_eq!(changes.pending(), 1);
}

#[test]
fn a_waker_that_panics_reached_the_writer() {
    let store = store();
    let mut changes = store.subscribe();
    let mut wait = Box::pin(store.wait_for(version(1)));
    let hostile = Waker::from(Arc::new(Panicking));
    let write: [&dyn Fn() -> bool; 4] = [
        &|| store.upsert((1, 1, 1)) == Outcome::Added,
        &|| store.delete(&1, None) == Outcome::Deleted,
        &|| store.replace([(2, 3, 1)], version(3)).len() == 1,
        &|| {
            store.bookmark(version(4));
            store.version() == version(4)
        },
    ];
    assert!(poll_with(wait.as_mut(), &hostile).is_pending());
    for write in write {
        while changes.try_next().is_some() {}
        assert!(poll_with(Box::pin(changes.next()).as_mut(), &hostile).is_pending());
        assert!(write(), "the writer hears what it did");
    }
    assert_eq!(poll_once(wait.as_mut()), Poll::Ready(Ok(version(1))));
    store.close();
}
