//! Tests of memory: what a store and a list still need when there are few objects left, and how many allocations one poll frees.

use std::pin::Pin;

use drivers::cache::fixture::{EXPIRED, OTHER, error};
use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    Index, Informer, Page, Schema, Store, Subscription, Version, WatchEvent, Writer,
};
use flyball_sync::ManualClock;
use testkit::allocator::{CountingAllocator, frees, largest_copy, live_bytes};
use testkit::wakers::poll_once;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

type Pod = (u32, u64);

static BY_UID: Index<Pod, u32> = Index::new("uid", |pod: &Pod| pod.0).unique();
static BY_START: Index<Pod, u32> = Index::new("start", |pod: &Pod| !pod.0).ordered();

/// The number of objects at the peak, and the distance between two objects that are left.
const PEAK: u32 = 100_000;
const APART: u32 = 10_000;

/// Creates a store that had `PEAK` objects, all but ten of which were deleted one by one.
fn after_a_peak() -> Writer<u32, Pod> {
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    let mut store = Store::builder(schema).index(&BY_UID).index(&BY_START).seed(1).build().unwrap();
    store.replace((0..PEAK).map(|key| (key, 1)), Version::new(1));
    for key in (0..PEAK).filter(|key| key % APART != 0) {
        store.delete(&key, None);
    }
    store.check().unwrap();
    store
}

#[test]
fn memory_of_deleted_objects_is_freed_even_if_a_few_are_left_between_them() {
    let before = live_bytes();
    let store = after_a_peak();
    assert_eq!(store.len(), 10);
    let held = live_bytes() - before;
    assert!(held < 128 << 10, "ten objects hold {held} bytes");
    let counted = store.memory_usage(|_, _| 0).total();
    assert!(counted < 128 << 10, "ten objects are counted as {counted} bytes");
}

#[test]
fn relist_of_a_few_objects_needs_no_memory_for_the_deleted_ones() {
    let mut store = after_a_peak();
    let before = live_bytes();
    let mut list = store.relist();
    (0..PEAK).step_by(APART as usize).for_each(|key| list.insert((key, 1)));
    let held = live_bytes() - before;
    assert!(held < 32 << 10, "a list of ten objects holds {held} bytes");
    assert!(list.publish(Version::new(2)).is_empty());
}

#[test]
fn new_objects_take_the_rows_of_deleted_ones() {
    let mut store = after_a_peak();
    let before = live_bytes();
    for key in PEAK..PEAK + 10_000 {
        store.upsert((key, 2));
    }
    store.check().unwrap();
    let each = (live_bytes() - before) / 10_000;
    assert!(each < 400, "a new object needs {each} bytes");
    for key in PEAK..PEAK + 10_000 {
        store.delete(&key, None);
    }
    store.check().unwrap();
    assert_eq!(store.len(), 10);
}

#[test]
fn a_writer_keeps_no_memory_for_an_object_with_many_index_values() {
    static MANY: Index<Pod, u32> =
        Index::many("many", |pod: &Pod| (0..pod.0 % PEAK).collect::<Vec<_>>()).ordered();
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    let mut store = Store::builder(schema).index(&MANY).build().unwrap();
    store.upsert((1, 1));
    let before = live_bytes();
    store.upsert((PEAK - 1, 2));
    store.delete(&(PEAK - 1), None);
    let held = live_bytes() - before;
    assert!(held < 128 << 10, "the writer holds {held} bytes");
}

/// What the polls of an informer did while it handled a list.
struct Polls {
    count: usize,
    /// The largest number of allocations that one poll freed.
    frees: u64,
    /// The largest number of bytes that one reallocation in a poll may have copied.
    copy: usize,
}

/// Polls an informer with a subscriber while it handles a second list of `objects`, which replaces a list of `PEAK` objects with the version 1. Calls
/// `before_poll` with the number of earlier polls.
fn relist_in_polls(
    objects: impl Iterator<Item = Pod>,
    mut before_poll: impl FnMut(usize, &Informer<u32, Pod>),
) -> Polls {
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    let (source, clock) = (ScriptedSource::new(), ManualClock::new());
    let builder = Informer::builder(schema, source.clone()).index(&BY_UID).seed(1);
    let (informer, run) = builder.timer(clock.timer()).build().unwrap();
    let mut run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(run);
    let page = |items, version| Page { items, version: Version::new(version), continuation: None };
    source.answer_list(Ok(page((0..PEAK).map(|key| (key, 1)).collect(), 1)));
    source.answer_watch(Ok(()));
    while source.open_watches() == 0 {
        assert!(poll_once(run.as_mut()).is_pending());
    }
    let mut changes = informer.store().subscribe();
    while changes.try_next().is_some() {}
    source.fail_watch(error(EXPIRED));
    while source.open_watches() > 0 {
        assert!(poll_once(run.as_mut()).is_pending());
    }
    clock.set(clock.next_alarm().expect("an alarm for the next list is set"));
    source.answer_list(Ok(page(objects.collect(), 2)));
    source.answer_watch(Ok(()));
    let mut polls = Polls { count: 0, frees: 0, copy: 0 };
    while source.open_watches() == 0 {
        before_poll(polls.count, &informer);
        let mut copy = 0;
        let freed = frees(|| copy = largest_copy(|| assert!(poll_once(run.as_mut()).is_pending())));
        (polls.frees, polls.copy) = (polls.frees.max(freed), polls.copy.max(copy));
        polls.count += 1;
        while changes.try_next().is_some() {}
    }
    informer.store().check().unwrap();
    polls
}

