//! Tests that the comparison detects a lost event, and that whole passes converge with faults of every kind.

use std::sync::{Arc, OnceLock};
use std::thread;

use clap::Parser;
use flyball_informer_cache::{ListRequest, ListVersion, Source, WatchEvent};
use tokio::runtime::Builder;

use crate::args::Args;
use crate::faults::Injector;
use crate::horizon::Horizon;
use crate::objects::Pod;
use crate::play::{Ended, play};
use crate::progress::Progress;
use crate::report::{Difference, Figures};
use crate::server::{Cluster, Recorded};
use crate::stop::Stop;
use crate::trace::Trace;
use crate::{RECORDED, decode};

fn recorded() -> Trace {
    decode(RECORDED, || false).expect("the recorded trace is invalid").expect("decoding was stopped")
}

/// Returns the recorded trace, which is decoded once for all tests that do not change it.
fn shared() -> &'static Trace {
    static TRACE: OnceLock<Trace> = OnceLock::new();
    TRACE.get_or_init(recorded)
}

/// Runs one pass on virtual time: backoffs and pauses end as soon as nothing else can run. The tests of the program, in `tests/it`, run passes with
/// faults on several threads and in real time.
fn pass(trace: &Trace, line: &str, lose: Option<usize>) -> (Figures, Vec<Difference>) {
    let args = Args::parse_from(std::iter::once("replay").chain(line.split_whitespace()));
    let runtime = Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    match runtime.block_on(play(trace, &args, &Stop::default(), &Progress::hidden(), lose)).unwrap() {
        Ended::Done(figures, differences) => (*figures, differences),
        Ended::Stopped { .. } => panic!("the pass was stopped"),
    }
}

#[test]
fn the_recorded_cluster_is_what_it_is_said_to_be() {
    let trace = shared();
    assert_eq!((trace.events, trace.times.len()), (17_630, 17_635), "events, and with bookmarks");
    assert_eq!((trace.expected.replicasets.len(), trace.expected.services.len()), (315, 236));
    assert_eq!((trace.pods.list.len(), trace.nodes.list.len(), trace.nodes.records.len()), (876, 100, 0));
    let addresses: usize = trace.expected.services.values().map(|set| set.len()).sum();
    let ready: u32 = trace.expected.replicasets.values().map(|(_, ready)| ready).sum();
    assert!(addresses > 500 && ready > 500, "too little to compare: {addresses}, {ready}");
}

#[test]
fn a_pass_converges_and_its_figures_add_up() {
    let (figures, differences) = pass(shared(), "", None);
    assert_eq!(differences, []);
    assert!(figures.converged);
    assert_eq!((figures.events, figures.retries, figures.panics, figures.relists), (17_630, 0, 0, 0));
    assert_eq!(figures.faults, Default::default());
    // Each object in the first lists causes at least one add, and each key is reconciled at least once.
    assert!(figures.adds >= 876 + 174 + 191, "{} adds", figures.adds);
    assert!(figures.reconciles >= 315 + 236 && figures.reconciles <= figures.adds, "{figures:?}");
}

#[test]
fn passes_with_every_fault_converge_with_one_worker_and_with_many() {
    let pass_of = |seed: u32, workers: u32| {
        let line = format!("--faults all --fail 20 --seed {seed} --workers {workers}");
        let (figures, differences) = pass(shared(), &line, None);
        assert_eq!(differences, [], "{line}");
        let fired = figures.faults;
        assert!(fired.drops >= 8 && fired.gone >= 4 && fired.panics >= 8, "{line}: {fired:?}");
        assert_eq!(figures.panics, fired.panics, "{line}: the number of caught panics differs");
        assert!(figures.relists >= fired.gone, "{line}: {figures:?}");
        assert!(figures.retries > figures.panics, "{line}: {figures:?}");
    };
    thread::scope(|scope| {
        for (seed, workers) in [(1, 1), (2, 64), (3, 1), (4, 64)] {
            scope.spawn(move || pass_of(seed, workers));
        }
    });
}

