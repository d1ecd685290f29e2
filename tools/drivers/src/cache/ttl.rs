//! Applies operations to a writer whose objects expire, and to a reference list, on a manual clock, and compares the complete states after each
//! operation. The fuzz target also uses this driver.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    Change, ChangeKind, Index, IndexError, Schema, Snapshot, Store, Subscription, TtlWriter, Version,
    WriteOutcome,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::coverage::events::Happened;
use testkit::wakers::{Counting, poll_with};

/// An object of the tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its key.
    pub id: u8,
    /// The number of the write that created the object.
    pub serial: u32,
    /// The tag, which determines the time to live.
    pub tag: u8,
}

/// The writer under test.
pub type Objects = TtlWriter<u8, Object>;
/// The future that sweeps.
pub type Sweeper = Pin<Box<dyn Future<Output = ()> + Send>>;

/// An index with two values per object: the tag, and the parity of the tag. The index function fails for tag 7.
pub static BY_TAG: Index<Object, u8> = Index::fallible("tag", |object| match object.tag {
    7 => Err(IndexError::new("no tag")),
    tag => Ok(vec![tag, tag % 2]),
});

/// Short for [`Duration::from_nanos`].
pub fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Returns the time to live of objects with this tag; `None` if they never expire.
fn ttl_of(tag: u8) -> Option<Duration> {
    match tag {
        0 => None,
        5 => Some(Duration::MAX),
        6 => Some(Duration::ZERO),
        tag => Some(nanos(u64::from(tag) * 5)),
    }
}

/// Creates an empty store. Also returns the sweeper and the clock.
pub fn store() -> (Objects, Sweeper, ManualClock) {
    let clock = ManualClock::new();
    let schema = Schema::new(|object: &Object| object.id, |_| Version::ZERO);
    let writer = Store::builder(schema).index(&BY_TAG).seed(1).build().unwrap();
    let (writer, sweeper) = TtlWriter::new(writer, clock.timer());
    (writer, Box::pin(sweeper), clock)
}

/// The operations. A number that is too large is reduced modulo the size of its range.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    Upsert {
        id: u8,
        tag: u8,
    },
    UpsertFor {
        id: u8,
        tag: u8,
        ttl: Option<u8>,
    },
    Delete {
        id: u8,
    },
    Sweep,
    PollSweeper,
    DropSweeper,
    Snapshot,
    DropSnapshots,
    Subscribe,
    Take,
    Unsubscribe,
    Advance {
        by: u8,
    },
    /// Advances the clock to the next deadline or, if `before` is true, to the last instant before it.
    AdvanceToDeadline {
        before: bool,
    },
    /// Sets the clock to any time: to an earlier time, to the same time, or far into the future.
    SetClock {
        to: u8,
    },
}

/// The cases that a test may require.
const NAMES: &[&str] = &[
    "added",
    "updated",
    "updated where something had expired",
    "deleted",
    "nothing to delete",
    "expired before it was deleted",
    "expires immediately",
    "never expires",
    "swept",
    "nothing to sweep",
    "swept by a write",
    "swept by the sweeper",
    "the sweeper was woken by a deadline",
    "the sweeper was woken by a write",
    "a snapshot has an object that has been swept since",
    "subscribed",
    "delivered",
    "unsubscribed",
    "clock set back",
    "end of time",
];

/// Creates a count of the cases that occur in an operation sequence.
pub const fn tally() -> Happened {
    Happened::new(NAMES)
}

/// The reference implementation: the objects in the store, each with its deadline; `None` if it never expires.
#[derive(Clone, Debug, Default)]
struct Oracle {
    entries: BTreeMap<u8, (Object, Option<u64>)>,
    now: u64,
}

impl Oracle {
    fn is_expired(&self, id: u8) -> bool {
        self.entries.get(&id).is_some_and(|(_, end)| end.is_some_and(|end| end <= self.now))
    }

    /// The number of expired objects.
    fn expired(&self) -> usize {
        self.entries.keys().filter(|id| self.is_expired(**id)).count()
    }

    fn first_deadline(&self) -> Option<u64> {
        self.entries.values().filter_map(|(_, end)| *end).min()
    }

    fn objects(&self) -> Vec<Object> {
        self.entries.values().map(|(object, _)| *object).collect()
    }

    /// A deadline at the largest time or later is never reached.
    fn end(&self, ttl: Option<Duration>) -> Option<u64> {
        let ttl = u64::try_from(ttl?.as_nanos()).ok()?;
        self.now.checked_add(ttl).filter(|end| *end != u64::MAX)
    }