/// The number of objects that the run future handles in one poll.
const BATCH: usize = 256;

#[test]
fn list_without_changes_is_compared_in_pieces() {
    let Polls { count, .. } = relist_in_polls((1..PEAK).map(|key| (key, 1)), |_, _| {});
    let staged = (PEAK as usize).div_ceil(BATCH);
    // The objects that the source may be unable to decode are searched for in pieces, and so are the deleted objects.
    let searched = 2 * (PEAK as usize / BATCH / 16);
    assert!(count >= staged + searched, "{count} polls, of which {staged} staged the list");
}

/// Returns an informer that has listed one object, with its run future, its source and its clock, ready for a second list.
fn before_a_relist(
    subscribers: usize,
) -> (Vec<Subscription<u32, Pod>>, Running, ScriptedSource<Pod>, ManualClock) {
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    let (source, clock) = (ScriptedSource::new(), ManualClock::new());
    let (informer, run) = Informer::builder(schema, source.clone()).timer(clock.timer()).build().unwrap();
    let mut run: Running = Box::pin(run);
    source.answer_list(Ok(Page { items: vec![(1, 1)], version: Version::new(1), continuation: None }));
    source.answer_watch(Ok(()));
    while source.open_watches() == 0 {
        assert!(poll_once(run.as_mut()).is_pending());
    }
    let subscriptions = (0..subscribers).map(|_| informer.subscribe()).collect();
    source.fail_watch(error(EXPIRED));
    while source.open_watches() > 0 {
        assert!(poll_once(run.as_mut()).is_pending());
    }
    clock.set(clock.next_alarm().expect("an alarm for the next list is set"));
    (subscriptions, run, source, clock)
}

type Running = Pin<Box<dyn Future<Output = ()>>>;

/// Polls until the informer watches, and returns the number of polls.
fn polls_until_it_watches(mut run: Running, source: &ScriptedSource<Pod>) -> usize {
    source.answer_watch(Ok(()));
    let mut polls = 0;
    while source.open_watches() == 0 {
        assert!(poll_once(run.as_mut()).is_pending());
        polls += 1;
    }
    polls
}

#[test]
fn list_without_changes_visits_the_subscriptions_in_pieces() {
    const SUBSCRIBERS: usize = 8 * BATCH;
    let (_subscriptions, run, source, _clock) = before_a_relist(SUBSCRIBERS);
    source.answer_list(Ok(Page { items: vec![(1, 1)], version: Version::new(2), continuation: None }));
    let polls = polls_until_it_watches(run, &source);
    assert!(polls >= 8, "{polls} polls for {SUBSCRIBERS} subscriptions");
}

#[test]
fn informer_yields_between_pages_that_are_answered_at_once() {
    let (_, run, source, _clock) = before_a_relist(0);
    for page in 0..100 {
        let continuation = (page < 99).then(|| page.to_string());
        source.answer_list(Ok(Page { items: vec![(page, 1)], version: Version::new(2), continuation }));
    }
    let polls = polls_until_it_watches(run, &source);
    assert!(polls >= 99, "{polls} polls for 100 pages");
}

#[test]
fn poll_frees_a_bounded_number_of_nodes_of_the_former_table() {
    let Polls { frees, .. } = relist_in_polls((0..PEAK).map(|key| (key, 2)), |_, _| {});
    assert!(frees < 10 * BATCH as u64, "a poll of a list of updates freed {frees} allocations");
    let Polls { frees, .. } = relist_in_polls((PEAK..2 * PEAK).map(|key| (key, 2)), |_, _| {});
    assert!(frees < 10 * BATCH as u64, "a poll of a list of other objects freed {frees} allocations");
}

#[test]
fn poll_frees_a_bounded_number_of_nodes_of_the_index_of_a_list() {
    let Polls { frees, .. } = relist_in_polls((PEAK..3 * PEAK).map(|key| (key, 2)), |_, _| {});
    assert!(
        frees < 10 * BATCH as u64,
        "a poll of a list with twice as many objects freed {frees} allocations"
    );
}

