//! Applies operations to a store and to the oracle, and compares the complete states after each operation. The fuzz targets also use this driver.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt::Debug;
use std::hash::Hash;
use std::ops::{Bound, RangeBounds};
use std::panic::resume_unwind;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    Change, ChangeKind, DuplicateIndex, Index, IndexError, LabelIndex, Lister, MissingIndex, RangeIter,
    Schema, Selector, Snapshot, Store, StoreBuilder, Subscription, SubscriptionEvent, Version, WaitForError,
    WatchEvent, WriteOutcome, Writer,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::coverage::events::Happened;
use testkit::oracle::store::{
    Consumer, OracleChange, OracleOutcome, OracleStage, OracleStep, OracleStore, OracleTransaction, Rules,
};
use testkit::oracle::subscription::{MergeCells, OracleSubscription};
use testkit::store_op::{
    Draft, QueryParts, Selected, Stamp, StoreOp, SubscriptionOp, TestObject, View as Wanted,
};
use testkit::wakers::{Counting, poll_with};

use crate::cache::selector::build;

thread_local! {
    /// How often the function of the index `BY_TAG` was called for each object, by the serial number of the object.
    static ASKED: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
    static TRANSFORMED: Cell<u64> = const { Cell::new(0) };
}

const SCHEMA: Schema<u8, TestObject> =
    Schema::new(|thing: &TestObject| thing.key, |thing| Version::new(thing.version))
        .with_identity(|a, b| a.uid == b.uid);
const RULES: Rules<u8, TestObject> =
    Rules { key: |thing| thing.key, version: |thing| thing.version, same: |a, b| a.uid == b.uid };

fn same_content(a: &TestObject, b: &TestObject) -> bool {
    (a.rank, a.broken) == (b.rank, b.broken)
}

type View = Snapshot<u8, TestObject>;
type Oracle = OracleStore<u8, TestObject>;

// Indexes of all kinds. The operations of the driver add them to the store and remove them.
static BY_TAG: Index<TestObject, u8> = Index::many("tag", |thing| {
    ASKED.with_borrow_mut(|asked| {
        let serial = thing.serial as usize;
        asked.resize(asked.len().max(serial + 1), 0);
        asked[serial] += 1;
    });
    tags(thing)
});
static BY_UID: Index<TestObject, String> = Index::new("uid", |thing| thing.uid.to_string());
static BY_FRAIL: Index<TestObject, u8> = Index::fallible("frail", frail);
static BY_SLOT: Index<TestObject, (u8, u8)> = Index::new("slot", slot).unique();
static BY_RANK: Index<TestObject, u8> = Index::new("rank", |thing: &TestObject| thing.rank).ordered();
static BY_PATH: Index<TestObject, String> = Index::many("path", TestObject::paths).ordered().unique();
static BY_BRITTLE: Index<TestObject, u8> = Index::many("brittle", brittle).ordered();
static LABELS: LabelIndex<TestObject> =
    LabelIndex::new("labels", |thing, each| thing.labels.iter().for_each(|(key, value)| each(key, value)));
/// An index that has the same name as `BY_UID`, but a different type of values.
static BY_OTHER: Index<TestObject, u8> = Index::new("uid", |thing| thing.uid);

const TAG: usize = 0;
const UID: usize = 1;
const FRAIL: usize = 2;
const SLOT: usize = 3;
const RANK: usize = 4;
const PATH: usize = 5;
const BRITTLE: usize = 6;
const LABEL: usize = 7;
const INDEXES: usize = 8;

/// Which of the indexes the store has.
type Present = [bool; INDEXES];

fn tags(thing: &TestObject) -> Vec<u8> {
    thing.tags.clone()
}

fn uids(thing: &TestObject) -> Vec<String> {
    vec![thing.uid.to_string()]
}

fn slot(thing: &TestObject) -> (u8, u8) {
    (thing.rank, thing.uid)
}

fn frail(thing: &TestObject) -> Result<Vec<u8>, IndexError> {
    if thing.broken {
        return Err(IndexError::new("broken"));
    }
    // Each object has 15 to 18 different values, because an update handles an object with more than 16 old values differently.
    Ok(tags(thing).into_iter().chain(10..25).collect())
}

/// Panics if [`frail`] returns an error. Does not call the panic hook, which would print each panic.
fn brittle(thing: &TestObject) -> Vec<u8> {
    frail(thing).unwrap_or_else(|_| resume_unwind(Box::new("broken")))
}

fn solid(thing: &TestObject) -> Vec<u8> {
    frail(thing).unwrap_or_default()
}

fn with_index(builder: StoreBuilder<u8, TestObject>, index: usize) -> StoreBuilder<u8, TestObject> {
    match index {
        TAG => builder.index(&BY_TAG),
        UID => builder.index(&BY_UID),
        FRAIL => builder.index(&BY_FRAIL),
        SLOT => builder.index(&BY_SLOT),
        RANK => builder.index(&BY_RANK),
        PATH => builder.index(&BY_PATH),
        BRITTLE => builder.index(&BY_BRITTLE),
        _ => builder.index(&LABELS),
    }
}

fn add_index(store: &mut Writer<u8, TestObject>, index: usize) -> Result<(), DuplicateIndex> {
    match index {
        TAG => store.add_index(&BY_TAG),
        UID => store.add_index(&BY_UID),
        FRAIL => store.add_index(&BY_FRAIL),
        SLOT => store.add_index(&BY_SLOT),
        RANK => store.add_index(&BY_RANK),
        PATH => store.add_index(&BY_PATH),
        BRITTLE => store.add_index(&BY_BRITTLE),
        _ => store.add_index(&LABELS),
    }
}

fn remove_index(store: &mut Writer<u8, TestObject>, index: usize) -> Result<(), MissingIndex> {
    match index {
        TAG => store.remove_index(&BY_TAG),
        UID => store.remove_index(&BY_UID),
        FRAIL => store.remove_index(&BY_FRAIL),
        SLOT => store.remove_index(&BY_SLOT),
        RANK => store.remove_index(&BY_RANK),
        PATH => store.remove_index(&BY_PATH),
        BRITTLE => store.remove_index(&BY_BRITTLE),
        _ => store.remove_index(&LABELS),
    }
}

fn slimmed(thing: TestObject) -> TestObject {
    TRANSFORMED.set(TRANSFORMED.get() + 1);
    thing.transform()
}

