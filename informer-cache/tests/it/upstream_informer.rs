//! Tests that correspond to client-go's tests of its reflector. A test names its counterpart, if it has one. A number in parentheses is the number of
//! cases of the counterpart. `upstream_shared.rs` has the counterparts for the queue, the controller and the shared informer.
//!
//! Tests of client-go without a separate counterpart in this file:
//! - `TestCloseWatchChannelOnError`, `TestRunUntil`, `TestReflectorHandleWatchStoppedBefore/After`, `…WatchResultChanClosedBefore/After`:
//!   all of these correspond to a single test here, `a_watch_is_dropped_once_whatever_ends_it`. One case has a test of its own:
//!   `a_very_short_watch_lists_again_after_a_wait`.
//! - `TestReflectorWatchHandler`'s wrong types, `TestIsUnsupportedTableObject`, `TestGetTypeDescription…`, `TestGetExpectedGVK…`,
//!   `TestReflectorListExtract`: not necessary, because objects have static types, and a page is a `Vec` that is moved.
//! - `TestReflectorResyncChan`, `TestReflectorResync`: the reflector has no resync.
//! - `TestNewReflectorWithDisablementWatchList`, `TestToListWatcherWithWatchListSemantics`, `util/watchlist`: here, a setting decides whether lists
//!   are streamed.
//! - `TestInitialEventsEndBookmarkTicker`: client-go logs a warning while the bookmark is late; here, there is a deadline instead, which is tested
//!   below.
//! - `TestReflectorDataConsistencyDetector`, `TestDataConsistencyChecker`: they test a debugging aid that panics.
//! - `TestNewInformerName`, `TestWithResource`, `TestRelease`: they test names for metrics.
//! - `TestWaitFor` (8), `TestSyncResult` (3): see `informer_set.rs`; a set waits for all of its informers, and returns the names of those that did
//!   not sync. `synctrack`: `caught_up.rs`.
//! - `tools/watch`: the cases of `RetryWatcher` correspond to `late_and_repeated_events_never_take_the_store_back`; the other tests are about helpers
//!   for Go channels.

use std::num::NonZeroU32;
use std::time::Duration;

use drivers::cache::fixture::{
    BUSY, EXPIRED, INTERNAL, OTHER, Object, REFUSED, SCHEMA, TOO_LARGE, World, bookmark, error, object,
};
use flyball_informer_cache::testing::{ScriptedSource, SourceRequest};
use flyball_informer_cache::{
    BackoffCause, Change, Index, Informer, InformerBuildError, InformerState, LabelIndex, ListRequest,
    ListVersion, Page, ReflectorBackoff, ReflectorConfig, SourceErrorKind, Subscription, Version, WatchEvent,
    WatchRequest,
};

type Source = ScriptedSource<Object>;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

fn start(source: &Source) -> World {
    World::new(Informer::builder(SCHEMA, source.clone()))
}

fn start_with(source: &Source, config: ReflectorConfig) -> World {
    World::new(Informer::builder(SCHEMA, source.clone()).reflector_config(config))
}

/// Returns an informer that has listed `objects` at `version` and is now watching.
fn watching(source: &Source, objects: Vec<Object>, version: u64) -> World {
    lists(source, objects, version);
    source.answer_watch(Ok(()));
    let mut world = start(source);
    world.settle();
    assert_eq!(world.informer.status().state, InformerState::Watching);
    drop(source.requests());
    world
}

fn lists(source: &Source, items: Vec<Object>, version: u64) {
    source.answer_list(Ok(Page { items, version: Version::new(version), continuation: None }));
}

fn page(source: &Source, items: Vec<Object>, version: u64, next: &str) {
    source.answer_list(Ok(Page { items, version: Version::new(version), continuation: Some(next.into()) }));
}

/// Returns the requests as strings, such as `list any`, `list 10`, `list newest`, `watch 10` or `stream 10`. A request for a further page is `more`.
fn asked(source: &Source) -> Vec<String> {
    let words = |asked: SourceRequest| match asked {
        SourceRequest::List(ListRequest { continuation: Some(_), .. }) => "more".into(),
        SourceRequest::List(ListRequest { min_version: ListVersion::Any, .. }) => "list any".into(),
        SourceRequest::List(ListRequest { min_version: ListVersion::MostRecent, .. }) => "list newest".into(),
        SourceRequest::List(ListRequest { min_version: ListVersion::NotOlderThan(v), .. }) => {
            format!("list {v}")
        }
        SourceRequest::Watch(WatchRequest { from_version: from, streaming_list: false, .. }) => {
            format!("watch {from}")
        }
        SourceRequest::Watch(WatchRequest { from_version: from, streaming_list: true, .. }) => {
            format!("stream {from}")
        }
    };
    source.requests().into_iter().map(words).collect()
}

