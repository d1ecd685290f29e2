//! Programs as processes in the cluster that the tests share.

use std::process::{Command, ExitStatus};

use e2e::Process;

use crate::world::{cluster, until};

/// Starts `program` with `name` as its HOSTNAME, which is the name of the pod in a cluster.
pub(crate) fn start(program: &str, name: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", cluster().kubeconfig()).env("HOSTNAME", name);
    Process::start(&mut command, cluster().folder().join(format!("{name}.log"))).unwrap()
}

/// Waits until the process has ended by itself.
pub(crate) async fn ended(process: &Process) -> ExitStatus {
    until(async || process.exit_status().unwrap().is_some()).await;
    process.exit_status().unwrap().expect("it has ended")
}