/// The cases that a test may require.
pub const NAMES: &[&str] = &[
    "upsert",
    "delete",
    "forget",
    "bookmark",
    "replace",
    "stage put",
    "stage remove",
    "taken off the list",
    "stage keep",
    "kept as stored",
    "stage publish",
    "stage drop",
    "transaction upsert",
    "transaction delete",
    "commit",
    "abandon",
    "add index",
    "remove index",
    "ask",
    "snapshot",
    "drop snapshot",
    "subscribe",
    "subscribe to a view",
    "time passes",
    "take",
    "resync",
    "unsubscribe",
    "wait",
    "drop wait",
    "close",
    "added",
    "updated",
    "replaced",
    "deleted",
    "stale",
    "absent",
    "listed as stored",
    "list taken back",
    "transaction of several keys",
    "stale in a transaction",
    "index added to objects",
    "index there already",
    "index not there",
    "old snapshot",
    "violation",
    "index error",
    "index panic",
    "found by label",
    "not found by label",
    "without a label index",
    "found by several",
    "not found by several",
    "query without an index",
    "found in a range",
    "nothing in a range",
    "found by prefix",
    "woken",
    "index of a subscription removed",
    "began anew",
    "first list delivered",
    "rewound",
    "transformed",
    "content: compared",
    "content: as the version says",
    "stored: transformed",
    "stored: as it came",
];

/// Creates a count of the cases that occur in an operation sequence.
pub const fn tally() -> Happened {
    Happened::new(NAMES)
}

/// A subscription without or with a bound.
enum Changes {
    All(Subscription<u8, TestObject>),
    Bounded(Subscription<u8, TestObject, SubscriptionEvent<u8, TestObject>>),
}

/// Evaluates `$then`, with `$name` bound to the subscription in `$changes`, of whichever kind it is.
macro_rules! either {
    ($changes:expr, $name:ident => $then:expr) => {
        match $changes {
            Changes::All($name) => $then,
            Changes::Bounded($name) => $then,
        }
    };
}

struct Reader {
    changes: Changes,
    feed: OracleSubscription<u8, TestObject>,
    consumer: Consumer<u8, TestObject>,
    view: Wanted,
    /// Whether the subscription has ended, because its index was removed. A subscription that has ended delivers no further changes.
    ended: bool,
    /// The waker of the last poll, if this poll returned `Pending`.
    waiting: Option<Arc<Counting>>,
}

struct Waiter {
    future: Pin<Box<dyn Future<Output = Result<Version, WaitForError>>>>,
    waker: Arc<Counting>,
    wanted: u64,
    ended: Option<Result<u64, WaitForError>>,
}

/// A step of a relist. The driver collects these steps and executes them together at the end of the list, because the store cannot be written in any
/// other way during a relist.
enum ListStep {
    Insert(Draft),
    Remove(u8),
    /// The stored objects whose bits are set.
    KeepStored(u8),
}

/// A write of a transaction. Like the steps of a relist, the driver collects these writes, and executes them together.
enum TransactionStep {
    Upsert(Draft),
    /// A deletion, with or without the last state of the object.
    Delete(Draft, bool),
}

/// A snapshot, and a copy of the oracle from the same time, with which it is compared later.
struct Copy {
    view: View,
    oracle: Oracle,
    present: Present,
    /// The keys in the order of the snapshot. The order is arbitrary and must not change.
    order: Vec<u8>,
    /// The number of writes that preceded the snapshot.
    writes: u64,
}

/// A store, the oracle, and all readers and consumers.
struct World<'a> {
    store: Writer<u8, TestObject>,
    oracle: Oracle,
    present: Present,
    cells: &'a mut MergeCells,
    tally: &'a mut Happened,
    readers: Vec<Reader>,
    copies: VecDeque<Copy>,
    list: Vec<ListStep>,
    transaction: Vec<TransactionStep>,
    waiters: VecDeque<Waiter>,
    clock: ManualClock,
    synced: bool,
    /// Whether the store had received its first list when the readers were last checked.
    listed: bool,
    closed: bool,
    latest: u64,
    serial: u64,
    writes: u64,
    /// The number of objects that were passed to the store. If the store has a transformation, it transforms each of them.
    arrived: u64,
    transforms: bool,
    /// How often the index `BY_TAG` was added to the store. The index function must not be called more often than this for any object.
    tag_indexes: u64,
}

/// Decodes `bytes` to at most 200 operations, and performs them. Counts the cases that occur in `tally`.
pub fn run(bytes: &[u8], cells: &mut MergeCells, tally: &mut Happened) {
    let mut bytes = Unstructured::new(bytes);
    let (present, bits) = (u8::arbitrary(&mut bytes), u8::arbitrary(&mut bytes));
    let (Ok(present), Ok(bits)) = (present, bits) else { return };
    let mut world = World::new(present, (bits & 1 != 0, bits & 2 != 0), cells, tally);
    for _ in 0..200 {
        if bytes.is_empty() {
            break;
        }
        let Ok(op) = StoreOp::arbitrary(&mut bytes) else { break };
        world.step(op);
        world.check();
    }
    world.finish();
}

/// Like [`run`], with operations for consumers that fall behind and catch up.
pub fn run_subscription(bytes: &[u8], cells: &mut MergeCells) {
    let mut bytes = Unstructured::new(bytes);
    let mut tally = tally();
    let mut world = World::new(1 << TAG, (false, false), cells, &mut tally);
    world.step(StoreOp::Subscribe);
    for _ in 0..200 {
        if bytes.is_empty() {
            break;
        }
        let Ok(SubscriptionOp(op)) = SubscriptionOp::arbitrary(&mut bytes) else { break };
        world.step(op);
        world.check_readers();
    }
    world.check();
    world.finish();
}

impl<'a> World<'a> {
    /// Creates a store with the indexes whose bits are set in `bits`.
    fn new(
        bits: u8,
        (transforms, compares): (bool, bool),
        cells: &'a mut MergeCells,
        tally: &'a mut Happened,
    ) -> Self {
        let present: Present = std::array::from_fn(|index| bits & (1 << index) != 0);
        let schema = if compares { SCHEMA.with_content_eq(same_content) } else { SCHEMA };
        tally.hit(if compares { "content: compared" } else { "content: as the version says" });
        tally.hit(if transforms { "stored: transformed" } else { "stored: as it came" });
        let mut builder = Store::builder(schema).seed(7);
        for index in (0..INDEXES).filter(|index| present[*index]) {
            builder = with_index(builder, index);
        }
        if transforms {
            builder = builder.transform(slimmed);
        }
        ASKED.with_borrow_mut(Vec::clear);
        TRANSFORMED.set(0);
        let oracle = match transforms {
            true => OracleStore::with_transform(RULES, TestObject::transform),
            false => OracleStore::new(RULES),
        };
        let oracle = if compares { oracle.comparing(same_content) } else { oracle };
        Self {
            store: builder.build().unwrap(),
            oracle,
            present,
            cells,
            tally,
            readers: Vec::new(),
            copies: VecDeque::new(),
            list: Vec::new(),
            transaction: Vec::new(),
            waiters: VecDeque::new(),
            clock: ManualClock::new(),
            synced: false,
            listed: false,
            closed: false,
            latest: 1,
            serial: 0,
            writes: 0,
            arrived: 0,
            transforms,
            tag_indexes: 1,
        }
    }

