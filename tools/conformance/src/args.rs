//! EDGE. The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// Answers scripts: `conformance queue < script > answers`, one answer per line.
#[derive(Debug, Parser)]
#[command(version)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) job: Job,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Job {
    /// Runs a script on a rate-limiting queue, and prints the answers.
    Queue(Scripts),
    /// Runs a script on limiters, and prints the answers.
    Limiter(Scripts),
    /// Runs a script on an indexed store, and prints the answers.
    Store(Scripts),
    /// Runs new scripts on all three implementations, and compares the answers; `cargo xtask parity` calls this.
    #[command(hide = true)]
    Parity(Parity),
}

#[derive(Debug, Args)]
pub(crate) struct Scripts {
    /// Read several scripts; an empty line ends each script, and its answers.
    #[arg(long)]
    pub(crate) many: bool,
}

#[derive(Debug, Args)]
pub(crate) struct Parity {
    /// The path of the program that was built from the folder `client-go`.
    #[arg(long, value_name = "PROGRAM")]
    pub(crate) client_go: PathBuf,
    /// The number of scripts of each kind.
    #[arg(long, value_name = "N")]
    pub(crate) scripts: u64,
    /// The seed for the scripts.
    #[arg(long, value_name = "S")]
    pub(crate) seed: u64,
    /// Only scripts of this kind: queue, limiter or store.
    #[arg(long, value_name = "KIND")]
    pub(crate) kind: Option<String>,
    /// If all answers agree, write the scripts and client-go's answers to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) record: Option<PathBuf>,
}