fn limits(source: &Source) -> Vec<Option<u32>> {
    let limit = |asked| match asked {
        SourceRequest::List(request) => Some(request.limit),
        SourceRequest::Watch(_) => None,
    };
    source.requests().into_iter().filter_map(limit).collect()
}

fn waits_for(world: &World, expected: BackoffCause) -> bool {
    matches!(world.informer.status().state, InformerState::Waiting { cause, .. } if cause == expected)
}

fn failed(kind: SourceErrorKind) -> BackoffCause {
    BackoffCause::Failed(kind)
}

// TestCloseWatchChannelOnError, TestRunUntil, HandleWatchStopped…, WatchResultChanClosed…
#[test]
fn a_watch_is_dropped_once_whatever_ends_it() {
    let ends: [fn(&Source, &mut World); 5] = [
        |source, _| source.fail_watch(error(OTHER)),
        |source, _| source.close_watch(),
        |_, world| world.informer.shut_down(),
        |_, world| world.cancel(),
        |_, world| {
            world.advance(11 * MINUTE);
        },
    ];
    for end in ends {
        let source = Source::new();
        let mut world = watching(&source, vec![object(1, 5)], 5);
        assert_eq!(source.open_watches(), 1);
        end(&source, &mut world);
        world.settle();
        assert_eq!(source.open_watches(), 0);
    }
}

// TestReflectorWatchStoppedBefore, TestReflectorWatchStoppedAfter, TestReflectorStopWatch
#[test]
fn nothing_is_asked_after_the_end() {
    let source = Source::new();
    let mut world = start(&source);
    world.informer.shut_down();
    world.advance(MINUTE);
    assert!(world.is_over());
    assert!(asked(&source).is_empty(), "shut down before the first poll");

    let mut world = watching(&source, vec![], 5);
    world.informer.shut_down();
    world.advance(MINUTE);
    assert!(asked(&source).is_empty());
    assert_eq!(world.informer.status().state, InformerState::Stopped);
}

// TestReflectorHandleWatchResultChanClosedBefore: VeryShortWatchError
#[test]
fn a_very_short_watch_lists_again_after_a_wait() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 5);
    source.close_watch();
    world.settle();
    assert!(waits_for(&world, BackoffCause::ShortWatch));
    assert!(asked(&source).is_empty());
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["list 5"]);
}

#[test]
fn a_clean_close_watches_again_from_the_last_version() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 5);
    source.send(WatchEvent::Added(object(1, 6)));
    source.close_watch();
    // At least a second passes between the requests for two watches.
    assert_eq!(world.advance_to_alarm(), SECOND);
    assert_eq!(asked(&source), ["watch 6"]);
    source.answer_watch(Ok(()));
    world.advance(SECOND);
    source.close_watch();
    world.settle();
    assert_eq!(asked(&source), ["watch 6"], "a watch that lasted a second without an event counts as short");
    assert_eq!(world.informer.status().watch_restarts, 2);
    assert_eq!(world.informer.status().relists, 0);
}

// TestReflectorWatchHandler
#[test]
fn events_are_applied_and_the_version_is_the_last_ones() {
    let source = Source::new();
    let mut world = watching(&source, vec![object(1, 1), object(2, 2)], 5);
    source.send(WatchEvent::Modified(object(1, 6)));
    source.send(WatchEvent::Deleted(object(2, 7)));
    source.send(WatchEvent::Added(object(3, 32)));
    source.close_watch();
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(1, 6), object(3, 32)]);
    assert_eq!(asked(&source), ["watch 32"]);
    assert_eq!(world.informer.status().version, Version::new(32));
}

// TestReflectorListAndWatch
#[test]
fn lists_and_watches_with_exactly_these_requests() {
    let source = Source::new();
    lists(&source, vec![object(1, 1)], 4);
    source.answer_watch(Ok(()));
    let mut world = start(&source);
    world.settle();
    let requests = source.requests();
    let first = ListRequest { min_version: ListVersion::Any, limit: Some(500), continuation: None };
    assert_eq!(requests[0], SourceRequest::List(first));
    let SourceRequest::Watch(watch) = &requests[1] else { panic!("{requests:?}") };
    assert_eq!((watch.from_version, watch.streaming_list), (Version::new(4), false));
    assert!((5 * MINUTE..=10 * MINUTE).contains(&watch.timeout));
    assert_eq!(requests.len(), 2);
    source.send(WatchEvent::Added(object(2, 5)));
    world.settle();
    assert_eq!(world.stored(), [object(1, 1), object(2, 5)]);
}