    /// Creates an object for a write to the store.
    fn thing(&mut self, draft: Draft) -> TestObject {
        self.arrived += 1;
        self.tally.hit_if(self.transforms, "transformed");
        draft.thing(&mut self.latest, &mut self.serial)
    }

    fn step(&mut self, op: StoreOp) {
        self.tally.hit(name(&op));
        match op {
            StoreOp::Upsert(draft) => {
                let thing = self.thing(draft);
                let event = if thing.serial % 2 == 0 { WatchEvent::Added } else { WatchEvent::Modified };
                let outcome = self.store.apply(event(thing.clone()));
                let (expected, step) = self.oracle.upsert(thing);
                self.check_outcome(outcome, expected);
                self.wrote(step);
            }
            StoreOp::Delete(draft) => {
                let last = self.thing(draft);
                let outcome = self.store.apply(WatchEvent::Deleted(last.clone()));
                let (expected, step) = self.oracle.delete(&last.key.clone(), Some(last));
                self.check_outcome(outcome, expected);
                self.wrote(step);
            }
            StoreOp::Forget(key) => {
                let outcome = self.store.delete(&key.0, None);
                let (expected, step) = self.oracle.delete(&key.0, None);
                self.check_outcome(outcome, expected);
                self.wrote(step);
            }
            StoreOp::Bookmark(stamp) => {
                let version = stamp.version(&mut self.latest);
                assert_eq!(
                    self.store.apply(WatchEvent::Bookmark(Version::new(version))),
                    WriteOutcome::Bookmarked
                );
                self.oracle.bookmark(version);
                self.wrote(None);
            }
            StoreOp::Replace(drafts, stamp) => {
                let listed: Vec<_> = drafts.into_iter().map(|draft| self.thing(draft)).collect();
                let version = stamp.version(&mut self.latest);
                let changes = self.store.replace(listed.clone(), Version::new(version));
                let mut stage = OracleStage::new(&self.oracle);
                listed.into_iter().for_each(|thing| stage.put(thing));
                self.replaced(changes, stage, version);
            }
            StoreOp::StagePut(draft) => self.list.push(ListStep::Insert(draft)),
            StoreOp::StageRemove(key) if !self.list.is_empty() => self.list.push(ListStep::Remove(key.0)),
            StoreOp::StageKeep(bits) if !self.list.is_empty() => self.list.push(ListStep::KeepStored(bits)),
            StoreOp::StageRemove(_) | StoreOp::StageKeep(_) => {}
            StoreOp::StagePublish(stamp) => {
                let version = stamp.version(&mut self.latest);
                if !self.list.is_empty() {
                    let (changes, oracle) = self.relist(Some(version));
                    self.replaced(changes, oracle, version);
                }
            }
            StoreOp::StageDrop => drop(self.relist(None)),
            StoreOp::TransactionUpsert(draft) => self.transaction.push(TransactionStep::Upsert(draft)),
            StoreOp::TransactionDelete(draft, known) => {
                self.transaction.push(TransactionStep::Delete(draft, known));
            }
            StoreOp::Commit => {
                if !self.transaction.is_empty() {
                    let (changes, oracle) = self.transact(true);
                    let keys = oracle.len();
                    let steps = oracle.commit(&mut self.oracle);
                    assert_eq!(changes.into_iter().map(plain).collect::<Vec<_>>(), diff(&steps));
                    self.tally.hit_if(steps.len() > 1, "transaction of several keys");
                    self.tally.hit_if(steps.len() < keys, "stale in a transaction");
                    self.wrote(steps);
                }
            }
            StoreOp::Abandon => drop(self.transact(false)),
            StoreOp::AddIndex(index) => self.add_index(usize::from(index) % INDEXES),
            StoreOp::RemoveIndex(index) => {
                let index = usize::from(index) % INDEXES;
                assert_eq!(remove_index(&mut self.store, index).is_ok(), self.present[index]);
                if index == TAG && self.present[TAG] {
                    self.end_tag_subscriptions();
                }
                self.tally.hit_if(!self.present[index], "index not there");
                self.present[index] = false;
            }
            StoreOp::Ask(question) => {
                let asked = Asked::new(*question);
                asked.of(&self.store.snapshot(), &self.oracle, &self.present, self.tally);
                for Copy { view, oracle, present, .. } in &self.copies {
                    asked.of(view, oracle, present, self.tally);
                }
            }
            StoreOp::Snapshot => {
                if self.copies.len() < 4 {
                    let view = self.store.snapshot();
                    let order = view.keys().copied().collect();
                    let (oracle, present, writes) = (self.oracle.clone(), self.present, self.writes);
                    self.copies.push_back(Copy { view, oracle, present, order, writes });
                }
            }
            StoreOp::DropSnapshot => {
                if let Some(copy) = self.copies.pop_front() {
                    self.tally.hit_if(copy.writes + 10 <= self.writes, "old snapshot");
                    copy.compare(self.tally);
                }
            }
            StoreOp::Subscribe if self.readers.len() < 4 => {
                let objects = contents(&self.store);
                let feed = OracleSubscription::new(RULES.same, objects, self.oracle.listed);
                self.readers.push(Reader::new(Changes::All(self.store.subscribe()), feed, Wanted::default()));
            }
            StoreOp::SubscribeTo(view) if self.readers.len() < 4 => self.subscribe_to(view),
            StoreOp::Subscribe | StoreOp::SubscribeTo(_) => {}
            StoreOp::Pass(seconds) => self.clock.advance(Duration::from_secs(seconds.into())),
            StoreOp::Take(reader, count) => {
                let (objects, now) = (self.objects(), self.now());
                let cells = &mut *self.cells;
                let (listed, shown) = (self.oracle.listed, contents(&self.store));
                if let Some(reader) = pick(&mut self.readers, reader) {
                    for _ in 0..count {
                        let restarted =
                            reader.take(cells, objects.as_deref(), now, || (shown.clone(), listed));
                        self.tally.hit_if(restarted, "began anew");
                    }
                }
            }
            StoreOp::Resync(reader) => {
                if let Some(reader) = pick(&mut self.readers, reader) {
                    either!(&mut reader.changes, changes => changes.resync());
                    reader.feed.resync();
                }
            }
            StoreOp::Unsubscribe(reader) => {
                if !self.readers.is_empty() {
                    let at = usize::from(reader) % self.readers.len();
                    self.readers.swap_remove(at);
                }
            }
            StoreOp::WaitFor(stamp) => self.wait_for(stamp),
            StoreOp::DropWait => {
                if let Some(waiter) = self.waiters.pop_front() {
                    waiter.finish();
                }
            }
            StoreOp::Close => {
                self.store.close();
                for waiter in self.waiters.iter_mut().filter(|waiter| waiter.ended.is_none()) {
                    waiter.ended = Some(Err(WaitForError::Closed));
                }
                self.readers.iter_mut().for_each(Reader::check_woken_at_end);
                self.closed = true;
            }
        }
    }

