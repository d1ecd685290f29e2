//! Who is measured, and by which program.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use super::report::Sample;
use crate::process;
use crate::workspace::{Workspace, cargo};

const GO: &str = "benches/peers/go";
const RUST: &str = "benches/peers/rust/Cargo.toml";

/// Somebody who is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Ours,
    OursMultiThread,
    OursBlocking,
    OursPure,
    OursWaited,
    Naive,
    DelayQueue,
    Kube,
    ClientGo,
    ControllerRuntime,
    TimeRate,
    Governor,
    GovernorFoldhash,
    LeakyBucket,
}

impl Party {
    /// As the programs call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursMultiThread => "ours-multi-thread",
            Self::OursBlocking => "ours-blocking",
            Self::OursPure => "ours-pure",
            Self::OursWaited => "ours-waited",
            Self::Naive => "naive",
            Self::DelayQueue => "delay-queue",
            Self::Kube => "kube",
            Self::ClientGo => "client-go",
            Self::ControllerRuntime => "controller-runtime",
            Self::TimeRate => "time-rate",
            Self::Governor => "governor",
            Self::GovernorFoldhash => "governor-foldhash",
            Self::LeakyBucket => "leaky-bucket",
        }
    }

    fn in_go(self) -> bool {
        matches!(self, Self::ClientGo | Self::ControllerRuntime | Self::TimeRate)
    }
}

/// The two measuring programs, built.
#[derive(Debug)]
pub(super) struct Programs {
    rust: PathBuf,
    go: PathBuf,
}

impl Programs {
    pub(super) fn build(workspace: &Workspace, with_go: bool) -> Result<Self> {
        let folder = workspace.target.join("peers");
        let programs = Self { rust: folder.join("release/peers-rust"), go: folder.join("peers-go") };
        if with_go {
            build_go(workspace, &programs.go)?;
        }
        let mut build = cargo();
        build.current_dir(&workspace.root).args(["build", "--quiet", "--release", "--manifest-path", RUST]);
        process::run(build.arg("--target-dir").arg(&folder))?;
        Ok(programs)
    }

    /// The figures of one process.
    pub(super) fn run(&self, party: Party, words: &[&str]) -> Result<Sample> {
        let mut command = Command::new(if party.in_go() { &self.go } else { &self.rust });
        command.args(words).args(["--who", party.name()]);
        let shown = process::show(&command);
        let output = command.output().with_context(|| shown.clone())?;
        if !output.status.success() {
            bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
        }
        serde_json::from_slice(&output.stdout).context(shown)
    }

    pub(super) fn rust(&self) -> &Path {
        &self.rust
    }

    /// The program that draws; beside the one that measures.
    pub(super) fn plots(&self) -> PathBuf {
        self.rust.with_file_name("plots")
    }
}

fn build_go(workspace: &Workspace, program: &Path) -> Result<()> {
    let version = Command::new("go").arg("version").output();
    ensure!(
        version.is_ok_and(|output| output.status.success()),
        "Go is not installed, and client-go is a Go library: get Go 1.26 or newer from https://go.dev/dl, put its \
         `bin` on the path, and run this again; the modules that {GO} names are downloaded by it"
    );
    let mut build = Command::new("go");
    build.current_dir(workspace.root.join(GO)).args(["build", "-o"]).arg(program).arg(".");
    process::run(&mut build).with_context(|| format!("{GO} does not build"))
}
