//! Ours and kube-runtime's Controller on a real API server: the same reconcile, the same client, the same configuration, each in a process
//! of its own.
//!
//! | command | |
//! |---|---|
//! | `serve` | starts the server, puts the objects there, prints the path of a kubeconfig, and ends it all when its stdin ends |
//! | `sync` | a controller comes to know all objects, and reconciles each once |
//! | `latency` | from a write to the reconcile that sees it |
//! | `write` | who writes for `latency`: a process of its own, so that its CPU is nobody's |
//!
//! Figures are printed as one JSON object. The cluster is that of `$KUBECONFIG`.

#![allow(clippy::disallowed_methods, reason = "a measurement is made on the machine's clock")]

mod latency;
mod objects;
mod parties;
mod serve;
mod sync;
mod usage;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// Ours and kube-runtime's Controller on a real API server.
#[derive(Clone, Debug, Parser)]
struct Options {
    run: Run,
    /// Whom to measure.
    #[arg(long, default_value = "ours")]
    who: Who,
    /// Writes a second.
    #[arg(long, default_value_t = 50)]
    rate: u32,
    /// How long to write.
    #[arg(long, default_value_t = 20)]
    seconds: u32,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Run {
    Serve,
    Sync,
    Latency,
    Write,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Who {
    Ours,
    Kube,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    match options.run {
        Run::Serve => serve::serve().await,
        Run::Sync => sync::sync(options.who).await,
        Run::Latency => latency::latency(&options).await,
        Run::Write => latency::write(&options).await,
    }
}
