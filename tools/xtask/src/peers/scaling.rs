//! How cost grows with keys, threads and duplicates, and how long a key takes to its getter.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::parties::Party::{self, ClientGo, ControllerRuntime, Naive, Ours};
use super::parties::Programs;
use super::report::{Figure, Sample};
use crate::process;
use crate::workspace::Workspace;

const ROUNDS: usize = 3;
const TABLE: &str = "benches/results/queue-scaling.csv";
const PLOTS: &str = "benches/results";

/// One plot: a run whose last word grows.
struct Sweep {
    plot: &'static str,
    run: &'static [&'static str],
    grows: &'static str,
    at: &'static [u64],
    /// Adds for each point, so that small sizes are repeated and large ones end.
    adds: fn(u64) -> u64,
    parties: &'static [Party],
    figures: &'static [&'static str],
}

const SWEEPS: [Sweep; 4] = [
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

pub(super) fn run(workspace: &Workspace, programs: &Programs) -> Result<()> {
    let mut table = String::from("plot,party,x,figure,median,least,most\n");
    for sweep in &SWEEPS {
        for &x in sweep.at {
            for (party, samples) in point(programs, sweep, x)? {
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
    let file = workspace.root.join(TABLE);
    fs::create_dir_all(workspace.root.join(PLOTS))?;
    fs::write(&file, table).with_context(|| TABLE.to_owned())?;
    process::run(Command::new(programs.plots()).arg(file).arg(workspace.root.join(PLOTS)))
}

/// Everybody at one size, in turn.
fn point(programs: &Programs, sweep: &Sweep, x: u64) -> Result<Vec<(Party, Vec<Sample>)>> {
    let (grows, adds) = (format!("--{}={x}", sweep.grows), format!("--adds={}", (sweep.adds)(x)));
    let words: Vec<&str> = sweep.run.iter().copied().chain([grows.as_str(), adds.as_str()]).collect();
    // Ten million keys take half a minute a party, and one run tells as much.
    let rounds = if sweep.grows == "keys" && x > 1_000_000 { 1 } else { ROUNDS };
    let mut all: Vec<(Party, Vec<Sample>)> = sweep.parties.iter().map(|party| (*party, Vec::new())).collect();
    for _ in 0..rounds {
        for (party, samples) in &mut all {
            samples.push(programs.run(*party, &words)?);
        }
    }
    Ok(all)
}
