//! The rungs. Each has a command, a check for the tools that the command needs, and a parser for the counts in its output.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::newest_kube;
use crate::e2e::binaries;
use crate::workspace::{Workspace, cargo};

/// One kind of evidence.
#[derive(Debug)]
pub(super) struct Rung {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    /// Returns the command. The seconds and the numbers of cases in the command are multiplied by the given scale.
    pub(super) command: fn(&Workspace, f64) -> Result<Command>,
    /// Returns the name of a missing tool, with how to install it; `None` if no tool is missing.
    pub(super) missing: fn(&Workspace) -> Option<String>,
    /// Returns the counts that the output of a passed run contains; `None` if the output contains no counts.
    pub(super) figures: fn(&str) -> Option<String>,
}

/// The rungs in the order in which they are executed. Those that give the most evidence per hour come first.
pub(super) const RUNGS: &[Rung] = &[
    Rung {
        name: "faults",
        what: "every model completes at 3 preemptions and catches its seeded fault",
        command: |_, _| xtask(&["loom", "--json", "--all-faults"]),
        missing: nothing,
        figures: models,
    },
    Rung {
        name: "random",
        what: "random operations of each core against its oracle, 10⁶ cases a test",
        command: |_, scale| {
            let mut command = cargo();
            command.args([
                "test",
                "--release",
                "--locked",
                "-p",
                "flyball-ratelimit",
                "-p",
                "flyball-workqueue",
            ]);
            command.args(["-p", "flyball-informer-cache", "--test", "it"]);
            Ok(cases(command, 1e6 * scale))
        },
        missing: nothing,
        figures: tests,
    },
    Rung {
        name: "simulation",
        what: "random runs of controllers and of leader election with faults, on virtual time, 10⁴ seeds a test",
        command: |_, scale| {
            let mut command = cargo();
            command.args(["test", "--release", "--locked", "-p", "flyball-controller", "-p", "flyball-kube"]);
            command.args(["-p", "flyball-kube-lease", "--features", "flyball-controller/testing"]);
            command.args(["--test", "it", "--", "simulation", "leader_random", "in_random_elections"]);
            Ok(cases(command, 1e4 * scale))
        },
        missing: nothing,
        figures: tests,
    },
    Rung {
        name: "newest-kube",
        what: "the delay of an `Action` is read with the newest kube that the manifests allow",
        command: |workspace, _| newest_kube::command(workspace),
        missing: nothing,
        figures: tests,
    },
    Rung {
        name: "fuzz",
        what: "coverage-guided operations against the oracles, 1200 s a target",
        command: |_, scale| xtask(&["fuzz", "--seconds", &whole(1200.0 * scale)]),
        missing: cargo_fuzz,
        figures: executions,
    },
    Rung {
        name: "fuzz-asan",
        what: "the same under the address sanitizer, 600 s a target",
        command: |_, scale| xtask(&["fuzz", "--asan", "--seconds", &whole(600.0 * scale)]),
        missing: cargo_fuzz,
        figures: executions,
    },
    Rung {
        name: "shuttle",
        what: "10⁶ random and 10⁶ PCT schedules of every model",
        command: |_, scale| xtask(&["shuttle", "--limit", "7200", "--iterations", &whole(1e6 * scale)]),
        missing: nothing,
        figures: |log| last(log, " models, "),
    },
    Rung {
        name: "loom-4",
        what: "every model at 4 preemptions, 1800 s each",
        command: |_, scale| {
            let seconds = whole(1800.0 * scale);
            xtask(&["loom", "--json", "--no-faults", "--preemptions", "4", "--cap", &seconds])
        },
        missing: nothing,
        figures: models,
    },
    Rung {
        name: "loom-unbounded",
        what: "every model without a bound on preemptions, 1800 s each",
        command: |_, scale| {
            xtask(&["loom", "--json", "--no-faults", "--unbounded", "--cap", &whole(1800.0 * scale)])
        },
        missing: nothing,
        figures: models,
    },
    Rung {
        name: "parity",
        what: "5·10⁵ new scripts of each kind through flyball, client-go and the reference",
        command: |workspace, scale| {
            // The seed is derived from the commit: each commit is tested with different scripts, but a second run at the same commit uses the same
            // scripts.
            let seed = workspace.commit().unwrap_or(1).to_string();
            xtask(&["parity", "--seed", &seed, "--scripts", &whole(5e5 * scale)])
        },
        missing: go,
        figures: scripts,
    },
    Rung {
        name: "e2e",
        what: "the tests on a real Kubernetes API server, which is built first where it is not in the cache",
        command: |_, _| xtask(&["e2e"]),
        missing: |workspace| if binaries::cached(workspace) { None } else { go(workspace) },
        figures: |log| last(log, "e2e: ").and_then(|line| line.strip_prefix("e2e: ").map(str::to_owned)),
    },
    Rung {
        name: "book",
        what: "every program of the book runs as a separate project, with the dependencies that its page lists",
        command: |workspace, _| with_tools(workspace, xtask(&["book", "--all"])?),
        missing: mdbook,
        figures: |log| {
            count(log, "runs with the dependencies", "programs of the book run as separate projects")
        },
    },
    Rung {
        name: "faults-unseen",
        what: "no seeded fault is seen by the ordinary tests of the crate that it breaks",
        command: |_, _| xtask(&["faults"]),
        missing: nothing,
        figures: |log| count(log, "passes the tests", "seeded faults pass the ordinary tests"),
    },
    Rung {
        name: "features",
        what: "every set of features of every published crate compiles, and the tests pass with none, each alone and all",
        command: |_, _| xtask(&["features", "--powerset"]),
        missing: nothing,
        figures: tests,
    },
    Rung {
        name: "deny",
        what: "licences, sources and known vulnerabilities of all dependencies",
        command: |workspace, _| {
            let mut command = cargo();
            command.args(["deny", "--locked", "check"]);
            with_tools(workspace, command)
        },
        missing: |workspace| {
            let install = "cargo install --locked cargo-deny@0.20.2";
            missing_subcommand(workspace, "deny", install)
        },
        figures: |log| last(log, " ok"),
    },
];

