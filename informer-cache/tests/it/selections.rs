//! Tests of subscriptions to one key, or to one value of an index: which changes they deliver, what they cost, and what ends them.

use std::cell::{Cell, RefCell};
use std::hash::{Hash, Hasher};
use std::sync::{Arc, Weak};
use std::task::{Context, Waker};

use flyball_informer_cache::testing::ScriptedSource;
use flyball_informer_cache::{
    Index, Informer, Page, Schema, SharedWriter, Store, Subscription, SubscriptionEvent, Version, WatchEvent,
    WriteOutcome, Writer,
};
use flyball_sync::ManualClock;
use testkit::allocator::allocations;
use testkit::wakers::{Counting, poll_once, poll_with};

use crate::changes_as_text::changes_as_text;

/// A key, an identity, a version, and tags.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Pod(u32, u8, u64, Vec<u8>);

static BY_TAG: Index<Pod, u8> = Index::many("tag", |pod| pod.3.clone());

fn store() -> SharedWriter<u32, Pod> {
    writer().into_shared()
}

fn writer() -> Writer<u32, Pod> {
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.2)).with_identity(|a, b| a.1 == b.1);
    Store::builder(schema).index(&BY_TAG).seed(1).build().unwrap()
}

fn pod(key: u32, version: u64, tags: impl Into<Vec<u8>>) -> Pod {
    Pod(key, 1, version, tags.into())
}

fn tagged(store: &Store<u32, Pod>, tag: u8) -> Subscription<u32, Pod> {
    store.subscription().by_index(&BY_TAG, tag).unwrap().subscribe()
}

fn received(changes: &mut Subscription<u32, Pod>) -> Vec<String> {
    changes_as_text(changes, |pod| (pod.0.into(), pod.2))
}

#[test]
fn objects_come_to_a_value_and_leave_it() {
    let store = store();
    store.upsert(pod(1, 1, [7]));
    store.upsert(pod(2, 2, [8]));
    store.upsert(pod(3, 3, [7, 8]));
    let mut changes = tagged(&store, 7);
    assert_eq!(changes.pending(), 2, "the snapshot does not have exactly the objects with the value");
    assert_eq!(received(&mut changes), ["=1@1", "=3@3"]);
    store.upsert(pod(1, 4, [8, 7]));
    assert_eq!(received(&mut changes), ["1@1>4"], "an object that keeps the value was not updated");
    store.upsert(pod(1, 5, [8]));
    assert_eq!(
        received(&mut changes),
        ["-1@4"],
        "an object that loses the value is not deleted with its last selected state"
    );
    store.upsert(pod(1, 6, []));
    store.delete(&1, None);
    store.upsert(pod(2, 7, [8, 7]));
    assert_eq!(received(&mut changes), ["+2@7"], "an object that gets the value was not added");
    store.delete(&3, Some(pod(3, 8, [])));
    assert_eq!(received(&mut changes), ["-3@8"], "a deleted object with the value was not delivered");
    store.upsert(pod(2, 9, []));
    store.upsert(pod(2, 10, [7]));
    assert_eq!(
        received(&mut changes),
        ["2@7>10"],
        "an object that has the value again before it is received is not an update"
    );
    store.upsert(pod(4, 11, [7]));
    store.upsert(pod(4, 12, []));
    assert!(received(&mut changes).is_empty(), "an object that had the value only in between was delivered");
    store.check().unwrap();
}

#[test]
fn another_object_comes_and_goes_by_itself() {
    let store = store();
    store.upsert(pod(1, 1, [7]));
    let mut changes = tagged(&store, 7);
    received(&mut changes);
    store.upsert(Pod(1, 2, 2, vec![7]));
    assert_eq!(received(&mut changes), ["1@1!2"]);
    store.upsert(Pod(1, 3, 3, vec![8]));
    assert_eq!(
        received(&mut changes),
        ["-1@2?"],
        "the replacement by an object without the value is not a missed deletion"
    );
    store.upsert(Pod(1, 4, 4, vec![7]));
    assert_eq!(received(&mut changes), ["+1@4"]);
}

