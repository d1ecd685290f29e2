//! `cargo xtask parity`: executes new scripts on flyball, on client-go and on the reference, which has one switch per
//! intended difference, and compares their answers.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use clap::Args;

use crate::process;
use crate::workspace::{Workspace, cargo};

const FOLDER: &str = "tools/conformance";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// The number of scripts of each kind.
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    scripts: u64,
    /// The seed for the scripts.
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// Only scripts of this kind: queue, limiter or store.
    #[arg(long, value_name = "KIND", conflicts_with = "record")]
    kind: Option<String>,
    /// If the answers do not differ, replace the committed scripts by the new scripts, and store the answers of client-go with them. Needs the
    /// program `zstd`.
    #[arg(long)]
    record: bool,
}

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let client_go = client_go(workspace)?;
    let mut command = cargo();
    command.current_dir(&workspace.root).args(["run", "--quiet", "--release", "--locked"]);
    command.args(["--package", "conformance", "--", "parity", "--client-go"]).arg(client_go);
    command.arg("--scripts").arg(options.scripts.to_string());
    command.arg("--seed").arg(options.seed.to_string());
    if let Some(kind) = &options.kind {
        command.args(["--kind", kind]);
    }
    if options.record {
        command.arg("--record").arg(format!("{FOLDER}/scripts"));
    }
    process::run(&mut command)
}

/// Builds the Go program that executes scripts on client-go.
fn client_go(workspace: &Workspace) -> Result<PathBuf> {
    let found = Command::new("go").arg("version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !found.is_ok_and(|status| status.success()) {
        bail!(
            "there is no `go`: client-go's answers to new scripts need Go 1.26 or newer (go.dev/dl) and its module \
             proxy. Its answers to the committed scripts are checked without: `cargo test -p conformance`."
        );
    }
    let program = workspace.target.join("conformance").join("client-go");
    let mut build = Command::new("go");
    build
        .current_dir(workspace.root.join(FOLDER).join("client-go"))
        .args(["build", "-o"])
        .arg(&program)
        .arg(".");
    process::run(&mut build)?;
    Ok(program)
}
