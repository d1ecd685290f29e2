//! `cargo xtask peers`: measures flyball and its peers, which are comparable libraries, alternately in one invocation.
//!
//! Only the ratios of the results are meaningful: all implementations run on the same machine, so other load on the machine affects their results
//! alike, but hardly changes the ratios. Each result is the median of several runs. Each run is a separate process, and the runs of the
//! implementations alternate.

use std::collections::BTreeMap;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};

use crate::lock;
use crate::process;
use crate::workspace::Workspace;

mod instructions;
mod kubernetes;
mod parties;
mod report;
mod scaling;
mod table;

use parties::{Party, Programs};
use report::{Sample, Verdict};
use table::{ALL_OF_IT, Measurement};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The groups of rows to measure; by default, all groups.
    groups: Vec<Group>,
    /// Print one JSON object per row.
    #[arg(long)]
    json: bool,
    /// Print a table for `benches/RESULTS.md`.
    #[arg(long, conflicts_with = "json")]
    markdown: bool,
    /// The number of runs from which each median is computed.
    #[arg(long, value_name = "N", default_value_t = 5)]
    rounds: usize,
    /// Measure only rows whose name contains this text.
    #[arg(long, value_name = "NAME")]
    row: Option<String>,
    /// Instead of the rows, measure how the cost of an operation grows. The cost in queues is measured with growing numbers of keys, threads and
    /// duplicates; in stores, of objects and readers; in informers, of listeners; in controllers, of workers, changes per second and copies of the
    /// recorded cluster. Writes tables and plots to `benches/results`.
    #[arg(long)]
    scaling: bool,
    /// Instead of the rows, count the instructions per operation with callgrind.
    #[arg(long, conflicts_with = "scaling")]
    instructions: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Group {
    /// Adds and gets of a queue.
    Queue,
    /// Queues with waiting keys or waiting getters, and idle queues.
    Delay,
    /// Limiters: failures, tokens, and waits for tokens.
    Limit,
    /// The indexed store, and a replay of the recorded cluster through all layers.
    Store,
    /// One informer and its event handlers.
    Informer,
    /// The latency from a change to its reconcile, measured with several numbers of workers; and a replay of several numbers of copies of the
    /// recorded cluster.
    Controller,
}

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "measure a row again with `cargo xtask peers --row NAME --rounds 15` on an idle machine before you look for a cause";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(options.rounds > 0, "a median needs at least one round");
    let asked = |group: Group| options.groups.is_empty() || options.groups.contains(&group);
    let replayed = ALL_OF_IT.iter().any(|group| asked(*group));
    let programs = Programs::build(workspace, !options.instructions, replayed)?;
    // No slice of `cargo xtask deep` may run beside the measurements.
    let _held = lock::acquire("`cargo xtask peers`")?;
    eprintln!("{}", surroundings(workspace));
    if options.instructions {
        return instructions::run(workspace, &programs);
    }
    if options.scaling {
        return scaling::run(workspace, &programs, options.rounds, asked);
    }
    let named = |name: &str| options.row.as_ref().is_none_or(|part| name.contains(part.as_str()));
    let mut complaints = Vec::new();
    let mut rows = 0;
    if options.markdown {
        println!("{}\n\n{}", surroundings(workspace), report::HEAD);
    }
    for measurement in
        table::MEASUREMENTS.iter().filter(|measurement| measurement.groups.iter().any(|group| asked(*group)))
    {
        if !measurement.rows.iter().any(|row| named(row.work)) {
            continue;
        }
        let samples = measure(&programs, measurement, options.rounds);
        for verdict in measurement.rows.iter().filter(|row| named(row.work)).flat_map(|row| {
            measurement.peers.iter().map(|peer| Verdict::new(measurement, row, *peer, &samples))
        }) {
            match verdict {
                Ok(verdict) => {
                    println!("{}", options.show(&verdict));
                    complaints.extend(verdict.complaint());
                    rows += 1;
                }
                Err(error) => complaints.push(format!("{error:#}")),
            }
        }
    }
    ensure!(rows > 0 || !complaints.is_empty(), "no row has this name");
    process::verdict(&complaints, WHAT_TO_DO)
}

impl Options {
    fn show(&self, verdict: &Verdict) -> String {
        match (self.json, self.markdown) {
            (true, _) => verdict.json(),
            (_, true) => verdict.markdown(),
            _ => verdict.line(),
        }
    }
}

/// Runs all implementations alternately, `rounds` times. A run that fails gives no sample. If all runs of an implementation fail, its rows are
/// missing.
fn measure(programs: &Programs, measurement: &Measurement, rounds: usize) -> BTreeMap<Party, Vec<Sample>> {
    let parties = measurement.ours.iter().chain(measurement.peers);
    let mut samples: BTreeMap<Party, Vec<Sample>> = parties.map(|party| (*party, Vec::new())).collect();
    for _ in 0..measurement.most_rounds.min(rounds) {
        for (party, samples) in &mut samples {
            match programs.run(*party, measurement.run) {
                Ok(sample) => samples.push(sample),
                Err(error) => eprintln!("warning: {error:#}"),
            }
        }
    }
    samples
}

/// Describes the commit, the machine and the versions of the tools. This is printed with the results.
fn surroundings(workspace: &Workspace) -> String {
    let output = |program: &str, words: &[&str]| {
        let mut command = Command::new(program);
        let output = command.current_dir(&workspace.root).args(words).output().ok()?;
        Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let or_unknown = |output: Option<String>| output.unwrap_or_else(|| "?".to_owned());
    let changed = output("git", &["status", "--porcelain", "--untracked-files=no"]);
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let load = std::fs::read_to_string("/proc/loadavg").context("no load");
    format!(
        "commit {}{}; {cores} cores, load {}; {}; {}",
        or_unknown(output("git", &["rev-parse", "--short", "HEAD"])),
        if changed.is_none_or(|files| files.is_empty()) { "" } else { " and changes" },
        load.as_deref().map_or("?", |load| load.split(' ').next().unwrap_or("?")),
        or_unknown(output("rustc", &["--version"])),
        or_unknown(output("go", &["version"])),
    )
}
