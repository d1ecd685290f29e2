//! EDGE. `replay`: runs two controllers on the recording of a real cluster.
//!
//! | file | |
//! |---|---|
//! | args, input, wire, interned, objects, trace, scale | a file is read and decoded to typed objects, before the measurement starts |
//! | horizon, faults, server | the recorded cluster, which acts as an API server |
//! | replicas, endpoints, ledger, controllers | the two controllers |
//! | resource, play | the informers of one pass, and the pass |
//! | live | the same controllers on a live cluster (feature `kube`) |
//! | report, usage, progress, stop | the output |
//! Cancel safety: Ctrl-C requests the [`Stop`] that all parts of the program observe, so that a pass shuts down in order. In two cases the program
//! exits without waiting: while it reads the trace, because the read may block on a pipe, and if a run needs longer than [`TIMEOUT`] to shut down.

#![forbid(unsafe_code)]

mod args;
mod controllers;
mod endpoints;
mod faults;
mod horizon;
mod input;
mod interned;
mod ledger;
#[cfg(feature = "kube")]
mod live;
mod objects;
mod play;
mod progress;
mod replicas;
mod report;
mod resource;
mod scale;
mod server;
mod stop;
#[cfg(test)]
mod tests;
mod trace;
mod usage;
mod wire;

use std::fs::File;
use std::io::{ErrorKind, Read, Write, stderr, stdout};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use tokio::time::Instant;

use crate::args::Args;
use crate::play::{Ended, play};
use crate::progress::Progress;
use crate::report::{Run, number};
use crate::stop::Stop;
use crate::trace::Trace;
use crate::usage::Watched;

/// The trace that is played by default.
const RECORDED: &[u8] = include_bytes!("../data/kube-1.36-rollout.jsonl.zst");
const RECORDED_NAME: &str = "kube-1.36-rollout (the recorded cluster that comes with this program)";

const NOT_CONVERGED: u8 = 1;
const BAD_INPUT: u8 = 2;
const INTERRUPTED: u8 = 130;

/// The time within which a pass must have shut down after Ctrl-C.
const TIMEOUT: Duration = Duration::from_millis(700);

fn main() -> ExitCode {
    let args = Args::parse();
    let runtime = match tokio::runtime::Runtime::new() {
        Ok(runtime) => runtime,
        Err(error) => return failed(NOT_CONVERGED, &format!("no runtime: {error}")),
    };
    let status = runtime.block_on(run(&args));
    // The threads are not joined, because one of them may be blocked in a read of a pipe whose writer sends nothing.
    runtime.shutdown_background();
    status
}

fn failed(status: u8, cause: &str) -> ExitCode {
    // The error of a closed stderr is ignored; then only the exit status reports the failure.
    let _ = writeln!(stderr(), "replay: {cause}");
    ExitCode::from(status)
}

async fn run(args: &Args) -> ExitCode {
    let stop = Stop::default();
    tokio::spawn({
        let stop = stop.clone();
        async move {
            if tokio::signal::ctrl_c().await.is_ok() {
                stop.request();
            }
        }
    });
    if args.kube {
        return on_kubernetes(args, &stop).await;
    }
    let trace = match read(args, &stop).await {
        Ok(Some(trace)) => trace,
        Ok(None) => return failed(INTERRUPTED, "interrupted while the trace was read"),
        Err(error) => return failed(BAD_INPUT, &format!("{error:#}")),
    };
    // The trace is not dropped, because this would delay the exit of the program. The system frees its memory.
    let trace = ManuallyDrop::new(trace);
    let repeated = tokio::select! {
        biased;
        repeated = repeat(&trace, args, &stop) => repeated,
        () = overdue(&stop) => return failed(INTERRUPTED, "interrupted; not everything ended in time"),
    };
    let run = match repeated {
        Ok(Ok(run)) => run,
        Ok(Err(interrupted)) => return failed(INTERRUPTED, &interrupted),
        Err(error) => return failed(NOT_CONVERGED, &format!("{error:#}")),
    };
    if let Err(error) = print_result(&run, args) {
        return failed(NOT_CONVERGED, &format!("{error:#}"));
    }
    if let Some(fault) = run.missing_fault {
        return failed(NOT_CONVERGED, &format!("the fault `{fault}` was asked for and never fired"));
    }
    ExitCode::from(if run.figures.converged { 0 } else { NOT_CONVERGED })
}