    fn subscribe_to(&mut self, view: Wanted) {
        let mut objects = contents(&self.store);
        objects.retain(|(_, thing)| view.of.is_of(thing));
        let mut feed = OracleSubscription::new(RULES.same, objects, self.oracle.listed);
        let mut builder = self.store.subscription();
        if let Selected::Key(key) = view.of {
            builder = builder.for_key(key.0);
        }
        if let Some(tag) = view.of.tag() {
            match builder.by_index(&BY_TAG, tag) {
                Ok(of_tag) => builder = of_tag,
                Err(_) => return assert!(!self.present[TAG]),
            }
        }
        if view.filtered {
            builder = builder.filter(Wanted::passes);
            feed = feed.filtered(Wanted::passes);
        }
        if view.periodic {
            builder = builder.resync_every(self.clock.timer(), Duration::from_secs(Wanted::PERIOD));
            feed = feed.resync_every(Wanted::PERIOD, self.now());
        }
        let (changes, feed) = match view.bounded {
            true => {
                let builder = builder.max_pending(Wanted::MOST.try_into().unwrap());
                (Changes::Bounded(builder.subscribe()), feed.bounded(Wanted::MOST))
            }
            false => (Changes::All(builder.subscribe()), feed),
        };
        self.readers.push(Reader::new(changes, feed, view));
    }

    /// Ends the subscriptions that select objects by tag. Their index was removed, so they select no object any more.
    fn end_tag_subscriptions(&mut self) {
        for reader in self.readers.iter_mut().filter(|reader| reader.view.of.tag().is_some()) {
            self.tally.hit_if(!self.closed && !reader.ended, "index of a subscription removed");
            if !self.closed && !reader.ended {
                reader.check_woken_at_end();
            }
            reader.ended = true;
        }
    }

    /// The time in seconds.
    fn now(&self) -> u64 {
        self.clock.now().since(Nanos::ZERO).as_secs()
    }

    fn check_outcome(&mut self, outcome: WriteOutcome, expected: OracleOutcome) {
        let (expected, name) = match expected {
            OracleOutcome::Added => (WriteOutcome::Added, "added"),
            OracleOutcome::Updated => (WriteOutcome::Updated, "updated"),
            OracleOutcome::Replaced => (WriteOutcome::Replaced, "replaced"),
            OracleOutcome::Deleted => (WriteOutcome::Deleted, "deleted"),
            OracleOutcome::Stale(stored) => (WriteOutcome::Stale { stored: Version::new(stored) }, "stale"),
            OracleOutcome::Absent => (WriteOutcome::Absent, "absent"),
        };
        assert_eq!(outcome, expected);
        self.tally.hit(name);
    }

    /// Executes the collected steps of a relist, and publishes the list with `version`. If `version` is `None`, discards the list.
    fn relist(&mut self, version: Option<u64>) -> (Vec<Change<u8, TestObject>>, OracleStage<u8, TestObject>) {
        let mut oracle = OracleStage::new(&self.oracle);
        let mut list = self.store.relist();
        for step in std::mem::take(&mut self.list) {
            match step {
                ListStep::Insert(draft) => {
                    self.arrived += 1;
                    self.tally.hit_if(self.transforms, "transformed");
                    let thing = draft.thing(&mut self.latest, &mut self.serial);
                    list.insert(thing.clone());
                    oracle.put(thing);
                }
                ListStep::Remove(key) => {
                    let listed = oracle.len();
                    list.remove(&key);
                    oracle.remove(&key);
                    self.tally.hit_if(oracle.len() < listed, "taken off the list");
                }
                ListStep::KeepStored(bits) => {
                    let kept = |thing: &TestObject| bits >> (thing.key % 8) & 1 == 1;
                    let mut asked = Vec::new();
                    list.keep_stored(|thing| {
                        asked.push((thing.key, thing.clone()));
                        kept(thing)
                    });
                    let mut missing = asked.clone();
                    missing.sort_by_key(|(key, _)| *key);
                    assert_eq!(missing, oracle.missing());
                    asked.iter().filter(|(_, thing)| kept(thing)).for_each(|(key, _)| oracle.keep(key));
                    self.tally.hit_if(asked.iter().any(|(_, thing)| kept(thing)), "kept as stored");
                }
            }
        }
        (version.map_or(Vec::new(), |version| list.publish(Version::new(version))), oracle)
    }

    /// Executes the collected writes as one transaction. Commits the transaction if `commit` is true; otherwise discards it.
    fn transact(&mut self, commit: bool) -> (Vec<Change<u8, TestObject>>, OracleTransaction<u8, TestObject>) {
        let mut oracle = OracleTransaction::default();
        let mut writes = Vec::new();
        for step in std::mem::take(&mut self.transaction) {
            match step {
                TransactionStep::Upsert(draft) => {
                    let thing = self.thing(draft);
                    oracle.upsert(&self.oracle, thing.clone());
                    writes.push(Ok(thing));
                }
                TransactionStep::Delete(draft, known) => {
                    let last = self.thing(draft);
                    self.arrived -= u64::from(!known);
                    let (key, last) = (last.key, known.then_some(last));
                    oracle.delete(&self.oracle, key, last.clone());
                    writes.push(Err((key, last)));
                }
            }
        }
        let mut transaction = self.store.transaction();
        for write in writes {
            match write {
                Ok(thing) => transaction.upsert(thing),
                Err((key, last)) => transaction.delete(key, last),
            }
        }
        (if commit { transaction.commit() } else { Vec::new() }, oracle)
    }

    fn add_index(&mut self, index: usize) {
        let there = self.present[index];
        assert_eq!(add_index(&mut self.store, index).is_err(), there);
        self.tally.hit_if(there, "index there already");
        if !there {
            self.tag_indexes += u64::from(index == TAG);
            self.tally.hit_if(!self.oracle.objects.is_empty(), "index added to objects");
        }
        self.present[index] = true;
    }

