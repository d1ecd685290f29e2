//! A real API server for the measurements of controllers. The first run starts the server, and all later runs use the same server.

use std::cell::OnceCell;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, anyhow, ensure};

use crate::e2e::binaries;
use crate::process;
use crate::workspace::Workspace;

/// The first argument of a run that needs the server.
pub(super) const RUN: &str = "kubernetes";

/// The measuring program and, after the first run, the server.
#[derive(Debug)]
pub(super) struct Kubernetes {
    program: PathBuf,
    served: OnceCell<Result<Served, String>>,
}

impl Kubernetes {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program, served: OnceCell::new() }
    }

    /// Returns a command that runs the program with the address of the server. The first call starts the server; if this fails, the error names what
    /// is missing.
    pub(super) fn command(&self) -> Result<Command> {
        let serve = || Served::start(&self.program).map_err(|error| format!("{error:#}"));
        let served = self.served.get_or_init(serve).as_ref().map_err(|error| anyhow!("{error}"))?;
        let mut command = Command::new(&self.program);
        command.env("KUBECONFIG", &served.kubeconfig);
        Ok(command)
    }
}

/// A running server.
#[derive(Debug)]
struct Served {
    process: Child,
    kubeconfig: PathBuf,
    folder: PathBuf,
}

impl Served {
    fn start(program: &Path) -> Result<Self> {
        let binaries = binaries::ready(&Workspace::open()?)?;
        let folder = env::temp_dir().join(format!("flyball-peers-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        let mut command = Command::new(program);
        command.arg("serve").env("FLYBALL_E2E_BIN", binaries).env("FLYBALL_E2E_DIR", &folder);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let shown = process::show(&command);
        let process = command.spawn().context(shown.clone())?;
        let mut served = Self { process, kubeconfig: PathBuf::new(), folder };
        let mut line = String::new();
        let stdout = served.process.stdout.take().context("it is piped")?;
        BufReader::new(stdout).read_line(&mut line)?;
        ensure!(!line.is_empty(), "{shown}: it printed no kubeconfig");
        served.kubeconfig = line.trim_end().into();
        Ok(served)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The server stops when its stdin is closed. If the folder cannot be removed, this is ignored, because the folder is temporary.
        drop(self.process.stdin.take());
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