#[test]
fn lists_and_transactions_deliver_selected_objects() {
    let mut store = writer();
    let (mut changes, mut key) = (tagged(&store, 7), store.subscription().for_key(2).subscribe());
    store.replace([pod(1, 1, [7]), pod(2, 1, [8]), pod(3, 1, [7])], Version::new(1));
    assert!(!changes.is_initial_delivered() && !key.is_initial_delivered());
    assert_eq!(received(&mut changes), ["=1@1", "=3@1"], "the first list is not initial");
    assert_eq!(received(&mut key), ["=2@1"]);
    assert!(changes.is_initial_delivered() && key.is_initial_delivered());
    store.replace([pod(3, 2, [8]), pod(2, 2, [7]), pod(4, 2, [7])], Version::new(2));
    assert_eq!(received(&mut changes), ["-1@1?", "-3@1", "+2@2", "+4@2"]);
    assert_eq!(received(&mut key), ["2@1>2"]);
    let mut transaction = store.transaction();
    transaction.upsert(pod(3, 3, [7]));
    transaction.delete(2, None);
    transaction.commit();
    assert_eq!(received(&mut changes), ["-2@2?", "+3@3"]);
    assert_eq!(received(&mut key), ["-2@2?"]);
    changes.resync();
    assert_eq!(received(&mut changes).len(), 2, "a resync did not deliver exactly the selected objects");
}

#[test]
fn an_empty_beginning_is_one() {
    let store = store();
    store.replace([pod(1, 1, [8])], Version::new(1));
    for mut changes in [tagged(&store, 7), store.subscription().for_key(2).subscribe()] {
        assert!(changes.is_initial_delivered() && changes.pending() == 0);
        assert!(received(&mut changes).is_empty());
    }
}

#[test]
fn the_filter_is_called_for_selected_objects_alone() {
    let store = store();
    let mut changes =
        store.subscription().by_index(&BY_TAG, 7).unwrap().filter(|pod| pod.2 % 2 == 0).subscribe();
    store.upsert(pod(1, 2, [8]));
    store.upsert(pod(2, 3, [7]));
    store.upsert(pod(3, 4, [7]));
    assert_eq!(received(&mut changes), ["+3@4"]);
    store.upsert(pod(3, 5, [7]));
    store.upsert(pod(2, 6, [7]));
    assert_eq!(received(&mut changes), ["-3@4", "+2@6"]);
    // The object loses the value at a time when the filter rejects it.
    store.upsert(pod(2, 7, [7]));
    received(&mut changes);
    store.upsert(pod(2, 8, [8]));
    assert!(received(&mut changes).is_empty());
}

/// kubernetes#102718 and similar issues: objects that a subscription does not select cost it nothing.
#[test]
fn nothing_else_is_pending_held_or_a_reason_to_wake() {
    let store = store();
    store.upsert(pod(1, 1, [7]));
    let (mut of_tag, mut of_key) = (tagged(&store, 7), store.subscription().for_key(1).subscribe());
    assert_eq!((received(&mut of_tag).len(), received(&mut of_key).len()), (1, 1));
    let (counting, waker) = Counting::waker();
    for changes in [&mut of_tag, &mut of_key] {
        assert!(poll_with(std::pin::pin!(changes.next()), &waker).is_pending());
    }
    let mut held: Vec<Weak<Pod>> = Vec::new();
    for event in 0..10_000_u64 {
        let key = 2 + (event % 1_000) as u32;
        store.upsert(pod(key, event + 2, [8]));
        held.extend(store.get(&key).map(|pod| Arc::downgrade(&pod)));
    }
    assert_eq!(counting.wakes(), 0);
    assert_eq!((of_tag.pending(), of_key.pending()), (0, 0));
    assert_eq!(
        held.iter().filter(|held| held.strong_count() > 0).count(),
        1_000,
        "an object that is not stored is kept"
    );
    // A thousand events of the selected key coalesce to one change.
    for event in 0..1_000 {
        store.upsert(pod(1, 20_000 + event, [7]));
    }
    assert_eq!((counting.wakes(), of_tag.pending(), of_key.pending()), (2, 1, 1));
    assert_eq!(received(&mut of_tag), received(&mut of_key));
}