    fn wait_for(&mut self, stamp: Stamp) {
        let wanted = stamp.version(&mut self.latest);
        let mut future = Box::pin(self.store.wait_for_version(Version::new(wanted)));
        let (counting, waker) = Counting::waker();
        let polled = poll_with(future.as_mut(), &waker);
        let version = Version::new(self.oracle.version);
        match polled {
            Poll::Ready(Ok(seen)) => assert!(version >= Version::new(wanted) && seen == version),
            Poll::Ready(Err(error)) => {
                assert!(self.closed && version < Version::new(wanted) && error == WaitForError::Closed);
            }
            Poll::Pending => {
                assert!(!self.closed && version < Version::new(wanted));
                self.waiters.push_back(Waiter { future, waker: counting, wanted, ended: None });
            }
        }
    }

    /// Returns the objects in the order of the store; `None` if the store is closed.
    fn objects(&self) -> Option<Vec<(u8, TestObject)>> {
        (!self.closed).then(|| contents(&self.store))
    }

    fn replaced(
        &mut self,
        changes: Vec<Change<u8, TestObject>>,
        stage: OracleStage<u8, TestObject>,
        version: u64,
    ) {
        let (before, first) = (self.oracle.version, !self.oracle.listed);
        let listed = stage.len();
        let mut steps = stage.publish(&mut self.oracle, version);
        let changes: Vec<_> = changes.into_iter().map(plain).collect();
        // The order of the deletions is not guaranteed, so the expected deletions are put into the order in which the store reported them.
        let place =
            |step: &OracleStep<u8, TestObject>| changes.iter().position(|change| change.key() == step.key());
        let deleted = steps.iter().take_while(|step| matches!(step, OracleStep::Deleted { .. })).count();
        steps[..deleted].sort_by_key(place);
        assert_eq!(changes, diff(&steps));
        self.tally.hit_if(steps.len() - deleted < listed, "listed as stored");
        self.tally.hit_if(version < before, "list taken back");
        self.synced |= !self.closed;
        let ended = |waiter: &&mut Waiter| waiter.ended.is_none();
        for waiter in self.waiters.iter_mut().filter(ended) {
            if version >= waiter.wanted {
                waiter.ended = Some(Ok(version));
            } else if version < before {
                self.tally.hit("rewound");
                waiter.ended = Some(Err(WaitForError::Rewound(Version::new(version))));
            }
        }
        self.wrote(steps);
        if !self.closed {
            self.tally.hit_if(first && !self.readers.is_empty(), "first list delivered");
            let readers = self.readers.iter_mut().filter(|reader| !reader.ended);
            readers.for_each(|reader| reader.feed.listed());
        }
    }

    fn wrote(&mut self, steps: impl IntoIterator<Item = OracleStep<u8, TestObject>>) {
        self.writes += 1;
        if !self.closed {
            for step in steps {
                for reader in self.readers.iter_mut().filter(|reader| !reader.ended) {
                    let of = reader.view.of;
                    if of.tag().is_some() {
                        self.cells.narrowed(&step, |thing| of.is_of(thing));
                    }
                    let step = step.narrowed(|thing| of.is_of(thing));
                    step.iter().for_each(|step| reader.feed.record(step, self.cells));
                }
            }
            let readers = self.readers.iter_mut().filter(|reader| !reader.ended);
            readers.for_each(|reader| reader.feed.wrote());
        }
        let version = self.oracle.version;
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.ended.is_none()) {
            waiter.ended = (version >= waiter.wanted).then_some(Ok(version));
        }
    }

    /// Checks everything that must hold between two operations.
    fn check(&mut self) {
        self.store.check().unwrap();
        compare(&self.store.snapshot(), &self.oracle, &self.present, self.tally);
        let most = ASKED.with_borrow(|asked| asked.iter().copied().max().unwrap_or(0));
        assert!(most <= self.tag_indexes, "an index function ran twice for an object");
        assert_eq!(TRANSFORMED.get(), if self.transforms { self.arrived } else { 0 });
        let held = self.store.retained_snapshots();
        let holders = self.copies.len() + self.readers.len();
        assert!(held.states <= holders, "{held:?} by {holders}");
        assert_eq!(self.store.is_synced(), self.synced);
        for waiter in &self.waiters {
            assert_eq!(waiter.waker.wakes(), usize::from(waiter.ended.is_some()));
        }
        self.check_readers();
    }

    fn check_readers(&mut self) {
        let now = self.now();
        let first_list = self.oracle.listed && !std::mem::replace(&mut self.listed, self.oracle.listed);
        for reader in &mut self.readers {
            either!(&reader.changes, changes => changes.check()).unwrap();
            let closed = self.closed || reader.ended;
            let pending = either!(&reader.changes, changes => changes.pending());
            assert_eq!(pending, reader.feed.pending());
            let initial_processed = either!(&reader.changes, changes => changes.is_initial_delivered());
            assert_eq!(initial_processed, reader.feed.is_initial_delivered());
            assert!(
                initial_processed || reader.feed.is_lost() || !reader.consumer.initial_processed,
                "`is_initial_delivered` became false again"
            );
            if let Some(waker) = &reader.waiting {
                // The first list wakes all subscriptions that wait for a change, even if the list is empty.
                let something = reader.feed.pending() > 0 || first_list || !closed && reader.feed.is_due(now);
                assert_eq!(waker.wakes(), usize::from(something));
                if something {
                    self.tally.hit("woken");
                    reader.waiting = None;
                }
            }
        }
    }

    /// Ends all subscriptions and all waits for versions. The changes that a consumer has received must result in the contents of the store.
    fn finish(mut self) {
        for copy in std::mem::take(&mut self.copies) {
            self.tally.hit_if(copy.writes + 10 <= self.writes, "old snapshot");
            copy.compare(self.tally);
        }
        for waiter in std::mem::take(&mut self.waiters) {
            waiter.finish();
        }
        let there = self.oracle.objects.clone();
        let (objects, now) = (self.objects(), self.now());
        for mut reader in std::mem::take(&mut self.readers) {
            let again = || (contents(&self.store), self.oracle.listed);
            while reader.feed.pending() > 0 || !self.closed && !reader.ended && reader.feed.is_due(now) {
                reader.take(self.cells, objects.as_deref(), now, again);
            }
            reader.take(self.cells, objects.as_deref(), now, again);
            if !self.closed && !reader.ended {
                let mut shown = there.clone();
                shown.retain(|_, thing| reader.view.of.is_of(thing));
                shown.retain(|_, thing| !reader.view.filtered || Wanted::passes(thing));
                assert_eq!(reader.consumer.held, shown);
            }
        }
        let mut last = self.store.subscribe();
        let mut consumer = Consumer::new(RULES.same);
        drop(self.store);
        while let Some(change) = last.try_next() {
            consumer.apply(plain(change));
        }
        assert_eq!(consumer.held, there);
        assert!(matches!(last.poll_next(&mut Context::from_waker(Waker::noop())), Poll::Ready(None)));
    }
}

