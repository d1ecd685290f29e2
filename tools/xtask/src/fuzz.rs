//! `cargo xtask fuzz`: runs the fuzz targets for a given time, on a stable toolchain.

use std::fs;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::process::{self, Ended};
use crate::workspace::{Workspace, cargo};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only this target.
    target: Option<String>,
    /// Seconds per target.
    #[arg(long, value_name = "N", default_value_t = 20)]
    seconds: u64,
    /// Use the address sanitizer.
    #[arg(long)]
    asan: bool,
}

impl Options {
    /// Runs each target for this number of seconds.
    pub(crate) fn each(seconds: u64, asan: bool) -> Self {
        Self { target: None, seconds, asan }
    }
}

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "the log of a target, target/fuzz/TARGET.log, ends with the command that repeats its failure; `cargo test` replays inputs that are copied to fuzz/corpus/TARGET";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut targets = targets(&workspace.read("fuzz/Cargo.toml")?);
    targets.retain(|target| options.target.as_ref().is_none_or(|wanted| wanted == target));
    ensure!(!targets.is_empty(), "no fuzz target is called {:?}", options.target.as_deref().unwrap_or(""));
    let installed = cargo().args(["fuzz", "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !installed.is_ok_and(|status| status.success()) {
        bail!(
            "cargo-fuzz is not installed: `cargo install --locked cargo-fuzz` (libFuzzer needs a C++ compiler, \
             nothing else). The committed corpus is replayed by `cargo test --workspace` without it."
        );
    }
    build(workspace, options)?;
    let mut complaints = Vec::new();
    for (target, executions) in run_targets(workspace, options, &targets)? {
        complaints.extend(executions.err().map(|error| format!("{target}: {error:#}")));
    }
    process::verdict(&complaints, WHAT_TO_DO)
}

/// Builds all targets at once before the first one runs, so that cargo uses all processors.
pub(crate) fn build(workspace: &Workspace, options: &Options) -> Result<()> {
    process::run(&mut tool(workspace, options, "build", options.target.as_deref())).context("does not build")
}

/// Runs the targets, as many at a time as there are processors. Returns the number of executions of each, or what failed.
pub(crate) fn run_targets(
    workspace: &Workspace,
    options: &Options,
    targets: &[String],
) -> Result<Vec<(String, Result<u64>)>> {
    process::on_all_processors(targets, |target| {
        let outcome = one(workspace, options, target);
        if let Ok(executions) = &outcome {
            println!("{target} {executions} executions in {} s", options.seconds);
        }
        (target.clone(), outcome)
    })
}

/// Returns the command that runs cargo-fuzz on one target, or on all targets if `target` is `None`.
fn tool(workspace: &Workspace, options: &Options, job: &str, target: Option<&str>) -> Command {
    let sanitizer = if options.asan { "address" } else { "none" };
    let mut command = cargo();
    command.current_dir(&workspace.root).args(["fuzz", job, "--sanitizer", sanitizer, "--target-dir"]);
    command.arg(workspace.target.join("fuzz").join(sanitizer)).args(target);
    if options.asan {
        // The address sanitizer needs an unstable compiler flag. With this variable, the stable compiler accepts it.
        command.env("RUSTC_BOOTSTRAP", "1");
    }
    command
}

/// Runs one target and returns the number of executions.
fn one(workspace: &Workspace, options: &Options, target: &str) -> Result<u64> {
    let folder = workspace.target.join("fuzz");
    // New inputs are written to this separate folder; the committed corpus is only read.
    let found = folder.join("corpus").join(target);
    fs::create_dir_all(&found)?;
    let log = folder.join(format!("{target}.log"));
    let mut command = tool(workspace, options, "run", Some(target));
    command.arg(&found).arg(format!("fuzz/corpus/{target}"));
    // Disables backtraces: the panic message and the command that reproduces the panic are sufficient.
    command.env("RUST_BACKTRACE", "0");
    command.args(["--", "-print_final_stats=1"]).arg(format!("-max_total_time={}", options.seconds));
    match process::run_logged(&mut command, &log, Duration::from_secs(options.seconds + 120))? {
        Ended::By(status) if status.success() => {}
        Ended::By(status) => bail!("{status}\n{}", process::tail(&log, 60)),
        Ended::Late => bail!("timed out\n{}", process::tail(&log, 20)),
    }
    let executions = executed(&fs::read_to_string(&log)?).context("libFuzzer gave no statistics")?;
    ensure!(executions > 0, "nothing was executed");
    Ok(executions)
}

fn executed(log: &str) -> Option<u64> {
    let number = log.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"))?;
    number.trim().parse().ok()
}

/// Returns the names of the fuzz targets in a manifest.
pub(crate) fn targets(manifest: &str) -> Vec<String> {
    let bins = manifest.split("[[bin]]").skip(1);
    let names = bins.filter_map(|bin| bin.lines().find_map(|line| line.strip_prefix("name = \"")));
    names.filter_map(|rest| rest.split('"').next()).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_the_bins() {
        let manifest = "[package]\nname = \"fuzz\"\n\n[[bin]]\nname = \"queue_ops\"\npath = \"x\"\n\n[[bin]]\nname = \"relist\"\n";
        assert_eq!(targets(manifest), ["queue_ops", "relist"]);
    }

    #[test]
    fn executions_are_read_from_the_statistics() {
        assert_eq!(executed("Done\nstat::number_of_executed_units: 1234\nstat::x: 1\n"), Some(1234));
        assert_eq!(executed("Done"), None);
    }
}