// TestReflectorListAndWatchWithErrors
#[test]
fn converges_through_list_and_watch_errors() {
    let source = Source::new();
    let mut world = start(&source);
    let steps: [(Option<SourceErrorKind>, Option<SourceErrorKind>, &[u8]); 6] = [
        (None, None, &[1]),
        (None, Some(OTHER), &[2]),
        (Some(OTHER), None, &[]),
        (None, None, &[1, 2]),
        (None, Some(INTERNAL), &[3]),
        (None, None, &[1, 3]),
    ];
    let mut version = 10;
    for (list, watch, keys) in steps {
        version += 10;
        let items: Vec<Object> = keys.iter().map(|key| object(*key, version)).collect();
        match list {
            Some(kind) => source.answer_list(Err(error(kind))),
            None => {
                lists(&source, items.clone(), version);
                source.answer_watch(watch.map_or(Ok(()), |kind| Err(error(kind))));
            }
        }
        world.settle();
        if list.is_none() {
            assert_eq!(world.stored(), items);
            if watch.is_none() {
                version += 1;
                source.send(WatchEvent::Added(object(9, version)));
                source.fail_watch(error(OTHER));
                world.settle();
                assert!(world.stored().contains(&object(9, version)));
            }
        }
        assert!(world.informer.status().last_error.is_some());
        // After the wait, the informer requests the next list. The request has no response yet.
        world.advance_to_alarm();
    }
}

// TestReflectorListAndWatchInitConnBackoff
#[test]
fn refused_connections_wait_longer_each_time_up_to_the_cap() {
    for failures in [5, 40] {
        let source = Source::new();
        let mut world = start(&source);
        let mut waits = Vec::new();
        for _ in 0..failures {
            source.answer_list(Err(error(REFUSED)));
            world.settle();
            waits.push(world.advance_to_alarm());
        }
        let mut base = Duration::from_millis(800);
        for wait in waits {
            assert!((base..=2 * base).contains(&wait), "{wait:?} beside {base:?}");
            base = (2 * base).min(30 * SECOND);
        }
        lists(&source, vec![object(1, 1)], 1);
        world.settle();
        assert!(world.informer.is_synced());
    }
}

// TestNewReflectorWithCustomBackoff
#[test]
fn a_custom_backoff_is_honoured() {
    let backoff = ReflectorBackoff {
        initial: Duration::from_millis(50),
        factor: 1,
        max: Duration::from_millis(50),
        jitter_percent: 20,
        reset_after: MINUTE,
    };
    let source = Source::new();
    let mut world = start_with(&source, ReflectorConfig { backoff, ..ReflectorConfig::default() });
    let begin = world.now();
    for _ in 0..5 {
        source.answer_list(Err(error(OTHER)));
        world.settle();
        world.advance_to_alarm();
    }
    let took = world.now().since(begin);
    assert!((Duration::from_millis(250)..=Duration::from_millis(300)).contains(&took), "{took:?}");
}

// TestBackoffOnTooManyRequests
#[test]
fn too_many_requests_wait_at_the_start_and_in_the_stream() {
    let source = Source::new();
    lists(&source, vec![], 10);
    source.answer_watch(Err(error(BUSY)));
    let mut world = start(&source);
    world.settle();
    assert!(waits_for(&world, failed(BUSY)));
    source.answer_watch(Ok(()));
    let first = world.advance_to_alarm();
    assert!(first >= Duration::from_millis(800));
    source.fail_watch(error(BUSY));
    world.settle();
    assert!(waits_for(&world, failed(BUSY)));
    assert!(world.advance_to_alarm() >= Duration::from_millis(1600));
    assert_eq!(asked(&source), ["list any", "watch 10", "watch 10", "watch 10"]);
}

#[test]
fn retry_after_is_the_least_wait() {
    let kind = SourceErrorKind::TooManyRequests { retry_after: Some(90 * SECOND) };
    let source = Source::new();
    let mut world = watching(&source, vec![], 10);
    source.fail_watch(error(kind));
    assert_eq!(world.advance_to_alarm(), 90 * SECOND);
    assert_eq!(asked(&source), ["watch 10"]);
}

// TestNoRelistOnTooManyRequests
#[test]
fn too_many_requests_and_refused_never_list_again() {
    for kind in [BUSY, REFUSED] {
        let source = Source::new();
        lists(&source, vec![], 10);
        let mut world = start(&source);
        for _ in 0..4 {
            source.answer_watch(Err(error(kind)));
            world.settle();
            world.advance_to_alarm();
        }
        source.answer_watch(Ok(()));
        world.settle();
        assert_eq!(asked(&source), ["list any", "watch 10", "watch 10", "watch 10", "watch 10", "watch 10"]);
    }
}

