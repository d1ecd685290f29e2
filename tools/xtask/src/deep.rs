//! `cargo xtask deep`: runs the checks that take hours, called *rungs*, one after the other, and writes their results
//! to a page.
//!
//! The result of each rung is stored in the target directory. So if a run is killed, the next run continues with the
//! rungs that have not yet passed at this commit. The page, `docs/evidence.md`, is generated from the stored results.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::process::{self, Ended};
use crate::workspace::Workspace;

mod machine;
mod newest_kube;
mod page;
mod record;
mod rungs;

use record::{Outcome, Record, State};
use rungs::{RUNGS, Rung};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// List the rungs, show which of them have passed at this commit, and run nothing.
    #[arg(long)]
    list: bool,
    /// Run only this rung. The option can be given several times.
    #[arg(long, value_name = "RUNG")]
    only: Vec<String>,
    /// Also run rungs that have passed at this commit.
    #[arg(long)]
    again: bool,
    /// After this number of seconds, start no further rung. The next run continues with the rungs that have not passed.
    #[arg(long, value_name = "N")]
    seconds: Option<u64>,
    /// Multiply the seconds and the numbers of cases of all rungs by this factor. Use 0.01, for example, for a trial.
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    scale: f64,
}

/// The path of the page with the results, relative to the root of the workspace.
const PAGE: &str = "docs/evidence.md";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    ensure!(options.scale > 0.0 && options.scale.is_finite(), "--scale has to be above 0");
    for name in &options.only {
        ensure!(RUNGS.iter().any(|rung| rung.name == name), "no rung is called {name}; see --list");
    }
    let folder = workspace.target.join("deep");
    std::fs::create_dir_all(&folder)?;
    let mut state = State::open(folder.join("state.json"))?;
    let commit = code(workspace)?;
    if options.list {
        for rung in RUNGS {
            let passed = if state.passed(rung.name, &commit, options.scale) { "passed" } else { "" };
            println!("{:16} {passed:8} {}", rung.name, rung.what);
        }
        return Ok(());
    }
    let changed = changed(workspace)?;
    if !changed.is_empty() {
        eprintln!("{changed} differs from the commit: the results of this run are not recorded");
    }
    #[expect(clippy::disallowed_methods, reason = "a time limit of the tool, no tested code")]
    let begun = Instant::now();
    let mut complaints = Vec::new();
    for rung in RUNGS {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == rung.name) {
            continue;
        }
        if !options.again && state.passed(rung.name, &commit, options.scale) {
            eprintln!("{}: passed at this commit", rung.name);
            continue;
        }
        if options.seconds.is_some_and(|limit| begun.elapsed().as_secs() >= limit) {
            eprintln!("{}: left for the next run", rung.name);
            continue;
        }
        let record = run_rung(workspace, rung, &commit, options.scale)?;
        println!("{}: {}, {} s; {}", rung.name, record.outcome, record.seconds, record.figures);
        if matches!(record.outcome, Outcome::Failed) {
            complaints.push(format!("{}: see {}", rung.name, log(workspace, rung).display()));
        }
        if changed.is_empty() {
            state.note(record)?;
            let before = workspace.read(PAGE).unwrap_or_default();
            let page = page::render(&before, &state, RUNGS);
            std::fs::write(workspace.root.join(PAGE), page).context(PAGE)?;
        }
    }
    process::verdict(&complaints)
}

/// Runs one rung and returns its record.
fn run_rung(workspace: &Workspace, rung: &Rung, commit: &str, scale: f64) -> Result<Record> {
    #[expect(clippy::disallowed_methods, reason = "the date of the evidence")]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    let mut record = Record {
        rung: rung.name.to_owned(),
        commit: commit.to_owned(),
        date: machine::date(now.as_secs()),
        machine: machine::describe(),
        scale,
        seconds: 0,
        outcome: Outcome::Passed,
        figures: String::new(),
    };
    if let Some(missing) = (rung.missing)(workspace) {
        record.outcome = Outcome::NotRun;
        record.figures = missing;
        return Ok(record);
    }
    let log = log(workspace, rung);
    eprintln!("{}: output in {}", rung.name, log.display());
    #[expect(clippy::disallowed_methods, reason = "how long the rung took")]
    let started = Instant::now();
    let mut command = (rung.command)(workspace, scale)?;
    command.current_dir(&workspace.root).env("CARGO_TERM_COLOR", "never");
    const FOREVER: Duration = Duration::from_secs(7 * 24 * 3600);
    let passed =
        matches!(process::run_logged(&mut command, &log, FOREVER)?, Ended::By(status) if status.success());
    record.seconds = started.elapsed().as_secs();
    let text = String::from_utf8_lossy(&std::fs::read(&log)?).into_owned();
    match (rung.figures)(&text) {
        _ if !passed => record.outcome = Outcome::Failed,
        // A rung fails if its command succeeds but reports no counts, because the command may have checked nothing.
        None => {
            record.outcome = Outcome::Failed;
            record.figures = "the output has no counts".to_owned();
        }
        Some(figures) => record.figures = figures,
    }
    Ok(record)
}

fn log(workspace: &Workspace, rung: &Rung) -> PathBuf {
    workspace.target.join("deep").join(format!("{}.log", rung.name))
}

/// Returns the last commit that changed any file except for the page.
fn code(workspace: &Workspace) -> Result<String> {
    let not_the_page = format!(":(exclude){PAGE}");
    let commit = git(workspace, &["log", "-1", "--format=%h", "--abbrev=12", "--", ".", &not_the_page])?;
    ensure!(!commit.is_empty(), "there is no commit to record evidence for");
    Ok(commit)
}

/// Returns the first file with uncommitted changes, or an empty string if there is none.
fn changed(workspace: &Workspace) -> Result<String> {
    let status = git(workspace, &["status", "--porcelain", "--", ".", &format!(":(exclude){PAGE}")])?;
    Ok(status.lines().next().unwrap_or_default().get(3..).unwrap_or_default().to_owned())
}

fn git(workspace: &Workspace, arguments: &[&str]) -> Result<String> {
    let output = Command::new("git").current_dir(&workspace.root).args(arguments).output().context("git")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
}
