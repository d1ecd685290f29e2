//! EDGE. How it is called.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Answers scripts: `conformance queue < script > answers`, one line for each line.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) job: Job,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    /// Answers a script for a rate-limiting queue.
    Queue(Scripts),
    /// Answers a script for limiters.
    Limiter(Scripts),
    /// Answers a script for an indexed store.
    Store(Scripts),
    /// New scripts through all three; `cargo xtask parity` starts it.
    #[command(hide = true)]
    Parity(Parity),
}

#[derive(Debug, Args)]
pub(crate) struct Scripts {
    /// An empty line ends a script, and its answers.
    #[arg(long)]
    pub(crate) many: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Parity {
    /// The program of the folder `client-go`.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) client_go: PathBuf,
    /// How many scripts of each kind.
    #[arg(long, value_name = "N")]
    pub(crate) scripts: u64,
    /// Which scripts.
    #[arg(long, value_name = "S")]
    pub(crate) seed: u64,
    /// Writes scripts and client-go's answers to this folder instead, once all agree.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) record: Option<PathBuf>,
}