// TestRetryInternalError, TestRetryWithDeadline
#[test]
fn internal_errors_watch_again_only_within_their_time() {
    // Here, the informer waits for 2 s before each retry; client-go retries immediately.
    let pace = ReflectorBackoff {
        initial: 2 * SECOND,
        factor: 1,
        max: 2 * SECOND,
        jitter_percent: 0,
        ..ReflectorBackoff::default()
    };
    for (tolerance, expected) in [(Duration::ZERO, 0), (10 * SECOND, 6), (MINUTE, 31)] {
        let source = Source::new();
        lists(&source, vec![], 10);
        let config = ReflectorConfig {
            max_internal_error_retry_duration: tolerance,
            backoff: pace,
            ..ReflectorConfig::default()
        };
        let mut world = start_with(&source, config);
        for _ in 0..50 {
            source.answer_watch(Ok(()));
            world.settle();
            source.fail_watch(error(INTERNAL));
            world.settle();
            world.advance_to_alarm();
            if world.informer.status().state == InformerState::Listing {
                break;
            }
        }
        let retries = asked(&source).iter().filter(|words| *words == "watch 10").count() - 1;
        assert_eq!(retries, expected);
    }
    // Internal errors are retried for a limited time, which begins anew after a minute without errors. Errors of other kinds are not retried in this
    // way.
    let source = Source::new();
    lists(&source, vec![], 10);
    source.answer_watch(Ok(()));
    let config =
        ReflectorConfig { max_internal_error_retry_duration: 10 * SECOND, ..ReflectorConfig::default() };
    let mut world = start_with(&source, config);
    for _ in 0..3 {
        world.settle();
        source.fail_watch(error(INTERNAL));
        source.answer_watch(Ok(()));
        world.advance(2 * MINUTE);
    }
    source.fail_watch(error(OTHER));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["list any", "watch 10", "watch 10", "watch 10", "watch 10", "list 10"]);
}

// TestReflectorWatchListPageSize
#[test]
fn the_page_size_is_used_for_every_list() {
    let source = Source::new();
    let builder = Informer::builder(SCHEMA, source.clone()).page_size(NonZeroU32::new(4).unwrap());
    let mut world = World::new(builder);
    let objects: Vec<Object> = (0..10).map(|key| object(key, 1)).collect();
    page(&source, objects[..4].to_vec(), 10, "C1");
    page(&source, objects[4..8].to_vec(), 10, "C2");
    lists(&source, objects[8..].to_vec(), 10);
    world.settle();
    assert_eq!(world.stored(), objects);
    assert_eq!(limits(&source), [Some(4); 3]);
    source.answer_watch(Ok(()));
    world.settle();
    source.fail_watch(error(EXPIRED));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(limits(&source), [Some(4)]);
}

// TestReflectorNotPaginatingNotConsistentReads
#[test]
fn a_list_not_older_than_is_not_paged_by_default() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 10);
    source.fail_watch(error(OTHER));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(limits(&source), [None]);
}

// TestReflectorPaginatingNonConsistentReadsIfWatchCacheDisabled
#[test]
fn once_an_any_list_came_in_pages_every_list_is_paged() {
    let source = Source::new();
    page(&source, vec![object(1, 1)], 10, "C1");
    lists(&source, vec![object(2, 1)], 10);
    source.answer_watch(Err(error(OTHER)));
    let mut world = start(&source);
    world.settle();
    world.advance_to_alarm();
    assert_eq!(limits(&source), [Some(500); 3]);
}

// TestReflectorResyncWithResourceVersion
#[test]
fn the_second_list_is_not_older_than_the_first() {
    let source = Source::new();
    lists(&source, vec![], 10);
    source.answer_watch(Err(error(OTHER)));
    let mut world = start(&source);
    world.settle();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["list any", "watch 10", "list 10"]);
}

// TestReflectorExpiredExactResourceVersion
#[test]
fn an_expired_list_asks_for_the_newest_at_once() {
    let source = Source::new();
    lists(&source, vec![], 10);
    source.answer_watch(Err(error(OTHER)));
    let mut world = start(&source);
    world.settle();
    source.answer_list(Err(error(EXPIRED)));
    lists(&source, vec![], 11);
    source.answer_watch(Ok(()));
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["list any", "watch 10", "list 10", "list newest", "watch 11"]);
}

