//! The log of changes: what it says leads from any earlier state to the one now, or it says that it cannot.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use drivers::cache::fixture::{SCHEMA as WORLD, World, object};
use drivers::cache::server::server;
use flyball_informer_cache::{
    Change, ChangeKind, ChangesSince, Event, HistoryError, Index, Informer, Schema, Snapshot, Store, Version,
};
use testkit::random::Random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pod {
    key: u8,
    uid: u8,
    version: u64,
}

type Pods = Store<u8, Pod>;
type View = Snapshot<u8, Pod>;
type Content = BTreeMap<u8, Arc<Pod>>;

const PODS: Schema<u8, Pod> =
    Schema::new(|pod: &Pod| pod.key, |pod| Version::new(pod.version)).identity(|a, b| a.uid == b.uid);
static BY_UID: Index<Pod, u8> = Index::new("uid", |pod| pod.uid);

fn store(most: usize) -> Pods {
    Store::builder(PODS).history(most).seed(1).build().unwrap()
}

fn pod(key: u8, version: u64) -> Pod {
    Pod { key, uid: 0, version }
}

fn version(version: u64) -> Version {
    Version::new(version)
}

fn content(view: &View) -> Content {
    view.iter().map(|(key, pod)| (*key, pod.clone())).collect()
}

fn brief(since: &ChangesSince<u8, Pod>) -> Vec<String> {
    let text = |change: &Change<u8, Pod>| match &change.kind {
        ChangeKind::Added { object, initial } => {
            format!("{}{}@{}", if *initial { '=' } else { '+' }, object.key, object.version)
        }
        ChangeKind::Updated { old, new } => format!("{}@{}>{}", new.key, old.version, new.version),
        ChangeKind::Deleted { last, .. } => format!("-{}@{}", last.key, last.version),
    };
    since.changes.iter().map(text).collect()
}

/// What a copy is after the changes, if it takes them as they are told to be taken: put and remove.
fn put(mut copy: Content, changes: &[Change<u8, Pod>]) -> Content {
    for change in changes {
        match change.new() {
            Some(new) => drop(copy.insert(*change.key(), new.clone())),
            None => drop(copy.remove(change.key())),
        }
    }
    copy
}

/// As a consumer that is told nothing illegal.
fn follow(mut copy: Content, changes: &[Change<u8, Pod>]) -> Content {
    for change in changes {
        let key = *change.key();
        match &change.kind {
            ChangeKind::Added { object, .. } => assert!(copy.insert(key, object.clone()).is_none()),
            ChangeKind::Updated { old, new } => {
                assert!(Arc::ptr_eq(&copy.insert(key, new.clone()).unwrap(), old));
            }
            ChangeKind::Deleted { last, .. } => assert_eq!(copy.remove(&key).unwrap().uid, last.uid),
        }
    }
    copy
}

fn too_old(oldest: u64) -> HistoryError {
    HistoryError::TooOld { oldest: version(oldest) }
}

#[test]
fn deletions_are_told_and_what_is_too_old_is_said() {
    let store = store(3);
    assert!(brief(&store.changes_since(version(0)).unwrap()).is_empty());
    store.upsert(pod(1, 1));
    store.upsert(pod(1, 2));
    store.upsert(pod(2, 3));
    assert_eq!(brief(&store.changes_since(version(0)).unwrap()), ["+1@2", "+2@3"], "merged");
    assert_eq!(brief(&store.changes_since(version(1)).unwrap()), ["1@1>2", "+2@3"]);
    store.apply(Event::Deleted(pod(1, 4)));
    assert_eq!(store.changes_since(version(0)).unwrap_err(), too_old(1));
    assert_eq!(brief(&store.changes_since(version(1)).unwrap()), ["-1@4", "+2@3"]);
    assert_eq!(brief(&store.changes_since(version(3)).unwrap()), ["-1@4"]);
    let now = store.changes_since(version(4)).unwrap();
    assert!(now.changes.is_empty() && now.snapshot.version() == version(4));
    assert_eq!(store.changes_since(version(5)).unwrap_err(), HistoryError::Ahead { version: version(4) });
    store.bookmark(version(5));
    assert!(store.changes_since(version(5)).unwrap().changes.is_empty());
    store.close();
    assert_eq!(brief(&store.changes_since(version(3)).unwrap()), ["-1@4"], "it can still be asked");
}

