//! Runs slices: each function runs one part of a rung for about the given time, and counts what it did for each item.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::newest_kube;
use super::rungs::checker;
use crate::features as feature_sets;
use crate::fuzz as fuzzing;
use crate::loom::{self as looms, Exploration};
use crate::models::{self, Declared, Extent};
use crate::process::{self, Ended, Stopwatch};
use crate::seeded::Tree;
use crate::workspace::{Workspace, cargo};

/// What a slice has to do.
#[derive(Debug)]
pub(super) struct Work<'a> {
    pub(super) workspace: &'a Workspace,
    pub(super) rung: &'a str,
    pub(super) package: &'a str,
    /// The items that have not reached their bar, those with the least work first. There is at least one.
    pub(super) items: Vec<String>,
    /// About how long the slice should run.
    pub(super) budget: Duration,
    /// How many units the whole ledger counts for this part. Seeds are derived from it, so no slice repeats the random cases of another.
    pub(super) so_far: u64,
    /// The units per second of the last slice of this part; `None` if there was none.
    pub(super) rate: Option<f64>,
    /// The hash of the sources.
    pub(super) sources: &'a str,
    pub(super) log: PathBuf,
}

/// What a slice has done.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub(super) counts: BTreeMap<String, u64>,
    /// The items of which nothing is left to do.
    pub(super) complete: BTreeSet<String>,
    pub(super) note: String,
    /// What failed. Its counts are kept, but the slice has not passed.
    pub(super) failure: Option<String>,
    /// The time, without builds.
    pub(super) seconds: f64,
}

impl Done {
    fn failed(&mut self, item: &str, why: &str) {
        let first = why.lines().next().unwrap_or_default();
        self.failure.get_or_insert_with(|| format!("{item}: {first}"));
        eprintln!("{item}: {why}");
    }
}

/// Applies seeded faults, one after the other, until the time is over. Before its fault is applied, the model must pass.
pub(super) fn faults(work: &Work<'_>) -> Result<Done> {
    let models = chosen(work)?;
    let binaries = built(work, &models)?;
    let tree = Tree::open(work.workspace)?;
    let exploration = Exploration::default();
    one_by_one(work, |name| {
        let model = named(&models, name);
        looms::explored(work.workspace, &exploration, model, &binaries)?;
        tree.caught(model)?.map_err(anyhow::Error::msg)
    })
}

/// Runs the ordinary tests with seeded faults, one after the other, until the time is over.
pub(super) fn unseen(work: &Work<'_>) -> Result<Done> {
    let models = chosen(work)?;
    let tree = Tree::open(work.workspace)?;
    const LIMIT: Duration = Duration::from_secs(900);
    one_by_one(work, |name| tree.passes_tests(named(&models, name), LIMIT)?.map_err(anyhow::Error::msg))
}

/// Explores models at this bound of preemptions, or without a bound, each for a part of the time. An exploration that is not complete goes on in the
/// next slice, if its checkpoint still exists.
pub(super) fn loom(work: &Work<'_>, preemptions: Option<u8>) -> Result<Done> {
    let models = chosen(work)?;
    let binaries = built(work, &models)?;
    let checkpoints = work.workspace.target.join("deep/checkpoints").join(work.sources).join(work.rung);
    std::fs::create_dir_all(&checkpoints)?;
    side_by_side(work, |name, left| {
        let exploration = Exploration {
            preemptions,
            unbounded: preemptions.is_none(),
            cap: Some(left.as_secs().clamp(10, 120)),
            checkpoints: Some(checkpoints.clone()),
            ..Exploration::default()
        };
        let row = looms::explored(work.workspace, &exploration, named(&models, name), &binaries)?;
        Ok((row.interleavings, !row.capped))
    })
}

/// Runs models under shuttle, each for a part of the time.
pub(super) fn shuttle(work: &Work<'_>) -> Result<Done> {
    let models = chosen(work)?;
    let binaries = built(work, &models)?;
    const FIRST: u64 = 2_000;
    const LIMIT: Duration = Duration::from_secs(1_800);
    side_by_side(work, |name, left| {
        let run = |iterations: u64| {
            let log = looms::log_file(work.workspace, &format!("{name}.shuttle"))?;
            let mut command = looms::command(named(&models, name), &binaries)?;
            command.env("FLYBALL_SHUTTLE_ITERATIONS", iterations.to_string());
            let watch = Stopwatch::start();
            match process::run_logged(&mut command, &log, LIMIT)? {
                Ended::By(status) if status.success() => Ok(watch.seconds()),
                Ended::By(status) => bail!("{status}\n{}", process::tail(&log, 40)),
                Ended::Late => bail!("timed out after {} s", LIMIT.as_secs()),
            }
        };
        let seconds = run(FIRST)?;
        let share = left.as_secs_f64().min(15.0);
        let more = whole(FIRST as f64 / seconds.max(0.01) * share).min(2_000_000);
        run(more)?;
        Ok((FIRST + more, false))
    })
}