// TestReflectorFullListIfExpired
#[test]
fn an_expired_page_asks_once_for_the_full_list() {
    let source = Source::new();
    lists(&source, vec![object(1, 1)], 10);
    source.answer_watch(Err(error(OTHER)));
    let config = ReflectorConfig { page_size: NonZeroU32::new(1), ..ReflectorConfig::default() };
    let mut world = start_with(&source, config);
    world.settle();
    page(&source, vec![object(7, 7)], 10, "C1");
    source.answer_list(Err(error(EXPIRED)));
    lists(&source, vec![object(1, 2), object(2, 2)], 11);
    source.answer_watch(Ok(()));
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(1, 2), object(2, 2)], "the incomplete list was not discarded");
    let requests = source.requests();
    let SourceRequest::List(full) = &requests[4] else { panic!("{requests:?}") };
    assert_eq!(full.min_version, ListVersion::NotOlderThan(Version::new(10)));
    assert_eq!((full.limit, &full.continuation), (None, &None));
}

// TestReflectorFullListIfTooLarge; the adapter tests the three encodings of the error.
#[test]
fn a_version_too_large_asks_for_the_newest_at_once() {
    let source = Source::new();
    lists(&source, vec![], 20);
    let mut world = start(&source);
    for version in [30, 40, 50] {
        source.answer_watch(Err(error(OTHER)));
        world.settle();
        source.answer_list(Err(error(TOO_LARGE)));
        lists(&source, vec![], version);
        world.advance_to_alarm();
    }
    assert_eq!(
        asked(&source),
        [
            "list any",
            "watch 20",
            "list 20",
            "list newest",
            "watch 30",
            "list 30",
            "list newest",
            "watch 40",
            "list 40",
            "list newest",
            "watch 50"
        ]
    );
}

#[test]
fn the_newest_list_is_tried_once_and_then_waits() {
    let source = Source::new();
    source.answer_list(Err(error(EXPIRED)));
    source.answer_list(Err(error(EXPIRED)));
    let mut world = start(&source);
    world.settle();
    assert!(waits_for(&world, failed(EXPIRED)));
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["list any", "list newest", "list newest"]);
}

// TestWatchTimeout
#[test]
fn watches_last_between_once_and_twice_their_timeout() {
    for (timeout, least) in [(None, 5 * MINUTE), (Some(30 * MINUTE), 30 * MINUTE), (Some(SECOND), SECOND)] {
        let config = timeout.map_or(ReflectorConfig::default(), |min_watch_timeout| ReflectorConfig {
            min_watch_timeout,
            ..ReflectorConfig::default()
        });
        let source = Source::new();
        lists(&source, vec![], 10);
        let mut world = start_with(&source, config);
        let mut timeouts = Vec::new();
        for number in 0..20 {
            source.answer_watch(Ok(()));
            source.send(bookmark(11 + number));
            source.close_watch();
            world.advance(SECOND);
        }
        for asked in source.requests() {
            if let SourceRequest::Watch(request) = asked {
                assert!((least..=2 * least).contains(&request.timeout));
                timeouts.push(request.timeout);
            }
        }
        timeouts.dedup();
        assert!(timeouts.len() > 10, "the timeouts are not spread: {timeouts:?}");
    }
}

// TestReflectorResourceVersionUpdate, TestStoreResourceVersion
#[test]
fn every_event_and_bookmark_advances_the_version() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 5);
    let events = [
        WatchEvent::Added(object(1, 10)),
        WatchEvent::Modified(object(1, 20)),
        WatchEvent::Deleted(object(1, 30)),
        bookmark(40),
    ];
    for (event, version) in events.into_iter().zip([10, 20, 30, 40]) {
        source.send(event);
        world.settle();
        assert_eq!(world.informer.status().version, Version::new(version));
    }
    source.close_watch();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["watch 40"]);
}

// TestReflectorReplacesStoreOnUnsafeDelete
#[test]
fn an_error_in_the_stream_lists_again_and_drops_what_is_not_listed() {
    let source = Source::new();
    let mut world = watching(&source, vec![object(1, 1), object(2, 2)], 5);
    source.fail_watch(error(OTHER));
    world.settle();
    assert_eq!(world.stored().len(), 2, "an object was deleted before the list was complete");
    lists(&source, vec![object(2, 2)], 9);
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(2, 2)]);
    assert_eq!(world.informer.status().relists, 1);
}

// TestWatchListResourceVersion
#[test]
fn a_watch_from_any_state_has_no_version_until_something_is_not_an_addition() {
    let source = Source::new();
    let mut world = watching(&source, vec![], 0);
    source.send(WatchEvent::Added(object(2, 9)));
    source.send(WatchEvent::Added(object(1, 4)));
    world.settle();
    assert_eq!(world.stored(), [object(1, 4), object(2, 9)], "an older existing object was ignored");
    source.fail_watch(error(BUSY));
    world.settle();
    source.answer_list(Err(error(OTHER)));
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["list any"], "the watch was resumed without a version");

    let source = Source::new();
    let mut world = watching(&source, vec![], 0);
    source.send(WatchEvent::Added(object(2, 9)));
    source.send(WatchEvent::Modified(object(2, 12)));
    source.fail_watch(error(BUSY));
    world.settle();
    world.advance_to_alarm();
    // client-go resumes at 12, and loses a second change of that version (decision 0044).
    assert_eq!(asked(&source), ["watch 11"]);
}

