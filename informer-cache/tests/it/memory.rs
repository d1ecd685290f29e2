//! Tests of memory: what a store and a list still need when there are few objects left, and how many allocations one poll frees.

use std::pin::Pin;

use drivers::cache::fixture::{EXPIRED, error};
use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{Index, Informer, Page, Schema, Store, Version, Writer};
use flyball_sync::ManualClock;
use testkit::allocator::{CountingAllocator, frees, live_bytes};
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

/// Polls an informer while it handles a second list of `objects`, which replaces a list of `PEAK` objects with the version 1. Returns the number of
/// polls, and the largest number of allocations that one of them freed.
fn relist_in_polls(objects: impl Iterator<Item = Pod>) -> (usize, u64) {
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
    source.fail_watch(error(EXPIRED));
    while source.open_watches() > 0 {
        assert!(poll_once(run.as_mut()).is_pending());
    }
    clock.set(clock.next_alarm().expect("an alarm for the next list is set"));
    source.answer_list(Ok(page(objects.collect(), 2)));
    source.answer_watch(Ok(()));
    let (mut polls, mut most) = (0, 0);
    while source.open_watches() == 0 {
        most = most.max(frees(|| assert!(poll_once(run.as_mut()).is_pending())));
        polls += 1;
    }
    informer.store().check().unwrap();
    (polls, most)
}

/// The number of objects that the run future handles in one poll.
const BATCH: usize = 256;

#[test]
fn list_without_changes_is_compared_in_pieces() {
    let (polls, _) = relist_in_polls((1..PEAK).map(|key| (key, 1)));
    let staged = (PEAK as usize).div_ceil(BATCH);
    // The objects that the source may be unable to decode are searched for in pieces, and so are the deleted objects.
    let searched = 2 * (PEAK as usize / BATCH / 16);
    assert!(polls >= staged + searched, "{polls} polls, of which {staged} staged the list");
}

#[test]
fn poll_frees_a_bounded_number_of_nodes_of_the_former_table() {
    let (_, most) = relist_in_polls((0..PEAK).map(|key| (key, 2)));
    assert!(most < 10 * BATCH as u64, "a poll of a list of updates freed {most} allocations");
    let (_, most) = relist_in_polls((PEAK..2 * PEAK).map(|key| (key, 2)));
    assert!(most < 10 * BATCH as u64, "a poll of a list of other objects freed {most} allocations");
}