#[test]
fn none_is_kept_unless_wished_for() {
    let store = Store::builder(PODS).build().unwrap();
    assert_eq!(store.changes_since(version(0)).unwrap_err(), HistoryError::NotKept);
    assert_eq!(store.changes_after(&store.snapshot()).unwrap_err(), HistoryError::NotKept);
    // And one without room knows at least when nothing has changed.
    let store = self::store(0);
    let before = store.snapshot();
    assert!(store.changes_after(&before).is_ok());
    store.upsert(pod(1, 1));
    assert_eq!(store.changes_since(version(0)).unwrap_err(), too_old(1));
    assert_eq!(store.changes_after(&before).unwrap_err(), too_old(1));
    assert!(store.changes_since(version(1)).unwrap().changes.is_empty());
    assert!(store.changes_after(&store.snapshot()).unwrap().changes.is_empty());
    let text = |error: HistoryError| error.to_string();
    assert_eq!(text(too_old(7)), "too old: the changes kept go back to version 7");
    assert_eq!(text(HistoryError::Ahead { version: version(7) }), "the store is at version 7 only");
    assert_eq!(text(HistoryError::NotKept), "the store keeps no changes");
}

/// What does not move the version: the version alone does not tell whether a copy has it, a snapshot does.
#[test]
fn what_happened_within_a_version_is_told_again() {
    let store = store(4);
    store.upsert(pod(1, 9));
    let before = store.snapshot();
    store.upsert(pod(2, 3));
    let between = store.snapshot();
    assert_eq!(between.version(), version(9));
    assert_eq!(brief(&store.changes_since(version(9)).unwrap()), ["2@3>3"], "known or not");
    assert_eq!(brief(&store.changes_after(&before).unwrap()), ["+2@3"]);
    assert!(store.changes_after(&between).unwrap().changes.is_empty());
    // A copy that has it must hear of its end.
    store.delete(&2, None);
    for copy in [&before, &between] {
        let since = store.changes_since(version(9)).unwrap();
        assert_eq!(put(content(copy), &since.changes), content(&store.snapshot()));
    }
    assert!(store.changes_after(&before).unwrap().changes.is_empty());
    assert_eq!(brief(&store.changes_after(&between).unwrap()), ["-2@3"]);
    // No room for all of it: then for nobody at that version.
    for round in 4..8 {
        store.upsert(pod(2, round));
    }
    assert_eq!(store.changes_since(version(9)).unwrap_err(), too_old(10));
    store.upsert(pod(3, 10));
    assert!(store.changes_since(version(10)).is_ok());
}

/// A server that was restored says versions a second time; those are not mistaken for the first.
#[test]
fn a_list_that_goes_back_ends_what_was_before() {
    let store = store(10);
    for round in 1..=5 {
        store.upsert(pod(1, round));
    }
    let before = store.snapshot();
    store.replace([pod(1, 3), pod(2, 3)], version(3));
    for old in 0..=3 {
        assert_eq!(store.changes_since(version(old)).unwrap_err(), too_old(6));
    }
    assert_eq!(store.changes_since(version(5)).unwrap_err(), HistoryError::Ahead { version: version(3) });
    assert_eq!(
        brief(&store.changes_after(&before).unwrap()),
        ["1@5>3", "=2@3"],
        "a snapshot is none but itself"
    );
    store.upsert(pod(2, 5));
    assert_eq!(store.changes_since(version(5)).unwrap_err(), too_old(6), "which 5?");
    store.upsert(pod(2, 7));
    store.upsert(pod(2, 8));
    assert_eq!(brief(&store.changes_since(version(7)).unwrap()), ["2@7>8"]);
}