fn streaming(source: &Source) -> World {
    World::new(Informer::builder(SCHEMA, source.clone()).streaming_lists())
}

// TestWatchList: "not synced without bookmark", "synced after bookmark", "modifies and deletes before the bookmark",
// "annotation value must be true"
#[test]
fn a_streaming_list_is_published_at_its_end_and_goes_on_as_the_watch() {
    let source = Source::new();
    source.answer_watch(Ok(()));
    let mut world = streaming(&source);
    source.send(WatchEvent::Added(object(1, 1)));
    source.send(WatchEvent::Added(object(2, 2)));
    source.send(WatchEvent::Added(object(3, 3)));
    source.send(WatchEvent::Modified(object(1, 4)));
    source.send(WatchEvent::Deleted(object(2, 5)));
    source.send(bookmark(6));
    world.settle();
    assert!(!world.informer.is_synced());
    assert_eq!(world.informer.status().state, InformerState::Listing);
    assert!(world.stored().is_empty());
    source.send(WatchEvent::InitialListEnd(Version::new(6)));
    source.send(WatchEvent::Added(object(4, 7)));
    world.settle();
    assert!(world.informer.is_synced());
    assert_eq!(world.informer.status().state, InformerState::Watching);
    assert_eq!(world.stored(), [object(1, 4), object(3, 3), object(4, 7)]);
    // "stopped after sync": an ordinary watch follows, which starts at the last version.
    source.close_watch();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["stream 0", "watch 7"]);
    // "expired at re-watch": a streaming list follows, which requests a state at least as new as the last version.
    source.answer_watch(Err(error(EXPIRED)));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["stream 7"]);
}

/// Returns the transformed object, which has no version. Each transformation adds 100 to `uid`, so that the test can count the transformations.
fn slim(object: Object) -> Object {
    Object { uid: object.uid + 100, version: 0, ..object }
}

fn slimmed(key: u8) -> Object {
    slim(object(key, 0))
}

// TestTransformingInformer, TestTransformingInformerRace, TestSharedInformerTransformer, TestReflectorRespectStoreTransformer: objects that are
// added, updated or deleted are transformed once, and a resync or a relist does not transform them again.
#[test]
fn objects_are_transformed_once_whatever_brings_them() {
    for stream in [false, true] {
        let source = Source::new();
        let mut builder = Informer::builder(SCHEMA, source.clone()).transform(slim);
        let objects = [object(1, 1), object(2, 2)];
        if stream {
            builder = builder.streaming_lists();
        } else {
            lists(&source, objects.to_vec(), 2);
        }
        source.answer_watch(Ok(()));
        let mut world = World::new(builder);
        let mut changes = world.informer.subscribe();
        if stream {
            objects.into_iter().for_each(|object| source.send(WatchEvent::Added(object)));
            source.send(WatchEvent::Added(object(3, 2)));
            source.send(WatchEvent::Modified(object(2, 2)));
            source.send(WatchEvent::Deleted(object(3, 2)));
            source.send(WatchEvent::InitialListEnd(Version::new(2)));
        }
        let received = |changes: &mut Subscription<u8, Object>| -> Vec<_> {
            let objects =
                |change: Change<u8, Object>| (change.old().map(|old| **old), change.new().map(|new| **new));
            std::iter::from_fn(|| changes.try_next()).map(objects).collect()
        };
        world.settle();
        assert_eq!(received(&mut changes), [1, 2].map(|key| (None, Some(slimmed(key)))));
        source.send(WatchEvent::Modified(object(1, 5)));
        source.send(WatchEvent::Added(object(4, 6)));
        source.send(WatchEvent::Deleted(object(2, 7)));
        world.settle();
        let [one, two, four] = [1, 2, 4].map(slimmed);
        assert_eq!(received(&mut changes), [(Some(one), Some(one)), (None, Some(four)), (Some(two), None)]);
        changes.resync();
        assert_eq!(received(&mut changes).len(), 2);
        assert_eq!(world.stored(), [one, four]);
        // TestStoreResourceVersionWithNonMetaTransform: in client-go, the version does not advance until the next list. Here, the version advances
        // with each event, because it is read before the transformation.
        assert_eq!(world.informer.status().version, Version::new(7));
        source.fail_watch(error(EXPIRED));
        source.answer_watch(Err(error(OTHER)));
        lists(&source, vec![object(1, 5), object(4, 9)], 9);
        world.advance(MINUTE);
        assert_eq!(
            received(&mut changes),
            [(Some(four), Some(four))],
            "an unchanged object without a version was delivered again"
        );
    }
}