    /// Checks the deletions of a sweep, which must have happened in the order of the deadlines, and applies them.
    fn sweep(&mut self, swept: &[Delta]) {
        for delta in swept {
            let Delta::Deleted(ChangeKind::Deleted, last) = delta else { panic!("{delta:?} in a sweep") };
            assert!(self.is_expired(last.id), "{last:?} has not expired");
            let first = self.first_deadline();
            let (object, end) = self.entries.remove(&last.id).expect("it has expired");
            assert_eq!((object, end), (*last, first), "not in the order of the deadlines");
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delta {
    Added(Object),
    Updated(Object, Object),
    Deleted(ChangeKind, Object),
}

fn delta(change: &Change<u8, Object>) -> Delta {
    match (change.old(), change.new()) {
        (None, Some(new)) => Delta::Added(**new),
        (Some(old), Some(new)) => Delta::Updated(**old, **new),
        (_, None) => Delta::Deleted(change.kind(), **change.object()),
    }
}

/// Checks that the queries of a snapshot return exactly these objects.
fn agrees(view: &Snapshot<u8, Object>, expected: &[Object]) {
    let mut objects: Vec<_> = view.objects().map(|object| **object).collect();
    objects.sort_unstable_by_key(|object| object.id);
    assert_eq!(objects, expected);
    let has = |object: &Object, tag: u8| object.tag != 7 && (object.tag == tag || object.tag % 2 == tag);
    for tag in 0..8 {
        let hits = view.by_index(&BY_TAG, &tag).unwrap().count();
        assert_eq!(hits, expected.iter().filter(|object| has(object, tag)).count());
    }
}

const IDS: u8 = 6;

/// A store, the reference list, and all readers and consumers.
struct World<'a> {
    store: Objects,
    /// The sweeper, and the number of its wake-ups at the end of its last poll, if it has been polled.
    sweeper: Option<(Sweeper, Option<usize>)>,
    wakes: Arc<Counting>,
    waker: Waker,
    clock: ManualClock,
    oracle: Oracle,
    recorded: mpsc::Receiver<Delta>,
    views: Vec<(Snapshot<u8, Object>, Vec<Object>)>,
    /// A subscription, and the objects that result from the changes it has delivered.
    reader: Option<(Subscription<u8, Object>, BTreeMap<u8, Object>)>,
    serial: u32,
    tally: &'a mut Happened,
}

/// Decodes `bytes` to at most 200 operations, and performs them.
pub fn run(bytes: &[u8], tally: &mut Happened) {
    let (store, sweeper, clock) = store();
    let (send, recorded) = mpsc::channel();
    let _observer = store.observe(move |change| send.send(delta(change)).unwrap());
    let (wakes, waker) = Counting::waker();
    let (sweeper, oracle, views) = (Some((sweeper, None)), Oracle::default(), Vec::new());
    let (reader, serial) = (None, 0);
    let mut world =
        World { store, sweeper, wakes, waker, clock, oracle, recorded, views, reader, serial, tally };
    let mut bytes = Unstructured::new(bytes);
    for _ in 0..200 {
        if bytes.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut bytes) else { break };
        world.step(op);
        world.oracle.now = world.clock.now().get();
        world.check(op);
    }
}

impl World<'_> {
    fn object(&mut self, id: u8, tag: u8) -> Object {
        self.serial += 1;
        Object { id: id % IDS, serial: self.serial, tag: tag % 8 }
    }