#[test]
fn it_ends_with_its_index() {
    let store = store();
    store.upsert(pod(1, 1, [7]));
    let late = store.subscription().by_index(&BY_TAG, 7).unwrap();
    let (mut first, mut second, mut all) = (tagged(&store, 7), tagged(&store, 7), store.subscribe());
    assert_eq!(received(&mut first).len(), 1);
    let (counting, waker) = Counting::waker();
    assert!(poll_with(std::pin::pin!(first.next()), &waker).is_pending());
    store.upsert(pod(2, 2, [7]));
    assert_eq!((received(&mut first).len(), counting.wakes()), (1, 1));
    assert!(poll_with(std::pin::pin!(first.next()), &waker).is_pending());
    store.remove_index(&BY_TAG).unwrap();
    assert_eq!(counting.wakes(), 2, "removing the index did not wake the subscriber");
    store.upsert(pod(3, 3, [7]));
    store.add_index(&BY_TAG).unwrap();
    store.upsert(pod(4, 4, [7]));
    assert_eq!(received(&mut second), ["=1@1", "+2@2"], "changes before the end were not delivered");
    for mut ended in [first, second, late.subscribe()] {
        assert!(matches!(poll_once(std::pin::pin!(ended.next())), std::task::Poll::Ready(None)));
        ended.resync();
        assert!(ended.try_next().is_none());
        ended.check().unwrap();
    }
    assert_eq!(received(&mut all).len(), 4, "another subscription ended");
    assert_eq!(
        received(&mut tagged(&store, 7)).len(),
        4,
        "a subscription to the new index does not have all objects"
    );
    store.remove_index(&BY_TAG).unwrap();
    assert_eq!(store.subscription().by_index(&BY_TAG, 7).unwrap_err().name(), "tag");
    let other: Index<Pod, u32> = Index::new("tag", |pod| pod.0);
    store.add_index(&BY_TAG).unwrap();
    assert!(store.subscription().by_index(&other, 7).is_err(), "an index of another type was accepted");
    store.check().unwrap();
}

#[test]
fn a_list_after_the_end_of_a_subscription_does_not_catch_it_up() {
    let store = store();
    let mut ended = tagged(&store, 7);
    store.remove_index(&BY_TAG).unwrap();
    store.replace([pod(1, 1, [7])], Version::new(1));
    assert!(!ended.is_initial_delivered());
    assert!(received(&mut ended).is_empty());
    let mut new = store.subscribe();
    assert_eq!(received(&mut new).len(), 1);
    assert!(new.is_initial_delivered());
}

#[test]
fn the_last_selection_applies() {
    let store = store();
    store.upsert(pod(1, 1, [7]));
    store.upsert(pod(2, 1, [7]));
    let mut changes = store.subscription().for_key(1).by_index(&BY_TAG, 8).unwrap().for_key(2).subscribe();
    assert_eq!(received(&mut changes), ["=2@1"]);
    // There are many subscriptions, each to a single key. Each receives only the changes of its key.
    let mut many: Vec<_> = (0..50).map(|key| store.subscription().for_key(key).subscribe()).collect();
    drop(many.split_off(40));
    store.upsert(pod(7, 2, []));
    store.upsert(pod(45, 2, []));
    let observed: Vec<_> = many.iter_mut().map(|changes| received(changes).len()).collect();
    assert_eq!(observed.iter().sum::<usize>(), 3);
    assert_eq!((observed[1], observed[2], observed[7]), (1, 1, 1));
}

/// Every object has one value, so a write of a value that other objects have names the group of this value.
#[test]
fn a_selection_by_an_index_of_one_value_follows_single_writes() {
    static ONE: Index<(u32, u64, u8), u8> = Index::new("one", |pod| {
        assert!(pod.2 != 99, "the index function panics");
        pod.2
    });
    type Event = (u32, Option<u8>);
    let mut store: Writer<u32, (u32, u64, u8)> =
        Store::builder(Schema::new(|pod: &(u32, u64, u8)| pod.0, |pod| Version::new(pod.1)))
            .index(&ONE)
            .build()
            .unwrap();
    let mut changes = store.subscription().by_index(&ONE, 7).unwrap().subscribe();
    let mut version = 0;
    // Writes an object with this value, or deletes it, and returns what the subscriber receives.
    let mut write = |key, value: Option<u8>| -> Vec<Event> {
        version += 1;
        match value {
            Some(value) => drop(store.upsert((key, version, value))),
            None => drop(store.delete(&key, None)),
        }
        store.check().unwrap();
        std::iter::from_fn(|| changes.try_next())
            .map(|change| (*change.key(), change.new().map(|new| new.2)))
            .collect()
    };
    assert_eq!(write(1, Some(7)), [(1, Some(7))]); // creates the group
    assert_eq!(write(2, Some(7)), [(2, Some(7))]); // joins it
    assert_eq!(write(3, Some(8)), []);
    assert_eq!(write(4, Some(8)), []); // joins another group
    assert_eq!(write(3, Some(7)), [(3, Some(7))]); // enters
    assert_eq!(write(2, Some(8)), [(2, None)]); // leaves to a known group
    assert_eq!(write(2, Some(7)), [(2, Some(7))]);
    assert_eq!(write(2, Some(9)), [(2, None)]); // leaves to a new group
    assert_eq!(write(3, Some(99)), [(3, None)]); // the index fails
    assert_eq!(write(3, Some(8)), []); // recovers to another group
    assert_eq!(write(3, Some(99)), []);
    assert_eq!(write(3, Some(7)), [(3, Some(7))]); // recovers to the selected group
    assert_eq!(write(1, None), [(1, None)]);
    assert_eq!(write(3, None), [(3, None)]); // the group is removed
    assert_eq!(write(5, Some(10)), []); // its number is used again
    assert_eq!(write(6, Some(10)), []);
    assert_eq!(write(4, Some(10)), []);
    assert_eq!(write(4, Some(7)), [(4, Some(7))]);
}