/// Returns a command that runs this program again, with the given arguments.
fn xtask(arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    // A rung does not depend on `FLYBALL_BASE`, which limits the seeded faults that other runs apply.
    command.env_remove("FLYBALL_BASE");
    Ok(command)
}

fn cases(mut command: Command, cases: f64) -> Command {
    command.env("FLYBALL_CASES", whole(cases)).env_remove("FLYBALL_SEED");
    command
}

/// Returns a number of seconds or of cases as a whole number, which is at least one.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is positive, and small enough"
)]
fn whole(number: f64) -> String {
    (number.round().max(1.0) as u64).to_string()
}

fn nothing(_: &Workspace) -> Option<String> {
    None
}

fn go(_: &Workspace) -> Option<String> {
    let install = "install Go 1.26 or newer, see go.dev/dl";
    (!answers(Command::new("go").arg("version"))).then(|| format!("Go is missing: {install}"))
}

fn cargo_fuzz(workspace: &Workspace) -> Option<String> {
    missing_subcommand(workspace, "fuzz", "cargo install --locked cargo-fuzz@0.13.2")
}

/// Adds to the command's `PATH` the folder into which `.ci/run` installs tools.
fn with_tools(workspace: &Workspace, mut command: Command) -> Result<Command> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let paths = std::env::split_paths(&path).chain([workspace.target.join("ci/bin")]);
    command.env("PATH", std::env::join_paths(paths).context("PATH")?);
    Ok(command)
}

fn mdbook(workspace: &Workspace) -> Option<String> {
    let here = workspace.target.join("ci/bin/mdbook");
    let found =
        [Path::new("mdbook"), &here].iter().any(|program| answers(Command::new(program).arg("--version")));
    (!found).then(|| "mdbook is missing: `.ci/run book` installs it".to_owned())
}

fn missing_subcommand(workspace: &Workspace, name: &str, install: &str) -> Option<String> {
    let program = format!("cargo-{name}");
    let here = workspace.target.join("ci/bin").join(&program);
    let found = |program: &Path| answers(Command::new(program).args([name, "--version"]));
    (!found(Path::new(&program)) && !found(&here)).then(|| format!("{program} is missing: `{install}`"))
}

fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Returns how many tests passed, according to the output of the test programs.
fn tests(log: &str) -> Option<String> {
    let results = log.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    let passed: u64 = results.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum();
    (passed > 0).then(|| format!("{passed} tests"))
}