// An informer with indexes of every kind. client-go has only one kind.
#[test]
fn an_informer_keeps_indexes_of_every_kind() {
    static BY_UID: Index<Object, u64> = Index::new("uid", |object| object.uid);
    static BY_KEY: Index<Object, u8> = Index::new("key", |object: &Object| object.key).ordered();
    static LABELS: LabelIndex<Object> = LabelIndex::new("labels", |object, each| {
        each("even", if object.key % 2 == 0 { "yes" } else { "no" })
    });
    let source = Source::new();
    lists(&source, (1..=4).map(|key| object(key, 1)).collect(), 1);
    let builder = Informer::builder(SCHEMA, source.clone()).index(&BY_UID).index(&BY_KEY).index(&LABELS);
    let mut world = World::new(builder.transform(slim));
    world.settle();
    let view = world.informer.snapshot();
    assert_eq!(
        view.by_index(&BY_UID, &100).unwrap().len(),
        4,
        "the index does not use the transformed objects"
    );
    assert!(view.range(&BY_KEY, 2..4).unwrap().map(|(key, _)| *key).eq([2, 3]));
    assert_eq!(view.lister().select(&LABELS, &"even=yes".parse().unwrap()).unwrap().iter().count(), 2);
    let twice = Informer::builder(SCHEMA, source).index(&BY_KEY).index(&BY_KEY).timer(world.clock.timer());
    assert!(matches!(twice.build().err(), Some(InformerBuildError::Index(_))));
}

// TestWatchList: "fallback on any error / Invalid", "gate off"
#[test]
fn a_streaming_list_that_fails_falls_back_to_a_list_at_once() {
    for in_stream in [false, true] {
        let source = Source::new();
        let mut world = streaming(&source);
        if in_stream {
            source.answer_watch(Ok(()));
            source.send(WatchEvent::Added(object(8, 1)));
            source.fail_watch(error(OTHER));
        } else {
            source.answer_watch(Err(error(OTHER)));
        }
        lists(&source, vec![object(1, 1)], 10);
        source.answer_watch(Err(error(OTHER)));
        world.settle();
        assert_eq!(world.stored(), [object(1, 1)]);
        world.advance_to_alarm();
        assert_eq!(
            asked(&source),
            ["stream 0", "list any", "watch 10", "stream 10"],
            "a relist did not try a streaming list again"
        );
    }
}

// TestWatchList: "429 retried twice"
#[test]
fn a_streaming_list_is_asked_for_again_after_too_many_requests() {
    let source = Source::new();
    let mut world = streaming(&source);
    for _ in 0..2 {
        source.answer_watch(Err(error(BUSY)));
        world.settle();
        world.advance_to_alarm();
    }
    assert_eq!(asked(&source), ["stream 0", "stream 0", "stream 0"]);
}

// TestWatchList: "stream stopped before sync". client-go requests a streaming list again, for ever if each of them ends early (kubernetes#140890).
#[test]
fn after_a_streaming_list_that_ends_early_a_plain_list_is_requested() {
    let source = Source::new();
    let mut world = streaming(&source);
    source.answer_watch(Ok(()));
    source.send(WatchEvent::Added(object(8, 1)));
    source.close_watch();
    world.settle();
    assert!(waits_for(&world, BackoffCause::Interrupted));
    lists(&source, vec![object(1, 1)], 3);
    source.answer_watch(Ok(()));
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["stream 0", "list any", "watch 3"]);
    assert_eq!(world.stored(), [object(1, 1)], "the incomplete list was not discarded");
    source.fail_watch(error(OTHER));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["stream 3"], "a relist did not try a streaming list again");
}

// kubernetes#140890: the end of the list is never sent.
#[test]
fn a_streaming_list_without_end_falls_back_for_good() {
    let source = Source::new();
    let mut world = streaming(&source);
    source.answer_watch(Ok(()));
    source.send(WatchEvent::Added(object(8, 1)));
    world.settle();
    lists(&source, vec![object(1, 1)], 10);
    source.answer_watch(Ok(()));
    assert_eq!(world.advance_to_alarm(), MINUTE);
    assert_eq!(world.stored(), [object(1, 1)]);
    source.fail_watch(error(OTHER));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["stream 0", "list any", "watch 10", "list 10"]);
}

