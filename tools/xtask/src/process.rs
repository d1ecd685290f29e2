//! Runs programs until they end or until a deadline, and reads the last lines of their output.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

/// Runs a program with its output shown. A failure is an error.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| shown.clone())?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// The outcome of a program.
#[derive(Debug)]
pub(crate) enum Ended {
    By(ExitStatus),
    /// Killed at the deadline.
    Late,
}

/// Runs a program for at most `limit`, with its output in `log`.
pub(crate) fn run_logged(command: &mut Command, log: &Path, limit: Duration) -> Result<Ended> {
    let file = File::create(log).with_context(|| log.display().to_string())?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| show(command))?;
    const STEP: Duration = Duration::from_millis(5);
    let mut waited = Duration::ZERO;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Ended::By(status));
        }
        if waited >= limit {
            child.kill()?;
            child.wait()?;
            return Ok(Ended::Late);
        }
        #[expect(clippy::disallowed_methods, reason = "std cannot wait for a child with a timeout")]
        std::thread::sleep(STEP);
        waited += STEP;
    }
}

/// The last `lines` lines of a log. Reads only the end of the file, because a log may be large.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    const MOST: u64 = 64 * 1024;
    let read = || -> std::io::Result<String> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(MOST)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let all: Vec<&str> = text.lines().collect();
        Ok(all[all.len().saturating_sub(lines)..].join("\n"))
    };
    read().unwrap_or_else(|error| format!("({}: {error})", log.display()))
}

/// Returns true if `wanted` accepts a line of the log.
pub(crate) fn grep(log: &Path, wanted: impl Fn(&str) -> bool) -> bool {
    std::fs::read(log).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).lines().any(wanted))
}

/// A command as typed in a shell.
pub(crate) fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    if let Some(name) = words[0].rsplit('/').next().map(str::to_owned) {
        words[0] = name;
    }
    words.join(" ")
}

/// Prints the complaints; returns an error if there are any.
pub(crate) fn verdict(complaints: &[String]) -> Result<()> {
    for complaint in complaints {
        eprintln!("error: {complaint}");
    }
    match complaints.len() {
        0 => Ok(()),
        1 => bail!("1 claim failed"),
        n => bail!("{n} claims failed"),
    }
}
