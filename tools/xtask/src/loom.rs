//! `cargo xtask loom`: every model in every interleaving, above its floor, and its twin caught.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::models::{self, Binaries, Checker, Declared, Extent};
use crate::process::{self, Ended};
use crate::twins::Tree;
use crate::workspace::Workspace;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only models whose name contains this.
    name: Option<String>,
    /// One JSON object per model and line, nothing else on stdout.
    #[arg(long)]
    json: bool,
    /// Leave the must-fail twins out.
    #[arg(long)]
    no_twins: bool,
    /// Start no twin after so many seconds of twins. Which are left out, and is said, differs from commit to commit.
    #[arg(long, value_name = "SECONDS", conflicts_with = "no_twins")]
    twin_seconds: Option<u64>,
    /// Bound on preemptions; floors are recorded at 3, which is the default.
    #[arg(long, value_name = "N", conflicts_with = "unbounded")]
    preemptions: Option<u8>,
    /// No bound at all.
    #[arg(long)]
    unbounded: bool,
    /// A model that has not completed after so many seconds has failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
}

/// One row of the report: what the runner wrote, then what became of the twin.
#[derive(Clone, Debug, Deserialize, Serialize)]
struct Row {
    name: String,
    threads: usize,
    preemptions: Option<usize>,
    interleavings: u64,
    floor: u64,
    seconds: f64,
    catches: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    twin: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    twin_caught: Option<bool>,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let models = models::declared(workspace, options.name.as_deref())?;
    ensure!(!models.is_empty(), "no model is called {:?}", options.name.as_deref().unwrap_or(""));
    let extent = if options.name.is_none() { Extent::All } else { Extent::Holding(&models) };
    let Ok(binaries) =
        models::build(&workspace.root, &workspace.target.join("models"), Checker::Loom, extent)?
    else {
        bail!("the models do not compile");
    };
    let mut complaints = Vec::new();
    if options.name.is_none() {
        complaints.extend(runner_works(workspace, &binaries).err().map(|error| format!("{error:#}")));
        complaints.extend(undeclared(&models, &binaries)?);
    }

    let mut rows = explore(workspace, options, &models, &binaries)?;
    let mut twins = if options.no_twins { BTreeMap::new() } else { twins(workspace, options, &models)? };
    let caught = twins.len();
    if !options.json {
        println!("{}", header(options));
    }
    for model in &models {
        let mut row = match rows.remove(&model.name).context("a model was not run")? {
            Ok(row) => row,
            Err(error) => {
                complaints.push(format!("{error:#}"));
                continue;
            }
        };
        row.twin = (!options.no_twins).then(|| model.twin());
        if let Some(outcome) = twins.remove(&model.name) {
            row.twin_caught = Some(outcome.is_ok());
            complaints.extend(outcome.err().map(|why| format!("{}: {why}", model.twin())));
        }
        println!("{}", if options.json { serde_json::to_string(&row)? } else { row.line() });
    }
    process::verdict(&complaints)?;
    let twins = match caught {
        0 => String::new(),
        all if all == models.len() => ", every twin caught".to_owned(),
        some => format!(", {some} twins caught, {} left out for want of time", models.len() - some),
    };
    eprintln!("{} models completed{twins}", models.len());
    Ok(())
}

/// Whether each twin is caught, as far as time allows.
///
/// It begins with another one at each commit, so that what is left out today has its turn tomorrow.
fn twins(
    workspace: &Workspace,
    options: &Options,
    models: &[Declared],
) -> Result<BTreeMap<String, Result<(), String>>> {
    let tree = Tree::open(workspace)?;
    let first = workspace.commit().map_or(0, |commit| commit as usize % models.len());
    #[expect(clippy::disallowed_methods, reason = "a tool's own patience, nothing that is tested")]
    let start = std::time::Instant::now();
    let mut outcomes = BTreeMap::new();
    for model in models.iter().cycle().skip(first).take(models.len()) {
        if options.twin_seconds.is_some_and(|limit| start.elapsed().as_secs() >= limit) {
            break;
        }
        let outcome = tree.caught(model)?;
        eprintln!("{} {}", model.twin(), if outcome.is_ok() { "caught" } else { "NOT CAUGHT" });
        outcomes.insert(model.name.clone(), outcome);
    }
    Ok(outcomes)
}

/// The runner's own tests: it counts what loom explores, and sees a fault.
fn runner_works(workspace: &Workspace, binaries: &Binaries) -> Result<()> {
    let binary = binaries.get("runner").context("the runner's tests were not built")?;
    let log = log_file(workspace, "runner")?;
    match process::run_logged(&mut Command::new(binary), &log, Duration::from_secs(60))? {
        Ended::By(status) if status.success() => Ok(()),
        _ => bail!("the runner's own tests fail\n{}", process::tail(&log, 30)),
    }
}

