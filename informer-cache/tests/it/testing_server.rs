//! Tests of the test server, which use it in the same way as an informer does.
//!
//! client-go's `cache/testing` has two tests. The counterpart of `TestRCNumber` is `a_watch_yields_exactly_the_events_after_its_version`. The
//! counterpart of `TestResetWatch` is `history_that_was_compacted_expires`: this server cannot reset a watch, but it can compact its history or end
//! the watch.

use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use drivers::cache::fixture::{EXPIRED, OTHER, Object, TOO_LARGE, object};
use drivers::cache::server::{Server, server};
use flyball_informer_cache::testing::TestServerWatch;
use flyball_informer_cache::{
    ListRequest, ListVersion, Page, Source, SourceErrorKind, Version, WatchEvent, WatchRequest, WatchStream,
};
use flyball_sync::ManualClock;

const SECOND: Duration = Duration::from_secs(1);

/// Polls a future once. Returns its output if it is ready.
fn now<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

fn list(
    server: &Server,
    version: ListVersion,
    limit: Option<u32>,
    continuation: Option<String>,
) -> Result<Page<Object>, SourceErrorKind> {
    let request = ListRequest { min_version: version, limit, continuation };
    now(server.list(request)).expect("an answer").map_err(|error| error.kind())
}

fn request(from: u64, streaming_list: bool) -> WatchRequest {
    WatchRequest { from_version: Version::new(from), streaming_list, timeout: 300 * SECOND }
}

fn watch(server: &Server, from: u64) -> Result<TestServerWatch<u8, Object>, SourceErrorKind> {
    now(server.watch(request(from, false))).expect("an answer").map_err(|error| error.kind())
}

type Delivered = Option<Result<WatchEvent<Object>, SourceErrorKind>>;

/// Returns all events of a watch that are available now.
fn received(watch: &mut TestServerWatch<u8, Object>) -> Vec<Delivered> {
    let mut all = Vec::new();
    while let Some(received) = now(watch.next()) {
        let over = !matches!(received, Some(Ok(_)));
        all.push(received.map(|received| received.map_err(|error| error.kind())));
        if over {
            break;
        }
    }
    all
}

fn added(key: u8, uid: u64, version: u64) -> Delivered {
    Some(Ok(WatchEvent::Added(Object { key, uid, version })))
}

fn modified(key: u8, uid: u64, version: u64) -> Delivered {
    Some(Ok(WatchEvent::Modified(Object { key, uid, version })))
}

fn deleted(key: u8, uid: u64, version: u64) -> Delivered {
    Some(Ok(WatchEvent::Deleted(Object { key, uid, version })))
}

fn bookmark(version: u64) -> Delivered {
    Some(Ok(WatchEvent::Bookmark(Version::new(version))))
}

#[test]
fn a_watch_yields_exactly_the_events_after_its_version() {
    let server = server();
    assert_eq!(server.version(), Version::new(1));
    assert_eq!(server.put(object(7, 0)), Version::new(2));
    assert_eq!(server.put(object(7, 0)), Version::new(3));
    assert_eq!(server.delete(&7), Some(Version::new(4)));
    assert_eq!(server.delete(&7), None);
    let changes = [added(7, 1, 2), modified(7, 1, 3), deleted(7, 1, 4)];
    for from in 1..=4 {
        let mut watch = watch(&server, from).unwrap();
        assert_eq!(received(&mut watch), changes[usize::try_from(from).unwrap() - 1..], "from {from}");
    }
    let mut open = watch(&server, 4).unwrap();
    server.put(object(8, 0));
    assert_eq!(received(&mut open), [added(8, 2, 5)], "a later change was not delivered");
    assert_eq!(watch(&server, 100).unwrap_err(), TOO_LARGE);
}

#[test]
fn a_recreated_key_has_another_id() {
    let server = server();
    server.put(object(7, 0));
    assert_eq!(server.update(&7, |_| {}), Some(Version::new(3)));
    assert_eq!(server.update(&8, |_| {}), None);
    let mut watch = watch(&server, 3).unwrap();
    assert_eq!(server.recreate(object(7, 0)), Version::new(4), "both events have the version of the change");
    assert_eq!(received(&mut watch), [deleted(7, 1, 4), added(7, 2, 4)]);
    assert_eq!(server.get(&7), Some(Object { key: 7, uid: 2, version: 4 }));
    assert_eq!(server.objects(), [server.get(&7).unwrap()]);
}

#[test]
fn history_that_was_compacted_expires() {
    let server = server();
    let mut early = watch(&server, 1).unwrap();
    server.put(object(7, 0));
    let mut late = watch(&server, 2).unwrap();
    server.compact();
    assert_eq!(received(&mut early), [Some(Err(EXPIRED))]);
    assert_eq!(received(&mut late), [], "a watch without pending events expired");
    assert_eq!(watch(&server, 1).unwrap_err(), EXPIRED);
    server.put(object(7, 0));
    assert_eq!(received(&mut late), [modified(7, 1, 3)]);
    assert_eq!(received(&mut watch(&server, 2).unwrap()), [modified(7, 1, 3)]);
}

