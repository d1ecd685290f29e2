//! `cargo xtask e2e`: the tests that need a real Kubernetes API server.
//!
//! They are ignored by `cargo test`, as they need Go, etcd and minutes. What they run against reaches them through the
//! environment, which `tools/e2e` reads.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

use crate::process;
use crate::workspace::{Workspace, cargo};

pub(crate) mod binaries;
mod counts;

use counts::Counts;

/// Part of the path of every test that starts, and kills, servers of its own.
const OWN_CLUSTER: &str = "own_cluster::";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only tests whose path contains this.
    #[arg(long, value_name = "FILTER")]
    test: Option<String>,
    /// On a cluster that is there, in namespaces of their own, without the tests that kill servers; with no path the one of
    /// $KUBECONFIG.
    #[arg(long, value_name = "PATH")]
    #[expect(clippy::option_option, reason = "not given, given, given with a path")]
    kubeconfig: Option<Option<PathBuf>>,
    /// Runs only where the binaries of the servers are in the cache; says which command builds them otherwise.
    #[arg(long, conflicts_with = "kubeconfig")]
    cached: bool,
    /// Keeps the logs of the servers also where all is well.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    match &options.kubeconfig {
        Some(path) => {
            let path = path.clone().or_else(|| env::var_os("KUBECONFIG").map(PathBuf::from));
            let path = path.context("--kubeconfig without a path, and no $KUBECONFIG")?;
            // Tests run in the folder of their package.
            let path = path.canonicalize().with_context(|| path.display().to_string())?;
            existing(workspace, options, &path)
        }
        None => own(workspace, options),
    }
}

/// On servers that the tests start.
fn own(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.cached && !binaries::cached(workspace) {
        println!(
            "left out: kube-apiserver is not built yet; `cargo xtask e2e` builds it, once, and runs the tests"
        );
        return Ok(());
    }
    let servers = Servers::ready(workspace)?;
    let mut command = tests(workspace, options);
    servers.give(&mut command);
    let end = all_pass(&mut command);
    servers.clear(end.is_err() || options.keep)?;
    println!("e2e: {}", end?);
    Ok(())
}

/// What a program needs to start clusters by `tools/e2e`.
#[derive(Debug)]
pub(crate) struct Servers {
    binaries: PathBuf,
    folder: PathBuf,
}

impl Servers {
    /// Builds the servers where they are not built, or says what is missing.
    pub(crate) fn ready(workspace: &Workspace) -> Result<Self> {
        let binaries = binaries::ready(workspace)?;
        let folder = env::temp_dir().join(format!("flyball-e2e-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { binaries, folder })
    }

    /// Says in a program's environment where they are, as `tools/e2e` reads it.
    pub(crate) fn give(&self, command: &mut Command) {
        command.env("FLYBALL_E2E_BIN", &self.binaries).env("FLYBALL_E2E_DIR", &self.folder);
    }

    /// When the program has ended: removes the servers' logs, or says where they are kept.
    pub(crate) fn clear(self, keep: bool) -> Result<()> {
        if !keep {
            fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        } else if fs::remove_dir(&self.folder).is_err() {
            // It is not empty: there were servers.
            eprintln!("the servers' logs are in {}", self.folder.display());
        }
        Ok(())
    }
}

/// On somebody's cluster.
fn existing(workspace: &Workspace, options: &Options, kubeconfig: &Path) -> Result<()> {
    let mut list = tests(workspace, options);
    list.arg("--list").stderr(Stdio::inherit());
    let listed = list.output().with_context(|| process::show(&list))?;
    ensure!(listed.status.success(), "{}: {}", process::show(&list), listed.status);
    let left_out = counts::listed(&String::from_utf8_lossy(&listed.stdout), OWN_CLUSTER);
    let mut command = tests(workspace, options);
    command.args(["--skip", OWN_CLUSTER]).env("FLYBALL_E2E_KUBECONFIG", kubeconfig);
    let counts = all_pass(&mut command)?;
    println!("e2e: {counts}; {left_out} left out: they need servers of their own");
    Ok(())
}

fn tests(workspace: &Workspace, options: &Options) -> Command {
    let mut command = cargo();
    // Of the whole workspace, so that what `cargo test --workspace` has built is used: dependencies have the same features.
    command.current_dir(&workspace.root).args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(["--features", "replay/kube"]);
    command.args(["--test", "harness", "--test", "e2e", "--test", "kube"]);
    command.args(["--", "--ignored"]).args(&options.test);
    command
}

/// Runs tests with their output shown, and adds up what they said.
fn all_pass(command: &mut Command) -> Result<Counts> {
    let shown = process::show(command);
    eprintln!("$ {shown}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| shown.clone())?;
    let mut counts = Counts::default();
    for line in BufReader::new(child.stdout.take().expect("it is piped")).lines() {
        let line = line?;
        println!("{line}");
        counts.add(&line);
    }
    let status = child.wait()?;
    ensure!(status.success(), "{counts}: {status}");
    if counts.passed == 0 {
        bail!("no test ran");
    }
    Ok(counts)
}
