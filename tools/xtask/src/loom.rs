//! `cargo xtask loom`: explores every interleaving of every loom model, and checks that each model has at least as many interleavings as its recorded
//! floor and that it catches its seeded fault.

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::models::{self, Binaries, Checker, Declared, Extent};
use crate::process::{self, Ended};
use crate::seeded::Tree;
use crate::selection::Selection;
use crate::workspace::Workspace;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only models whose name contains this text.
    name: Option<String>,
    /// Print to stdout only one line per model, which is a JSON object.
    #[arg(long)]
    json: bool,
    /// Apply no seeded faults.
    #[arg(long)]
    no_faults: bool,
    /// Apply every seeded fault, each with a separate build. This is the default if a NAME is given.
    #[arg(long, conflicts_with = "no_faults")]
    all_faults: bool,
    /// Apply the seeded faults that the changes since this commit may affect: the fault itself, the test binary of its model, or the crate that it
    /// changes or a dependency of that crate has changed. The default is $FLYBALL_BASE. If neither this option nor the variable is set, apply a
    /// sample of the faults.
    #[arg(long, value_name = "COMMIT", conflicts_with_all = ["no_faults", "all_faults"])]
    base: Option<String>,
    /// The maximum number of faults. If there are more, a sample is applied, which the commit determines. The default is 32 without a base, and all
    /// faults with one.
    #[arg(long, value_name = "N", conflicts_with_all = ["no_faults", "all_faults"])]
    sample: Option<usize>,
    /// The maximum number of preemptions per execution. The default is 3, because the floors were recorded with this number.
    #[arg(long, value_name = "N", conflicts_with = "unbounded")]
    preemptions: Option<u8>,
    /// Do not limit the number of preemptions.
    #[arg(long)]
    unbounded: bool,
    /// A model fails if it has not completed after this number of seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = LIMIT)]
    limit: u64,
    /// Replaces --limit: stop a model after this number of seconds, but report it as capped instead of failed.
    #[arg(long, value_name = "SECONDS", conflicts_with = "limit")]
    cap: Option<u64>,
}

/// How models are explored.
#[derive(Clone, Debug)]
pub(crate) struct Exploration {
    /// The maximum number of preemptions per execution; `None` means that of the floors.
    pub(crate) preemptions: Option<u8>,
    /// Whether the number of preemptions is not limited.
    pub(crate) unbounded: bool,
    /// A model fails if it has not completed after this number of seconds.
    pub(crate) limit: u64,
    /// In place of `limit`: a model is stopped after this number of seconds, and reported as capped.
    pub(crate) cap: Option<u64>,
    /// The folder in which stopped models leave a checkpoint, from which the next run goes on.
    pub(crate) checkpoints: Option<PathBuf>,
}

impl Default for Exploration {
    fn default() -> Self {
        Self { preemptions: None, unbounded: false, limit: LIMIT, cap: None, checkpoints: None }
    }
}

/// The default time limit of a model in seconds.
const LIMIT: u64 = 900;