#[test]
fn a_list_and_a_transaction_are_one_write() {
    let store = store(3);
    store.upsert(pod(1, 1));
    store.replace([pod(2, 2), pod(3, 2)], version(2));
    assert_eq!(brief(&store.changes_since(version(1)).unwrap()), ["-1@1", "=2@2", "=3@2"]);
    assert_eq!(store.changes_since(version(0)).unwrap_err(), too_old(1));
    let mut transaction = store.transaction();
    transaction.upsert(pod(2, 3));
    transaction.upsert(pod(4, 4));
    transaction.commit();
    assert_eq!(brief(&store.changes_since(version(2)).unwrap()), ["2@2>3", "+4@4"]);
    assert_eq!(store.changes_since(version(1)).unwrap_err(), too_old(2), "half of the list is not kept");
    // Longer than the log.
    store.replace((0..9).map(|key| pod(key, 5)), version(5));
    assert_eq!(store.changes_since(version(4)).unwrap_err(), too_old(5));
    assert!(store.changes_since(version(5)).unwrap().changes.is_empty());
    store.check().unwrap();
}

#[test]
fn it_keeps_no_more_than_it_was_told_to() {
    let store = store(3);
    let mut states: Vec<Weak<Pod>> = Vec::new();
    for round in 1..50 {
        store.upsert(pod(1, round));
        states.push(Arc::downgrade(&store.get(&1).unwrap()));
    }
    let alive = || states.iter().filter(|state| state.strong_count() > 0).count();
    assert_eq!(alive(), 4, "three, and what was before them");
    store.delete(&1, None);
    let others = (0..3).map(|key| pod(10 + key, 60));
    others.for_each(|other| assert_eq!(store.upsert(other), flyball_informer_cache::Outcome::Added));
    assert_eq!(alive(), 0);
}

/// One look of somebody who comes back later.
struct Mark {
    view: View,
    /// How many steps there had been.
    steps: usize,
}

/// The whole log, naively: what each step was within.
#[derive(Default)]
struct Naive {
    writes: Vec<(u64, u64)>,
    /// The highest version that a list took the store back from.
    rewound: Option<u64>,
}

impl Naive {
    /// Whether the last `most` steps are enough for who was at `version`, and nothing is ambiguous but what happened within it.
    fn knows_since(&self, version: u64, most: usize) -> bool {
        let forgotten = &self.writes[..self.writes.len().saturating_sub(most)];
        let missed = |&(before, after): &(u64, u64)| after > version || (before, after) == (version, version);
        self.rewound.is_none_or(|rewound| version > rewound) && !forgotten.iter().any(missed)
    }
}

/// What happened, so that a run that says nothing is noticed.
#[derive(Default, Debug)]
struct Tally {
    since: u64,
    since_too_old: u64,
    since_ahead: u64,
    after: u64,
    after_too_old: u64,
    within: u64,
}

