//! One command per job. A command exits with an error if its check fails.

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
mod lock;
mod loom;
mod models;
mod parity;
mod peers;
mod process;
mod rustdoc;
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
    /// Explore every interleaving of every loom model; check that every seeded fault is caught.
    Loom(loom::Options),
    /// Run every model under random and PCT schedules.
    Shuttle(shuttle::Options),
    /// Check that the tests of a crate still pass with each seeded fault in this crate.
    Faults(seeded::Options),
    /// Run the fuzz targets for a given time.
    Fuzz(fuzz::Options),
    /// Execute new scripts on flyball, on client-go and on a reference with one switch per intended difference, and compare the results.
    Parity(parity::Options),
    /// Compare the public API of each published crate with its listing in docs/api; check that every public type has an example or an entry in
    /// docs/api/without-example.txt, and that every function that returns a future documents its cancel safety.
    Api(api::Options),
    /// Build the documentation of the published crates with all features, as docs.rs does; fail on warnings and on broken links between its pages.
    Rustdoc,
    /// Check each published crate with no features, with each feature alone and with all features; check that primitives have few dependencies.
    Features(features::Options),
    /// Run the tests that need a real Kubernetes API server. Builds etcd, kube-apiserver and kube-controller-manager if they are not in the cache.
    E2e(e2e::Options),
    /// Run the checks that take hours, called rungs, in slices of minutes; take those furthest behind their bars first. Adds to
    /// docs/evidence/ledger.jsonl and writes docs/evidence.md.
    Deep(deep::Options),
    /// Build the book into target/book, check its links, and run the programs of its first pages as separate projects, as a reader does.
    Book(book::Options),
    /// Measure flyball and comparable libraries alternately, and compare each measured ratio with its target.
    Peers(peers::Options),
    /// Check the rules of this repository that no compiler checks.
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
        Job::Rustdoc => rustdoc::run(&workspace),
        Job::Features(options) => features::run(&workspace, &options),
        Job::E2e(options) => e2e::run(&workspace, &options),
        Job::Deep(options) => deep::run(&workspace, &options),
        Job::Peers(options) => peers::run(&workspace, &options),
        Job::Book(options) => book::run(&workspace, &options),
        Job::Tidy => tidy::run(&workspace),
    }
}