/// Fuzzes all targets of the part, as many at a time as there are processors.
pub(super) fn fuzz(work: &Work<'_>, asan: bool) -> Result<Done> {
    let cores = std::thread::available_parallelism()?.get();
    let rounds = work.items.len().div_ceil(cores) as u64;
    let seconds = (work.budget.as_secs() / rounds).max(1);
    let options = fuzzing::Options::each(seconds, asan);
    fuzzing::build(work.workspace, &options)?;
    let watch = Stopwatch::start();
    let mut done = Done::default();
    for (target, executions) in fuzzing::run_targets(work.workspace, &options, &work.items)? {
        match executions {
            Ok(executions) => _ = done.counts.insert(target, executions),
            Err(error) => done.failed(&target, &format!("{error:#}")),
        }
    }
    done.seconds = watch.seconds();
    Ok(done)
}

/// Runs the tests of the package whose random cases a number of cases and a seed determine. The build is that of `cargo test --workspace`, in which the
/// drivers are optimised: a release build of the test binaries takes ten minutes, and has no debug assertions.
pub(super) fn cases(work: &Work<'_>, filters: &[&str]) -> Result<Done> {
    let mut build = cargo();
    build.current_dir(&work.workspace.root);
    build.args(["test", "--workspace", "--locked", "--test", "it", "--no-run"]);
    build.args(["--message-format", "json-render-diagnostics"]).stdout(Stdio::piped());
    let output = build.spawn().and_then(std::process::Child::wait_with_output).context("cargo test")?;
    ensure!(output.status.success(), "the tests do not compile");
    let binary = String::from_utf8(output.stdout)?
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .find(|artifact| artifact.is_test_of(work.package))
        .and_then(|artifact| artifact.executable)
        .with_context(|| format!("{} has no tests", work.package))?;
    // Without a slice to take the rate from, a small number of cases; and never more than a slice can run if the rate was measured on a machine that
    // is twice as fast.
    const FIRST: f64 = 1_000.0;
    let cases = whole(work.rate.map_or(FIRST, |rate| rate * work.budget.as_secs_f64() * 0.8));
    let package = work.workspace.packages.iter().find(|package| package.name == work.package);
    let folder = package.context("the package exists")?.folder(work.workspace);
    let mut command = Command::new(binary);
    command.args(filters).current_dir(work.workspace.root.join(folder)).env_remove("FLYBALL_SEED");
    command.env("FLYBALL_CASES", cases.to_string()).env("FLYBALL_FIRST_SEED", (work.so_far + 1).to_string());
    let watch = Stopwatch::start();
    let ended = process::run_logged(&mut command, &work.log, work.budget * 3)?;
    let seconds = watch.seconds();
    let mut done = Done { seconds, ..Done::default() };
    match ended {
        Ended::By(status) if status.success() => {
            let log = std::fs::read_to_string(&work.log)?;
            done.note = tests(&log).context("no test ran")?;
            done.counts.insert(work.package.to_owned(), cases);
        }
        Ended::By(_) => done.failed(work.package, &failing(&process::tail(&work.log, 400))),
        Ended::Late => bail!("{} cases are too many for a slice", cases),
    }
    Ok(done)
}

pub(super) fn newest_kube(work: &Work<'_>) -> Result<Done> {
    once(work, newest_kube::command(work.workspace)?, tests)
}

pub(super) fn parity(work: &Work<'_>) -> Result<Done> {
    let kind = match work.package {
        "flyball-workqueue" => "queue",
        "flyball-ratelimit" => "limiter",
        _ => "store",
    };
    const FIRST: f64 = 10_000.0;
    let scripts = whole(work.rate.map_or(FIRST, |rate| rate * work.budget.as_secs_f64() * 0.8));
    let mut command = xtask(&["parity", "--kind", kind])?;
    command.args(["--seed", &(work.so_far + 2).to_string(), "--scripts", &scripts.to_string()]);
    let mut done = once(work, command, |log| last(log, " scripts, "))?;
    for count in done.counts.values_mut() {
        *count = scripts;
    }
    Ok(done)
}

pub(super) fn e2e(work: &Work<'_>) -> Result<Done> {
    once(work, xtask(&["e2e"])?, |log| {
        last(log, "e2e: ").and_then(|line| line.strip_prefix("e2e: ").map(str::to_owned))
    })
}