/// Returns the summary line of `loom --json`, and the total number of interleavings of all models.
fn models(log: &str) -> Option<String> {
    let output = last(log, " models completed")?;
    let rows = log.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok());
    let interleavings: u64 = rows.filter_map(|row| row.get("interleavings")?.as_u64()).sum();
    Some(format!("{output}; {interleavings} interleavings"))
}

/// Returns the number of targets and of executions that `fuzz` reports.
fn executions(log: &str) -> Option<String> {
    let lines = log.lines().filter_map(|line| line.split_once(" executions in "));
    let counts: Vec<u64> = lines.filter_map(|(line, _)| line.split(' ').nth(1)?.parse().ok()).collect();
    let (least, all) = (counts.iter().min()?, counts.iter().sum::<u64>());
    Some(format!("{} targets, {all} executions, at least {least} a target", counts.len()))
}

/// Returns the counts that `parity` reports for each kind of script. There is no count of differences, because `parity` fails if it finds one.
fn scripts(log: &str) -> Option<String> {
    let lines: Vec<&str> = log.lines().filter(|line| line.contains(" scripts, ")).collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// Returns the last line that contains `part`.
fn last(log: &str, part: &str) -> Option<String> {
    log.lines().rev().find(|line| line.contains(part)).map(str::to_owned)
}

/// Returns the number of lines that contain `part`, followed by the text `what`.
fn count(log: &str, part: &str, what: &str) -> Option<String> {
    let lines = log.lines().filter(|line| line.contains(part)).count();
    (lines > 0).then(|| format!("{lines} {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In CI, each rung is a job of its own. A rung that the matrix leaves out would never run there.
    #[test]
    fn the_workflow_runs_every_rung() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.github/workflows/deep.yml");
        let workflow = std::fs::read_to_string(path).unwrap();
        let lists: Vec<&str> =
            workflow.lines().filter_map(|line| line.trim().strip_prefix("rung: ")).collect();
        let names: Vec<&str> = RUNGS.iter().map(|rung| rung.name).collect();
        assert_eq!(lists, [format!("[{}]", names.join(", "))]);
    }

    #[test]
    fn rungs_have_names_of_their_own() {
        for (at, rung) in RUNGS.iter().enumerate() {
            assert!(!RUNGS[..at].iter().any(|other| other.name == rung.name), "{}", rung.name);
            assert!(!rung.what.contains('|'), "{}", rung.name);
        }
    }

    #[test]
    fn figures_are_what_the_output_counts() {
        let log = "test result: ok. 7 passed; 0 failed\nx\ntest result: ok. 5 passed; 0 failed\n";
        assert_eq!(tests(log).as_deref(), Some("12 tests"));
        let log = "{\"name\":\"q::a\",\"interleavings\":11}\n{\"name\":\"q::b\",\"interleavings\":4}\n2 models completed, every seeded fault caught\n";
        assert_eq!(
            models(log).as_deref(),
            Some("2 models completed, every seeded fault caught; 15 interleavings")
        );
        let log = "relist 100 executions in 20 s\nttl_ops 50 executions in 20 s\n";
        assert_eq!(executions(log).as_deref(), Some("2 targets, 150 executions, at least 50 a target"));
        let log = "queue: 7 scripts, 50 lines, 0.9 s\n  flyball = the reference: 0 differ\nstore: 8 scripts, 9 lines, 1 s\n";
        assert_eq!(
            scripts(log).as_deref(),
            Some("queue: 7 scripts, 50 lines, 0.9 s; store: 8 scripts, 9 lines, 1 s")
        );
        assert_eq!(
            count("a passes the tests\nb passes the tests\n", "passes the tests", "faults").as_deref(),
            Some("2 faults")
        );
    }

    #[test]
    fn output_that_counts_nothing_is_no_evidence() {
        assert!(RUNGS.iter().all(|rung| (rung.figures)("").is_none()));
        assert_eq!(tests("test result: ok. 0 passed; 0 failed"), None);
    }

    #[test]
    fn a_scale_leaves_at_least_one() {
        assert_eq!(whole(1e6 * 0.5), "500000");
        assert_eq!(whole(1e4 * 1e-9), "1");
    }
}