/// An index value whose comparisons are counted.
#[derive(Clone, Debug, Eq)]
struct Counted(u32);

thread_local! { static COMPARED: Cell<usize> = const { Cell::new(0) }; }

impl PartialEq for Counted {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        self.0 == other.0
    }
}

impl Hash for Counted {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

static BY_COUNTED: Index<Pod, Counted> = Index::new("counted", |pod| Counted(pod.0 / 2));

#[test]
fn write_does_no_work_for_selections_that_it_does_not_concern() {
    let many = 2_000;
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.2));
    let mut store = Store::builder(schema).index(&BY_COUNTED).seed(1).build().unwrap();
    store.replace((0..2 * many).map(|key| pod(key, 1, [])), Version::new(1));
    let alone = allocations(|| assert_eq!(store.upsert(pod(8, 2, [])), WriteOutcome::Updated));
    let by_key = |key| store.subscription().for_key(key).subscribe();
    let by_value = |half| store.subscription().by_index(&BY_COUNTED, Counted(half)).unwrap().subscribe();
    let mut changes: Vec<_> = (0..many).flat_map(|half| [by_key(2 * half + 1), by_value(half)]).collect();
    changes.iter_mut().for_each(|changes| while changes.try_next().is_some() {});
    COMPARED.set(0);
    let allocated = allocations(|| assert_eq!(store.upsert(pod(8, 3, [])), WriteOutcome::Updated));
    assert!(COMPARED.get() <= 8, "{} comparisons for one write", COMPARED.get());
    assert!(allocated <= alone + 10, "{allocated} allocations for one write, {alone} without subscriptions");
    COMPARED.set(0);
    store.replace(
        (0..2 * many).map(|key| pod(key, if key == 9 { 4 } else { 1 + 2 * u64::from(key == 8) }, [])),
        Version::new(4),
    );
    assert!(COMPARED.get() <= 40, "{} comparisons for a list with one change", COMPARED.get());
    // The object 8 has the value of the subscription 2 * 4 + 1, and so has the object 9, whose key is that of the subscription 2 * 4.
    let received: Vec<_> = changes.iter_mut().map(|changes| received(changes).len()).collect();
    assert_eq!((received[8], received[9], received.iter().sum::<usize>()), (1, 2, 3));
    store.check().unwrap();
}

/// Each of the objects of a list concerns all of the subscriptions.
#[test]
fn poll_of_a_list_looks_up_a_bounded_number_of_selections() {
    static OF_ALL: Index<Pod, Counted> = Index::new("of all", |_| Counted(7));
    const MANY: u32 = 1_000;
    let schema = Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.2));
    let source = ScriptedSource::new();
    let builder = Informer::builder(schema, source.clone()).index(&OF_ALL).seed(1);
    let (informer, run) = builder.timer(ManualClock::new().timer()).build().unwrap();
    let subscribe = |_| informer.subscription().by_index(&OF_ALL, Counted(7)).unwrap().subscribe();
    let mut changes: Vec<_> = (0..MANY).map(subscribe).collect();
    let items = (0..MANY).map(|key| pod(key, 1, [])).collect();
    source.answer_list(Ok(Page { items, version: Version::new(1), continuation: None }));
    source.answer_watch(Ok(()));
    let (mut run, mut most) = (std::pin::pin!(run), 0);
    while source.open_watches() == 0 {
        COMPARED.set(0);
        assert!(poll_once(run.as_mut()).is_pending());
        most = most.max(COMPARED.get());
    }
    assert!(most <= 8 * MANY as usize, "{most} comparisons in one poll for {MANY} subscriptions");
    assert!(changes.iter_mut().all(|changes| changes.pending() == MANY as usize));
    assert_eq!(received(&mut changes[7]).len(), MANY as usize);
}

thread_local! {
    /// Runs when a key is compared with the key of the marked selection.
    static WHEN_COMPARED: Cell<Option<fn()>> = const { Cell::new(None) };
    static CHANGING: RefCell<Option<Changing>> = const { RefCell::new(None) };
}

