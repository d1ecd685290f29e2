//! A running program.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use crate::world::{cluster, until};

/// Killed when it is dropped.
pub(crate) struct Process {
    child: parking_lot::Mutex<Child>,
    said: PathBuf,
}

impl Process {
    /// Starts `program` with `name` as its HOSTNAME, which is the name of the pod in a cluster.
    pub(crate) fn start(program: &str, name: &str, arguments: &[&str]) -> Self {
        let said = cluster().folder().join(format!("{name}.log"));
        let mut command = Command::new(program);
        command.args(arguments).env("KUBECONFIG", cluster().kubeconfig()).env("HOSTNAME", name);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(&said).unwrap());
        Self { child: command.spawn().unwrap().into(), said }
    }

    /// The standard error of the program so far.
    pub(crate) fn said(&self) -> String {
        fs::read_to_string(&self.said).unwrap()
    }

    /// Kills the process, like `kill -9`.
    pub(crate) fn kill(self) {}

    /// Sends SIGTERM.
    pub(crate) fn terminate(&self) {
        let pid = self.child.lock().id().to_string();
        let status = Command::new("sh").args(["-c", "kill -TERM \"$1\"", "sh", &pid]).status().unwrap();
        assert!(status.success());
    }

    /// Waits until the process has ended by itself.
    pub(crate) async fn ended(&self) -> ExitStatus {
        until(async || self.child.lock().try_wait().unwrap().is_some()).await;
        self.child.lock().wait().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let child = self.child.get_mut();
        // The process may have ended already.
        let _ = child.kill();
        let _ = child.wait();
    }
}
