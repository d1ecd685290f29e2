//! flyball's and kube-runtime's `Controller` on a real API server: the same reconcile function, client and
//! configuration, each in its own process.
//!
//! | command | |
//! |---|---|
//! | `serve` | starts the server, creates the objects, prints the path of a kubeconfig, and stops the server when stdin is closed |
//! | `sync` | time until a controller has listed all objects and reconciled each once |
//! | `latency` | time from a write to the reconcile that reads the written object |
//! | `write` | the writer of `latency`: a separate process, so that its CPU time is not part of any measurement |
//!
//! A command prints its figures as one JSON object, and uses the cluster of `$KUBECONFIG`.

#![allow(clippy::disallowed_methods, reason = "a measurement is made on the machine's clock")]

mod latency;
mod objects;
mod parties;
mod serve;
mod sync;
mod usage;

use anyhow::Result;
use clap::{Parser, ValueEnum};

/// flyball's and kube-runtime's `Controller` on a real API server.
#[derive(Clone, Debug, Parser)]
struct Options {
    run: Run,
    /// The implementation to measure.
    #[arg(long = "who", default_value = "ours")]
    party: Party,
    /// Writes per second.
    #[arg(long, default_value_t = 50)]
    rate: u32,
    /// Seconds of writing.
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
enum Party {
    Ours,
    Kube,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    match options.run {
        Run::Serve => serve::serve().await,
        Run::Sync => sync::sync(options.party).await,
        Run::Latency => latency::latency(&options).await,
        Run::Write => latency::write(&options).await,
    }
}
