//! One command per job. Each ends non-zero when its claim fails.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};

mod api;
mod book;
mod deep;
mod e2e;
mod faults;
mod features;
mod fuzz;
mod loom;
mod models;
mod parity;
mod peers;
mod process;
mod seeded;
mod selection;
mod shuttle;
mod tidy;
mod workspace;

use crate::workspace::Workspace;

/// One command per job of the flyball workspace.
#[derive(Debug, Parser)]
#[command(bin_name = "cargo xtask", version)]
struct Arguments {
    #[command(subcommand)]
    job: Job,
}

#[derive(Debug, Subcommand)]
enum Job {
    /// Every model in every interleaving, above its floor, and every seeded fault caught.
    Loom(loom::Options),
    /// Every model under random and PCT schedules.
    Shuttle(shuttle::Options),
    /// Every seeded fault still passes the tests of the crate it breaks.
    Faults(seeded::Options),
    /// Runs the fuzz targets for a while.
    Fuzz(fuzz::Options),
    /// New scripts through flyball, client-go and the reference with one switch per difference.
    Parity(parity::Options),
    /// What users see of each published crate, listed in docs/api; all of it used in an example that runs.
    Api(api::Options),
    /// Each published crate with no features, each feature alone and all; its dependencies within their budget.
    Features(features::Options),
    /// The tests that need a real Kubernetes API server, which it builds: kube-apiserver, with etcd.
    E2e(e2e::Options),
    /// All that takes hours, rung by rung; what has passed is not run again. Writes docs/evidence.md.
    Deep(deep::Options),
    /// Builds the book into target/book, checks its links, and runs the programs of its first pages as a reader would.
    Book(book::Options),
    /// Ours beside everybody else's, measured in turn; every row at its target.
    Peers(peers::Options),
    /// The rules of the house that a compiler does not know.
    Tidy,
}

fn main() -> ExitCode {
    match run(Arguments::parse().job) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(job: Job) -> Result<()> {
    let workspace = Workspace::open()?;
    match job {
        Job::Loom(options) => loom::run(&workspace, &options),
        Job::Shuttle(options) => shuttle::run(&workspace, &options),
        Job::Faults(options) => seeded::run(&workspace, &options),
        Job::Fuzz(options) => fuzz::run(&workspace, &options),
        Job::Parity(options) => parity::run(&workspace, &options),
        Job::Api(options) => api::run(&workspace, &options),
        Job::Features(options) => features::run(&workspace, &options),
        Job::E2e(options) => e2e::run(&workspace, &options),
        Job::Deep(options) => deep::run(&workspace, &options),
        Job::Peers(options) => peers::run(&workspace, &options),
        Job::Book(options) => book::run(&workspace, &options),
        Job::Tidy => tidy::run(&workspace),
    }
}