impl Reader {
    fn new(changes: Changes, feed: OracleSubscription<u8, TestObject>, view: Wanted) -> Self {
        let consumer = Consumer::new(RULES.same);
        Self { changes, feed, consumer, view, ended: false, waiting: None }
    }

    fn check_woken_at_end(&mut self) {
        if let Some(waker) = self.waiting.take() {
            assert_eq!(waker.wakes(), 1, "the end of the subscription did not wake its subscriber");
        }
    }

    /// Takes a change from the subscription and from the oracle, and compares them. `objects` is the content of the store, or `None` if the store is
    /// closed. `again` returns the content of the store, even if it is closed, and whether the store has received a list. Returns whether the
    /// subscription restarted.
    fn take(
        &mut self,
        cells: &mut MergeCells,
        objects: Option<&[(u8, TestObject)]>,
        now: u64,
        again: impl FnOnce() -> (Vec<(u8, TestObject)>, bool),
    ) -> bool {
        let of = self.view.of;
        let objects = objects
            .filter(|_| !self.ended)
            .map(|objects| objects.iter().filter(|(_, thing)| of.is_of(thing)).cloned().collect::<Vec<_>>());
        // The subscription is polled now, so the check whether an earlier poll's waker was woken ends here.
        self.waiting = None;
        if let (true, Changes::Bounded(changes)) = (self.feed.is_lost(), &mut self.changes) {
            assert!(matches!(changes.try_next(), Some(SubscriptionEvent::Restarted)));
            let (mut there, listed) = again();
            // If the index of the subscription has been removed, the subscription selects no object.
            there.retain(|(_, thing)| !self.ended && of.is_of(thing));
            self.feed.restart(there, listed);
            self.consumer = Consumer::new(RULES.same);
            return true;
        }
        self.consumer.initial_processed = either!(&self.changes, changes => changes.is_initial_delivered());
        let closed = objects.is_none();
        let expected = self.feed.next(cells, objects.as_deref(), now);
        if let Some(expected) = expected {
            let change = self.try_next().map(plain);
            assert_eq!(change.as_ref(), Some(&expected));
            self.consumer.apply(expected);
            return false;
        }
        assert!(self.try_next().is_none());
        either!(&self.changes, changes => {
            assert_eq!(changes.is_initial_delivered(), self.feed.is_initial_delivered());
        });
        let (counting, waker) = Counting::waker();
        match self.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(None) => assert!(closed),
            Poll::Pending => {
                assert!(!closed);
                self.waiting = Some(counting);
            }
            Poll::Ready(Some(change)) => panic!("{change:?} was not expected"),
        }
        false
    }

    fn try_next(&mut self) -> Option<Change<u8, TestObject>> {
        match &mut self.changes {
            Changes::All(changes) => changes.try_next(),
            Changes::Bounded(changes) => changes.try_next().map(change),
        }
    }

    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Change<u8, TestObject>>> {
        match &mut self.changes {
            Changes::All(changes) => changes.poll_next(cx),
            Changes::Bounded(changes) => changes.poll_next(cx).map(|event| event.map(change)),
        }
    }
}

fn change(event: SubscriptionEvent<u8, TestObject>) -> Change<u8, TestObject> {
    match event {
        SubscriptionEvent::Change(change) => change,
        SubscriptionEvent::Restarted => panic!("the subscription restarted below its bound"),
    }
}

impl Waiter {
    fn finish(mut self) {
        let (_, waker) = Counting::waker();
        let polled = poll_with(self.future.as_mut(), &waker);
        match self.ended {
            Some(ended) => assert_eq!(polled, Poll::Ready(ended.map(Version::new))),
            None => assert_eq!(polled, Poll::Pending),
        }
    }
}

fn contents(store: &Store<u8, TestObject>) -> Vec<(u8, TestObject)> {
    store.snapshot().iter().map(|(key, thing)| (*key, TestObject::clone(thing))).collect()
}

fn pick(readers: &mut [Reader], at: u8) -> Option<&mut Reader> {
    let len = readers.len();
    readers.get_mut(usize::from(at) % len.max(1))
}

/// Converts a change to the type of the oracle, with copies of its objects.
fn plain(change: Change<u8, TestObject>) -> OracleChange<u8, TestObject> {
    let key = *change.key();
    let object = TestObject::clone(change.object());
    let old = change.old().map(|old| TestObject::clone(old));
    match (change.kind(), old) {
        (ChangeKind::Updated, Some(old)) => OracleChange::Updated { key, old, new: object },
        (ChangeKind::Replaced, Some(last)) => OracleChange::Replaced { key, last, new: object },
        (ChangeKind::Deleted, Some(last)) => OracleChange::Deleted { key, last, missed: false },
        (ChangeKind::Missed, Some(last)) => OracleChange::Deleted { key, last, missed: true },
        (kind, _) => OracleChange::Added { key, object, initial: kind == ChangeKind::Initial },
    }
}

/// Converts the steps of a relist to changes, with the deletions first.
fn diff(steps: &[OracleStep<u8, TestObject>]) -> Vec<OracleChange<u8, TestObject>> {
    let (mut deleted, mut changed) = (Vec::new(), Vec::new());
    for step in steps.iter().cloned() {
        match step {
            OracleStep::Added { key, new, initial } => {
                changed.push(OracleChange::Added { key, object: new, initial })
            }
            OracleStep::Updated { key, old, new } => changed.push(OracleChange::Updated { key, old, new }),
            OracleStep::Replaced { key, old, new } => {
                changed.push(OracleChange::Replaced { key, last: old, new });
            }
            OracleStep::Deleted { key, last, missed, .. } => {
                deleted.push(OracleChange::Deleted { key, last, missed });
            }
        }
    }
    deleted.extend(changed);
    deleted
}

/// The parts of a query, and its selector as a [`Selector`] of the crate.
struct Asked {
    question: QueryParts,
    selector: Selector,
}

impl Asked {
    fn new(question: QueryParts) -> Self {
        let selector = build(&question.selector);
        Self { question, selector }
    }