struct Changing {
    store: Store<Marked, (u32, u64)>,
    added: Vec<Subscription<Marked, (u32, u64)>>,
}

/// A key, and whether it is that of the marked selection.
#[derive(Clone)]
struct Marked(u32, bool);

impl PartialEq for Marked {
    fn eq(&self, other: &Self) -> bool {
        COMPARED.set(COMPARED.get() + 1);
        if let Some(run) = WHEN_COMPARED.get().filter(|_| self.1 || other.1) {
            run();
        }
        self.0 == other.0
    }
}

impl Eq for Marked {}

impl Hash for Marked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// If all were looked up again, a program that adds and drops subscriptions without end could keep a write from being committed.
#[test]
fn write_looks_up_only_the_new_ones_if_subscriptions_change_meanwhile() {
    let schema = Schema::new(|pod: &(u32, u64)| Marked(pod.0, false), |pod| Version::new(pod.1));
    let mut store = Store::builder(schema).seed(1).build().unwrap();
    let many = 100;
    let mut all: Vec<_> = (0..many).map(|_| store.subscribe()).collect();
    let selected = store.subscription().for_key(Marked(1, true)).subscribe();
    store.upsert((1, 1));
    all.iter_mut().for_each(|changes| assert!(changes.try_next().is_some()));
    store.delete(&Marked(1, false), None);
    CHANGING.set(Some(Changing { store: store.store(), added: Vec::new() }));
    WHEN_COMPARED.set(Some(|| {
        CHANGING.with_borrow_mut(|changing| {
            let Some(Changing { store, added }) = changing.as_mut().filter(|it| it.added.len() < 10) else {
                return;
            };
            added.push(store.subscription().for_key(Marked(99, false)).subscribe());
        });
    }));
    COMPARED.set(0);
    store.upsert((1, 2));
    WHEN_COMPARED.set(None);
    let compared = COMPARED.get();
    assert!((many..2 * many).contains(&compared), "{compared} comparisons for {many} subscriptions");
    let added = CHANGING.take().unwrap().added;
    assert!(!added.is_empty(), "no subscription was added during the write");
    assert!(all.iter_mut().all(|changes| changes.try_next().is_some_and(|change| change.object().1 == 2)));
    store.check().unwrap();
    drop((selected, added));
}

#[test]
fn dropped_subscription_to_a_key_frees_its_key_without_a_write() {
    let schema = Schema::new(|word: &Arc<str>| word.clone(), |_| Version::ZERO);
    let store = Store::builder(schema).seed(1).build().unwrap();
    let key: Arc<str> = "key".into();
    let changes = store.subscription().for_key(key.clone()).subscribe();
    assert_eq!(Arc::strong_count(&key), 2);
    drop(changes);
    assert_eq!(Arc::strong_count(&key), 1);
    store.check().unwrap();
}

#[test]
fn subscription_with_a_selection_resyncs_after_writes_of_other_objects() {
    let store = store();
    store.upsert(pod(1, 1, [7]));
    let mut changes = [tagged(&store, 7), store.subscription().for_key(1).subscribe()];
    changes.iter_mut().for_each(|changes| assert_eq!(received(changes), ["=1@1"]));
    store.upsert(pod(2, 2, [8]));
    store.apply(WatchEvent::Bookmark(Version::new(3)));
    for changes in &mut changes {
        changes.resync();
        assert_eq!(received(changes), ["1@1>1"]);
    }
}

#[test]
fn a_resync_or_a_restart_of_many_objects_takes_several_polls() {
    static BY_PARITY: Index<(u32, u64), u32> = Index::new("parity", |object| object.0 % 2);
    let schema = Schema::new(|object: &(u32, u64)| object.0, |object| Version::new(object.1));
    let mut store = Store::builder(schema).index(&BY_PARITY).build().unwrap();
    store.replace((0..200_000).map(|key| (key, 1)), Version::new(1));
    let builder = store.subscription().by_index(&BY_PARITY, 0).unwrap();
    let mut changes = builder.max_pending(1.try_into().unwrap()).subscribe();
    for is_restart in [false, true] {
        while changes.try_next().is_some() {}
        if is_restart {
            for key in [0, 2] {
                store.upsert((key, 2));
            }
            assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
        } else {
            changes.resync();
        }
        let mut polls = 1;
        while changes.poll_next(&mut Context::from_waker(Waker::noop())).is_pending() {
            polls += 1;
        }
        assert!(polls > 5, "{polls} polls collected 100000 objects");
        assert_eq!(std::iter::from_fn(|| changes.try_next()).count(), 99_999);
    }
}
