//! Runs the programs as processes. They use the cluster that all tests share.

use std::process::{Command, ExitStatus};

use e2e::Process;

use crate::world::{cluster, until};

/// Starts `program` with the environment variable HOSTNAME set to `name`. In a cluster, HOSTNAME is the name of the pod.
pub(crate) fn start(program: &str, name: &str, arguments: &[&str]) -> Process {
    let mut command = Command::new(program);
    command.args(arguments).env("KUBECONFIG", cluster().kubeconfig()).env("HOSTNAME", name);
    Process::start(&command, cluster().folder().join(format!("{name}.log"))).unwrap()
}

/// Waits until the process has ended, without ending it.
pub(crate) async fn ended(process: &Process) -> ExitStatus {
    until(async || process.exit_status().unwrap().is_some()).await;
    process.exit_status().unwrap().expect("it has ended")
}
