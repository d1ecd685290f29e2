//! Applies seeded faults. A fault must make its model fail, and the ordinary tests must still pass with it.
//!
//! The faults are applied one after the other: the files that a fault changes are written into a copy of the source tree, the copy is built, and the
//! files are restored. The other files keep their modification times, so cargo rebuilds only the crate that the fault changes and its dependants.

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
    /// Apply only the faults of models whose name contains this text.
    name: Option<String>,
    /// The tests of a crate fail if they have not completed after this number of seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
}

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "a fault that the ordinary tests find needs no model: seed a fault that they miss, in loom-tests/faults; `cargo xtask faults NAME` tries it";

/// Checks for each fault that the ordinary tests still pass, which shows that only the model catches the fault.
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
    process::verdict(&complaints, WHAT_TO_DO)
}

/// The time limit for a model with a seeded fault.
const LIMIT: Duration = Duration::from_secs(300);

/// A copy of the source tree to which faults are applied.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    workspace: &'a Workspace,
    root: PathBuf,
    faults: Vec<Fault>,
}

impl<'a> Tree<'a> {
    /// Updates the copy from the work tree. The copy contains the tracked files, and the untracked files that git does not ignore.
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

    /// Checks that the model catches its fault. If it does not, returns the reason.
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

    /// Runs the model with its fault. The model must fail with a panic, for example because of a deadlock, an assertion or a leak.
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
        // A panic during unwinding aborts the process, and then the test harness does not print the output that it has captured. So the model is run
        // again without capturing its output.
        const SIGABRT: i32 = 6;
        if status.signal() == Some(SIGABRT) {
            process::run_logged(command.arg("--nocapture"), &log, LIMIT)?;
            if process::grep(&log, |line| line.contains("panicked at")) {
                return Ok(Ok(()));
            }
        }
        Ok(Err(format!("its model did not end with a failure: {status}\n{}", process::tail(&log, 20))))
    }

    pub(crate) fn passes_tests(&self, model: &Declared, limit: Duration) -> Result<Result<(), String>> {
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
        // The guard is created before the files are written, so that it restores all of them if a write fails.
        let applied = Applied { tree: self, files: edited.keys().cloned().collect(), packages };
        for (file, text) in edited {
            fs::write(self.root.join(&file), text).with_context(|| file.display().to_string())?;
        }
        Ok(Ok(applied))
    }
}

/// A fault that was written into the copy. Dropping this value restores the files.
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
