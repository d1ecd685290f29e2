//! `cargo xtask deep`: runs the checks that take hours, called *rungs*, in slices of minutes.
//!
//! Each slice adds a line to the ledger (`docs/evidence/ledger.jsonl`), which is committed. The page `docs/evidence.md` is generated from the ledger. The
//! next slice is always taken from the part of a rung that is furthest behind its bar.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::lock;
use crate::process::{self, Stopwatch};
use crate::workspace::Workspace;

mod ledger;
mod machine;
mod newest_kube;
mod page;
mod rungs;
mod slices;
mod sources;
mod standing;

pub(crate) use ledger::LEDGER;
pub(crate) use page::{PAGE, render};

use ledger::Slice;
use rungs::{Part, RUNGS, Rung};
use slices::Work;
use standing::Standing;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// After this number of minutes, start no further slice. 0 runs nothing, and only writes the page.
    #[arg(long, value_name = "N")]
    minutes: Option<u64>,
    /// The length of a slice in minutes, without its build.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=10))]
    slice: u64,
    /// Run only this rung. The option can be given several times.
    #[arg(long, value_name = "RUNG")]
    only: Vec<String>,
    /// List the parts of all rungs in the order in which they would run, with the share of their bars that they have reached, and run nothing.
    #[arg(long)]
    list: bool,
}

/// A part of a rung, and how far it is.
#[derive(Debug)]
struct Candidate {
    rung: &'static Rung,
    part: Part,
    sources: String,
    standing: Standing,
    /// The seconds that all parts of the rung have run at their sources.
    rung_seconds: u64,
}

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "the failures are in the ledger; the last log of a rung is target/deep/RUNG-CRATE.log, and `cargo xtask deep --only RUNG` runs it again";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    for name in &options.only {
        ensure!(RUNGS.iter().any(|rung| rung.name == name), "no rung is called {name}; see --list");
    }
    if options.list {
        for Candidate { rung, part, standing, .. } in candidates(workspace, options)? {
            let percent = standing.reached(rung.bar) * 100.0;
            println!(
                "{:16} {:24} {percent:6.2} % {:6} s  {}",
                rung.name, part.package, standing.seconds, rung.what
            );
        }
        return Ok(());
    }
    if options.minutes == Some(0) {
        return write(workspace);
    }
    let watch = Stopwatch::start();
    let mut failures = Vec::new();
    // Parts that cannot run here, for example because a tool is missing.
    let mut skipped: Vec<(&str, String)> = Vec::new();
    loop {
        if options.minutes.is_some_and(|minutes| watch.seconds() >= minutes as f64 * 60.0) {
            break;
        }
        let candidates = candidates(workspace, options)?;
        let next = candidates.into_iter().find(|candidate| {
            let skip = skipped
                .iter()
                .any(|(rung, package)| *rung == candidate.rung.name && *package == candidate.part.package);
            !skip && candidate.standing.reached(candidate.rung.bar) < 1.0
        });
        let Some(next) = next else { break };
        let (name, package) = (next.rung.name, next.part.package.clone());
        if let Some(missing) = (next.rung.missing)(workspace) {
            eprintln!("{name}: left out: {missing}");
            skipped.push((name, package));
            continue;
        }
        // Other measurements wait for the slice, and the slice for them. Between two slices they have their turn.
        let held = lock::acquire("a slice of `cargo xtask deep`")?;
        let slice = match slice(workspace, options, &next) {
            Ok(slice) => slice,
            Err(error) => {
                failures.push(format!("{name} {package}: {error:#}"));
                skipped.push((name, package));
                continue;
            }
        };
        if !slice.passed {
            failures.push(format!("{name} {package}: {}", slice.note));
            skipped.push((name, package));
        }
        ledger::append(&workspace.root, &slice)?;
        write(workspace)?;
        drop(held);
        lock::give_way();
    }
    process::verdict(&failures, WHAT_TO_DO)
}

fn write(workspace: &Workspace) -> Result<()> {
    std::fs::write(workspace.root.join(PAGE), render(workspace)?).context(PAGE)
}

/// Returns the parts of the selected rungs, those furthest behind first. Of those that are equally far, the parts of the rung that ran for the shortest
/// time come first, so that a run is spread over all rungs.
fn candidates(workspace: &Workspace, options: &Options) -> Result<Vec<Candidate>> {
    let slices = ledger::read(&workspace.root)?;
    let mut all = Vec::new();
    for rung in RUNGS {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == rung.name) {
            continue;
        }
        let mut parts = Vec::new();
        for part in (rung.parts)(workspace)? {
            let sources = sources::hash(workspace, &part.package)?;
            let standing = Standing::at(rung, &part, &sources, &slices);
            parts.push(Candidate { rung, part, sources, standing, rung_seconds: 0 });
        }
        let seconds = parts.iter().map(|candidate| candidate.standing.seconds).sum();
        parts.iter_mut().for_each(|candidate| candidate.rung_seconds = seconds);
        all.extend(parts);
    }
    all.sort_by(|a, b| {
        let reached = |candidate: &Candidate| candidate.standing.reached(candidate.rung.bar);
        let seconds = |candidate: &Candidate| (candidate.rung_seconds, candidate.standing.seconds);
        reached(a).total_cmp(&reached(b)).then(seconds(a).cmp(&seconds(b)))
    });
    Ok(all)
}

/// Runs one slice.
fn slice(workspace: &Workspace, options: &Options, candidate: &Candidate) -> Result<Slice> {
    let Candidate { rung, part, sources, standing, .. } = candidate;
    let slices = ledger::read(&workspace.root)?;
    let of = |slice: &&Slice| slice.rung == rung.name && slice.package == part.package;
    let last = slices.iter().filter(of).rev().find(|slice| slice.passed && slice.seconds > 0);
    let folder = workspace.target.join("deep");
    std::fs::create_dir_all(&folder)?;
    let work = Work {
        workspace,
        rung: rung.name,
        package: &part.package,
        items: standing.behind(rung.bar),
        budget: Duration::from_secs(options.slice * 60),
        so_far: slices.iter().filter(of).flat_map(|slice| slice.counts.values()).sum(),
        rate: last.map(|slice| slice.counts.values().sum::<u64>() as f64 / slice.seconds as f64),
        sources,
        log: folder.join(format!("{}-{}.log", rung.name, part.package)),
    };
    eprintln!("{} {}: starts", rung.name, part.package);
    let (date, commit) = (machine::today()?, machine::commit(workspace)?);
    let done = (rung.run)(&work)?;
    let slice = Slice {
        rung: rung.name.to_owned(),
        package: part.package.clone(),
        sources: sources.clone(),
        passed: done.failure.is_none(),
        counts: done.counts,
        complete: done.complete,
        note: done.failure.unwrap_or(done.note),
        seconds: done.seconds.ceil() as u64,
        date,
        machine: machine::describe(),
        tools: machine::tools(workspace, rung.tools)?,
        commit,
    };
    let again = sources::hash(workspace, &part.package)?;
    ensure!(again == *sources, "the sources have changed while the slice ran");
    let (sum, seconds) = (slice.counts.values().sum::<u64>(), slice.seconds);
    let outcome = if slice.passed { "passed" } else { "FAILED" };
    println!("{} {}: {outcome}, {sum} {} in {seconds} s; {}", rung.name, part.package, rung.unit, slice.note);
    Ok(slice)
}
