//! Stores complete lists in a full store, while another thread repeatedly gets random objects.
//!
//! `percent` of the objects are newer in each list. flyball also reports the changes of a list; client-go leaves this
//! to its queue. The machine itself delays threads, too. So after each list the reader continues for the same time
//! without a writer: `quiet` is the longest delay in that time. Figures are the medians of all lists.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use peers_rust::draws::Draws;

use crate::Figures;
use crate::clock::measured;
use crate::options::Options;
use crate::store::cache::{Reads, Replaces, filled};
use crate::store::pods::{NAMESPACES, fleet, newer};
use crate::store::stall::Stalls;

/// The phases of a round: preparation, one list, and the same time without a writer.
const PHASES: usize = 3;
const END: usize = usize::MAX;

pub(crate) fn replace<C: Replaces>(options: &Options) -> Figures {
    let pods = fleet(options.keys, NAMESPACES);
    let mut cache: C = filled(options.indexes, &pods);
    let keys: Vec<_> = pods.iter().map(<C::Reader as Reads>::key).collect();
    let reader = cache.reader();
    let (phase, seen) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let (totals, stalls) = thread::scope(|scope| {
        let reading = scope.spawn(|| {
            let (mut draws, mut at) = (Draws(7), 0);
            let (mut stalls, mut all) = (Stalls::begin(), [const { Vec::new() }; PHASES]);
            loop {
                let now = phase.load(Ordering::Relaxed);
                if now != at {
                    all[at % PHASES].push(stalls);
                    stalls = Stalls::begin();
                    at = now;
                    seen.store(at, Ordering::Relaxed);
                }
                if at == END {
                    return all;
                }
                assert!(reader.get(&keys[draws.next(keys.len())]).is_some(), "an object is missing");
                stalls.note();
            }
        });
        let enter = |to| {
            phase.store(to, Ordering::Relaxed);
            while seen.load(Ordering::Relaxed) != to {
                thread::yield_now();
            }
        };
        let (mut draws, mut totals) = (Draws(6), Vec::new());
        for round in 0..options.adds.max(1) {
            let version = round as u64 + 2;
            let mut version_of = || if draws.next(100) < options.percent { version } else { 1 };
            let list = C::listed(pods.iter().map(|pod| newer(pod, version_of())).collect(), version);
            enter(round * PHASES + 1);
            let ((), total) = measured(|| cache.replace(list));
            enter(round * PHASES + 2);
            thread::sleep(total);
            enter((round + 1) * PHASES);
            totals.push(total.as_secs_f64() * 1e3);
        }
        enter(END);
        (totals, reading.join().expect("the reader"))
    });
    let [_, lists, quiet] = &stalls;
    let micros = |stalls: &[Stalls], which: fn(&Stalls) -> Duration| {
        median(stalls.iter().map(|stalls| which(stalls).as_nanos() as f64 / 1e3).collect())
    };
    [
        ("total", median(totals)),
        ("blocked", micros(lists, |stalls| stalls.blocked)),
        ("slowest", micros(lists, |stalls| stalls.slowest)),
        ("quiet", micros(quiet, |stalls| stalls.blocked)),
    ]
    .into()
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}