    /// Returns the changes that the store has reported since the last call.
    fn record(&mut self) -> Vec<Delta> {
        self.recorded.try_iter().collect()
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Upsert { id, tag } => {
                let object = self.object(id, tag);
                self.upsert(object, ttl_of(object.tag));
            }
            Op::UpsertFor { id, tag, ttl } => {
                let object = self.object(id, tag);
                self.upsert(object, ttl.map(|ttl| nanos(ttl.into())));
            }
            Op::Delete { id } => self.delete(id % IDS),
            Op::Sweep => {
                let expired = self.oracle.expired();
                assert_eq!(self.store.sweep(), expired);
                self.tally.hit(if expired == 0 { "nothing to sweep" } else { "swept" });
                let swept = self.record();
                self.oracle.sweep(&swept);
                assert_eq!(self.oracle.expired(), 0, "an expired object was not swept");
            }
            Op::PollSweeper => {
                let Some((sweeper, seen)) = &mut self.sweeper else { return };
                assert!(poll_with(sweeper.as_mut(), &self.waker).is_pending());
                *seen = Some(self.wakes.wakes());
                let swept = self.record();
                self.tally.hit_if(!swept.is_empty(), "swept by the sweeper");
                self.oracle.sweep(&swept);
                assert_eq!(self.oracle.expired(), 0, "an expired object was not swept");
            }
            Op::DropSweeper => {
                self.sweeper = None;
                assert_eq!(self.clock.next_alarm(), None, "the alarm of a dropped sweeper is set");
            }
            Op::Snapshot => {
                self.views.truncate(3);
                self.views.insert(0, (self.store.snapshot(), self.oracle.objects()));
            }
            Op::DropSnapshots => self.views.clear(),
            Op::Subscribe => {
                self.reader = Some((self.store.subscribe(), BTreeMap::new()));
                self.tally.hit("subscribed");
            }
            Op::Take => self.take(),
            Op::Unsubscribe => {
                let reader = self.reader.take();
                self.tally.hit_if(reader.is_some(), "unsubscribed");
            }
            Op::Advance { by } => self.clock.advance(nanos(u64::from(by % 16))),
            Op::AdvanceToDeadline { before } => {
                if let Some(next) = self.store.next_deadline() {
                    self.clock.set(Nanos::new(next.get().saturating_sub(before.into())));
                }
            }
            Op::SetClock { to } => {
                let instants = [0, 3, 10, 40, 1_000, u64::MAX - 1, u64::MAX];
                let to = instants[usize::from(to) % instants.len()];
                self.tally.hit_if(to < self.oracle.now, "clock set back");
                self.tally.hit_if(to == u64::MAX, "end of time");
                self.clock.set(Nanos::new(to));
            }
        }
    }

    /// Checks the deletions that a write has reported after its own change.
    fn swept_along(&mut self, swept: &[Delta]) {
        assert_eq!(swept.len(), self.oracle.expired().min(2), "a write sweeps up to two objects");
        self.oracle.sweep(swept);
        self.tally.hit_if(!swept.is_empty(), "swept by a write");
    }

    fn upsert(&mut self, object: Object, ttl: Option<Duration>) {
        let was_expired = self.oracle.is_expired(object.id);
        let outcome = self.store.upsert(object, ttl);
        let recorded = self.record();
        let end = self.oracle.end(ttl);
        let before = self.oracle.entries.insert(object.id, (object, end));
        let (expected, change) = match before {
            None => (WriteOutcome::Added, Delta::Added(object)),
            Some((before, _)) => (WriteOutcome::Updated, Delta::Updated(before, object)),
        };
        assert_eq!((outcome, recorded[0]), (expected, change));
        let tally = &mut self.tally;
        tally.hit(if before.is_some() { "updated" } else { "added" });
        tally.hit_if(was_expired, "updated where something had expired");
        tally.hit_if(ttl == Some(Duration::ZERO), "expires immediately");
        tally.hit_if(end.is_none(), "never expires");
        self.swept_along(&recorded[1..]);
    }

    fn delete(&mut self, id: u8) {
        let was_expired = self.oracle.is_expired(id);
        let outcome = self.store.delete(&id, None);
        let recorded = self.record();
        match self.oracle.entries.remove(&id) {
            Some((last, _)) => {
                let deletion = Delta::Deleted(ChangeKind::Missed, last);
                assert_eq!((outcome, recorded[0]), (WriteOutcome::Deleted, deletion));
                self.swept_along(&recorded[1..]);
                self.tally.hit(if was_expired { "expired before it was deleted" } else { "deleted" });
            }
            None => {
                assert_eq!(outcome, WriteOutcome::Absent);
                self.swept_along(&recorded);
                self.tally.hit("nothing to delete");
            }
        }
    }

    /// Takes all pending changes of the subscription. Their result must be the objects of the store.
    fn take(&mut self) {
        let Some((subscription, held)) = &mut self.reader else { return };
        while let Some(change) = subscription.try_next() {
            self.tally.hit("delivered");
            match delta(&change) {
                Delta::Added(new) => assert_eq!(held.insert(new.id, new), None),
                Delta::Updated(old, new) => assert_eq!(held.insert(new.id, new), Some(old)),
                // `last` may differ from the object in `held`, because the deletion may have been coalesced with an earlier update.
                Delta::Deleted(_, last) => assert!(held.remove(&last.id).is_some()),
            }
        }
        assert!(self.oracle.objects().iter().eq(held.values()));
    }

    fn check(&mut self, op: Op) {
        let Self { store, oracle, views, .. } = self;
        assert_eq!(self.recorded.try_iter().count(), 0, "a change was reported without a write or a sweep");
        let objects = oracle.objects();
        agrees(&store.snapshot(), &objects);
        for (view, then) in &*views {
            agrees(view, then);
            let is_there = |object: &Object| objects.contains(object);
            self.tally
                .hit_if(!then.iter().all(is_there), "a snapshot has an object that has been swept since");
        }
        assert_eq!(store.next_deadline().map(Nanos::get), oracle.first_deadline());
        // A sweeper that waits is woken if an object has expired.
        if let Some((_, Some(seen))) = self.sweeper {
            let woken = self.wakes.wakes() > seen;
            assert!(oracle.expired() == 0 || woken, "the sweeper sleeps although an object has expired");
            let by_write = woken && matches!(op, Op::Upsert { .. } | Op::UpsertFor { .. });
            self.tally.hit_if(by_write, "the sweeper was woken by a write");
            self.tally.hit_if(woken && oracle.expired() > 0, "the sweeper was woken by a deadline");
        }
        store.check().unwrap();
    }
}
