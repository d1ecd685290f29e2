//! `cargo xtask e2e`: the tests that need a real Kubernetes API server.
//!
//! `cargo test` ignores these tests, because they need Go and etcd, and take minutes. The crate in `tools/e2e` reads from environment variables which
//! servers it has to use.

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

/// This text is in the path of every test that starts its own servers and kills them.
const OWN_CLUSTER: &str = "own_cluster::";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run only tests whose path contains this text.
    #[arg(long, value_name = "FILTER")]
    test: Option<String>,
    /// Use an existing cluster: the tests run in separate namespaces, and those that kill servers are left out. Without a path, use the cluster of
    /// $KUBECONFIG.
    #[arg(long, value_name = "PATH")]
    #[expect(clippy::option_option, reason = "not given, given, given with a path")]
    kubeconfig: Option<Option<PathBuf>>,
    /// Run the tests only if the binaries of the servers are in the cache; otherwise, print the command that builds them.
    #[arg(long, conflicts_with = "kubeconfig")]
    cached: bool,
    /// Keep the logs of the servers even if all tests pass.
    #[arg(long)]
    keep: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    match &options.kubeconfig {
        Some(path) => {
            let path = path.clone().or_else(|| env::var_os("KUBECONFIG").map(PathBuf::from));
            let path = path.context("--kubeconfig without a path, and no $KUBECONFIG")?;
            // Tests run in the folder of their package, so the path must be absolute.
            let path = path.canonicalize().with_context(|| path.display().to_string())?;
            existing(workspace, options, &path)
        }
        None => own(workspace, options),
    }
}

/// Runs the tests on servers that the tests start.
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

/// What a program needs to start clusters with `tools/e2e`: the binaries of the servers, and a folder for their logs.
#[derive(Debug)]
pub(crate) struct Servers {
    binaries: PathBuf,
    folder: PathBuf,
}

impl Servers {
    /// Builds the servers if they are not cached, and creates the folder. Returns an error if a tool for the build is missing.
    pub(crate) fn ready(workspace: &Workspace) -> Result<Self> {
        let binaries = binaries::ready(workspace)?;
        let folder = env::temp_dir().join(format!("flyball-e2e-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| folder.display().to_string())?;
        Ok(Self { binaries, folder })
    }

    /// Sets the environment variables that `tools/e2e` reads.
    pub(crate) fn give(&self, command: &mut Command) {
        command.env("FLYBALL_E2E_BIN", &self.binaries).env("FLYBALL_E2E_DIR", &self.folder);
    }

    /// Removes the logs of the servers, or prints where they are if `keep` is true. Call this after the program has ended.
    pub(crate) fn clear(self, keep: bool) -> Result<()> {
        if !keep {
            fs::remove_dir_all(&self.folder).with_context(|| self.folder.display().to_string())?;
        } else if fs::remove_dir(&self.folder).is_err() {
            // If the tests started servers, the folder is not empty and cannot be removed.
            eprintln!("the servers' logs are in {}", self.folder.display());
        }
        Ok(())
    }
}

/// Runs the tests on an existing cluster.
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
    // With `--workspace`, the dependencies have the same features as in `cargo test --workspace`, so the build of that command is reused.
    command.current_dir(&workspace.root).args(["test", "--workspace", "--locked", "--no-fail-fast"]);
    command.args(["--features", "replay/kube,e2e/kube"]);
    command.args(["--test", "harness", "--test", "e2e", "--test", "kube"]);
    command.args(["--", "--ignored"]).args(&options.test);
    command
}

/// Runs the tests, prints their output, and adds up their results. Fails if a test fails or none has run.
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