    fn of(&self, view: &View, oracle: &Oracle, present: &Present, tally: &mut Happened) {
        self.labels(view, oracle, present, tally);
        self.several(view, oracle, present, tally);
        let QueryParts { ranks, paths, prefix, tag, .. } = &self.question;
        let found = in_order(
            present[RANK],
            || view.range(&BY_RANK, *ranks),
            oracle,
            |thing| vec![thing.rank],
            |rank| ranks.contains(rank),
        );
        tally.hit_if(present[RANK] && found > 0, "found in a range");
        tally.hit_if(present[RANK] && found == 0, "nothing in a range");
        in_order(
            present[BRITTLE],
            || view.range(&BY_BRITTLE, *ranks),
            oracle,
            solid,
            |tag| ranks.contains(tag),
        );
        let halves = || view.range_by(&BY_RANK, |rank| (rank / 2).cmp(&(tag / 2)));
        in_order(present[RANK], halves, oracle, |thing| vec![thing.rank], |rank| rank / 2 == tag / 2);
        in_order(
            present[PATH],
            || view.range::<_, str, _>(&BY_PATH, *paths),
            oracle,
            TestObject::paths,
            |path| {
                let paths: (Bound<&str>, Bound<&str>) = *paths;
                RangeBounds::<str>::contains(&paths, path.as_str())
            },
        );
        let found = in_order(
            present[PATH],
            || view.prefix(&BY_PATH, prefix),
            oracle,
            TestObject::paths,
            |path| path.starts_with(prefix),
        );
        tally.hit_if(present[PATH] && found > 0, "found by prefix");
        let memory = view.memory_usage(|_, thing| thing.serial as usize);
        let weight: u64 = oracle.objects.values().map(|thing| thing.serial).sum();
        assert_eq!((memory.objects, memory.object_bytes as u64), (oracle.objects.len(), weight));
        assert_eq!(memory.indexes.len(), present.iter().filter(|there| **there).count());
    }

    fn labels(&self, view: &View, oracle: &Oracle, present: &Present, tally: &mut Happened) {
        let found = view.lister().select(&LABELS, &self.selector);
        assert_eq!(found.is_ok(), present[LABEL]);
        let Ok(found) = found else { return tally.hit("without a label index") };
        let expected = oracle.which(|thing| self.question.selector.matches(&thing.labels));
        assert_eq!(sorted(found.iter().map(|thing| &thing.key)), expected, "{}", self.selector);
        tally.hit(if expected.is_empty() { "not found by label" } else { "found by label" });
        let matching = |thing: &TestObject| {
            self.selector
                .matches(|key| thing.labels.iter().find(|label| label.0 == key).map(|label| label.1.as_str()))
        };
        assert_eq!(oracle.which(matching), expected, "without an index, {}", self.selector);
    }

    /// Compares the results of a query that combines up to six conditions.
    fn several(&self, view: &View, oracle: &Oracle, present: &Present, tally: &mut Happened) {
        let QueryParts { selector, conditions, tag, other, prefix, .. } = &self.question;
        let has = |bit: u8| conditions & (1 << bit) != 0;
        let uid = (tag % 2).to_string();
        let query = || -> Result<Lister<'_, u8, TestObject>, MissingIndex> {
            let mut query = view.lister();
            if has(0) {
                query = query.by_index(&BY_TAG, tag)?;
            }
            if has(1) {
                query = query.by_index(&BY_FRAIL, other)?;
            }
            if has(2) {
                query = query.by_index(&BY_RANK, tag)?;
            }
            if has(3) {
                query = query.by_index(&BY_PATH, *prefix)?;
            }
            if has(4) {
                query = query.select(&LABELS, &self.selector)?;
            }
            if has(5) {
                query = query.by_index(&BY_UID, uid.as_str())?;
            }
            Ok(query)
        };
        let used = [(0, TAG), (1, FRAIL), (2, RANK), (3, PATH), (4, LABEL), (5, UID)];
        let complete = used.iter().all(|(bit, index)| !has(*bit) || present[*index]);
        let found = query();
        assert_eq!(found.is_ok(), complete);
        let Ok(found) = found else { return tally.hit("query without an index") };
        let expected = oracle.which(|thing| {
            (!has(0) || thing.tags.contains(tag))
                && (!has(1) || solid(thing).contains(other))
                && (!has(2) || thing.rank == *tag)
                && (!has(3) || thing.paths().iter().any(|path| path == prefix))
                && (!has(4) || selector.matches(&thing.labels))
                && (!has(5) || thing.uid.to_string() == uid)
        });
        assert_eq!(sorted(found.iter().map(|thing| &thing.key)), expected, "{:?}", self.question);
        tally.hit(if expected.is_empty() { "not found by several" } else { "found by several" });
    }
}

/// Compares a range of an ordered index with the oracle, in ascending and in descending order: the order of the values, and the objects of each
/// value. Returns the number of values.
fn in_order<'v, IK: Ord + Clone + Debug + 'static>(
    there: bool,
    range: impl Fn() -> Result<RangeIter<'v, u8, TestObject, IK>, MissingIndex>,
    oracle: &Oracle,
    values: impl Fn(&TestObject) -> Vec<IK>,
    within: impl Fn(&IK) -> bool,
) -> usize {
    let (forwards, backwards) = (range(), range());
    assert_eq!(forwards.is_ok(), there);
    let (Ok(forwards), Ok(backwards)) = (forwards, backwards) else { return 0 };
    let mut expected = oracle.by_values(values, within);
    let found = expected.len();
    assert_eq!(forwards.values(), found);
    assert_eq!(grouped(forwards), expected);
    expected.reverse();
    assert_eq!(grouped(backwards.descending()), expected);
    found
}

/// Groups the entries that have equal values, and sorts the keys in each group.
fn grouped<IK: PartialEq + Clone + 'static>(range: RangeIter<'_, u8, TestObject, IK>) -> Vec<(IK, Vec<u8>)> {
    let mut groups: Vec<(IK, Vec<u8>)> = Vec::new();
    for (value, thing) in range {
        match groups.last_mut().filter(|(last, _)| last == value) {
            Some((_, keys)) => keys.push(thing.key),
            None => groups.push((value.clone(), vec![thing.key])),
        }
    }
    groups.iter_mut().for_each(|(_, keys)| keys.sort_unstable());
    groups
}

impl Copy {
    /// Compares the snapshot with the copy of the oracle.
    fn compare(&self, tally: &mut Happened) {
        assert!(self.view.keys().eq(&self.order), "the order of a snapshot changed");
        compare(&self.view, &self.oracle, &self.present, tally);
        self.view.check().unwrap();
        let again = self.view.clone();
        compare(&again, &self.oracle, &self.present, tally);
    }
}