#[test]
fn a_streaming_list_too_old_asks_for_the_newest_at_once() {
    let source = Source::new();
    let mut world = streaming(&source);
    source.answer_watch(Ok(()));
    source.send(WatchEvent::InitialListEnd(Version::new(5)));
    source.fail_watch(error(OTHER));
    world.settle();
    source.answer_watch(Err(error(TOO_LARGE)));
    source.answer_watch(Err(error(EXPIRED)));
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["stream 0", "stream 5", "stream 0", "list newest"]);
}

// tools/watch TestRetryWatcher: start version filtering, no duplicates for equal or lower versions
#[test]
fn late_and_repeated_events_never_take_the_store_back() {
    let source = Source::new();
    let mut world = watching(&source, vec![object(1, 8), object(2, 2)], 10);
    source.send(WatchEvent::Deleted(object(1, 12)));
    source.send(WatchEvent::Added(object(1, 8)));
    source.send(WatchEvent::Modified(object(1, 11)));
    source.send(WatchEvent::Added(object(3, 13)));
    source.send(WatchEvent::Added(object(3, 13)));
    source.send(bookmark(4));
    world.settle();
    assert_eq!(world.stored(), [object(2, 2), object(3, 13)]);
    assert_eq!(world.informer.status().version, Version::new(13));
    // With aggregated API servers, a deletion may have the same version as the last update. It must not be lost.
    source.send(WatchEvent::Deleted(object(2, 2)));
    source.close_watch();
    world.advance_to_alarm();
    assert_eq!(world.stored(), [object(3, 13)]);
    assert_eq!(asked(&source), ["watch 13"]);
}

// cache/testing TestResetWatch; kubernetes#133810
#[test]
fn a_watch_too_old_right_after_its_list_makes_the_next_list_the_newest_and_the_waits_grow() {
    let source = Source::new();
    let mut world = start(&source);
    let mut waits = Vec::new();
    for _ in 0..6 {
        lists(&source, vec![], 10);
        source.answer_watch(Ok(()));
        source.fail_watch(error(EXPIRED));
        world.settle();
        waits.push(world.advance_to_alarm());
    }
    assert!(waits.is_sorted(), "{waits:?}");
    assert!(waits[5] >= 16 * waits[0] / 2, "{waits:?}");
    let requests = asked(&source);
    assert_eq!(requests[..4], ["list any", "watch 10", "list newest", "watch 10"]);
    assert!(!requests.contains(&"list 10".to_owned()));
    // Once newer events have arrived, the informer again requests a list that is not older than its own version; the server may answer such a request
    // from its cache.
    lists(&source, vec![], 10);
    source.answer_watch(Ok(()));
    source.send(bookmark(11));
    source.fail_watch(error(EXPIRED));
    world.settle();
    world.advance_to_alarm();
    assert_eq!(asked(&source), ["watch 10", "list 11"]);
}

// TestSharedInformerErrorHandling
#[test]
fn the_last_error_and_the_last_success_are_visible() {
    let source = Source::new();
    source.answer_list(Err(flyball_informer_cache::SourceError::new(OTHER, "the disk is on fire")));
    let mut world = start(&source);
    assert_eq!(world.informer.status().state, InformerState::NotStarted);
    world.settle();
    let status = world.informer.status();
    assert_eq!(&*status.last_error.unwrap().message, "source failed: the disk is on fire");
    assert_eq!(status.last_success, None);
    lists(&source, vec![], 10);
    world.advance_to_alarm();
    let now = world.now();
    let status = world.informer.status();
    assert_eq!(status.last_success, Some(now));
    assert_eq!(status.last_error, None, "the error was not cleared");
    source.answer_watch(Ok(()));
    source.send(bookmark(11));
    world.advance(MINUTE);
    assert_eq!(world.informer.status().last_success, Some(now));
    source.send(bookmark(12));
    world.settle();
    assert_eq!(world.informer.status().last_success, Some(world.now()));
}

// TestSharedInformerInitializationRace, TestStateSharedInformer, TestAddOnStopped…, TestShutdown: the race cannot occur here, because building an
// informer starts no task. This test checks the states of an informer.
#[test]
fn states_of_an_informer() {
    let source = Source::new();
    let mut world = start(&source);
    assert_eq!(world.informer.status().state, InformerState::NotStarted);
    world.settle();
    assert_eq!(world.informer.status().state, InformerState::Listing);
    lists(&source, vec![object(1, 1)], 1);
    world.settle();
    assert_eq!(world.informer.status().state, InformerState::Watching);
    world.informer.shut_down();
    world.informer.shut_down();
    world.settle();
    assert!(world.is_over());
    assert!(world.informer.status().state.is_final());
    assert_eq!(world.stored(), [object(1, 1)], "the store cannot be read after the end");
}