/// One row of the report: the numbers that the run of a model reports, and whether the model has caught its seeded fault.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Row {
    name: String,
    threads: usize,
    preemptions: Option<usize>,
    pub(crate) interleavings: u64,
    floor: u64,
    seconds: f64,
    catches: String,
    /// Whether the model was stopped before it completed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) capped: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault_caught: Option<bool>,
}

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str =
    "`cargo xtask loom NAME --no-faults` runs one model; its log is target/models/logs/NAME.log";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let models = models::declared(workspace, options.name.as_deref())?;
    ensure!(!models.is_empty(), "no model is called {:?}", options.name.as_deref().unwrap_or(""));
    let extent = if options.name.is_none() { Extent::All } else { Extent::Holding(&models) };
    let Ok(binaries) = models::build(workspace, &workspace.root, Checker::Loom, extent)? else {
        bail!("the models do not compile");
    };
    let mut complaints = Vec::new();
    if options.name.is_none() {
        complaints.extend(runner_works(workspace, &binaries).err().map(|error| format!("{error:#}")));
        complaints.extend(undeclared(&models, &binaries)?);
    }

    let Options { preemptions, unbounded, limit, cap, .. } = *options;
    let exploration = Exploration { preemptions, unbounded, limit, cap, checkpoints: None };
    let mut rows = explore(workspace, &exploration, &models, &binaries)?;
    let mut faults = if options.no_faults { BTreeMap::new() } else { faults(workspace, options, &models)? };
    let caught = faults.len();
    let mut capped = 0;
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
        row.fault = (!options.no_faults).then(|| model.name.clone());
        if let Some(outcome) = faults.remove(&model.name) {
            row.fault_caught = Some(outcome.is_ok());
            complaints.extend(outcome.err().map(|why| format!("the fault {}: {why}", model.name)));
        }
        capped += usize::from(row.capped);
        println!("{}", if options.json { serde_json::to_string(&row)? } else { row.line() });
    }
    process::verdict(&complaints, WHAT_TO_DO)?;
    let faults = match models.len() - caught {
        _ if options.no_faults => String::new(),
        0 => ", every seeded fault caught".to_owned(),
        left => format!(", {caught} seeded faults caught, {left} left for `cargo xtask deep`"),
    };
    let stopped = if capped == 0 { String::new() } else { format!(", {capped} capped") };
    eprintln!("{} models completed{stopped}{faults}", models.len() - capped);
    Ok(())
}

/// Applies the selected faults, and checks for each that its model catches it.
fn faults(
    workspace: &Workspace,
    options: &Options,
    models: &[Declared],
) -> Result<BTreeMap<String, Result<(), String>>> {
    let given = || env::var("FLYBALL_BASE").ok().filter(|base| !base.is_empty());
    let base = options.base.clone().or_else(given);
    const SAMPLE: usize = 32;
    let (selection, most) = match &base {
        _ if options.all_faults || options.name.is_some() => (Selection::All, None),
        Some(base) => (Selection::Since(base), options.sample),
        None => (Selection::All, Some(options.sample.unwrap_or(SAMPLE))),
    };
    let chosen = selection.of(workspace, models, most)?;
    let mut outcomes = BTreeMap::new();
    if chosen.is_empty() {
        return Ok(outcomes);
    }
    let tree = Tree::open(workspace)?;
    for model in chosen {
        let outcome = tree.caught(model)?;
        eprintln!("the fault {} {}", model.name, if outcome.is_ok() { "caught" } else { "NOT CAUGHT" });
        outcomes.insert(model.name.clone(), outcome);
    }
    Ok(outcomes)
}

/// Runs the tests of the model runner. They check that the runner counts the interleavings correctly and detects a fault.
fn runner_works(workspace: &Workspace, binaries: &Binaries) -> Result<()> {
    let binary = binaries.get("runner").context("the runner's tests were not built")?;
    let log = log_file(workspace, "runner")?;
    match process::run_logged(&mut Command::new(binary), &log, Duration::from_secs(60))? {
        Ended::By(status) if status.success() => Ok(()),
        _ => bail!("the runner's own tests fail\n{}", process::tail(&log, 30)),
    }
}

/// Finds tests that declare no model although they are in the test binaries of the models. `explore` does not run such tests.
fn undeclared(models: &[Declared], binaries: &Binaries) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for (name, binary) in binaries.iter().filter(|(name, _)| *name != "runner") {
        for test in tests(binary)? {
            let last = test.rsplit("::").next().unwrap_or(&test);
            if !models.iter().any(|model| model.binary() == *name && model.test() == last) {
                complaints.push(format!("{}/{name}: the test {test} declares no model", models::TESTS));
            }
        }
    }
    Ok(complaints)
}

/// The paths of the tests of a binary.
pub(crate) fn tests(binary: &Path) -> Result<Vec<String>> {
    let output = Command::new(binary).args(["--list", "--format", "terse"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.strip_suffix(": test")).map(str::to_owned).collect())
}

