//! EDGE. `conformance`: answers scripts, one answer per line, in virtual time and on one thread.
//!
//! | file | |
//! |---|---|
//! | args, text | the command line; lines and answers as JSON |
//! | kind, queue, limiter, policy, store, indexes | the implementations: flyball, or the reference with given rules |
//! | generate, examples, committed | scripts from a seed, scripts of `DIFFERENCES.md`, committed scripts with client-go's answers |
//! | parity, client_go, shrink | new scripts through all implementations |

#![forbid(unsafe_code)]

mod args;
mod client_go;
mod committed;
mod examples;
mod generate;
mod indexes;
mod kind;
mod limiter;
mod parity;
mod policy;
mod queue;
mod shrink;
mod store;
#[cfg(test)]
mod tests;
mod text;

use std::io::{BufRead, BufWriter, ErrorKind, Write, stdin, stdout};
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::args::{Arguments, Job};
use crate::kind::Kind;

fn main() -> ExitCode {
    let ended = match Arguments::parse().job {
        Job::Queue(options) => answer(Kind::Queue, options.many),
        Job::Limiter(options) => answer(Kind::Limiter, options.many),
        Job::Store(options) => answer(Kind::Store, options.many),
        Job::Parity(options) => parity::run(&options),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Answers each line before it reads the next one, so a script can be typed interactively.
fn answer(kind: Kind, many: bool) -> Result<()> {
    let mut out = BufWriter::new(stdout().lock());
    let mut script = kind.flyball();
    for line in stdin().lock().split(b'\n') {
        // A line may contain invalid UTF-8; it is answered, too.
        let line = line?;
        let line = String::from_utf8_lossy(line.strip_suffix(b"\r").unwrap_or(&line));
        let written = if many && line.is_empty() {
            script = kind.flyball();
            writeln!(out)
        } else {
            writeln!(out, "{}", script.answer(&line))
        };
        match written.and_then(|()| out.flush()) {
            // The process that reads the answers has closed the pipe.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            written => written?,
        }
    }
    Ok(())
}