/// Tests beside the models: they would pass unseen.
fn undeclared(models: &[Declared], binaries: &Binaries) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (name, binary) in binaries.iter().filter(|(name, _)| *name != "runner") {
        for test in tests(binary)? {
            let last = test.rsplit("::").next().unwrap_or(&test);
            if !models.iter().any(|model| model.binary == *name && model.test() == last) {
                complaints.push(format!("{}/{name}.rs: the test {test} declares no model", models::TESTS));
            }
        }
    }
    Ok(complaints)
}

/// The tests of a binary, by their paths.
pub(crate) fn tests(binary: &Path) -> Result<Vec<String>> {
    let output = Command::new(binary).args(["--list", "--format", "terse"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// The command that runs one model alone, in a process of its own: a model that spins aborts it.
pub(crate) fn command(model: &Declared, binaries: &Binaries) -> Result<Command> {
    let binary = binaries.get(&model.binary).with_context(|| format!("{} was not built", model.binary))?;
    let tests = tests(binary)?;
    let test = tests.iter().find(|test| test.rsplit("::").next() == Some(model.test()));
    let test = test.with_context(|| {
        format!("{}: {}/{}.rs has no test {}", model.name, models::TESTS, model.binary, model.test())
    })?;
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--test-threads", "1"]);
    // A backtrace through loom's generators takes half a second and says nothing.
    command.env("RUST_BACKTRACE", "0");
    Ok(command)
}

/// Where the output of `name` goes.
pub(crate) fn log_file(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let folder = workspace.target.join("models").join("logs");
    fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{}.log", name.replace("::", "__"))))
}

/// Explores all models, as many at once as there are processors.
fn explore(
    workspace: &Workspace,
    options: &Options,
    models: &[Declared],
    binaries: &Binaries,
) -> Result<BTreeMap<String, Result<Row>>> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut rows = Vec::new();
        // Ordering: Relaxed, each number is drawn once and nothing else is shared.
        while let Some(model) = models.get(next.fetch_add(1, Ordering::Relaxed)) {
            let row = one(workspace, options, model, binaries);
            let end = if row.is_ok() { "completed" } else { "FAILED" };
            eprintln!("{} {end}", model.name);
            rows.push((model.name.clone(), row));
        }
        rows
    };
    let workers = std::thread::available_parallelism()?.get();
    Ok(std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    }))
}

fn one(workspace: &Workspace, options: &Options, model: &Declared, binaries: &Binaries) -> Result<Row> {
    let log = log_file(workspace, &model.name)?;
    let report = log.with_extension("json");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut command = command(model, binaries)?;
    command.env("FLYBALL_MODEL_REPORT", &report);
    if let Some(preemptions) = options.preemptions {
        command.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    if options.unbounded {
        command.env("FLYBALL_MODEL_UNBOUNDED", "1");
    }
    match process::run_logged(&mut command, &log, Duration::from_secs(options.limit))? {
        Ended::By(status) if status.success() => {}
        Ended::By(status) => bail!("{}: {status}\n{}", model.name, process::tail(&log, 40)),
        Ended::Late => bail!("{}: capped, not completed after {} s", model.name, options.limit),
    }
    let text =
        fs::read_to_string(&report).with_context(|| format!("{}: passed without a report", model.name))?;
    let mut lines = text.lines();
    let row: Row = serde_json::from_str(lines.next().unwrap_or_default())
        .with_context(|| format!("{}: the report {text:?}", model.name))?;
    ensure!(lines.next().is_none(), "{}: one test, one model", model.name);
    ensure!(row.name == model.name, "the test {} reported {}", model.name, row.name);
    Ok(row)
}

fn header(options: &Options) -> String {
    let twin = if options.no_twins { "" } else { "twin    " };
    let names = ("model", "threads", "bound", "interleavings", "floor", "seconds");
    let (name, threads, bound, interleavings, floor, seconds) = names;
    format!(
        "{name:44} {threads:>7} {bound:>5} {interleavings:>13} {floor:>9} {seconds:>8}  {twin}would catch"
    )
}

impl Row {
    fn line(&self) -> String {
        let bound = self.preemptions.map_or("none".to_owned(), |bound| bound.to_string());
        let twin = match self.twin_caught {
            Some(true) => "caught  ",
            Some(false) => "MISSED  ",
            None if self.twin.is_some() => "        ",
            None => "",
        };
        let Self { name, threads, interleavings, floor, seconds, catches, .. } = self;
        format!(
            "{name:44} {threads:>7} {bound:>5} {interleavings:>13} {floor:>9} {seconds:>8.2}  {twin}{catches}"
        )
    }
}
