//! Each watch maps each published change exactly once, whatever happens: mappers that panic, relists, deletions, watches that are added and removed.
//! The report counts those changes that are never mapped.
//!
//! A second observer, which is registered together with the watch, records what is published.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use flyball_controller::testing::Simulation;
use flyball_controller::{Action, Controller, ControllerConfig};
use flyball_informer_cache::testing::TestServer;
use flyball_informer_cache::{Change, ChangeKind, Informer, Schema, SourceErrorKind, Version};
use flyball_ratelimit::Exponential;
use flyball_workqueue::Queue;
use parking_lot::Mutex;
use testkit::random::{Random, cases_are_chosen};
use tokio::sync::oneshot;

use crate::support::panic_quietly;

#[derive(Clone, Copy, Debug)]
struct Thing {
    key: u32,
    uid: u64,
    version: u64,
}
const THINGS: Schema<u32, Thing> =
    Schema::new(|t: &Thing| t.key, |t| Version::new(t.version)).with_identity(|a, b| a.uid == b.uid);

/// A change: the key, the uid and the version of its object, its kind, and the version before it.
type Id = (u32, u64, u64, &'static str, u64);
fn id(change: &Change<u32, Thing>) -> Id {
    let t = change.object();
    let kind = match change.kind() {
        ChangeKind::Initial => "initial",
        ChangeKind::Added => "added",
        ChangeKind::Updated => "updated",
        ChangeKind::Replaced => "replaced",
        ChangeKind::Deleted => "deleted",
        ChangeKind::Missed => "missed",
    };
    (t.key, t.uid, t.version, kind, change.old().map_or(0, |o| o.version))
}

/// What one watch has seen, and what was published meanwhile.
#[derive(Default)]
struct Watch {
    published: Mutex<Vec<Id>>,
    /// How often the mapper was called with each change, and how often it returned.
    mapped: Mutex<BTreeMap<Id, (u32, u32)>>,
    removed: AtomicBool,
    /// Whether the mapper was called after the removal.
    late: AtomicBool,
}

impl Watch {
    fn map(&self, change: &Change<u32, Thing>, seed: u64) -> Option<u32> {
        if self.removed.load(Ordering::Relaxed) {
            self.late.store(true, Ordering::Relaxed);
        }
        let id = id(change);
        let mut dice = Random::new(seed ^ (u64::from(id.0) << 32) ^ (id.2 * 31) ^ (id.3.len() as u64 * 7919));
        let panics = [0, 0, 0, 1, 2, 3, 1_000][dice.below(7) as usize];
        let mut mapped = self.mapped.lock();
        let (attempts, successes) = mapped.entry(id).or_default();
        *attempts += 1;
        if *attempts <= panics {
            drop(mapped);
            panic_quietly("mapper")
        }
        *successes += 1;
        Some(id.0)
    }
}

/// Returns the numbers of changes, of changes that were mapped again, of those whose retries a deletion ended, and 1 if no watch was removed.
fn life(sim: &mut Simulation) -> [u64; 4] {
    let mut r = Random::new(sim.next_random());
    let seed = r.next();
    let stamp = |t: &mut Thing, uid, version: Version| (t.uid, t.version) = (uid, version.get());
    let server = TestServer::new(THINGS, stamp);
    let things = sim.informer(Informer::builder(THINGS, server.clone())).unwrap();
    (0..r.below(4)).for_each(|key| _ = server.put(Thing { key: key as u32, uid: 0, version: 0 }));
    if r.below(2) == 0 {
        sim.run_until_stalled();
    }
    let queue = Queue::builder()
        .limiter(Exponential::new(Duration::from_secs(1)..=Duration::from_secs(9)))
        .timer(sim.timer())
        .build();
    let (stop, stopped) = oneshot::channel::<()>();
    let start_before_sync = r.below(2) == 0;
    let controller = Controller::new(queue.clone())
        .with_config(ControllerConfig { start_before_sync, ..ControllerConfig::default() })
        .graceful_shutdown_on(async move { drop(stopped.await) });
    let handle = controller.handle();
    let task = sim.run(controller, |_, _| async { Ok::<_, String>(Action::await_change()) });
    sim.run_until_stalled();
    let mut watches: Vec<(Arc<Watch>, _, _)> = Vec::new();
    let mut all = Vec::new();
    let mut log = String::new();
    for _ in 0..r.below(60) {
        let key = r.below(4) as u32;
        let thing = Thing { key, uid: 0, version: 0 };
        let what = r.below(20);
        log += &format!(" {what}.{key}");
        match what {
            0..6 => _ = server.put(thing),
            6..8 => _ = server.delete(&key),
            8 => _ = server.recreate(thing),
            9 => {
                server.compact();
                server.break_watches(SourceErrorKind::Expired);
            }
            10 => server.break_watches(SourceErrorKind::Other),
            11 if watches.len() < 3 => {
                let watch = Arc::new(Watch::default());
                let (w, s) = (watch.clone(), seed + all.len() as u64);
                let (own, initial) = (watch.clone(), things.snapshot());
                // No step of the informer runs in between.
                let observer = {
                    let w = watch.clone();
                    things.observe_changes(move |change| w.published.lock().push(id(change))).1
                };
                own.published.lock().extend(initial.initial_changes().map(|change| id(&change)));
                let added = handle.add_watch(&things, move |change| w.map(change, s)).unwrap();
                watches.push((watch.clone(), added, observer));
                all.push(watch);
            }
            12 if !watches.is_empty() && r.below(3) == 0 => {
                let (watch, id, _observer) = watches.remove(0);
                assert!(handle.remove_watch(&id));
                watch.removed.store(true, Ordering::Relaxed);
            }
            13 => _ = queue.add(key),
            _ => {
                let most = [300, 3_000, 40_000][r.below(3) as usize];
                sim.advance(Duration::from_millis(r.below(most)));
            }
        }
        if r.below(2) == 0 {
            sim.run_until_stalled();
        }
    }
    server.clear_faults();
    sim.advance(Duration::from_secs(120));
    if r.below(2) == 0 {
        sim.advance(Duration::from_secs(800));
    }
    drop(stop);
    sim.advance(Duration::from_secs(1));
    let report = task.take_output().unwrap().unwrap();
    let mut totals = [0; 4];
    let mut never = 0;
    for watch in &all {
        assert!(!watch.late.load(Ordering::Relaxed), "mapped after its removal;{log}");
        let removed = watch.removed.load(Ordering::Relaxed);
        let (published, mapped) = (watch.published.lock(), watch.mapped.lock());
        let mut counts: BTreeMap<Id, u32> = BTreeMap::new();
        published.iter().for_each(|id| *counts.entry(*id).or_default() += 1);
        for (id, count) in &counts {
            assert_eq!(*count, 1, "{id:?} is published twice;{log}");
            let (attempts, successes) = mapped.get(id).copied().unwrap_or_default();
            if removed {
                assert!(successes <= 1);
                continue;
            }
            assert!(attempts >= 1 && successes <= 1, "{id:?} {attempts} {successes};{log}");
            totals[0] += 1;
            totals[1] += u64::from(attempts > 1);
            if successes == 0 {
                never += 1;
            }
            // A later deletion of the object may end the retries.
            let ends = published
                .iter()
                .skip_while(|other| *other != id)
                .skip(1)
                .any(|other| other.0 == id.0 && ["deleted", "missed", "replaced"].contains(&other.3));
            let kept = published.iter().filter(|other| other.0 == id.0).count() <= 16;
            if !ends && kept && successes == 0 {
                assert!(attempts >= 2, "{id:?} {attempts};{log}");
            }
            if ends && successes == 0 {
                totals[2] += 1;
            }
        }
        assert!(mapped.keys().all(|id| counts.contains_key(id)), "a change that was never published;{log}");
    }
    if all.iter().all(|watch| !watch.removed.load(Ordering::Relaxed)) {
        totals[3] += 1;
        assert_eq!(report.mapper_failures, never, "{log}");
    }
    totals
}

#[test]
fn each_change_is_mapped_exactly_once() {
    let totals = Mutex::new([0; 4]);
    Simulation::explore(1_000, |sim| {
        let happened = life(sim);
        totals.lock().iter_mut().zip(happened).for_each(|(total, one)| *total += one);
    });
    if cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    let totals = totals.into_inner();
    assert!(totals.iter().zip([5_000, 3_000, 300, 500]).all(|(total, floor)| *total > floor), "{totals:?}");
}