#[test]
fn a_watch_without_a_version_begins_with_existing_objects() {
    let server = server();
    server.put(object(7, 0));
    server.compact();
    let mut watch = watch(&server, 0).unwrap();
    server.put(object(8, 0));
    assert_eq!(received(&mut watch), [added(7, 1, 2), added(8, 2, 3)]);
}

#[test]
fn a_streaming_list_ends_unless_it_is_endless() {
    let server = server();
    server.put(object(7, 0));
    let mut stream = now(server.watch(request(0, true))).unwrap().unwrap();
    assert_eq!(
        received(&mut stream),
        [added(7, 1, 2), Some(Ok(WatchEvent::InitialListEnd(Version::new(2))))]
    );
    server.set_faults(|faults| faults.endless_streaming_list = true);
    let mut stream = now(server.watch(request(0, true))).unwrap().unwrap();
    assert_eq!(received(&mut stream), [added(7, 1, 2)]);
}

#[test]
fn a_list_comes_in_pages_of_one_state() {
    let server = server();
    for key in 1..=3 {
        server.put(object(key, 0));
    }
    let first = list(&server, ListVersion::MostRecent, Some(2), None).unwrap();
    assert_eq!(first.items.iter().map(|object| object.key).collect::<Vec<_>>(), [1, 2]);
    server.delete(&3);
    let rest = list(&server, ListVersion::MostRecent, Some(2), first.continuation.clone()).unwrap();
    assert_eq!((rest.items[0].key, rest.version, rest.continuation), (3, Version::new(4), None));
    let again = list(&server, ListVersion::MostRecent, Some(2), first.continuation);
    assert_eq!(again.unwrap_err(), EXPIRED, "a page was returned twice");

    server.put(object(3, 0));
    let first = list(&server, ListVersion::MostRecent, Some(2), None).unwrap();
    server.compact();
    assert_eq!(list(&server, ListVersion::MostRecent, None, first.continuation).unwrap_err(), EXPIRED);

    server.set_faults(|faults| faults.shuffled_lists = true);
    let first = list(&server, ListVersion::MostRecent, Some(2), None).unwrap();
    let rest = list(&server, ListVersion::MostRecent, Some(2), first.continuation).unwrap();
    let keys = |page: &[Object]| page.iter().map(|object| object.key).collect::<Vec<_>>();
    assert_eq!(
        (keys(&first.items), keys(&rest.items)),
        (vec![3, 2], vec![3, 1]),
        "a shuffled list does not repeat an object"
    );
}

#[test]
fn lists_that_need_not_be_the_newest_come_from_the_cache() {
    let server = server();
    server.put(object(7, 0));
    server.cache_state();
    server.delete(&7);
    let at = |version| list(&server, version, None, None).map(|page| page.version.get());
    assert_eq!(at(ListVersion::Any), Ok(2));
    assert_eq!(at(ListVersion::NotOlderThan(Version::new(2))), Ok(2));
    assert_eq!(at(ListVersion::NotOlderThan(Version::new(3))), Ok(3));
    assert_eq!(at(ListVersion::NotOlderThan(Version::new(4))), Err(TOO_LARGE));
    assert_eq!(at(ListVersion::MostRecent), Ok(3));
}

#[test]
fn a_restored_server_counts_on_and_goes_on_from_nothing_that_was_lost() {
    let server = server();
    server.put(object(7, 0));
    server.cache_state();
    server.put(object(8, 0));
    let mut open = watch(&server, 3).unwrap();
    server.restore_cached();
    assert_eq!(received(&mut open), [None]);
    assert_eq!(server.version(), Version::new(2));
    assert_eq!(server.put(object(9, 0)), Version::new(4));
    assert_eq!(watch(&server, 3).unwrap_err(), EXPIRED);
    assert_eq!(received(&mut watch(&server, 2).unwrap()), [added(9, 3, 4)]);
}

#[test]
fn every_open_watch_yields_all_events_and_its_end() {
    let server = server();
    let mut watches = [watch(&server, 1).unwrap(), watch(&server, 1).unwrap()];
    assert_eq!(server.open_watches(), 2);
    server.put(object(7, 0));
    for watch in &mut watches {
        assert_eq!(received(watch), [added(7, 1, 2)]);
    }
    server.repeat_events();
    server.break_watches(OTHER);
    for watch in &mut watches {
        assert_eq!(received(watch), [added(7, 1, 2), Some(Err(OTHER))]);
    }
    server.put(object(7, 0));
    server.close_watches();
    server.put(object(7, 0));
    assert_eq!(
        received(&mut watches[0]),
        [modified(7, 1, 3), None],
        "the watch ended before its pending event"
    );
    drop(watches);
    assert_eq!(server.open_watches(), 0);
    server.set_faults(|faults| faults.repeated_events = true);
    let again = [added(7, 1, 2), modified(7, 1, 3), modified(7, 1, 4)];
    assert_eq!(
        received(&mut watch(&server, 3).unwrap()),
        again,
        "events before the version of the watch were not repeated"
    );
}

