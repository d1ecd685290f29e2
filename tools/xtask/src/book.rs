//! `cargo xtask book`: builds the book, checks every link of the HTML, and runs the programs of the book as separate
//! projects, as a reader does.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process;
use crate::workspace::Workspace;

pub(crate) mod html;
pub(crate) mod links;
mod outside;
mod projects;

/// The folder of the book's sources.
const SOURCES: &str = "docs/book/src";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only build the book and check its links; do not run its programs.
    #[arg(long)]
    no_projects: bool,
    /// Run every program that lists dependencies as a separate project, not only those of the first pages.
    #[arg(long, conflicts_with = "no_projects")]
    all: bool,
    /// Check only the project of the page "Check your own code": run its model under loom and shuttle, and compile
    /// its fuzz target.
    #[arg(long, conflicts_with_all = ["no_projects", "all"])]
    models: bool,
}

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "mend the links above in docs/book/src";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.models {
        return projects::check_own_code(workspace);
    }
    let built = workspace.target.join("book");
    let mut mdbook = Command::new("mdbook");
    mdbook.current_dir(&workspace.root).args(["build", "docs/book", "--dest-dir"]).arg(&built);
    if let Err(error) = Command::new("mdbook").arg("--version").output() {
        bail!("mdbook: {error}; `.ci/run book` installs the version it needs");
    }
    process::run(&mut mdbook)?;
    outside::bring(workspace, &built)?;
    let pages = html::pages(&built)?;
    process::verdict(&links::check(&pages, |path| built.join(path).exists()), WHAT_TO_DO)?;
    eprintln!("{} pages, no broken link", pages.len());
    if !options.no_projects {
        projects::run(workspace, options.all)?;
    }
    eprintln!("the book is in {}", built.join("index.html").display());
    Ok(())
}

/// Writes a file, and creates the folders above it if they do not exist.
fn write(path: &Path, text: impl AsRef<[u8]>) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file has a folder")?)?;
    fs::write(path, text).with_context(|| path.display().to_string())
}
