//! Measures how the cost of an operation grows. For queues, the numbers of keys, threads and duplicates grow, and the latency from an add to the
//! getter is also measured. For stores, the numbers of objects and readers grow; for informers, the number of listeners; for controllers, the number
//! of workers and the load; for the recorded cluster, the number of its copies.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::Group;
use super::parties::Party::{self, ClientGo, ControllerRuntime, Kube, Naive, Ours};
use super::parties::Programs;
use super::report::{Figure, Sample};
use crate::process;
use crate::workspace::Workspace;

/// The maximum number of rounds.
const ROUNDS: usize = 3;
const PLOTS: &str = "benches/results";

/// One plot: a measurement that is repeated with growing values of one option.
struct Sweep {
    plot: &'static str,
    run: &'static [&'static str],
    grows: &'static str,
    at: &'static [u64],
    /// Returns the number of adds for a value of the option. This number must be so large that small values of the option give exact results, and so
    /// small that runs with large values end soon.
    adds: fn(u64) -> u64,
    parties: &'static [Party],
    figures: &'static [&'static str],
}

/// Sweeps whose results are written to one table and drawn together.
struct Family {
    group: Group,
    table: &'static str,
    sweeps: &'static [Sweep],
}

const FAMILIES: [Family; 4] = [
    Family { group: Group::Queue, table: "benches/results/queue-scaling.csv", sweeps: &QUEUE },
    Family { group: Group::Store, table: "benches/results/store-scaling.csv", sweeps: &STORE },
    Family { group: Group::Informer, table: "benches/results/informer-scaling.csv", sweeps: &INFORMER },
    Family { group: Group::Controller, table: "benches/results/controller-scaling.csv", sweeps: &CONTROLLER },
];

const QUEUE: [Sweep; 4] = [
    Sweep {
        plot: "keys",
        run: &["mixed"],
        grows: "keys",
        at: &[100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000],
        adds: |_| 1_000_000,
        parties: &[Ours, ClientGo, ControllerRuntime, Naive],
        figures: &["ns"],
    },
    Sweep {
        plot: "threads",
        run: &["contended", "--keys=10000"],
        grows: "sides",
        at: &[1, 2, 4, 8, 64],
        adds: |_| 1_000_000,
        parties: &[Ours, ClientGo, Naive],
        figures: &["ns", "handed-out"],
    },
    Sweep {
        plot: "duplicates",
        run: &["mixed", "--keys=1000"],
        grows: "percent",
        at: &[0, 50, 90, 99],
        adds: |percent| 1_000_000 * if percent > 50 { 4 } else { 1 },
        parties: &[Ours, ClientGo, ControllerRuntime, Naive],
        figures: &["ns"],
    },
    Sweep {
        plot: "latency",
        run: &["latency", "--keys=200000", "--sides=4"],
        grows: "rate",
        at: &[10_000, 50_000, 100_000],
        adds: |_| 0,
        parties: &[Ours, ClientGo, Naive],
        figures: &["p50", "p90", "p99", "p999", "max"],
    },
];

const SIZES: &[u64] = &[10_000, 100_000, 1_000_000];
const STORES: &[Party] = &[Ours, ClientGo, Kube];

const STORE: [Sweep; 10] = [
    Sweep {
        plot: "operations",
        run: &["store-operations"],
        grows: "keys",
        at: SIZES,
        adds: |_| 200_000,
        parties: STORES,
        figures: &[
            "add-p50",
            "add-p99",
            "add-p999",
            "update-p50",
            "update-p99",
            "update-p999",
            "get-p50",
            "get-p99",
            "get-p999",
            "by-index-p50",
            "by-index-p99",
            "by-index-p999",
            "snapshot-p50",
            "snapshot-p99",
            "snapshot-p999",
            "list-p50",
            "list-p99",
            "list-p999",
        ],
    },
    Sweep {
        plot: "beside",
        run: &["store-beside", "--seconds=2"],
        grows: "keys",
        at: SIZES,
        adds: |_| 500_000,
        parties: STORES,
        figures: &["alone", "us", "p50", "p99", "p999", "max", "lists"],
    },
    Sweep {
        plot: "replace",
        run: &["store-replace", "--indexes=4", "--percent=100"],
        grows: "keys",
        at: SIZES,
        adds: |_| 3,
        parties: STORES,
        figures: &["total", "blocked", "slowest", "quiet"],
    },
    Sweep {
        plot: "bytes",
        run: &["store-bytes"],
        grows: "keys",
        at: SIZES,
        adds: |_| 0,
        parties: STORES,
        figures: &["bytes"],
    },
    readers("readers-0", &["store-readers", "--seconds=1", "--sides=0"]),
    readers("readers-1", &["store-readers", "--seconds=1", "--sides=1"]),
    readers("readers-10", &["store-readers", "--seconds=1", "--sides=10"]),
    readers("readers-20", &["store-readers", "--seconds=1", "--sides=20"]),
    readers("readers-40", &["store-readers", "--seconds=1", "--sides=40"]),
    readers("readers-80", &["store-readers", "--seconds=1", "--sides=80"]),
];

