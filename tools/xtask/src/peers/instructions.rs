//! Counts the instructions per operation with callgrind. The counts hardly differ between runs, or between machines with the same instruction set.

use std::fs;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::parties::{Party, Programs};
use crate::process;
use crate::workspace::Workspace;

/// For each row: its name, the arguments of the program, the number of operations, and a pattern for the function whose instructions are counted.
const COUNTED: [(&str, &[&str], f64, &str); 7] = [
    ("queue-cycle", &["cycle", "--keys=1000", "--adds=200000"], 200_000.0, "*clock::measured*"),
    ("queue-worker-cycle", &["worker-cycle", "--keys=1000", "--adds=200000"], 200_000.0, "*clock::measured*"),
    (
        "queue-add-duplicate",
        &["add-duplicate", "--keys=1000", "--adds=200000"],
        200_000.0,
        "*clock::measured*",
    ),
    ("queue-fill", &["fill-drain", "--keys=100000"], 100_000.0, "*fifo::add_all*"),
    ("queue-drain", &["fill-drain", "--keys=100000"], 100_000.0, "*fifo::drain*"),
    ("limit-default", &["limit-default", "--keys=1000", "--adds=200000"], 200_000.0, "*clock::measured*"),
    ("limit-bucket", &["limit-bucket", "--adds=200000"], 200_000.0, "*clock::measured*"),
];

pub(super) fn run(workspace: &Workspace, programs: &Programs) -> Result<()> {
    let installed =
        Command::new("valgrind").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    ensure!(
        installed.is_ok_and(|status| status.success()),
        "valgrind is not installed: it is a package of that name in every Linux distribution"
    );
    let file = workspace.target.join("peers/callgrind.out");
    println!("{:22}{:>8}{:>8}   instructions an operation", "", "ours", "naive");
    for (work, words, operations, function) in COUNTED {
        let mut counts = Vec::new();
        for party in [Party::Ours, Party::Naive] {
            let mut command = Command::new("valgrind");
            command.args(["--quiet", "--tool=callgrind", "--collect-atstart=no"]);
            command.arg(format!("--toggle-collect={function}"));
            command.arg(format!("--callgrind-out-file={}", file.display()));
            command.arg(programs.rust()).args(words).args(["--who", party.name()]);
            let output = command.output().context("valgrind")?;
            ensure!(output.status.success(), "{}: {}", process::show(&command), output.status);
            let total = total(&fs::read_to_string(&file)?).context("callgrind gave no total")?;
            ensure!(total > 0.0, "{function} was not counted");
            counts.push(total / operations);
        }
        println!("{work:22}{:>8.0}{:>8.0}", counts[0], counts[1]);
    }
    Ok(())
}

fn total(profile: &str) -> Option<f64> {
    profile.lines().find_map(|line| line.strip_prefix("totals:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_total_is_read() {
        assert_eq!(total("fn=(1)\n5 3\n\ntotals: 21440195\n"), Some(21_440_195.0));
        assert_eq!(total("fn=(1)\n"), None);
    }
}