/// Compares the results of all queries of a snapshot that take no argument with those of the oracle.
fn compare(view: &View, oracle: &Oracle, present: &Present, tally: &mut Happened) {
    assert_eq!(view.len(), oracle.objects.len());
    assert_eq!(view.is_empty(), oracle.objects.is_empty());
    assert_eq!(view.version(), Version::new(oracle.version));
    assert_eq!(view.iter().len(), oracle.objects.len());
    for (key, thing) in &oracle.objects {
        assert_eq!(view.get(key).map(|thing| &**thing), Some(thing));
    }
    assert!((0..5).all(|key| view.contains_key(&key) == oracle.objects.contains_key(&key)));
    assert_eq!(sorted(view.keys()), oracle.which(|_| true));

    same(present[TAG], view, oracle, &BY_TAG, tags);
    same(present[UID], view, oracle, &BY_UID, uids);
    same(present[FRAIL], view, oracle, &BY_FRAIL, solid);
    same_unique(present[SLOT], view, oracle, &BY_SLOT, |thing| vec![slot(thing)], tally);
    same(present[RANK], view, oracle, &BY_RANK, |thing| vec![thing.rank]);
    same_unique(present[PATH], view, oracle, &BY_PATH, TestObject::paths, tally);
    same(present[BRITTLE], view, oracle, &BY_BRITTLE, solid);
    in_order(
        present[RANK],
        || view.range::<_, u8, _>(&BY_RANK, ..),
        oracle,
        |thing| vec![thing.rank],
        |_| true,
    );
    in_order(present[PATH], || view.range::<_, str, _>(&BY_PATH, ..), oracle, TestObject::paths, |_| true);
    assert_eq!(view.lister().select(&LABELS, &Selector::everything()).is_ok(), present[LABEL]);
    assert!(
        view.by_index(&BY_OTHER, &0).is_err(),
        "an index was found by its name although its type differs"
    );

    let mut failed: Vec<_> = view.index_errors().map(|(key, index, _)| (index, *key)).collect();
    failed.sort_unstable();
    let broken = oracle.which(|thing| thing.broken);
    let frail = [("brittle", BRITTLE), ("frail", FRAIL)].into_iter().filter(|(_, index)| present[*index]);
    let expected: Vec<_> = frail.flat_map(|(name, _)| broken.iter().map(move |key| (name, *key))).collect();
    assert_eq!(failed, expected);
    tally.hit_if(failed.iter().any(|(index, _)| *index == "frail"), "index error");
    tally.hit_if(failed.iter().any(|(index, _)| *index == "brittle"), "index panic");
}

/// Compares an index that is not unique with the oracle.
fn same<IK: Ord + Hash + Clone + Debug + 'static>(
    there: bool,
    view: &View,
    oracle: &Oracle,
    index: &Index<TestObject, IK>,
    values: impl Fn(&TestObject) -> Vec<IK>,
) {
    assert_eq!(same_values(there, view, oracle, index, values), 0);
}

/// Compares a unique index, and the violations that it reports, with the oracle.
fn same_unique<IK: Ord + Hash + Clone + Debug + 'static>(
    there: bool,
    view: &View,
    oracle: &Oracle,
    index: &Index<TestObject, IK>,
    values: impl Fn(&TestObject) -> Vec<IK>,
    tally: &mut Happened,
) {
    let violations = same_values(there, view, oracle, index, &values);
    let expected = || oracle.by_values(&values, |_| true).iter().filter(|(_, keys)| keys.len() > 1).count();
    assert_eq!(violations, if there { expected() } else { 0 });
    tally.hit_if(violations > 0, "violation");
}

/// Compares every value of a unique index, and its objects, with the oracle. Returns the number of violations that the index reports.
fn same_values<IK: Ord + Hash + Clone + Debug + 'static>(
    there: bool,
    view: &View,
    oracle: &Oracle,
    index: &Index<TestObject, IK>,
    values: impl Fn(&TestObject) -> Vec<IK>,
) -> usize {
    let in_use = view.index_values(index);
    assert_eq!(in_use.is_ok(), there);
    let Ok(in_use) = in_use else { return 0 };
    let mut in_use: Vec<_> = in_use.collect();
    in_use.sort();
    let expected = oracle.by_values(values, |_| true);
    assert!(
        in_use.iter().copied().eq(expected.iter().map(|(value, keys)| (value, keys.len()))),
        "{in_use:?}, not {expected:?}"
    );
    for (value, keys) in &expected {
        assert_eq!(sorted(view.keys_by_index(index, value).unwrap()), *keys);
        assert_eq!(sorted(view.by_index(index, value).unwrap().map(|thing| &thing.key)), *keys);
    }
    // Only a unique index reports violations.
    let Ok(violations) = view.unique_violations(index) else { return 0 };
    let violations = violations.map(|(value, objects)| {
        let keys = sorted(objects.map(|(key, _)| key));
        assert!(keys.len() > 1 && expected.contains(&(value.clone(), keys)), "{value:?}");
    });
    violations.count()
}

fn sorted<'a>(keys: impl Iterator<Item = &'a u8>) -> Vec<u8> {
    let mut keys: Vec<_> = keys.copied().collect();
    keys.sort_unstable();
    keys
}

fn name(op: &StoreOp) -> &'static str {
    match op {
        StoreOp::Upsert(_) => "upsert",
        StoreOp::Delete(_) => "delete",
        StoreOp::Forget(_) => "forget",
        StoreOp::Bookmark(_) => "bookmark",
        StoreOp::Replace(..) => "replace",
        StoreOp::StagePut(_) => "stage put",
        StoreOp::StageRemove(_) => "stage remove",
        StoreOp::StageKeep(_) => "stage keep",
        StoreOp::StagePublish(_) => "stage publish",
        StoreOp::StageDrop => "stage drop",
        StoreOp::TransactionUpsert(_) => "transaction upsert",
        StoreOp::TransactionDelete(..) => "transaction delete",
        StoreOp::Commit => "commit",
        StoreOp::Abandon => "abandon",
        StoreOp::AddIndex(_) => "add index",
        StoreOp::RemoveIndex(_) => "remove index",
        StoreOp::Ask(_) => "ask",
        StoreOp::Snapshot => "snapshot",
        StoreOp::DropSnapshot => "drop snapshot",
        StoreOp::Subscribe => "subscribe",
        StoreOp::SubscribeTo(_) => "subscribe to a view",
        StoreOp::Pass(_) => "time passes",
        StoreOp::Take(..) => "take",
        StoreOp::Resync(_) => "resync",
        StoreOp::Unsubscribe(_) => "unsubscribe",
        StoreOp::WaitFor(_) => "wait",
        StoreOp::DropWait => "drop wait",
        StoreOp::Close => "close",
    }
}