/// A random life of a store: whoever comes back gets exactly what he missed, or is told that he cannot.
fn life(seed: u64, tally: &mut Tally) {
    let mut random = Random::new(seed);
    let most = random.below(12) as usize;
    let store = store(most);
    let (mut naive, mut marks, mut latest) = (Naive::default(), Vec::<Mark>::new(), 1);
    for _ in 0..60 {
        let before = store.snapshot();
        if random.below(3) == 0 {
            marks.push(Mark { view: before.clone(), steps: naive.writes.len() });
        }
        if marks.len() > 6 {
            marks.remove(random.below(6) as usize);
        }
        let mut draw = || {
            latest += random.below(3);
            let back = random.below(4) * random.below(2);
            Pod {
                key: random.below(5) as u8,
                uid: random.below(2) as u8,
                version: latest.saturating_sub(back),
            }
        };
        let (one, two, three) = (draw(), draw(), draw());
        match random.below(16) {
            0..5 => drop(store.upsert(one)),
            5 => drop(store.delete(&one.key, None)),
            6..9 => drop(store.apply(Event::Deleted(one))),
            9 => store.bookmark(version(latest)),
            10..12 => {
                let mut transaction = store.transaction();
                transaction.upsert(one);
                transaction.delete(two.key, None);
                transaction.upsert(three);
                transaction.commit();
            }
            12..14 => drop(store.replace([one, two, three], version(latest))),
            14 if random.below(4) == 0 => {
                latest = latest.saturating_sub(random.below(6));
                drop(store.replace([one, two], version(latest)));
            }
            _ => {
                // Indexes come and go; the log does not mind.
                let _ = store.add_index(&BY_UID);
                let _ = store.remove_index(&BY_UID);
            }
        }
        store.check().unwrap();
        let now = store.snapshot();
        let (was, is) = (content(&before), content(&now));
        let changed =
            |key: &u8| !matches!((was.get(key), is.get(key)), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
        let touched =
            (0..5).filter(|key| was.contains_key(key) || is.contains_key(key)).filter(changed).count();
        let (from, to) = (before.version().get(), now.version().get());
        naive.writes.extend(std::iter::repeat_n((from, to), touched));
        if to < from {
            naive.rewound = naive.rewound.max(Some(from));
        }
        for mark in &marks {
            let exact = store.changes_after(&mark.view);
            assert_eq!(exact.is_ok(), naive.writes.len() - mark.steps <= most, "seed {seed}");
            match exact {
                Ok(since) => {
                    assert_eq!(follow(content(&mark.view), &since.changes), is);
                    assert_eq!(since.snapshot.version(), now.version());
                    tally.after += 1;
                }
                Err(error) => {
                    assert!(matches!(error, HistoryError::TooOld { .. }));
                    tally.after_too_old += 1;
                }
            }
            let at = mark.view.version();
            match store.changes_since(at) {
                Ok(since) => {
                    assert!(naive.knows_since(at.get(), most), "seed {seed}");
                    assert_eq!(put(content(&mark.view), &since.changes), is, "seed {seed}");
                    tally.since += 1;
                    tally.within += u64::from(naive.writes.contains(&(at.get(), at.get())));
                }
                Err(HistoryError::TooOld { oldest }) => {
                    assert!(!naive.knows_since(at.get(), most), "seed {seed}");
                    assert!(oldest > at && (oldest > now.version() || store.changes_since(oldest).is_ok()));
                    tally.since_too_old += 1;
                }
                Err(HistoryError::Ahead { version }) => {
                    assert!(version < at);
                    tally.since_ahead += 1;
                }
                Err(HistoryError::NotKept) => panic!("it is"),
            }
        }
    }
}

#[test]
fn whoever_comes_back_gets_what_was_missed_or_is_told_so() {
    let mut tally = Tally::default();
    (0..400).for_each(|seed| life(seed, &mut tally));
    let Tally { since, since_too_old, since_ahead, after, after_too_old, within } = tally;
    let least = [since, since_too_old, since_ahead, after, after_too_old, within].into_iter().min();
    assert!(least > Some(20), "{tally:?}");
}

/// What is forgotten is dropped by the writer, outside the locks; and whatever is asked for the answer may panic.
#[test]
fn foreign_code_may_panic() {
    static ILL: AtomicBool = AtomicBool::new(false);
    struct Bomb(u8, u64);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if !std::thread::panicking() && ILL.swap(false, Ordering::SeqCst) {
                panic!("a hostile drop panics");
            }
        }
    }
    let schema = Schema::new(|bomb: &Bomb| bomb.0, |bomb| Version::new(bomb.1)).identity(|a, b| {
        assert!(!ILL.swap(false, Ordering::SeqCst), "a hostile identity panics");
        a.0 == b.0
    });
    let store = Store::builder(schema).history(2).build().unwrap();
    store.upsert(Bomb(1, 1));
    store.delete(&1, None);
    store.upsert(Bomb(2, 2));
    ILL.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| store.upsert(Bomb(3, 3)))).is_err(), "1 is forgotten");
    store.check().unwrap();
    assert_eq!((store.len(), store.version()), (2, version(3)));
    assert_eq!(store.changes_since(version(2)).unwrap().changes.len(), 1);
    store.delete(&3, None);
    store.upsert(Bomb(3, 4));
    let ask = || store.changes_since(version(3)).map(|since| since.changes.len());
    ILL.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(ask)).is_err());
    assert_eq!(ask(), Ok(1), "asked again");
    store.check().unwrap();
}

#[test]
fn an_informer_keeps_one_as_well() {
    let server = server();
    server.put(object(1, 0));
    let mut world = World::new(Informer::builder(WORLD, server.clone()).history(8));
    world.settle();
    let before = world.informer.snapshot();
    server.put(object(2, 0));
    server.delete(&1);
    world.settle();
    for since in [
        world.informer.store().changes_since(before.version()).unwrap(),
        world.informer.store().changes_after(&before).unwrap(),
    ] {
        let told: Vec<_> =
            since.changes.iter().map(|change| (*change.key(), change.new().is_some())).collect();
        assert_eq!(told, [(2, true), (1, false)]);
    }
}
