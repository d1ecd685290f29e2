//! Plays operations on a store and on the naive one, and compares everything after each. Shared with the fuzz targets.

use std::cell::Cell;
use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    Change, ChangeKind, Event, Index, IndexError, Outcome, Schema, Snapshot, Stage, Store, Subscription,
    Version, WaitFor, WaitForError,
};
use testkit::naive_feed::{MergeCells, NaiveFeed};
use testkit::naive_store::{Consumer, NaiveChange, NaiveOutcome, NaiveStep, NaiveStore, Rules};
use testkit::store_op::{Draft, Stamp, StoreOp, SubscriptionOp, Thing};
use testkit::wakers::{Counting, poll_with};

thread_local! {
    static INDEXED: Cell<u64> = const { Cell::new(0) };
}

const SCHEMA: Schema<u8, Thing> = Schema::new(|thing: &Thing| thing.key, |thing| Version::new(thing.version))
    .identity(|a, b| a.uid == b.uid);
static BY_TAG: Index<Thing, u8> = Index::many("tag", |thing| {
    INDEXED.set(INDEXED.get() + 1);
    thing.tags.clone()
});
static BY_UID: Index<Thing, String> = Index::new("uid", |thing| thing.uid.to_string());
static BY_FRAIL: Index<Thing, u8> = Index::fallible("frail", frail);
static BY_OTHER: Index<Thing, u8> = Index::new("uid", |thing| thing.uid);

fn frail(thing: &Thing) -> Result<Vec<u8>, IndexError> {
    if thing.broken { Err(IndexError::new("broken")) } else { Ok(thing.tags.clone()) }
}

const RULES: Rules<u8, Thing> =
    Rules { key: |thing| thing.key, version: |thing| thing.version, same: |a, b| a.uid == b.uid };

struct Reader {
    subscription: Subscription<u8, Thing>,
    feed: NaiveFeed<u8, Thing>,
    consumer: Consumer<u8, Thing>,
    /// The waker of a poll that found nothing.
    waiting: Option<Arc<Counting>>,
}

struct Waiter {
    future: Pin<Box<WaitFor<u8, Thing>>>,
    waker: Arc<Counting>,
    wanted: u64,
    ended: Option<Result<u64, WaitForError>>,
}

/// A store, the naive one, and everybody who looks at them.
struct World<'a> {
    store: Store<u8, Thing>,
    naive: NaiveStore<u8, Thing>,
    cells: &'a mut MergeCells,
    readers: Vec<Reader>,
    snapshots: VecDeque<(Snapshot<u8, Thing>, NaiveStore<u8, Thing>)>,
    stage: Option<(Stage<u8, Thing>, Vec<Thing>)>,
    waiters: VecDeque<Waiter>,
    synced: bool,
    closed: bool,
    latest: u64,
    serial: u64,
    indexed: u64,
}