const INFORMER: [Sweep; 1] = [Sweep {
    plot: "listeners",
    run: &["informer-events", "--keys=100000"],
    grows: "sides",
    at: &[1, 4, 16, 64],
    adds: |listeners| if listeners > 16 { 100_000 } else { 300_000 },
    parties: STORES,
    figures: &["ns", "cpu"],
}];

/// The numbers of workers. With the last number, there is one worker per key, so more workers would be idle.
const WORKERS: &[u64] = &[1, 10, 100, 1_000, 10_000];

const CONTROLLER: [Sweep; 4] = [
    Sweep {
        plot: "throughput",
        run: &["controller-throughput", "--keys=10000"],
        grows: "sides",
        at: WORKERS,
        adds: |_| 200_000,
        parties: STORES,
        figures: &["ns", "cpu"],
    },
    Sweep {
        plot: "latency",
        run: &["controller-paced", "--keys=10000", "--rate=20000", "--seconds=2"],
        grows: "sides",
        at: WORKERS,
        adds: |_| 0,
        parties: STORES,
        figures: &["p50", "p99", "max"],
    },
    Sweep {
        plot: "load",
        run: &["controller-paced", "--keys=10000", "--sides=10", "--seconds=2"],
        grows: "rate",
        at: &[5_000, 10_000, 20_000, 40_000, 80_000, 160_000],
        adds: |_| 0,
        parties: STORES,
        figures: &["p50", "p99", "max"],
    },
    Sweep {
        plot: "cluster",
        run: &["cluster", "--seconds=2"],
        grows: "scale",
        at: &[1, 2, 5, 10, 20],
        adds: |_| 0,
        parties: &[Ours, ClientGo],
        figures: &["ns", "cpu", "peak"],
    },
];

/// A sweep over the store sizes of client-go's `BenchmarkSharedIndexInformer`.
const fn readers(plot: &'static str, run: &'static [&'static str]) -> Sweep {
    Sweep {
        plot,
        run,
        grows: "keys",
        at: &[10_000, 20_000, 40_000, 80_000, 160_000],
        adds: |_| 0,
        parties: &[Ours, ClientGo],
        figures: &["reads", "writes"],
    }
}

pub(super) fn run(
    workspace: &Workspace,
    programs: &Programs,
    rounds: usize,
    asked: impl Fn(Group) -> bool,
) -> Result<()> {
    let asked: Vec<_> = FAMILIES.iter().filter(|family| asked(family.group)).collect();
    ensure!(
        !asked.is_empty(),
        "only queues, stores, informers and controllers are measured at several sizes"
    );
    asked.into_iter().try_for_each(|family| measure(workspace, programs, rounds.min(ROUNDS), family))
}

fn measure(workspace: &Workspace, programs: &Programs, rounds: usize, family: &Family) -> Result<()> {
    let mut table = String::from("plot,party,x,figure,median,least,most\n");
    for sweep in family.sweeps {
        for &x in sweep.at {
            for (party, samples) in point(programs, sweep, rounds, x)? {
                for figure in sweep.figures {
                    let Figure { median, least, most, .. } = Figure::of(&samples, figure)
                        .with_context(|| format!("{}: no {figure}", sweep.plot))?;
                    let (plot, party) = (sweep.plot, party.name());
                    writeln!(table, "{plot},{party},{x},{figure},{median:.2},{least:.2},{most:.2}")?;
                    eprintln!("{plot} {party} {x} {figure} {median:.1} ({least:.1}..{most:.1})");
                }
            }
        }
    }
    let file = workspace.root.join(family.table);
    fs::create_dir_all(workspace.root.join(PLOTS))?;
    fs::write(&file, table).with_context(|| family.table.to_owned())?;
    process::run(Command::new(programs.plots()).arg(file).arg(workspace.root.join(PLOTS)))
}

/// Runs all implementations alternately with one value of the growing option.
fn point(programs: &Programs, sweep: &Sweep, rounds: usize, x: u64) -> Result<Vec<(Party, Vec<Sample>)>> {
    let (grows, adds) = (format!("--{}={x}", sweep.grows), format!("--adds={}", (sweep.adds)(x)));
    let words: Vec<&str> = sweep.run.iter().copied().chain([grows.as_str(), adds.as_str()]).collect();
    // A round with ten million keys takes half a minute per implementation, and the results of several rounds hardly differ. So one round is enough.
    let rounds = if sweep.grows == "keys" && x > 1_000_000 { 1 } else { rounds };
    let mut all: Vec<(Party, Vec<Sample>)> = sweep.parties.iter().map(|party| (*party, Vec::new())).collect();
    for _ in 0..rounds {
        for (party, samples) in &mut all {
            samples.push(programs.run(*party, &words)?);
        }
    }
    Ok(all)
}