/// Returns the command that runs one model in a separate process. The process is separate because a model that spins aborts its process.
pub(crate) fn command(model: &Declared, binaries: &Binaries) -> Result<Command> {
    let name = model.binary();
    let binary = binaries.get(name).with_context(|| format!("{name} was not built"))?;
    let tests = tests(binary)?;
    let test = tests.iter().find(|test| test.rsplit("::").next() == Some(model.test()));
    let test = test
        .with_context(|| format!("{}: {} has no test {}", model.name, model.file.display(), model.test()))?;
    let mut command = Command::new(binary);
    command.args(["--exact", test, "--test-threads", "1"]);
    // Disables backtraces: a backtrace through loom's generators takes half a second and has no useful frames.
    command.env("RUST_BACKTRACE", "0");
    Ok(command)
}

/// The log file of `name`.
pub(crate) fn log_file(workspace: &Workspace, name: &str) -> Result<PathBuf> {
    let folder = workspace.target.join("models").join("logs");
    fs::create_dir_all(&folder)?;
    Ok(folder.join(format!("{}.log", name.replace("::", "__"))))
}

/// Explores all models. As many processes run concurrently as there are processors.
fn explore(
    workspace: &Workspace,
    exploration: &Exploration,
    models: &[Declared],
    binaries: &Binaries,
) -> Result<BTreeMap<String, Result<Row>>> {
    let rows = process::on_all_processors(models, |model| {
        let row = explored(workspace, exploration, model, binaries);
        let end = match &row {
            Ok(row) if row.capped => "capped",
            Ok(_) => "completed",
            Err(_) => "FAILED",
        };
        eprintln!("{} {end}", model.name);
        (model.name.clone(), row)
    })?;
    Ok(rows.into_iter().collect())
}

/// Explores one model in a process of its own.
pub(crate) fn explored(
    workspace: &Workspace,
    exploration: &Exploration,
    model: &Declared,
    binaries: &Binaries,
) -> Result<Row> {
    let log = log_file(workspace, &model.name)?;
    let report = log.with_extension("json");
    if report.exists() {
        fs::remove_file(&report)?;
    }
    let mut command = command(model, binaries)?;
    command.env("FLYBALL_MODEL_REPORT", &report);
    if let Some(preemptions) = exploration.preemptions {
        command.env("LOOM_MAX_PREEMPTIONS", preemptions.to_string());
    }
    if exploration.unbounded {
        command.env("FLYBALL_MODEL_UNBOUNDED", "1");
    }
    if let Some(folder) = &exploration.checkpoints {
        command.env("FLYBALL_MODEL_CHECKPOINT", folder.join(model.name.replace("::", "__")));
    }
    // A model stops by itself at its cap. One that does not is stuck in a single interleaving.
    let limit = match exploration.cap {
        Some(cap) => {
            command.env("FLYBALL_MODEL_SECONDS", cap.to_string());
            cap + LIMIT
        }
        None => exploration.limit,
    };
    match process::run_logged(&mut command, &log, Duration::from_secs(limit))? {
        Ended::By(status) if status.success() => {}
        Ended::By(status) => bail!("{}: {status}\n{}", model.name, process::tail(&log, 40)),
        Ended::Late => bail!("{}: not completed after {limit} s", model.name),
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
    let fault = if options.no_faults { "" } else { "fault   " };
    let names = ("model", "threads", "bound", "interleavings", "floor", "seconds");
    let (name, threads, bound, interleavings, floor, seconds) = names;
    format!(
        "{name:44} {threads:>7} {bound:>5} {interleavings:>13} {floor:>9} {seconds:>8}  {fault}would catch"
    )
}

impl Row {
    fn line(&self) -> String {
        let bound = self.preemptions.map_or("none".to_owned(), |bound| bound.to_string());
        let fault = match self.fault_caught {
            Some(true) => "caught  ",
            Some(false) => "MISSED  ",
            None if self.fault.is_some() => "        ",
            None => "",
        };
        let capped = if self.capped { "capped, not completed; " } else { "" };
        let Self { name, threads, interleavings, floor, seconds, catches, .. } = self;
        format!(
            "{name:44} {threads:>7} {bound:>5} {interleavings:>13} {floor:>9} {seconds:>8.2}  {fault}{capped}{catches}"
        )
    }
}