#[test]
fn each_fault_alone_fires_and_converges() {
    for (fault, fired) in
        [("drops", [true, false, false]), ("gone", [false, true, false]), ("panics", [false, false, true])]
    {
        let (figures, differences) = pass(shared(), &format!("--faults {fault}"), None);
        assert_eq!(differences, [], "{fault}");
        let counts = figures.faults;
        assert_eq!([counts.drops, counts.gone, counts.panics].map(|count| count > 0), fired, "{fault}");
    }
}

#[test]
fn copies_are_as_the_original() {
    let trace = recorded().scaled(3, || false).expect("copying was stopped");
    assert!(recorded().scaled(3, || true).is_none(), "copying ignores a stop");
    assert_eq!((trace.events, trace.times.len()), (3 * 17_630, 3 * 17_635));
    assert_eq!((trace.expected.replicasets.len(), trace.expected.services.len()), (3 * 315, 3 * 236));
    assert_eq!((trace.pods.list.len(), trace.nodes.list.len()), (3 * 876, 100), "nodes have no namespace");
    let rising = |versions: Vec<u64>| versions.windows(2).all(|pair| pair[0] <= pair[1]);
    let versions = trace.pods.records.iter().map(|record| record.version.get()).collect();
    assert!(rising(versions), "the versions of the copies are out of order");
    let (figures, differences) = pass(&trace, "--faults all", None);
    assert_eq!(differences, []);
    assert_eq!(figures.events, 3 * 17_630);
}

/// Two clients read the pages of a list alternately. Both receive the same objects as a list without pages, even if the server has to build their
/// list again.
#[test]
fn the_pages_of_a_list_are_the_list() {
    let args = Args::parse_from(["replay"]);
    let faults = Arc::new(Injector::new(&args, 0));
    let cluster = Arc::new(Cluster { horizon: Horizon::new(), faults, lose: None, happened: Vec::new() });
    let pods = Recorded::new(&cluster, 0, &shared().pods);
    let runtime = Builder::new_current_thread().build().unwrap();
    let page = |limit, continuation| {
        let request = ListRequest { min_version: ListVersion::MostRecent, limit, continuation };
        runtime.block_on(pods.list(request)).unwrap()
    };
    let names = |items: &[Arc<Pod>]| items.iter().map(|pod| pod.meta.name.clone()).collect::<Vec<_>>();
    let (before, early) = (page(None, None), page(Some(100), None));
    cluster.horizon.move_to(5_000);
    let (after, late) = (page(None, None), page(Some(100), None));
    assert_ne!(names(&before.items), names(&after.items), "nothing has happened between the lists");
    for (all, first) in [(before, early), (after, late)] {
        let mut found = names(&first.items);
        let mut next = first.continuation;
        while let Some(token) = next {
            let page = page(Some(100), Some(token));
            found.extend(names(&page.items));
            next = page.continuation;
        }
        assert_eq!(found, names(&all.items));
    }
}

/// If a single event is not delivered, the comparison must report a difference, even if everything else is correct.
#[test]
fn one_lost_event_shows_as_a_difference() {
    let trace = shared();
    let records = &trace.pods.records;
    // Selects the last event of a pod, if this event changed whether the pod counts as ready. If this event is lost, no later event corrects the
    // result.
    let counts = |pod: &Pod| pod.ready && !pod.leaving;
    let decides = |at: usize| {
        let record = &records[at];
        let WatchEvent::Modified(pod) = &record.event else { return None };
        let same = |event: &WatchEvent<_>| {
            event.object().is_some_and(|other: &Arc<Pod>| other.meta.uid == pod.meta.uid)
        };
        let before = records[..at].iter().rev().find(|record| same(&record.event))?;
        let last = !records[at + 1..].iter().any(|record| same(&record.event));
        (last && counts(pod) != counts(before.event.object()?)).then_some(record.place)
    };
    let places: Vec<usize> = (0..records.len()).rev().filter_map(decides).take(3).collect();
    assert_eq!(places.len(), 3);
    for place in places {
        let (figures, differences) = pass(trace, "", Some(place));
        assert!(!figures.converged, "the event at place {place} was lost and not found");
        let (replicasets, services): (Vec<_>, Vec<_>) = differences
            .iter()
            .map(|difference| &difference.what)
            .partition(|what| what.starts_with("ReplicaSet"));
        assert_eq!((replicasets.len(), services.len()), (1, 1), "{differences:?}");
    }
}
