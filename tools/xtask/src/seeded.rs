//! Applies seeded faults. The model of a fault must catch it, and the ordinary tests must pass with it.
//!
//! Each fault in turn is written into a copy of the tree, the copy is built, and its files are restored. Unchanged files keep their modification
//! times, so cargo rebuilds only the changed crate and its dependants.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::faults::{self, Fault};
use crate::loom;
use crate::models::{self, Binaries, Checker, Declared, DoesNotCompile, Extent};
use crate::process::{self, Ended};
use crate::workspace::{Workspace, cargo};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Apply only faults of models whose name contains this.
    name: Option<String>,
    /// Fail the tests of a crate that have not completed after this number of seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
}

/// Checks that the ordinary tests pass with each fault, so that only the model catches it.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let models = models::declared(workspace, options.name.as_deref())?;
    ensure!(!models.is_empty(), "no model is called {:?}", options.name.as_deref().unwrap_or(""));
    let tree = Tree::open(workspace)?;
    let mut complaints = Vec::new();
    for model in &models {
        let outcome = tree.passes_tests(model, Duration::from_secs(options.limit))?;
        println!("{} {}", model.name, if outcome.is_ok() { "passes the tests" } else { "FAILS the tests" });
        complaints.extend(outcome.err().map(|why| format!("{}: {why}", model.name)));
    }
    process::verdict(&complaints)
}

/// The time limit of a model with a fault.
const LIMIT: Duration = Duration::from_secs(300);

/// The copy of the tree to which faults are applied.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    workspace: &'a Workspace,
    root: PathBuf,
    faults: Vec<Fault>,
}

impl<'a> Tree<'a> {
    /// Updates the copy from the work tree, with tracked and untracked files.
    pub(crate) fn open(workspace: &'a Workspace) -> Result<Self> {
        let root = workspace.target.join("faults").join("tree");
        fs::create_dir_all(&root)?;
        let wanted: BTreeSet<PathBuf> = workspace.files()?.into_iter().collect();
        for file in walk(&root, &root)? {
            if !wanted.contains(&file) {
                fs::remove_file(root.join(file))?;
            }
        }
        for file in &wanted {
            copy_if_changed(&workspace.root.join(file), &root.join(file))
                .with_context(|| file.display().to_string())?;
        }
        Ok(Self { workspace, root, faults: faults::read(workspace)? })
    }

    /// Checks that the model catches its fault. Returns the reason if the model does not catch it.
    pub(crate) fn caught(&self, model: &Declared) -> Result<Result<(), String>> {
        let applied = match self.apply(model)? {
            Ok(applied) => applied,
            Err(why) => return Ok(Err(why)),
        };
        match models::build(self.workspace, &self.root, Checker::Loom, Extent::Fault(model))? {
            Ok(binaries) => {
                drop(applied);
                self.fails(model, &binaries)
            }
            Err(DoesNotCompile(why)) => Ok(Err(format!("does not compile\n{why}"))),
        }
    }

    /// Runs the model with its fault. It must fail with a panic: a deadlock, an assertion, a leak.
    fn fails(&self, model: &Declared, binaries: &Binaries) -> Result<Result<(), String>> {
        let log = loom::log_file(self.workspace, &format!("{}.fault", model.name))?;
        let mut command = loom::command(model, binaries)?;
        command.env("FLYBALL_MODEL_FAULT", "1");
        let ended = process::run_logged(&mut command, &log, LIMIT)?;
        let Ended::By(status) = ended else {
            return Ok(Err(format!("its model ran for {} s without failing", LIMIT.as_secs())));
        };
        if status.success() {
            return Ok(Err("its model passes".to_owned()));
        }
        let named = format!("model {} failed", model.name);
        if status.code() == Some(101) && process::grep(&log, |line| line == named) {
            return Ok(Ok(()));
        }
        // A panic during unwinding aborts the process, and the test harness loses the output. A second run shows the output.
        const SIGABRT: i32 = 6;
        if status.signal() == Some(SIGABRT) {
            process::run_logged(command.arg("--nocapture"), &log, LIMIT)?;
            if process::grep(&log, |line| line.contains("panicked at")) {
                return Ok(Ok(()));
            }
        }
        Ok(Err(format!("its model did not end with a failure: {status}\n{}", process::tail(&log, 20))))
    }

    fn passes_tests(&self, model: &Declared, limit: Duration) -> Result<Result<(), String>> {
        let applied = match self.apply(model)? {
            Ok(applied) => applied,
            Err(why) => return Ok(Err(why)),
        };
        let log = loom::log_file(self.workspace, &format!("{}.tests", model.name))?;
        let mut command = cargo();
        command.current_dir(&self.root).args(["test", "--locked"]);
        for package in &applied.packages {
            command.args(["-p", package]);
        }
        command.env("CARGO_TARGET_DIR", self.workspace.target.join("faults").join("tests"));
        Ok(match process::run_logged(&mut command, &log, limit)? {
            Ended::By(status) if status.success() => Ok(()),
            Ended::By(_) => Err(format!("the ordinary tests fail\n{}", process::tail(&log, 20))),
            Ended::Late => Err("the ordinary tests hang".to_owned()),
        })
    }

    /// Writes the model's fault into the copy. Dropping the returned guard restores the files.
    fn apply(&self, model: &Declared) -> Result<Result<Applied<'_>, String>> {
        let Some(fault) = self.faults.iter().find(|fault| fault.name == model.name) else {
            return Ok(Err("has no row".to_owned()));
        };
        let packages = match fault.packages(self.workspace) {
            Ok(packages) => packages,
            Err(why) => return Ok(Err(why)),
        };
        let edited = match fault.apply(|file| self.workspace.read(file).ok()) {
            Ok(edited) => edited,
            Err(why) => return Ok(Err(why)),
        };
        // The guard is built first: if a write fails, it restores all files.
        let applied = Applied { tree: self, files: edited.keys().cloned().collect(), packages };
        for (file, text) in edited {
            fs::write(self.root.join(&file), text).with_context(|| file.display().to_string())?;
        }
        Ok(Ok(applied))
    }
}

/// A fault in the copy; dropping it restores the files.
struct Applied<'a> {
    tree: &'a Tree<'a>,
    files: Vec<PathBuf>,
    packages: BTreeSet<String>,
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        for file in &self.files {
            let restored = copy_if_changed(&self.tree.workspace.root.join(file), &self.tree.root.join(file));
            restored.expect("a changed file can be restored");
        }
    }
}

fn copy_if_changed(from: &Path, to: &Path) -> Result<()> {
    let wanted = fs::read(from)?;
    if fs::read(to).ok().as_ref() != Some(&wanted) {
        fs::create_dir_all(to.parent().expect("a file has a folder"))?;
        fs::write(to, wanted)?;
    }
    Ok(())
}

fn walk(root: &Path, folder: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            files.extend(walk(root, &path)?);
        } else {
            files.push(path.strip_prefix(root).expect("the walk stays below the root").to_owned());
        }
    }
    Ok(files)
}
