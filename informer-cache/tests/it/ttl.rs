//! The store with expiry: each promise by a test, then random lives beside a list that spells the rules out.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{
    Change, ChangeKind, Index, IndexError, OrderedIndex, Outcome, Timed, TtlSnapshot, TtlStore,
};
use flyball_ratelimit::{Clock, ManualClock, Nanos};
use parking_lot::Mutex;
use testkit::random::cases;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Object {
    id: u8,
    /// Of the write that made it.
    serial: u32,
    tag: u8,
}

type Objects = TtlStore<u8, Object, ManualClock>;

static BY_TAG: Index<Timed<Object>, u8> = Index::fallible("tag", |object| match object.tag {
    7 => Err(IndexError::new("no tag")),
    tag => Ok(vec![tag, tag % 2]),
});

fn nanos(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// How long the objects of a tag live.
fn ttl_of(tag: u8) -> Option<Duration> {
    match tag {
        0 => None,
        5 => Some(Duration::MAX),
        6 => Some(Duration::ZERO),
        tag => Some(nanos(u64::from(tag) * 5)),
    }
}

fn store() -> (Objects, ManualClock) {
    let clock = ManualClock::new();
    let builder = TtlStore::builder(|object: &Timed<Object>| object.id).ttl_by(|object| ttl_of(object.tag));
    (builder.index(&BY_TAG).seed(1).clock(clock.clone()).build().unwrap(), clock)
}

fn object(id: u8, tag: u8) -> Object {
    Object { id, serial: 0, tag }
}

fn keys(changes: &[Change<u8, Timed<Object>>]) -> Vec<u8> {
    changes.iter().map(|change| *change.key()).collect()
}

fn shared<T: Send + Sync + Unpin + Debug>() {}

#[test]
fn types_can_be_sent_shared_and_shown() {
    shared::<TtlStore<String, String>>();
    shared::<TtlSnapshot<String, String>>();
    shared::<Timed<String>>();
}

#[test]
fn no_read_shows_what_has_expired() {
    let (store, clock) = store();
    store.upsert(object(1, 2));
    store.upsert(object(2, 7));
    store.upsert(object(3, 0));
    clock.advance(nanos(36));
    let view = store.snapshot();
    assert_eq!(store.stored(), 3, "nothing is swept");
    assert_eq!((store.get(&1), view.get(&1), view.timed(&2).is_some()), (None, None, false));
    assert!(!view.contains_key(&2) && view.contains_key(&3));
    assert_eq!((store.len(), view.len(), view.iter().count(), view.keys().count()), (1, 1, 1, 1));
    assert!(!store.is_empty());
    assert!(store.by_index(&BY_TAG, &2).unwrap().is_empty());
    assert_eq!(view.by_index(&BY_TAG, &2).unwrap().count(), 0);
    assert_eq!(view.index_values(&BY_TAG).unwrap().collect::<Vec<_>>(), [(&0, 1)]);
    assert_eq!(view.index_errors().count(), 0);
    assert_eq!(store.delete(&1), None);
    let mut initial = store.subscribe();
    assert_eq!(initial.try_next().map(|change| *change.key()), Some(3));
    assert!(initial.try_next().is_none());
    assert_eq!(store.stored(), 1, "a subscription begins with a sweep");
}

#[test]
fn ranges_and_queries_pass_over_what_has_expired() {
    static BY_AGE: OrderedIndex<Timed<Object>, u8> = OrderedIndex::new("age", |object| object.tag);
    let (store, clock) = store();
    for (id, tag) in [(1, 4), (2, 2), (3, 0), (4, 1), (5, 3)] {
        store.upsert(object(id, tag));
    }
    assert!(store.snapshot().range(&BY_AGE, ..).is_err());
    store.add_index(&BY_AGE).unwrap();
    assert!(store.add_index(&BY_AGE).is_err());
    let tags = |range: std::ops::RangeFrom<u8>| {
        let view = store.snapshot();
        view.range(&BY_AGE, range).unwrap().map(|(tag, object)| (*tag, object.id)).collect::<Vec<_>>()
    };
    let even = || {
        let view = store.snapshot();
        let found = view.query(|query| query.by(&BY_TAG, &0)?.not(&BY_TAG, &4)).unwrap();
        let mut ids: Vec<_> = found.map(|object| object.id).collect();
        ids.sort_unstable();
        ids
    };
    assert_eq!(tags(1..), [(1, 4), (2, 2), (3, 5), (4, 1)]);
    assert_eq!(even(), [2, 3]);
    clock.advance(nanos(11));
    assert_eq!((tags(0..), even(), store.stored()), (vec![(0, 3), (3, 5), (4, 1)], vec![3], 5));
    store.remove_index(&BY_AGE).unwrap();
    assert!(store.snapshot().range(&BY_AGE, ..).is_err());
}

#[test]
fn a_snapshot_keeps_its_instant() {
    let (store, clock) = store();
    store.upsert(object(1, 1));
    let view = store.snapshot();
    clock.advance(nanos(100));
    assert_eq!(keys(&store.sweep()), [1]);
    assert_eq!((view.at(), view.len()), (Nanos::ZERO, 1));
    assert_eq!(view.timed(&1).map(|timed| timed.deadline()), Some(Some(Nanos::new(5))));
    assert_eq!(view.clone().by_index(&BY_TAG, &1).unwrap().count(), 1);
}

#[test]
fn writing_again_begins_a_new_life() {
    let (store, clock) = store();
    store.upsert(object(1, 2));
    clock.advance(nanos(10));
    assert_eq!(store.upsert(object(1, 2)), Outcome::Updated);
    clock.advance(nanos(10));
    assert!(store.get(&1).is_some());
    // Longer, shorter, and for ever.
    assert_eq!(store.upsert_for(object(1, 2), Some(nanos(50))), Outcome::Updated);
    assert_eq!(store.next_sweep(), Some(Nanos::new(71)));
    store.upsert_for(object(1, 2), Some(nanos(1)));
    assert_eq!(store.next_sweep(), Some(Nanos::new(22)));
    store.upsert_for(object(1, 2), None);
    assert_eq!(store.next_sweep(), None, "what was written over is not waited for");
    clock.set(Nanos::MAX);
    assert!(store.get(&1).is_some() && store.sweep().is_empty());
}

#[test]
fn a_deletion_gives_back_what_was_there() {
    let (store, clock) = store();
    store.upsert(object(1, 1));
    store.upsert(object(2, 1));
    assert_eq!(store.delete(&1).as_deref(), Some(&object(1, 1)));
    assert_eq!(store.delete(&1), None);
    clock.advance(nanos(6));
    assert_eq!((store.delete(&2), store.stored()), (None, 0));
    assert_eq!(store.next_sweep(), None);
}

#[test]
fn a_list_is_written_at_one_instant() {
    let (store, clock) = store();
    store.upsert(object(1, 1));
    store.upsert(object(2, 4));
    store.upsert(object(3, 4));
    clock.advance(nanos(6));
    let mut changes = store.subscribe();
    while changes.try_next().is_some() {}
    let told = store.replace([object(1, 1), object(2, 1), object(2, 2), object(4, 0)]);
    // 1 has expired: it is added, and was told as deleted by the sweep before.
    let kinds: Vec<_> = told.iter().map(|change| (*change.key(), change.old().is_some())).collect();
    assert_eq!(kinds, [(3, true), (1, false), (2, true), (4, false)]);
    let view = store.snapshot();
    assert!(view.iter().all(|(_, timed)| timed.written() == Nanos::new(6)));
    assert_eq!(
        view.timed(&2).and_then(|timed| timed.deadline()),
        Some(Nanos::new(16)),
        "the last one counts"
    );
    store.check().unwrap();
    clock.advance(nanos(11));
    assert_eq!(keys(&store.sweep()), [1, 2], "the earliest deadline first");
    drop((told, view, changes));
    assert!(store.replace([]).len() == 1 && store.is_empty() && store.next_sweep().is_none());
}

#[test]
fn what_nobody_reads_does_not_pile_up() {
    let (store, clock) = store();
    for id in 0..200 {
        store.upsert(object(id, 1));
    }
    clock.advance(nanos(6));
    // Each write adds one and sweeps two, also a write of one key and a deletion of what is not there.
    for round in 1..=50 {
        store.upsert(object(200, 1));
        assert_eq!(store.stored(), 200 - 2 * round + 1);
    }
    for round in 51..=100 {
        assert_eq!(store.delete(&201), None);
        assert_eq!(store.stored(), 200 - 2 * round + 1);
    }
    // And so for ever: never more in memory than what is alive and one write's worth.
    for _ in 0..1000 {
        clock.advance(nanos(6));
        store.upsert(object(7, 1));
        store.upsert(object(8, 1));
        assert!(store.stored() <= 2, "{}", store.stored());
    }
    store.check().unwrap();
}

#[test]
fn what_a_snapshot_holds_stops_no_sweep() {
    let (store, clock) = store();
    let mut views = Vec::new();
    for _ in 0..100 {
        store.upsert(object(1, 1));
        views.push(store.snapshot());
    }
    store.upsert(object(2, 1));
    clock.advance(nanos(6));
    let mut swept = keys(&store.sweep());
    swept.sort_unstable();
    assert_eq!((swept, store.stored(), store.next_sweep()), (vec![1, 2], 0, None));
    assert!(views.iter().all(|view| view.len() == 1));
    drop(views);
    assert_eq!(store.next_sweep(), None);
}

#[test]
fn a_clock_may_jump() {
    let (store, clock) = store();
    clock.set(Nanos::new(1_000));
    store.upsert(object(1, 1));
    store.upsert(object(2, 5));
    clock.set(Nanos::ZERO);
    assert_eq!((store.len(), store.sweep().len()), (2, 0), "longer by the jump");
    store.upsert(object(3, 1));
    clock.set(Nanos::new(1_005));
    assert_eq!(keys(&store.sweep()), [3]);
    clock.set(Nanos::MAX);
    assert_eq!(keys(&store.sweep()), [1], "584 years are for ever");
    store.upsert_for(object(4, 1), Some(nanos(1)));
    assert_eq!(store.len(), 2);
    clock.set(Nanos::ZERO);
    assert_eq!(store.len(), 2);
    store.check().unwrap();
}

#[test]
fn what_lives_for_ever_reads_no_clock() {
    struct Broken;
    impl Clock for Broken {
        fn now(&self) -> Nanos {
            panic!("nobody asked for the time")
        }
    }
    let clock = Arc::new(Mutex::new(0_u64));
    struct Counted(Arc<Mutex<u64>>);
    impl Clock for Counted {
        fn now(&self) -> Nanos {
            *self.0.lock() += 1;
            Nanos::ZERO
        }
    }
    let builder = || TtlStore::builder(|object: &Timed<Object>| object.id);
    let counted = builder().clock(Counted(clock.clone())).build().unwrap();
    counted.upsert(object(1, 1));
    let before = *clock.lock();
    assert!(counted.get(&1).is_some() && counted.get(&2).is_none());
    assert_eq!(*clock.lock(), before);
    // And a clock that panics leaves everything as it was.
    let broken = builder().clock(Broken).build().unwrap();
    let upsert = std::panic::AssertUnwindSafe(|| broken.upsert(object(1, 1)));
    assert!(std::panic::catch_unwind(upsert).is_err());
    assert_eq!((broken.stored(), broken.next_sweep()), (0, None));
}

#[test]
fn handles_share_the_store_and_two_indexes_need_two_names() {
    let (store, _) = store();
    store.clone().upsert(object(1, 0));
    assert_eq!(store.len(), 1);
    store.close();
    assert!(store.get(&1).is_some());
    let builder = TtlStore::builder(|object: &Timed<Object>| object.id).ttl(nanos(1));
    assert!(builder.index(&BY_TAG).index(&BY_TAG).build().is_err());
    assert!(!format!("{store:?} {:?}", store.snapshot()).is_empty());
}

// === Random lives ===

/// The rules, spelt out: a list of what is in memory, each with when it was written and how long it lives.
#[derive(Clone, Debug, Default)]
struct Naive {
    lives: Vec<Life>,
    now: u64,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    object: Object,
    written: u64,
    ttl: Option<u64>,
}

impl Naive {
    /// Its age does not exceed its time. An end after the end of time is none.
    fn is_alive(&self, life: &Life) -> bool {
        life.ttl.is_none_or(|ttl| {
            let end = u128::from(life.written) + u128::from(ttl);
            end >= u128::from(u64::MAX) || u128::from(self.now) <= end
        })
    }

    /// What is there now, by key.
    fn alive(&self) -> Vec<Object> {
        let mut alive: Vec<_> =
            self.lives.iter().filter(|life| self.is_alive(life)).map(|life| life.object).collect();
        alive.sort_unstable_by_key(|object| object.id);
        alive
    }

    fn position(&self, id: u8) -> Option<usize> {
        self.lives.iter().position(|life| life.object.id == id)
    }

    /// Something was told. `meant` says which keys an operation may delete while they are alive.
    fn hear(&mut self, kind: &Told, meant: &[u8], ttl: Option<u64>) {
        match kind {
            Told::Deleted(last) => {
                let at = self.position(last.id).expect("a deletion of something in memory");
                let life = self.lives.remove(at);
                assert_eq!(life.object, *last);
                assert!(!self.is_alive(&life) || meant.contains(&last.id), "{last:?} has not expired");
            }
            Told::Added(new) => {
                assert_eq!(self.position(new.id), None, "an addition of something new");
                self.lives.push(Life { object: *new, written: self.now, ttl });
            }
            Told::Updated(old, new) => {
                let at = self.position(old.id).expect("an update of something in memory");
                assert!(self.is_alive(&self.lives[at]), "what has expired is not updated");
                assert_eq!(self.lives[at].object, *old);
                self.lives[at] = Life { object: *new, written: self.now, ttl };
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Added(Object),
    Updated(Object, Object),
    Deleted(Object),
}

fn told(change: &Change<u8, Timed<Object>>) -> Told {
    match &change.kind {
        ChangeKind::Added { object, .. } => Told::Added(**object.object()),
        ChangeKind::Updated { old, new } => Told::Updated(**old.object(), **new.object()),
        ChangeKind::Deleted { last, .. } => Told::Deleted(**last.object()),
    }
}

/// A view shows exactly these, however it is asked.
fn agrees(view: &TtlSnapshot<u8, Object>, alive: &[Object]) {
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
}

const IDS: u8 = 6;

fn life(bytes: &[u8]) {
    let (store, clock) = store();
    let mut naive = Naive::default();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let _observer = store.observe({
        let heard = heard.clone();
        move |change: &Change<_, _>| heard.lock().push(told(change))
    });
    let mut views: Vec<(TtlSnapshot<u8, Object>, Vec<Object>)> = Vec::new();
    for (serial, step) in bytes.chunks_exact(3).enumerate() {
        let (id, tag) = (step[1] % IDS, step[2] % 8);
        let object = Object { id, serial: serial as u32, tag };
        let policy = |tag| ttl_of(tag).map(|ttl| u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX));
        let there = naive.alive().iter().find(|object| object.id == id).copied();
        let mut hear = |meant: &[u8], ttl: &dyn Fn(u8) -> Option<u64>| {
            let heard = std::mem::take(&mut *heard.lock());
            for told in &heard {
                let new = match told {
                    Told::Added(new) | Told::Updated(_, new) => new.tag,
                    Told::Deleted(_) => 0,
                };
                naive.hear(told, meant, ttl(new));
            }
            heard
        };
        match step[0] % 12 {
            0..4 => {
                let outcome = store.upsert(object);
                let written = if there.is_some() { Outcome::Updated } else { Outcome::Added };
                assert_eq!(outcome, written);
                let heard = hear(&[], &policy);
                assert!(heard.iter().filter(|told| matches!(told, Told::Deleted(_))).count() <= 3);
            }
            4 => {
                let ttl = u64::from(step[2]);
                store.upsert_for(object, Some(nanos(ttl)));
                hear(&[], &|_| Some(ttl));
            }
            5 => {
                assert_eq!(store.delete(&id).as_deref().copied(), there);
                let heard = hear(&[id], &policy);
                assert!(there.is_none_or(|there| heard.contains(&Told::Deleted(there))));
            }
            6 => {
                let listed =
                    [object, Object { id: (id + 1) % IDS, ..object }, Object { id, tag: 3, ..object }];
                let changes = store.replace(listed);
                let all: Vec<_> = (0..IDS).collect();
                let heard = hear(&all, &policy);
                let changes: Vec<_> = changes.iter().map(told).collect();
                assert!(heard.ends_with(&changes));
                assert_eq!(naive.lives.len(), 2);
            }
            7 => {
                let swept: Vec<_> = store.sweep().iter().map(told).collect();
                assert_eq!(hear(&[], &policy), swept);
                assert!(naive.lives.iter().all(|life| naive.is_alive(life)), "all of it is swept");
            }
            8 => {
                views.truncate(3);
                views.insert(0, (store.snapshot(), naive.alive()));
            }
            9 => {
                // Any instant: back, the same, far ahead.
                clock.set(Nanos::new([0, 3, 10, 40, 1_000, u64::MAX - 1, u64::MAX][usize::from(id)]));
            }
            _ => clock.advance(nanos(u64::from(step[2] % 16))),
        }
        naive.now = clock.now().get();
        assert_eq!(store.stored(), naive.lives.len());
        let alive = naive.alive();
        assert_eq!(store.len(), alive.len());
        assert_eq!(store.get(&id).as_deref(), alive.iter().find(|object| object.id == id));
        agrees(&store.snapshot(), &alive);
        views.iter().for_each(|(view, then)| agrees(view, then));
        // Nothing expired is overlooked; early it may be, for what a snapshot holds.
        let waited = store.next_sweep().map(Nanos::get);
        let expiring = naive.lives.iter().filter_map(|life| life.written.checked_add(life.ttl?));
        if let Some(first) = expiring.filter(|end| *end != u64::MAX).min() {
            assert!(waited.is_some_and(|at| at <= first + 1), "{waited:?} and {first}");
        }
        store.check().unwrap();
    }
}

#[test]
fn random_lives_agree_with_a_list_of_them() {
    cases("ttl", if cfg!(debug_assertions) { 500 } else { 20_000 }, 300, life);
}
