//! Runs programs, with or without a time limit, and reads their output.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Runs a program and shows its output. Returns an error if the program fails.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let shown = show(command);
    eprintln!("$ {shown}");
    let status = command.status().with_context(|| shown.clone())?;
    ensure!(status.success(), "{shown}: {status}");
    Ok(())
}

/// How a program has ended.
#[derive(Debug)]
pub(crate) enum Ended {
    By(ExitStatus),
    /// The program was killed when its time limit had passed.
    Late,
}

/// Runs a program for at most `limit`, and writes its output to the file `log`.
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

/// Calls `work` for each item, with as many threads as there are processors. Returns the results in the order of the items.
pub(crate) fn on_all_processors<'a, T: Sync, R: Send>(
    items: &'a [T],
    work: impl Fn(&'a T) -> R + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let worker = || {
        // Ordering: Relaxed; the counter only has to give each index to exactly one worker, and no other data is published through it.
        let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        taken.map_while(|at| Some((at, work(items.get(at)?)))).collect::<Vec<_>>()
    };
    let workers = std::thread::available_parallelism()?.get();
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..workers).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker does not panic")).collect()
    });
    results.sort_unstable_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}

/// Returns the last `lines` lines of a log. Reads only the end of the file, because a log may be large.
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

/// Returns whether the log contains a line for which `wanted` returns true.
pub(crate) fn grep(log: &Path, wanted: impl Fn(&str) -> bool) -> bool {
    std::fs::read(log).is_ok_and(|bytes| String::from_utf8_lossy(&bytes).lines().any(wanted))
}

/// Measures how long something takes.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        #[expect(clippy::disallowed_methods, reason = "how long a run of a tool takes, no tested code")]
        Self(Instant::now())
    }

    pub(crate) fn seconds(&self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

/// Formats a command as one would type it in a shell.
pub(crate) fn show(command: &Command) -> String {
    let mut words = vec![command.get_program().to_string_lossy().into_owned()];
    words.extend(command.get_args().map(|word| word.to_string_lossy().into_owned()));
    if let Some(name) = words[0].rsplit('/').next().map(str::to_owned) {
        words[0] = name;
    }
    words.join(" ")
}

/// Prints the complaints and what to do about them, and returns an error if there are any.
pub(crate) fn verdict(complaints: &[String], what_to_do: &str) -> Result<()> {
    for complaint in complaints {
        eprintln!("error: {complaint}");
    }
    match complaints.len() {
        0 => Ok(()),
        1 => bail!("1 claim failed\nwhat to do: {what_to_do}"),
        n => bail!("{n} claims failed\nwhat to do: {what_to_do}"),
    }
}