pub(super) fn book(work: &Work<'_>) -> Result<Done> {
    let command = with_tools(work.workspace, xtask(&["book", "--all"])?)?;
    once(work, command, |log| {
        let programs = log.lines().filter(|line| line.contains("runs with the dependencies")).count();
        (programs > 0).then(|| format!("{programs} programs"))
    })
}

pub(super) fn deny(work: &Work<'_>) -> Result<Done> {
    let mut command = cargo();
    command.args(["deny", "--locked", "check"]);
    once(work, with_tools(work.workspace, command)?, |log| last(log, " ok"))
}

/// Checks sets of features, one after the other, until the time is over.
pub(super) fn features(work: &Work<'_>) -> Result<Done> {
    let package = work.workspace.published().find(|package| package.name == work.package);
    let package = package.context("the package is published")?;
    let sets = feature_sets::sets(package);
    one_by_one(work, |name| {
        let set = sets.iter().find(|set| feature_sets::name(set) == name).context("the set exists")?;
        feature_sets::check(work.workspace, package, set, &work.log)
    })
}

/// Runs a command that counts as one unit if it passes and its output has figures. Output without figures is no evidence: the command may have checked
/// nothing.
fn once(work: &Work<'_>, mut command: Command, figures: fn(&str) -> Option<String>) -> Result<Done> {
    if command.get_current_dir().is_none() {
        command.current_dir(&work.workspace.root);
    }
    const LIMIT: Duration = Duration::from_secs(3_600);
    let watch = Stopwatch::start();
    let ended = process::run_logged(command.env("CARGO_TERM_COLOR", "never"), &work.log, LIMIT)?;
    let mut done = Done { seconds: watch.seconds(), ..Done::default() };
    let log = String::from_utf8_lossy(&std::fs::read(&work.log)?).into_owned();
    match (ended, figures(&log)) {
        (Ended::By(status), Some(figures)) if status.success() => {
            done.note = figures;
            done.counts.extend(work.items.iter().map(|item| (item.clone(), 1)));
        }
        (Ended::By(status), None) if status.success() => {
            done.failed(work.package, "the output has no counts")
        }
        (Ended::By(status), _) => {
            done.failed(
                work.package,
                &format!("{status}, see {}\n{}", work.log.display(), process::tail(&work.log, 30)),
            );
        }
        (Ended::Late, _) => done.failed(work.package, "timed out after an hour"),
    }
    Ok(done)
}

/// Runs `check` for one item after the other, until the time is over. Each item that passes counts as one unit.
fn one_by_one(work: &Work<'_>, check: impl Fn(&str) -> Result<()>) -> Result<Done> {
    let watch = Stopwatch::start();
    let mut done = Done::default();
    for item in &work.items {
        if watch.seconds() >= work.budget.as_secs_f64() {
            break;
        }
        match check(item) {
            Ok(()) => _ = done.counts.insert(item.clone(), 1),
            Err(error) => done.failed(item, &format!("{error:#}")),
        }
    }
    done.seconds = watch.seconds();
    Ok(done)
}

/// Runs `check` for the items, as many at a time as there are processors, until the time is over. `check` gets the time that is left, and returns the
/// count of the item, and whether nothing is left to do for it.
fn side_by_side(
    work: &Work<'_>,
    check: impl Fn(&str, Duration) -> Result<(u64, bool)> + Sync,
) -> Result<Done> {
    let watch = Stopwatch::start();
    let outcomes = process::on_all_processors(&work.items, |item| {
        let left = work.budget.saturating_sub(Duration::from_secs_f64(watch.seconds()));
        (!left.is_zero()).then(|| (item, check(item, left)))
    })?;
    let mut done = Done { seconds: watch.seconds(), ..Done::default() };
    for (item, outcome) in outcomes.into_iter().flatten() {
        match outcome {
            Ok((count, complete)) => {
                done.counts.insert(item.clone(), count);
                if complete {
                    done.complete.insert(item.clone());
                }
            }
            Err(error) => done.failed(item, &format!("{error:#}")),
        }
    }
    Ok(done)
}

fn chosen(work: &Work<'_>) -> Result<Vec<Declared>> {
    let mut models = models::declared(work.workspace, None)?;
    models.retain(|model| work.items.contains(&model.name));
    Ok(models)
}

fn named<'a>(models: &'a [Declared], name: &str) -> &'a Declared {
    models.iter().find(|model| model.name == name).expect("the items are models")
}

fn built(work: &Work<'_>, models: &[Declared]) -> Result<models::Binaries> {
    let workspace = work.workspace;
    match models::build(workspace, &workspace.root, checker(work.rung), Extent::Holding(models))? {
        Ok(binaries) => Ok(binaries),
        Err(_) => bail!("the models do not compile"),
    }
}

