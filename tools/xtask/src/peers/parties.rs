//! The measured implementations, and the programs that measure them.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::kubernetes::{self, Kubernetes};
use super::report::Sample;
use crate::process;
use crate::workspace::{Workspace, cargo};

const GO: &str = "benches/peers/go";
const TRACE: &str = "tools/replay/data/kube-1.36-rollout.jsonl.zst";
const RUST: &str = "benches/peers/rust/Cargo.toml";

/// A measured implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Party {
    Ours,
    OursMultiThread,
    OursBlocking,
    OursPure,
    OursCollected,
    OursView,
    Naive,
    DelayQueue,
    Kube,
    ClientGo,
    ControllerRuntime,
    TimeRate,
    Governor,
    GovernorFoldhash,
    LeakyBucket,
    Dashmap,
    Papaya,
}

impl Party {
    /// The name of the implementation on the command lines of the programs.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ours => "ours",
            Self::OursMultiThread => "ours-multi-thread",
            Self::OursBlocking => "ours-blocking",
            Self::OursPure => "ours-pure",
            Self::OursCollected => "ours-collected",
            Self::OursView => "ours-view",
            Self::Naive => "naive",
            Self::DelayQueue => "delay-queue",
            Self::Kube => "kube",
            Self::ClientGo => "client-go",
            Self::ControllerRuntime => "controller-runtime",
            Self::TimeRate => "time-rate",
            Self::Governor => "governor",
            Self::GovernorFoldhash => "governor-foldhash",
            Self::LeakyBucket => "leaky-bucket",
            Self::Dashmap => "dashmap",
            Self::Papaya => "papaya",
        }
    }

    fn in_go(self) -> bool {
        matches!(self, Self::ClientGo | Self::ControllerRuntime | Self::TimeRate)
    }
}

/// The paths of the programs that measure.
#[derive(Debug)]
pub(super) struct Programs {
    kubernetes: Kubernetes,
    rust: PathBuf,
    go: PathBuf,
    /// The program that replays the recorded cluster through flyball.
    replay: PathBuf,
    trace: PathBuf,
}

impl Programs {
    pub(super) fn build(workspace: &Workspace, with_go: bool, with_replay: bool) -> Result<Self> {
        let folder = workspace.target.join("peers");
        let programs = Self {
            kubernetes: Kubernetes::new(folder.join("release/kubernetes")),
            rust: folder.join("release/peers-rust"),
            go: folder.join("peers-go"),
            replay: workspace.target.join("release/replay"),
            trace: workspace.root.join(TRACE),
        };
        if with_go {
            build_go(workspace, &programs.go)?;
        }
        let mut build = cargo();
        build.current_dir(&workspace.root).args(["build", "--quiet", "--release", "--manifest-path", RUST]);
        build.args(["--bin", "kubernetes", "--bin", "peers-rust", "--bin", "plots"]);
        process::run(build.arg("--target-dir").arg(&folder))?;
        if with_replay {
            let mut build = cargo();
            build.current_dir(&workspace.root).args(["build", "--quiet", "--release", "-p", "replay"]);
            process::run(build.arg("--target-dir").arg(&workspace.target))?;
        }
        Ok(programs)
    }

    /// Runs one measurement of an implementation in a separate process. Returns each result with its name.
    pub(super) fn run(&self, party: Party, words: &[&str]) -> Result<Sample> {
        if let (Party::Ours, ["cluster", words @ ..]) = (party, words) {
            return self.replay(words);
        }
        let mut command = match words.split_first() {
            Some((&kubernetes::RUN, _)) => self.kubernetes.command()?,
            _ => Command::new(if party.in_go() { &self.go } else { &self.rust }),
        };
        let words = words.strip_prefix(&[kubernetes::RUN]).unwrap_or(words);
        command.args(words).args(["--who", party.name()]);
        if let ["cluster", ..] = words {
            command.arg("--trace").arg(&self.trace);
        }
        answer(&mut command)
    }

    /// Runs flyball on the recorded cluster. The program that replays the cluster also checks the final state.
    fn replay(&self, words: &[&str]) -> Result<Sample> {
        #[derive(Deserialize)]
        struct Played {
            events: f64,
            events_per_second: f64,
            queue_latency_us: Sample,
            /// This latency is measured only if the replay has a given speed; otherwise, it is `None`.
            change_latency_us: Option<Sample>,
            cpu_seconds: f64,
            memory: Sample,
            converged: bool,
        }
        let mut command = Command::new(&self.replay);
        let words = words.iter().filter(|word| !word.starts_with("--adds"));
        command.args(["--json", "--usage"]).args(words.map(|word| word.replace("--seconds", "--repeat")));
        let played: Played = answer(&mut command)?;
        ensure!(played.converged, "the recorded cluster did not converge");
        let mut sample = played.change_latency_us.unwrap_or(played.queue_latency_us);
        sample.insert("ns".to_owned(), 1e9 / played.events_per_second);
        sample.insert("cpu".to_owned(), 1e9 * played.cpu_seconds / played.events);
        let mebibytes = |(name, bytes): (String, f64)| (name, bytes / f64::from(1 << 20));
        sample.extend(played.memory.into_iter().map(mebibytes));
        Ok(sample)
    }

    pub(super) fn rust(&self) -> &Path {
        &self.rust
    }

    /// The program that draws the plots. It is in the same folder as the program that measures.
    pub(super) fn plots(&self) -> PathBuf {
        self.rust.with_file_name("plots")
    }
}

/// Runs a program and parses the JSON that it prints.
fn answer<T: DeserializeOwned>(command: &mut Command) -> Result<T> {
    let shown = process::show(command);
    let output = command.output().with_context(|| shown.clone())?;
    if !output.status.success() {
        bail!("{shown}: {}\n{}", output.status, String::from_utf8_lossy(&output.stderr));
    }
    serde_json::from_slice(&output.stdout).context(shown)
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