/// A list that grows like a `Vec` is copied when it grows.
#[test]
fn poll_copies_a_bounded_number_of_bytes_of_a_list() {
    let updates = || (0..PEAK).map(|key| (key, 2));
    let others = || (PEAK..2 * PEAK).map(|key| (key, 2));
    for copy in [relist_in_polls(updates(), |_, _| {}).copy, relist_in_polls(others(), |_, _| {}).copy] {
        assert!(copy <= 64 << 10, "a poll copied {copy} bytes at once");
    }
}

/// The changes and the table that were built before are freed in pieces.
#[test]
fn poll_frees_a_bounded_number_of_nodes_of_a_list_that_is_built_again_for_a_new_index() {
    let staged = 2 * (PEAK as usize).div_ceil(BATCH);
    let Polls { frees, count, .. } = relist_in_polls((0..PEAK).map(|key| (key, 2)), |polls, informer| {
        if polls == staged {
            informer.add_index(&BY_START).unwrap();
        }
    });
    assert!(count > 3 * staged, "{count} polls: the list was not built again");
    assert!(frees < 10 * BATCH as u64, "a poll freed {frees} allocations");
}

/// A list that breaks is dropped in pieces, too.
#[test]
fn poll_frees_a_bounded_number_of_objects_of_an_abandoned_list() {
    type Boxed = (u32, Box<u64>);
    let schema = Schema::new(|pod: &Boxed| pod.0, |pod| Version::new(*pod.1));
    let objects = || (0..PEAK).map(|key| (key, Box::new(1)));
    for is_streamed in [false, true] {
        let (source, clock) = (ScriptedSource::new(), ManualClock::new());
        let builder = Informer::builder(schema, source.clone()).seed(1).timer(clock.timer());
        let builder = if is_streamed { builder.streaming_lists() } else { builder };
        let (_informer, run) = builder.build().unwrap();
        let mut run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(run);
        let mut polls = || {
            let mut poll = || frees(|| assert!(poll_once(run.as_mut()).is_pending()));
            (0..2 * PEAK as usize / BATCH).map(|_| poll()).max()
        };
        if is_streamed {
            source.answer_watch(Ok(()));
            objects().for_each(|object| source.send(WatchEvent::Added(object)));
        } else {
            let continuation = Some("the second page".into());
            source.answer_list(Ok(Page {
                items: objects().collect(),
                version: Version::new(1),
                continuation,
            }));
        }
        polls();
        match is_streamed {
            true => source.fail_watch(error(OTHER)),
            false => source.answer_list(Err(error(OTHER))),
        }
        let frees = polls().unwrap();
        assert!(frees < 10 * BATCH as u64, "a poll freed {frees} allocations; streamed: {is_streamed}");
    }
}

/// The memory of a list, while subscribers receive it, beyond the objects themselves.
#[test]
fn list_needs_no_memory_for_subscriptions_without_pending_changes() {
    let peak = |subscriptions: usize| {
        let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
        let (source, clock) = (ScriptedSource::new(), ManualClock::new());
        let builder = Informer::builder(schema, source.clone()).seed(1);
        let (informer, run) = builder.timer(clock.timer()).build().unwrap();
        let mut run: Pin<Box<dyn Future<Output = ()>>> = Box::pin(run);
        let mut changes: Vec<_> = (0..subscriptions).map(|_| informer.subscribe()).collect();
        let items = (0..PEAK).map(|key| (key, 1)).collect();
        source.answer_list(Ok(Page { items, version: Version::new(1), continuation: None }));
        source.answer_watch(Ok(()));
        let (before, mut peak) = (live_bytes(), 0);
        while source.open_watches() == 0 {
            assert!(poll_once(run.as_mut()).is_pending());
            changes.iter_mut().for_each(|changes| while changes.try_next().is_some() {});
            peak = peak.max(live_bytes() - before);
        }
        peak
    };
    let each = (peak(8) - peak(0)) / 8;
    assert!(each < 128 << 10, "{each} bytes for each subscription");
}

/// The changes of a subscriber that does not take them.
#[test]
fn pending_changes_are_held_in_small_pieces_and_freed_when_they_cancel_each_other() {
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1));
    let mut store = Store::builder(schema).seed(1).build().unwrap();
    let changes = store.subscribe();
    let (before, mut copied) = (live_bytes(), 0);
    for key in 0..PEAK {
        copied = copied.max(largest_copy(|| _ = store.upsert((key, 1))));
    }
    assert_eq!(changes.pending(), PEAK as usize);
    for key in (0..PEAK).filter(|key| key % APART != 0) {
        copied = copied.max(largest_copy(|| _ = store.delete(&key, None)));
    }
    assert!(copied <= 64 << 10, "a write copied {copied} bytes at once");
    assert_eq!(changes.pending(), 10);
    let held = live_bytes() - before;
    assert!(held < 128 << 10, "ten objects, whose changes are pending, hold {held} bytes");
    changes.check().unwrap();
}