#[test]
fn a_bookmark_follows_all_earlier_events() {
    let server = server();
    let clock = ManualClock::new();
    server.set_latency(&clock, SECOND);
    let mut opening = pin!(server.watch(request(1, false)));
    let mut poll = || opening.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    assert!(poll().is_pending());
    clock.advance(SECOND);
    let Poll::Ready(Ok(mut watch)) = poll() else { panic!("the watch is not open") };
    server.put(object(7, 0));
    server.send_bookmarks();
    server.put(object(8, 0));
    assert_eq!(received(&mut watch), [], "an event was delivered before its latency");
    clock.advance(SECOND);
    assert_eq!(received(&mut watch), [added(7, 1, 2), bookmark(2), added(8, 2, 3)]);
    server.send_bookmarks();
    assert_eq!(received(&mut watch), [bookmark(3)]);
}

#[test]
fn responses_have_latency_and_wake_waiters() {
    let (server, clock) = (server(), ManualClock::new());
    server.put(object(7, 0));
    server.set_latency(&clock, 2 * SECOND);
    let (wakes, waker) = testkit::wakers::Counting::waker();
    let mut cx = Context::from_waker(&waker);
    {
        let request = ListRequest { min_version: ListVersion::MostRecent, limit: None, continuation: None };
        let mut listing = pin!(server.list(request));
        assert!(listing.as_mut().poll(&mut cx).is_pending());
        clock.advance(SECOND);
        assert_eq!(wakes.wakes(), 0, "woken before the latency had passed");
        server.delete(&7);
        clock.advance(SECOND);
        assert_eq!(wakes.wakes(), 1);
        let Poll::Ready(Ok(page)) = listing.as_mut().poll(&mut cx) else { panic!("the list has no result") };
        assert_eq!(page.items, [], "the list does not have the state at the time of the response");
    }
    let mut opening = pin!(server.watch(request(2, false)));
    assert!(opening.as_mut().poll(&mut cx).is_pending());
    clock.advance(2 * SECOND);
    let Poll::Ready(Ok(mut watch)) = opening.as_mut().poll(&mut cx) else { panic!("the watch is not open") };
    assert_eq!(received(&mut watch), [deleted(7, 1, 3)], "an event older than the latency was not delivered");
    server.put(object(7, 0));
    let mut next = pin!(watch.next());
    assert!(next.as_mut().poll(&mut cx).is_pending());
    let before = wakes.wakes();
    clock.advance(2 * SECOND);
    assert_eq!(wakes.wakes(), before + 1);
    assert!(next.as_mut().poll(&mut cx).is_ready());
}

#[test]
fn injected_faults_last_until_they_are_removed() {
    let server = server();
    let newest = || list(&server, ListVersion::MostRecent, None, None).map(drop);
    server.fail_list(OTHER);
    server.fail_watch(OTHER);
    assert_eq!((newest(), newest()), (Err(OTHER), Ok(())), "a failure did not occur exactly once");
    assert_eq!(watch(&server, 1).unwrap_err(), OTHER);
    let mut open = watch(&server, 1).unwrap();

    server.fail_list(OTHER);
    server.fail_watch(OTHER);
    server.break_watches(OTHER);
    server.set_faults(|faults| faults.unresponsive = true);
    assert!(now(server.watch(request(1, false))).is_none(), "the unresponsive server responded");
    let (wakes, waker) = testkit::wakers::Counting::waker();
    let request = ListRequest { min_version: ListVersion::MostRecent, limit: None, continuation: None };
    let mut listing = pin!(server.list(request));
    assert!(listing.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    server.clear_faults();
    assert_eq!(wakes.wakes(), 1);
    assert_eq!(newest(), Ok(()));
    assert!(watch(&server, 1).is_ok());
    assert_eq!(received(&mut open), []);
}

/// With shuffled lists, each page may repeat an object, but the list still ends.
#[test]
fn a_shuffled_list_ends_whatever_the_size_of_its_pages() {
    for limit in 1..5 {
        let server = server();
        (1..=4).for_each(|key| _ = server.put(object(key, 0)));
        server.set_faults(|faults| faults.shuffled_lists = true);
        let (mut token, mut keys) = (None, std::collections::BTreeSet::new());
        for page in 0.. {
            assert!(page < 10, "pages of {limit}: the list does not end");
            let page = list(&server, ListVersion::MostRecent, Some(limit), token).unwrap();
            keys.extend(page.items.iter().map(|object| object.key));
            token = page.continuation;
            if token.is_none() {
                break;
            }
        }
        assert!(keys.into_iter().eq(1..=4), "pages of {limit}");
    }
}