#[cfg(feature = "kube")]
async fn on_kubernetes(args: &Args, stop: &Stop) -> ExitCode {
    let client = match live::client().await {
        Ok(client) => client,
        Err(error) => return failed(BAD_INPUT, &format!("{error:#}")),
    };
    let ran = tokio::select! {
        biased;
        ran = live::run(client, args, stop) => ran,
        () = overdue(stop) => return failed(INTERRUPTED, "interrupted; not everything ended in time"),
    };
    let result = ran.and_then(|summary| {
        let text = if args.json { serde_json::to_string(&summary)? + "\n" } else { summary.text() };
        print(&text)?;
        Ok(summary.synced)
    });
    match result {
        _ if stop.is_requested() => ExitCode::from(INTERRUPTED),
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => failed(NOT_CONVERGED, "not every kind could be listed in this time"),
        Err(error) => failed(NOT_CONVERGED, &format!("{error:#}")),
    }
}

#[cfg(not(feature = "kube"))]
async fn on_kubernetes(_: &Args, _: &Stop) -> ExitCode {
    failed(BAD_INPUT, "this program is built without --kube: `cargo run --release --features kube -- --kube`")
}

async fn overdue(stop: &Stop) {
    stop.requested().await;
    tokio::time::sleep(TIMEOUT).await;
}

/// Reads the trace on a blocking thread. Returns `None` if a stop was requested; the blocking thread may still be reading at that time.
async fn read(args: &Args, stop: &Stop) -> anyhow::Result<Option<Trace>> {
    let (path, scale, request) = (args.trace.clone(), args.scale as usize, stop.clone());
    let reading = tokio::task::spawn_blocking(move || {
        let stop = || request.is_requested();
        let trace = match path.as_deref() {
            None => decode(RECORDED, stop).context(RECORDED_NAME),
            Some(path) => {
                open(path).and_then(|file| decode(file, stop)).with_context(|| path.display().to_string())
            }
        };
        trace.map(|trace| trace.and_then(|trace| trace.scaled(scale, stop)))
    });
    tokio::select! {
        biased;
        () = stop.requested() => Ok(None),
        // The decoder is a dependency. A panic of the decoder is reported as an error of the file, too.
        read = reading => read.context("the trace cannot be decoded")?,
    }
}

fn open(path: &Path) -> anyhow::Result<File> {
    let file = File::open(path)?;
    anyhow::ensure!(!file.metadata()?.is_dir(), "is a directory");
    Ok(file)
}

fn decode(file: impl Read, stop: impl Fn() -> bool) -> anyhow::Result<Option<Trace>> {
    Ok(Trace::read(input::text(file)?, stop)?)
}

/// Plays the trace once or, with `--repeat`, repeatedly until the time limit. The inner result is an error if a stop was requested.
async fn repeat(trace: &Trace, args: &Args, stop: &Stop) -> anyhow::Result<Result<Run, String>> {
    let progress = Progress::new(trace.times.len());
    let watched = args.usage.then(Watched::begin).flatten();
    let begin = Instant::now();
    let mut passes = Vec::new();
    loop {
        progress.pass(passes.len() + 1);
        match play(trace, args, stop, &progress, None).await? {
            Ended::Done(figures, differences) => passes.push((*figures, differences)),
            Ended::Stopped { places, leftovers } => {
                progress.done();
                let (places, all) = (number(places as u64), number(trace.times.len() as u64));
                return Ok(Err(format!(
                    "interrupted after {places} of {all} places; {leftovers} keys were left"
                )));
            }
        }
        if args.repeat.is_none_or(|limit| begin.elapsed() >= limit) {
            progress.done();
            let memory = watched.and_then(|watched| watched.end());
            return Ok(Ok(Run::of(passes, args.faults, memory)));
        }
    }
}

/// Prints the summary or the JSON. This is the last output on stdout.
fn print_result(run: &Run, args: &Args) -> anyhow::Result<()> {
    let text = if args.json {
        serde_json::to_string(&run.figures).expect("numbers and booleans are JSON") + "\n"
    } else {
        let name = args.trace.as_ref().map_or(RECORDED_NAME.to_owned(), |path| path.display().to_string());
        run.summary(&name, args)
    };
    print(&text)
}

fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        // A broken pipe is not an error: the process that reads stdout has ended, or does not need the rest.
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(error).context("stdout"),
        _ => Ok(()),
    }
}
