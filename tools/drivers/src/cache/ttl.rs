//! Applies operations to a store whose objects expire, and to a reference list, on a manual clock, and compares the complete states after each
//! operation. The fuzz target also uses this driver.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_informer_cache::{
    Change, Index, IndexError, Subscription, TtlEntry, TtlSnapshot, TtlStore, WriteOutcome,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::coverage::events::Happened;

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

/// The store under test.
pub type Objects = TtlStore<u8, Object, ManualClock>;
type View = TtlSnapshot<u8, Object>;
type Changes = Subscription<u8, TtlEntry<Object>>;

/// An index with two values per object: the tag, and the parity of the tag. The index function fails for tag 7.
pub static BY_TAG: Index<TtlEntry<Object>, u8> = Index::fallible("tag", |object| match object.tag {
    7 => Err(IndexError::new("no tag")),
    tag => Ok(vec![tag, tag % 2]),
});
static BY_SERIAL: Index<TtlEntry<Object>, u32> =
    Index::new("serial", |object: &TtlEntry<Object>| object.serial).ordered();

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

/// Creates an empty store. Also returns the clock of the store.
pub fn store() -> (Objects, ManualClock) {
    let clock = ManualClock::new();
    let builder =
        TtlStore::builder(|object: &TtlEntry<Object>| object.id).ttl_with(|object| ttl_of(object.tag));
    let builder = builder.index(&BY_TAG).index(&BY_SERIAL).seed(1);
    (builder.clock(clock.clone()).build().unwrap(), clock)
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
    Replace {
        list: [Option<(u8, u8)>; 4],
    },
    Sweep,
    Snapshot,
    DropSnapshots,
    Subscribe,
    Take,
    Unsubscribe,
    Advance {
        by: u8,
    },
    /// Advances the clock to the time of the next expiry or, if `before` is true, to the last instant before it.
    AdvanceToSweep {
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
    "added where something had expired",
    "updated",
    "deleted",
    "nothing to delete",
    "expired before it was deleted",
    "expires immediately",
    "never expires",
    "replaced",
    "a key listed twice",
    "swept",
    "nothing to sweep",
    "swept by a write",
    "view with something that has expired since",
    "subscribed",
    "delivered",
    "unsubscribed",
    "clock set back",
    "end of time",
    "alive at its deadline",
];

/// Creates a count of the cases that occur in an operation sequence.
pub const fn tally() -> Happened {
    Happened::new(NAMES)
}

/// The reference implementation: a list of the objects that the store has in memory (also expired ones), each with the time of its write and its time
/// to live.
#[derive(Clone, Debug, Default)]
struct Oracle {
    entries: Vec<Entry>,
    now: u64,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    object: Object,
    written: u64,
    ttl: Option<u64>,
}

impl Entry {
    /// The last instant at which the object is visible; `None` if it is always visible. A deadline beyond the largest time is never reached.
    fn end(&self) -> Option<u64> {
        self.written.checked_add(self.ttl?).filter(|end| *end != u64::MAX)
    }
}

impl Oracle {
    /// Returns true if the age of the object does not exceed its time to live.
    fn is_alive(&self, entry: &Entry) -> bool {
        entry.end().is_none_or(|end| self.now <= end)
    }

    /// Returns the visible objects, in the order of their keys.
    fn alive(&self) -> Vec<Object> {
        let mut alive: Vec<_> =
            self.entries.iter().filter(|entry| self.is_alive(entry)).map(|entry| entry.object).collect();
        alive.sort_unstable_by_key(|object| object.id);
        alive
    }

    fn position(&self, id: u8) -> Option<usize> {
        self.entries.iter().position(|entry| entry.object.id == id)
    }

    /// Checks a reported change, and applies it to the list. `meant` contains the keys that the operation may delete although they have not expired.
    fn record(&mut self, kind: &Delta, meant: &[u8], ttl: Option<u64>) {
        match kind {
            Delta::Deleted(last) => {
                let at = self.position(last.id).expect("a deleted object is in memory");
                let entry = self.entries.remove(at);
                assert_eq!(entry.object, *last);
                assert!(!self.is_alive(&entry) || meant.contains(&last.id), "{last:?} has not expired");
            }
            Delta::Added(new) => {
                assert_eq!(self.position(new.id), None, "an object in memory was added");
                self.entries.push(Entry { object: *new, written: self.now, ttl });
            }
            Delta::Updated(old, new) => {
                let at = self.position(old.id).expect("an updated object is in memory");
                assert!(self.is_alive(&self.entries[at]), "an expired object was updated");
                assert_eq!(self.entries[at].object, *old);
                self.entries[at] = Entry { object: *new, written: self.now, ttl };
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Delta {
    Added(Object),
    Updated(Object, Object),
    Deleted(Object),
}

fn delta(change: &Change<u8, TtlEntry<Object>>) -> Delta {
    let plain = |entry: &TtlEntry<Object>| **entry.object();
    match (change.old(), change.new()) {
        (None, Some(new)) => Delta::Added(plain(new)),
        (Some(old), Some(new)) => Delta::Updated(plain(old), plain(new)),
        (_, None) => Delta::Deleted(plain(change.object())),
    }
}

/// Checks that all queries of a snapshot return exactly the objects `alive`.
fn agrees(view: &View, alive: &[Object]) {
    let mut objects: Vec<_> = view.objects().map(|object| **object).collect();
    objects.sort_unstable_by_key(|object| object.id);
    assert_eq!(objects, alive);
    let mut keys: Vec<_> = view.keys().copied().collect();
    keys.sort_unstable();
    assert!(keys.iter().eq(alive.iter().map(|object| &object.id)));
    assert_eq!((view.len(), view.is_empty()), (alive.len(), alive.is_empty()));
    for id in 0..IDS {
        let there = alive.iter().find(|object| object.id == id);
        assert_eq!(view.get(&id).map(|object| &**object), there);
        assert_eq!(view.contains_key(&id), there.is_some());
    }
    let has = |object: &Object, tag: u8| object.tag != 7 && (object.tag == tag || object.tag % 2 == tag);
    for tag in 0..8 {
        let mut hits: Vec<_> = view.by_index(&BY_TAG, &tag).unwrap().map(|object| **object).collect();
        hits.sort_unstable_by_key(|object| object.id);
        let expected: Vec<_> = alive.iter().filter(|object| has(object, tag)).copied().collect();
        assert_eq!(hits, expected);
        assert_eq!(view.keys_by_index(&BY_TAG, &tag).unwrap().count(), expected.len());
        let counted = view.index_values(&BY_TAG).unwrap().find(|(value, _)| **value == tag);
        assert_eq!(counted.map_or(0, |(_, count)| count), expected.len());
    }
    let failures = alive.iter().filter(|object| object.tag == 7).count();
    assert_eq!(view.index_errors().count(), failures);
    let mut serials: Vec<_> = alive.iter().map(|object| object.serial).collect();
    serials.sort_unstable();
    assert!(view.range::<_, u32, _>(&BY_SERIAL, ..).unwrap().map(|(serial, _)| *serial).eq(serials));
}

const IDS: u8 = 6;

/// A store, the reference list, and all readers and consumers.
struct World<'a> {
    store: Objects,
    clock: ManualClock,
    oracle: Oracle,
    recorded: mpsc::Receiver<Delta>,
    views: Vec<(View, Vec<Object>)>,
    /// A subscription, and the objects that result from the changes it has delivered.
    reader: Option<(Changes, BTreeMap<u8, Object>)>,
    serial: u32,
    tally: &'a mut Happened,
}

/// Decodes `bytes` to at most 200 operations, and performs them.
pub fn run(bytes: &[u8], tally: &mut Happened) {
    let (store, clock) = store();
    let (send, recorded) = mpsc::channel();
    let _observer = store.observe(move |change| send.send(delta(change)).unwrap());
    let (oracle, views) = (Oracle::default(), Vec::new());
    let mut world = World { store, clock, oracle, recorded, views, reader: None, serial: 0, tally };
    let mut bytes = Unstructured::new(bytes);
    for _ in 0..200 {
        if bytes.is_empty() {
            break;
        }
        let Ok(op) = Op::arbitrary(&mut bytes) else { break };
        world.step(op);
        world.oracle.now = world.clock.now().get();
        world.check();
    }
}

impl World<'_> {
    fn object(&mut self, id: u8, tag: u8) -> Object {
        self.serial += 1;
        Object { id: id % IDS, serial: self.serial, tag: tag % 8 }
    }

    /// Checks the changes that the store has reported since the last call, and applies them to the list.
    fn record(&mut self, meant: &[u8], ttl: impl Fn(u8) -> Option<u64>) -> Vec<Delta> {
        let recorded: Vec<_> = self.recorded.try_iter().collect();
        for delta in &recorded {
            let tag = match delta {
                Delta::Added(new) | Delta::Updated(_, new) => new.tag,
                Delta::Deleted(_) => 0,
            };
            self.oracle.record(delta, meant, ttl(tag));
        }
        recorded
    }

    fn there(&self, id: u8) -> Option<Object> {
        self.oracle.alive().into_iter().find(|object| object.id == id)
    }

    fn step(&mut self, op: Op) {
        match op {
            Op::Upsert { id, tag } => {
                let object = self.object(id, tag);
                self.written(object, |store| store.upsert(object), policy);
            }
            Op::UpsertFor { id, tag, ttl } => {
                let object = self.object(id, tag);
                let ttl = ttl.map(u64::from);
                self.written(object, |store| store.upsert_with_ttl(object, ttl.map(nanos)), |_| ttl);
            }
            Op::Delete { id } => self.delete(id % IDS),
            Op::Replace { list } => self.replace(list),
            Op::Sweep => {
                let swept: Vec<_> = self.store.evict_expired().iter().map(delta).collect();
                assert_eq!(self.record(&[], policy), swept);
                self.tally.hit(if swept.is_empty() { "nothing to sweep" } else { "swept" });
                assert!(
                    self.oracle.entries.iter().all(|entry| self.oracle.is_alive(entry)),
                    "an expired object was not swept"
                );
            }
            Op::Snapshot => {
                self.views.truncate(3);
                self.views.insert(0, (self.store.snapshot(), self.oracle.alive()));
            }
            Op::DropSnapshots => self.views.clear(),
            Op::Subscribe => {
                let subscription = self.store.subscribe();
                self.record(&[], policy);
                assert!(
                    self.oracle.entries.iter().all(|entry| self.oracle.is_alive(entry)),
                    "subscribing did not sweep expired objects"
                );
                self.reader = Some((subscription, BTreeMap::new()));
                self.tally.hit("subscribed");
            }
            Op::Take => self.take(),
            Op::Unsubscribe => {
                let reader = self.reader.take();
                self.tally.hit_if(reader.is_some(), "unsubscribed");
            }
            Op::Advance { by } => self.clock.advance(nanos(u64::from(by % 16))),
            Op::AdvanceToSweep { before } => {
                if let Some(next) = self.store.next_expiry() {
                    self.clock.set(Nanos::new(next.get() - u64::from(before)));
                    let now = self.clock.now().get();
                    let last = self.oracle.entries.iter().any(|entry| entry.end() == Some(now));
                    self.tally.hit_if(last, "alive at its deadline");
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

    /// Writes an object, and checks the outcome and the reported changes.
    fn written(
        &mut self,
        object: Object,
        write: impl FnOnce(&Objects) -> WriteOutcome,
        ttl: impl Fn(u8) -> Option<u64>,
    ) {
        let (there, in_memory) = (self.there(object.id), self.oracle.position(object.id));
        let outcome = write(&self.store);
        assert_eq!(outcome, if there.is_some() { WriteOutcome::Updated } else { WriteOutcome::Added });
        let entries = ttl(object.tag);
        let recorded = self.record(&[], ttl);
        let swept = recorded.iter().filter(|delta| matches!(delta, Delta::Deleted(_))).count();
        let expired = usize::from(there.is_none() && in_memory.is_some());
        assert!(swept <= 2 + expired, "a write swept more than two other objects");
        let tally = &mut self.tally;
        tally.hit(if there.is_some() { "updated" } else { "added" });
        tally.hit_if(expired > 0, "added where something had expired");
        tally.hit_if(swept > expired, "swept by a write");
        tally.hit_if(entries == Some(0), "expires immediately");
        tally.hit_if(entries.is_none(), "never expires");
    }

    fn delete(&mut self, id: u8) {
        let (there, in_memory) = (self.there(id), self.oracle.position(id));
        assert_eq!(self.store.delete(&id).as_deref().copied(), there);
        let recorded = self.record(&[id], policy);
        assert!(there.is_none_or(|there| recorded.contains(&Delta::Deleted(there))));
        assert_eq!(self.oracle.position(id), None, "a deleted object stays in memory");
        self.tally.hit(match (there, in_memory) {
            (Some(_), _) => "deleted",
            (None, Some(_)) => "expired before it was deleted",
            (None, None) => "nothing to delete",
        });
    }

    fn replace(&mut self, list: [Option<(u8, u8)>; 4]) {
        let mut listed = Vec::new();
        for (id, tag) in list.into_iter().flatten() {
            listed.push(self.object(id, tag));
        }
        let last: BTreeMap<_, _> = listed.iter().map(|object| (object.id, *object)).collect();
        self.tally.hit("replaced");
        self.tally.hit_if(last.len() < listed.len(), "a key listed twice");
        let changes: Vec<_> = self.store.replace(listed).iter().map(delta).collect();
        let all: Vec<_> = (0..IDS).collect();
        let recorded = self.record(&all, policy);
        // The store evicts expired objects before it applies the list, so the changes of the list are the last ones in `recorded`.
        assert!(recorded.ends_with(&changes));
        let mut entries: Vec<_> = self.oracle.entries.iter().map(|entry| entry.object).collect();
        entries.sort_unstable_by_key(|object| object.id);
        assert!(
            entries.iter().eq(last.values()),
            "the store differs from the last listed object of each key"
        );
    }

    /// Takes all pending changes of the subscription. Their result must be the objects that the store has in memory.
    fn take(&mut self) {
        let Some((subscription, held)) = &mut self.reader else { return };
        while let Some(change) = subscription.try_next() {
            self.tally.hit("delivered");
            match delta(&change) {
                Delta::Added(new) => assert_eq!(held.insert(new.id, new), None),
                Delta::Updated(old, new) => assert_eq!(held.insert(new.id, new), Some(old)),
                // `last` may differ from the object in `held`, because the deletion may have been coalesced with an earlier update.
                Delta::Deleted(last) => assert!(held.remove(&last.id).is_some()),
            }
        }
        let mut entries: Vec<_> = self.oracle.entries.iter().map(|entry| entry.object).collect();
        entries.sort_unstable_by_key(|object| object.id);
        assert!(entries.iter().eq(held.values()));
    }

    fn check(&mut self) {
        let Self { store, oracle, views, .. } = self;
        assert_eq!(self.recorded.try_iter().count(), 0, "a change was reported without a write or a sweep");
        assert_eq!(store.stored_len(), oracle.entries.len());
        let alive = oracle.alive();
        assert_eq!(store.len(), alive.len());
        for id in 0..IDS {
            assert_eq!(store.get(&id).as_deref(), alive.iter().find(|object| object.id == id));
        }
        agrees(&store.snapshot(), &alive);
        for (view, then) in &*views {
            agrees(view, then);
            let still_there = |object: &Object| alive.contains(object);
            self.tally.hit_if(!then.iter().all(still_there), "view with something that has expired since");
        }
        // `next_expiry` is never later than the first expiry of an object. It may be earlier while a snapshot or a subscription exists.
        let waited = store.next_expiry().map(Nanos::get);
        let first = oracle.entries.iter().filter_map(Entry::end).min().map(|end| end + 1);
        match views.is_empty() && self.reader.is_none() {
            true => assert_eq!(waited, first),
            false => assert!(first.is_none_or(|first| waited.is_some_and(|at| at <= first))),
        }
        store.check().unwrap();
    }
}

fn policy(tag: u8) -> Option<u64> {
    ttl_of(tag).map(|ttl| u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX))
}
