//! Runs one of the programs in the cluster of the current context: `program ENGINE NAME`. ENGINE is `kube-runtime` or `flyball`; NAME is the name of
//! a module of this crate, such as `config_map_generator`. Logs are written to the standard error.

use std::process::ExitCode;

use example_programs::{
    accounts, config_map_generator, documents, environments, restarter, secret_syncer, shared_streams,
    truststores,
};
use kube::Client;
use tokio::signal::unix::{SignalKind, signal};

const USAGE: &str = "usage: program kube-runtime|flyball NAME";

/// Defines a function for one engine. The function runs the program with a given name, and returns `None` if no program has this name.
macro_rules! engine {
    ($engine:ident) => {
        async fn $engine(name: &str, client: Client) -> Option<()> {
            match name {
                "accounts" => accounts::$engine::run(client).await,
                "config_map_generator" => config_map_generator::$engine::run(client).await,
                "documents" => {
                    let diagnostics = documents::$engine::Diagnostics::default();
                    documents::$engine::run(client, diagnostics).await.expect("the kind is built in");
                }
                "environments" => environments::$engine::run(client).await,
                "restarter" => restarter::$engine::run(client).await,
                "secret_syncer" => secret_syncer::$engine::run(client).await,
                "shared_streams" => shared_streams::$engine::run(client).await,
                "truststores" => {
                    let ready = |stores| eprintln!("ready: {stores} truststores");
                    truststores::$engine::run(client, ready, terminated()).await;
                }
                _ => return None,
            }
            Some(())
        }
    };
}

engine!(kube_runtime);
engine!(flyball);

async fn terminated() {
    signal(SignalKind::terminate()).expect("the signal can be caught").recv().await;
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false).init();
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [engine, name] = arguments.as_slice() else {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    };
    let client = match Client::try_default().await {
        Ok(client) => client,
        Err(error) => {
            eprintln!("no cluster: {error}");
            return ExitCode::FAILURE;
        }
    };
    let ran = match engine.as_str() {
        "kube-runtime" => kube_runtime(name, client).await,
        "flyball" => flyball(name, client).await,
        _ => None,
    };
    if ran.is_none() {
        eprintln!("{USAGE}");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}
