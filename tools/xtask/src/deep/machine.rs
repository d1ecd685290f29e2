//! The date, the commit, the machine and the tools of a run.

use std::fs;
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

use super::{LEDGER, PAGE};
use crate::workspace::Workspace;

/// Returns the last commit that changed anything other than the ledger and the page, followed by `+` if a file has changed since.
pub(super) fn commit(workspace: &Workspace) -> Result<String> {
    let others = [".", &format!(":(exclude){PAGE}"), &format!(":(exclude){LEDGER}")];
    let git = |arguments: &[&str]| {
        let output = Command::new("git").current_dir(&workspace.root).args(arguments).args(others).output();
        let output = output.context("git")?;
        ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
        Ok(String::from_utf8(output.stdout)?.trim_end().to_owned())
    };
    let commit = git(&["log", "-1", "--format=%h", "--abbrev=12", "--"])?;
    let changed = !git(&["status", "--porcelain", "--"])?.is_empty();
    Ok(format!("{commit}{}", if changed { "+" } else { "" }))
}

/// Returns the versions of the compiler and of these tools.
pub(super) fn tools(workspace: &Workspace, names: &[&str]) -> Result<String> {
    let mut tools = vec![version("rustc", &["--version"])];
    for name in names {
        tools.push(match *name {
            "go" => version("go", &["version"]),
            "cargo-fuzz" => version("cargo", &["fuzz", "--version"]),
            "cargo-deny" => version("cargo", &["deny", "--version"]),
            library => locked(workspace, library)?,
        });
    }
    Ok(tools.join("; "))
}

/// Returns the first words of what a tool prints about itself.
fn version(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().filter(|word| *word != "version").take(2).collect();
    if words.is_empty() { format!("{program} ?") } else { words.join(" ") }
}

/// Returns the version of a library in the lock file.
fn locked(workspace: &Workspace, name: &str) -> Result<String> {
    let lock = workspace.read("Cargo.lock")?;
    let start = format!("name = \"{name}\"\nversion = \"");
    let version = lock.split_once(&start).and_then(|(_, rest)| rest.split('"').next());
    Ok(format!("{name} {}", version.with_context(|| format!("{name} is not in Cargo.lock"))?))
}

/// Returns the number and the model of the processors, and the size of the memory.
pub(super) fn describe() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|text| gibibytes(&text));
    let memory = memory.map_or(String::new(), |memory| format!(", {memory} GiB"));
    format!("{processors} × {model}{memory}")
}

/// Returns the value of the first line with this name in a file whose lines have the form `name: value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().replace('|', "/"))
}

/// Converts a text like `16384000 kB` to a rounded number of GiB.
fn gibibytes(text: &str) -> Option<u64> {
    let kibibytes: u64 = text.split(' ').next()?.parse().ok()?;
    Some((kibibytes + (1 << 19)) >> 20)
}

/// Returns the current day in UTC, in the form `2026-01-31`.
pub(super) fn today() -> Result<String> {
    #[expect(clippy::disallowed_methods, reason = "the date of the evidence")]
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
    Ok(date(now.as_secs()))
}

/// Returns the day in UTC, in the form `2026-01-31`.
fn date(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let mut year = 1970;
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(951_868_800), "2000-03-01");
        assert_eq!(date(1_798_761_599), "2026-12-31");
        assert_eq!(date(1_798_761_600), "2027-01-01");
    }

    #[test]
    fn memory_is_rounded_to_gibibytes() {
        assert_eq!(gibibytes("16384000 kB"), Some(16));
        assert_eq!(gibibytes("kB"), None);
    }
}