/// A message of cargo about something that it has built.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
}

impl Artifact {
    fn is_test_of(&self, package: &str) -> bool {
        let manifest = std::fs::read_to_string(&self.manifest_path).unwrap_or_default();
        self.executable.is_some()
            && self.target.name == "it"
            && manifest.contains(&format!("\nname = \"{package}\"\n"))
    }
}

/// Returns a command that runs this program again, with the given arguments.
fn xtask(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    // A rung does not depend on `FLYBALL_BASE`, which limits the seeded faults that other runs apply.
    command.env_remove("FLYBALL_BASE");
    Ok(command)
}

/// Adds to the command's `PATH` the folder into which `.ci/run` installs tools.
pub(super) fn with_tools(workspace: &Workspace, mut command: Command) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&path).chain([workspace.target.join("ci/bin")]);
    command.env("PATH", std::env::join_paths(paths).context("PATH")?);
    Ok(command)
}

/// Rounds a number down, to at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive, and small enough"
)]
fn whole(number: f64) -> u64 {
    number.max(1.0) as u64
}

/// Returns how many tests passed, according to the output of the test programs.
fn tests(log: &str) -> Option<String> {
    let results = log.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let passed: u64 = results.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum();
    (passed > 0).then(|| format!("{passed} tests"))
}

/// Returns the part of a log that names the failing tests and the seeds.
fn failing(log: &str) -> String {
    let wanted =
        |line: &&str| ["FLYBALL_SEED", "panicked at", "FAILED"].iter().any(|part| line.contains(part));
    let lines: Vec<&str> = log.lines().filter(wanted).collect();
    lines.join("\n")
}

/// Returns the last line that contains `part`.
fn last(log: &str, part: &str) -> Option<String> {
    log.lines().rev().find(|line| line.contains(part)).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work<'a>(workspace: &'a Workspace, items: &[&str]) -> Work<'a> {
        Work {
            workspace,
            rung: "r",
            package: "a",
            items: items.iter().map(|item| (*item).to_owned()).collect(),
            budget: Duration::from_secs(60),
            so_far: 0,
            rate: None,
            sources: "1",
            log: std::env::temp_dir().join(format!("flyball-xtask-{}-slice.log", std::process::id())),
        }
    }

    #[test]
    fn items_that_fail_do_not_count() {
        let workspace = Workspace::open().unwrap();
        let work = work(&workspace, &["x", "y", "z"]);
        let done = one_by_one(&work, |item| if item == "y" { bail!("why\nmore") } else { Ok(()) }).unwrap();
        assert_eq!(done.counts, BTreeMap::from([("x".to_owned(), 1), ("z".to_owned(), 1)]));
        assert_eq!(done.failure.as_deref(), Some("y: why"));
        let done =
            side_by_side(&work, |item, _| if item == "y" { bail!("no") } else { Ok((7, item == "x")) });
        let done = done.unwrap();
        assert_eq!(done.counts, BTreeMap::from([("x".to_owned(), 7), ("z".to_owned(), 7)]));
        assert_eq!(done.complete, BTreeSet::from(["x".to_owned()]));
        assert_eq!(done.failure.as_deref(), Some("y: no"));
    }

    #[test]
    fn no_item_starts_after_the_time_is_over() {
        let workspace = Workspace::open().unwrap();
        let work = Work { budget: Duration::ZERO, ..work(&workspace, &["x", "y"]) };
        assert!(one_by_one(&work, |_| Ok(())).unwrap().counts.is_empty());
        assert!(side_by_side(&work, |_, _| Ok((1, false))).unwrap().counts.is_empty());
    }

    #[test]
    fn a_command_that_counts_nothing_is_no_evidence() {
        let workspace = Workspace::open().unwrap();
        let run = |script: &str| {
            let mut command = Command::new("sh");
            command.args(["-c", script]);
            once(&work(&workspace, &["x"]), command, tests).unwrap()
        };
        let passed =
            run("echo 'test result: ok. 7 passed; 0 failed'; echo 'test result: ok. 5 passed; 0 failed'");
        assert_eq!(
            (passed.note.as_str(), passed.counts.get("x"), passed.failure),
            ("12 tests", Some(&1), None)
        );
        for (script, failure) in [
            ("echo 'test result: ok. 0 passed; 0 failed'", "a: the output has no counts"),
            ("echo 'test result: ok. 3 passed; 0 failed'; exit 3", "a: exit status: 3"),
        ] {
            let failed = run(script);
            assert!(
                failed.failure.as_ref().is_some_and(|why| why.starts_with(failure)),
                "{:?}",
                failed.failure
            );
            assert!(failed.counts.is_empty());
        }
    }
}