/// Plays as many operations as the bytes give; at most 200.
pub(crate) fn run(bytes: &[u8], cells: &mut MergeCells) {
    let mut bytes = Unstructured::new(bytes);
    let mut world = World::new(cells);
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

/// As [`run`], all about consumers that fall behind and catch up.
pub(crate) fn run_subscription(bytes: &[u8], cells: &mut MergeCells) {
    let mut bytes = Unstructured::new(bytes);
    let mut world = World::new(cells);
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
    fn new(cells: &'a mut MergeCells) -> Self {
        let store = Store::builder(SCHEMA).index(&BY_TAG).index(&BY_UID).index(&BY_FRAIL).seed(7);
        INDEXED.set(0);
        Self {
            store: store.build().unwrap(),
            naive: NaiveStore::new(RULES),
            cells,
            readers: Vec::new(),
            snapshots: VecDeque::new(),
            stage: None,
            waiters: VecDeque::new(),
            synced: false,
            closed: false,
            latest: 1,
            serial: 0,
            indexed: 0,
        }
    }

    fn thing(&mut self, draft: Draft) -> Thing {
        draft.thing(&mut self.latest, &mut self.serial)
    }

    fn step(&mut self, op: StoreOp) {
        match op {
            StoreOp::Upsert(draft) => {
                let thing = self.thing(draft);
                self.indexed += 1;
                let event = if thing.serial % 2 == 0 { Event::Added } else { Event::Modified };
                let outcome = self.store.apply(event(thing.clone()));
                let (expected, step) = self.naive.upsert(thing);
                assert_eq!(outcome, told(expected));
                self.wrote(step);
            }
            StoreOp::Delete(draft) => {
                let last = self.thing(draft);
                let outcome = self.store.apply(Event::Deleted(last.clone()));
                let (expected, step) = self.naive.delete(&last.key.clone(), Some(last));
                assert_eq!(outcome, told(expected));
                self.wrote(step);
            }
            StoreOp::Forget(key) => {
                let outcome = self.store.delete(&key.0, None);
                let (expected, step) = self.naive.delete(&key.0, None);
                assert_eq!(outcome, told(expected));
                self.wrote(step);
            }
            StoreOp::Bookmark(stamp) => {
                let version = stamp.version(&mut self.latest);
                assert_eq!(self.store.apply(Event::Bookmark(Version::new(version))), Outcome::Noted);
                self.naive.bookmark(version);
                self.wrote(None);
            }
            StoreOp::Replace(drafts, stamp) => {
                let listed: Vec<_> = drafts.into_iter().map(|draft| self.thing(draft)).collect();
                let version = stamp.version(&mut self.latest);
                self.indexed += listed.len() as u64;
                let order = self.order();
                let changes = self.store.replace(listed.clone(), Version::new(version));
                self.replaced(changes, &listed, version, &order);
            }
            StoreOp::StagePut(draft) => {
                let thing = self.thing(draft);
                self.indexed += 1;
                let (stage, listed) = self.stage.get_or_insert_with(|| (self.store.stage(), Vec::new()));
                stage.put(thing.clone());
                listed.push(thing);
            }
            StoreOp::StagePublish(stamp) => {
                let version = stamp.version(&mut self.latest);
                if let Some((stage, listed)) = self.stage.take() {
                    let order = self.order();
                    let changes = stage.publish(Version::new(version));
                    self.replaced(changes, &listed, version, &order);
                }
            }
            StoreOp::StageDrop => self.stage = None,
            StoreOp::Snapshot => {
                if self.snapshots.len() < 4 {
                    self.snapshots.push_back((self.store.snapshot(), self.naive.clone()));
                }
            }
            StoreOp::DropSnapshot => {
                if let Some((snapshot, naive)) = self.snapshots.pop_front() {
                    compare(&snapshot, &naive);
                }
            }
            StoreOp::Subscribe => {
                if self.readers.len() < 3 {
                    let objects = contents(&self.store);
                    self.readers.push(Reader {
                        subscription: self.store.subscribe(),
                        feed: NaiveFeed::new(RULES.same, objects),
                        consumer: Consumer::new(RULES.same),
                        waiting: None,
                    });
                }
            }
            StoreOp::Take(reader, count) => {
                let objects = self.objects();
                let cells = &mut *self.cells;
                if let Some(reader) = pick(&mut self.readers, reader) {
                    for _ in 0..count {
                        reader.take(cells, objects.as_deref());
                    }
                }
            }
            StoreOp::Resync(reader) => {
                if let Some(reader) = pick(&mut self.readers, reader) {
                    reader.subscription.resync();
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
                for reader in &mut self.readers {
                    if let Some(waker) = reader.waiting.take() {
                        assert_eq!(waker.wakes(), 1, "the end wakes");
                    }
                }
                self.closed = true;
            }
        }
    }

    fn wait_for(&mut self, stamp: Stamp) {
        let wanted = stamp.version(&mut self.latest);
        let mut future = Box::pin(self.store.wait_for(Version::new(wanted)));
        let (counting, waker) = Counting::waker();
        let polled = poll_with(future.as_mut(), &waker);
        let version = Version::new(self.naive.version);
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

    /// The objects in the store's order, unless it is closed.
    fn objects(&self) -> Option<Vec<(u8, Thing)>> {
        (!self.closed).then(|| contents(&self.store))
    }

    /// The keys in the store's own order, which says nothing and is the same everywhere.
    fn order(&self) -> Vec<u8> {
        self.store.snapshot().keys().copied().collect()
    }

    fn replaced(&mut self, changes: Vec<Change<u8, Thing>>, listed: &[Thing], version: u64, order: &[u8]) {
        let before = self.naive.version;
        let mut steps = self.naive.replace(listed, version);
        let place = |step: &NaiveStep<u8, Thing>| order.iter().position(|key| key == step.key());
        let (mut deleted, changed): (Vec<_>, Vec<_>) =
            steps.drain(..).partition(|step| matches!(step, NaiveStep::Deleted { .. }));
        deleted.sort_by_key(place);
        steps.extend(deleted.into_iter().chain(changed));
        let changes: Vec<_> = changes.into_iter().map(naive).collect();
        assert_eq!(changes, diff(&steps));
        self.synced |= !self.closed;
        let ended = |waiter: &&mut Waiter| waiter.ended.is_none();
        for waiter in self.waiters.iter_mut().filter(ended) {
            if version >= waiter.wanted {
                waiter.ended = Some(Ok(version));
            } else if version < before {
                waiter.ended = Some(Err(WaitForError::Rewound(Version::new(version))));
            }
        }
        self.wrote(steps);
    }

    fn wrote(&mut self, steps: impl IntoIterator<Item = NaiveStep<u8, Thing>>) {
        if !self.closed {
            for step in steps {
                for reader in &mut self.readers {
                    reader.feed.heard(&step, self.cells);
                }
            }
        }
        let version = self.naive.version;
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.ended.is_none()) {
            waiter.ended = (version >= waiter.wanted).then_some(Ok(version));
        }
    }

    /// Everything that must hold between two operations.
    fn check(&mut self) {
        self.store.check().unwrap();
        compare(&self.store.snapshot(), &self.naive);
        assert_eq!(INDEXED.get(), self.indexed, "the index function runs once per object version");
        assert_eq!(self.store.is_synced(), self.synced);
        for waiter in &self.waiters {
            assert_eq!(waiter.waker.wakes(), usize::from(waiter.ended.is_some()));
        }
        self.check_readers();
    }

    fn check_readers(&mut self) {
        for reader in &mut self.readers {
            reader.subscription.check().unwrap();
            assert_eq!(reader.subscription.pending(), reader.feed.pending());
            let lag = reader.subscription.lag();
            assert!(reader.subscription.pending() > 0 || lag.seen == lag.version, "{lag:?}");
            assert!(self.closed || lag.version == self.store.version(), "{lag:?}");
            if let Some(waker) = &reader.waiting {
                let something = reader.feed.pending() > 0;
                assert_eq!(waker.wakes(), usize::from(something));
                if something {
                    reader.waiting = None;
                }
            }
        }
    }

    /// Ends everything; what a consumer was told must add up to what is there.
    fn finish(mut self) {
        for (snapshot, naive) in std::mem::take(&mut self.snapshots) {
            compare(&snapshot, &naive);
            snapshot.check().unwrap();
        }
        for waiter in std::mem::take(&mut self.waiters) {
            waiter.finish();
        }
        let there = self.naive.objects.clone();
        let objects = self.objects();
        for mut reader in std::mem::take(&mut self.readers) {
            while reader.feed.pending() > 0 {
                reader.take(self.cells, objects.as_deref());
            }
            reader.take(self.cells, objects.as_deref());
            if !self.closed {
                assert_eq!(reader.consumer.held, there);
            }
        }
        self.stage = None;
        let mut reader = Reader {
            subscription: self.store.subscribe(),
            feed: NaiveFeed::new(RULES.same, []),
            consumer: Consumer::new(RULES.same),
            waiting: None,
        };
        drop(self.store);
        while let Some(change) = reader.subscription.try_next() {
            reader.consumer.apply(naive(change));
        }
        assert_eq!(reader.consumer.held, there);
        reader.take(self.cells, None);
    }
}

impl Reader {
    /// `objects` is what the store holds, unless it is closed.
    fn take(&mut self, cells: &mut MergeCells, objects: Option<&[(u8, Thing)]>) {
        let closed = objects.is_none();
        // Whoever takes does not wait; an earlier waker may still be woken, and nobody cares.
        self.waiting = None;
        let expected = self.feed.next(cells, objects);
        if let Some(expected) = expected {
            let change = self.subscription.try_next().map(naive);
            assert_eq!(change.as_ref(), Some(&expected));
            self.consumer.apply(expected);
            return;
        }
        assert!(self.subscription.try_next().is_none());
        assert!(self.subscription.is_caught_up());
        let lag = self.subscription.lag();
        assert_eq!(lag.seen, lag.version);
        let (counting, waker) = Counting::waker();
        match self.subscription.poll_next(&mut Context::from_waker(&waker)) {
            Poll::Ready(None) => assert!(closed),
            Poll::Pending => {
                assert!(!closed);
                self.waiting = Some(counting);
            }
            Poll::Ready(Some(change)) => panic!("{change:?} out of nothing"),
        }
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

fn contents(store: &Store<u8, Thing>) -> Vec<(u8, Thing)> {
    store.snapshot().iter().map(|(key, thing)| (*key, Thing::clone(thing))).collect()
}

fn pick(readers: &mut [Reader], at: u8) -> Option<&mut Reader> {
    let len = readers.len();
    readers.get_mut(usize::from(at) % len.max(1))
}

fn told(outcome: NaiveOutcome) -> Outcome {
    match outcome {
        NaiveOutcome::Added => Outcome::Added,
        NaiveOutcome::Updated => Outcome::Updated,
        NaiveOutcome::Replaced => Outcome::Replaced,
        NaiveOutcome::Deleted => Outcome::Deleted,
        NaiveOutcome::Stale(stored) => Outcome::Stale { stored: Version::new(stored) },
        NaiveOutcome::Absent => Outcome::Absent,
    }
}

/// A change with copies of its objects.
fn naive(change: Change<u8, Thing>) -> NaiveChange<u8, Thing> {
    let key = *change.key();
    match change.kind {
        ChangeKind::Added { object, initial } => {
            NaiveChange::Added { key, object: Thing::clone(&object), initial }
        }
        ChangeKind::Updated { old, new } => {
            NaiveChange::Updated { key, old: Thing::clone(&old), new: Thing::clone(&new) }
        }
        ChangeKind::Deleted { last, missed } => {
            NaiveChange::Deleted { key, last: Thing::clone(&last), missed }
        }
    }
}

/// What a relist says: deletions first.
fn diff(steps: &[NaiveStep<u8, Thing>]) -> Vec<NaiveChange<u8, Thing>> {
    let (mut deleted, mut changed) = (Vec::new(), Vec::new());
    for step in steps.iter().cloned() {
        match step {
            NaiveStep::Added { key, new } => {
                changed.push(NaiveChange::Added { key, object: new, initial: false })
            }
            NaiveStep::Updated { key, old, new } => changed.push(NaiveChange::Updated { key, old, new }),
            NaiveStep::Replaced { key, old, new } => {
                deleted.push(NaiveChange::Deleted { key, last: old, missed: true });
                changed.push(NaiveChange::Added { key, object: new, initial: false });
            }
            NaiveStep::Deleted { key, last, missed, .. } => {
                deleted.push(NaiveChange::Deleted { key, last, missed });
            }
        }
    }
    deleted.extend(changed);
    deleted
}

/// Compares a view with the naive store in every respect.
fn compare(snapshot: &Snapshot<u8, Thing>, naive: &NaiveStore<u8, Thing>) {
    assert_eq!(snapshot.len(), naive.objects.len());
    assert_eq!(snapshot.is_empty(), naive.objects.is_empty());
    assert_eq!(snapshot.version(), Version::new(naive.version));
    assert_eq!(snapshot.iter().len(), naive.objects.len());
    for (key, thing) in &naive.objects {
        assert_eq!(snapshot.get(key).map(|thing| &**thing), Some(thing));
    }
    assert!((0..5).all(|key| snapshot.contains_key(&key) == naive.objects.contains_key(&key)));
    let sorted = |keys: &mut dyn Iterator<Item = &u8>| {
        let mut keys: Vec<_> = keys.copied().collect();
        keys.sort_unstable();
        keys
    };
    let tags = |thing: &Thing| thing.tags.clone();
    let solid = |thing: &Thing| frail(thing).unwrap_or_default();
    for tag in 0..4 {
        let keys = sorted(&mut snapshot.keys_by_index(&BY_TAG, &tag).unwrap());
        assert_eq!(keys, naive.by_value(tags, &tag));
        let keys = sorted(&mut snapshot.by_index(&BY_FRAIL, &tag).unwrap().map(|thing| &thing.key));
        assert_eq!(keys, naive.by_value(solid, &tag));
    }
    for uid in ["0", "1", "2"] {
        let keys = sorted(&mut snapshot.keys_by_index(&BY_UID, uid).unwrap());
        assert_eq!(keys, naive.by_value(|thing| vec![thing.uid.to_string()], &uid.to_owned()));
    }
    assert!(snapshot.by_index(&BY_OTHER, &0).is_err(), "the name of one index with the type of another");
    let values = snapshot.index_values(&BY_TAG).unwrap();
    let mut used = 0;
    for (tag, count) in values {
        assert_eq!(naive.by_value(tags, tag).len(), count);
        used += 1;
    }
    assert_eq!(used, (0..4).filter(|tag| !naive.by_value(tags, tag).is_empty()).count());
    let failed = sorted(&mut snapshot.index_errors().map(|(key, index, _)| {
        assert_eq!(index, "frail");
        key
    }));
    assert_eq!(failed, naive.by_value(|thing| vec![thing.broken], &true));
}
