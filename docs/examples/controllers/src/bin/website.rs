//! Runs the website controller in the cluster of the current context.

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use example_controllers::program::{self, Options, drive, wall_clock};
use example_controllers::website::{Website, run};
use flyball_kube::Controller;
use kube::runtime::watcher;
use kube::{Api, CustomResourceExt};

#[derive(Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    options: Options,
}

#[derive(Subcommand)]
enum Command {
    /// Prints the definition of the resource, for `kubectl apply -f -`
    Crd,
}

#[tokio::main]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Crd) = arguments.command {
        println!("{:#}", serde_json::json!(Website::crd()));
        return ExitCode::SUCCESS;
    }
    program::run("website", arguments.options, async |client, term| {
        let controller = Controller::new(Api::all(client.clone()), watcher::Config::default());
        drive(run(term.bound(controller), client, wall_clock())).await;
    })
    .await
}
