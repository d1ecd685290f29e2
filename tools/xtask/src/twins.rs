//! Must-fail twins: a patch to shipped code that its model has to catch and nothing else does.
//!
//! A throw-away copy of the tree is patched, built and restored, one twin at a time. Files that did not change keep
//! their times, so only the patched crate and what depends on it is built again.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::loom;
use crate::models::{self, Binaries, Checker, Declared, DoesNotCompile, Extent};
use crate::process::{self, Ended};
use crate::workspace::{Workspace, cargo};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Only twins of models whose name contains this.
    name: Option<String>,
    /// A crate's tests that have not ended after so many seconds have failed.
    #[arg(long, value_name = "SECONDS", default_value_t = 900)]
    limit: u64,
}

/// The other half of the claim: the ordinary tests do not see a twin's fault, only its model does.
pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let models = models::declared(workspace, options.name.as_deref())?;
    ensure!(!models.is_empty(), "no model is called {:?}", options.name.as_deref().unwrap_or(""));
    let tree = Tree::open(workspace)?;
    let mut complaints = Vec::new();
    for model in &models {
        let outcome = tree.passes_tests(model, Duration::from_secs(options.limit))?;
        println!("{} {}", model.twin(), if outcome.is_ok() { "passes the tests" } else { "FAILS the tests" });
        complaints.extend(outcome.err().map(|why| format!("{}: {why}", model.twin())));
    }
    process::verdict(&complaints)
}

/// How long a twin's model may search for the fault.
const LIMIT: Duration = Duration::from_secs(300);

/// The copy that twins are applied to.
#[derive(Debug)]
pub(crate) struct Tree<'a> {
    workspace: &'a Workspace,
    root: PathBuf,
}

impl<'a> Tree<'a> {
    /// Brings the copy in step with the work tree, tracked files and untracked ones.
    pub(crate) fn open(workspace: &'a Workspace) -> Result<Self> {
        let root = workspace.target.join("twins").join("tree");
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
        Ok(Self { workspace, root })
    }

    fn target(&self, of: &str) -> PathBuf {
        self.workspace.target.join("twins").join(of)
    }

    /// Whether the model fails on its twin; why not, otherwise.
    pub(crate) fn caught(&self, model: &Declared) -> Result<Result<(), String>> {
        let patched = match self.apply(model)? {
            Ok(patched) => patched,
            Err(why) => return Ok(Err(why)),
        };
        match models::build(&self.root, &self.target("models"), Checker::Loom, Extent::Twin(model))? {
            Ok(binaries) => {
                drop(patched);
                self.fails(model, &binaries)
            }
            Err(DoesNotCompile(why)) => Ok(Err(format!("does not compile\n{why}"))),
        }
    }

    /// Runs the twin's model, which has to fail by a panic of its own: a deadlock, an assertion, a leak.
    fn fails(&self, model: &Declared, binaries: &Binaries) -> Result<Result<(), String>> {
        let log = loom::log_file(self.workspace, &format!("{}.twin", model.name))?;
        let mut command = loom::command(model, binaries)?;
        command.env("FLYBALL_MODEL_TWIN", "1");
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
        // A panic while unwinding aborts, and the test harness loses what was said. Once more, with it.
        const SIGABRT: i32 = 6;
        if status.signal() == Some(SIGABRT) {
            process::run_logged(command.arg("--nocapture"), &log, LIMIT)?;
            if process::grep(&log, |line| line.contains("panicked at")) {
                return Ok(Ok(()));
            }
        }
        Ok(Err(format!("its model ended otherwise than by failing: {status}\n{}", process::tail(&log, 20))))
    }

    fn passes_tests(&self, model: &Declared, limit: Duration) -> Result<Result<(), String>> {
        let patched = match self.apply(model)? {
            Ok(patched) => patched,
            Err(why) => return Ok(Err(why)),
        };
        let log = loom::log_file(self.workspace, &format!("{}.tests", model.name))?;
        let mut command = cargo();
        command.current_dir(&self.root).args(["test", "--locked"]);
        for package in &patched.packages {
            command.args(["-p", package]);
        }
        command.env("CARGO_TARGET_DIR", self.target("tests"));
        Ok(match process::run_logged(&mut command, &log, limit)? {
            Ended::By(status) if status.success() => Ok(()),
            Ended::By(_) => Err(format!("the ordinary tests see it\n{}", process::tail(&log, 20))),
            Ended::Late => Err("the ordinary tests hang on it".to_owned()),
        })
    }

    /// Applies the twin until the returned guard is dropped.
    fn apply(&self, model: &Declared) -> Result<Result<Patched<'_>, String>> {
        let patch = self.root.join(model.twin());
        if !patch.exists() {
            return Ok(Err("missing".to_owned()));
        }
        let files = touched(&fs::read_to_string(&patch)?);
        let mut packages = BTreeSet::new();
        for file in &files {
            match self
                .workspace
                .published()
                .find(|package| file.starts_with(package.folder(self.workspace).join("src")))
            {
                Some(package) => packages.insert(package.name.clone()),
                None => return Ok(Err(format!("touches {}, which is not shipped code", file.display()))),
            };
        }
        if files.is_empty() {
            return Ok(Err("is not a unified diff".to_owned()));
        }
        let patched = Patched { tree: self, files, packages };
        let mut command = Command::new("git");
        command.current_dir(&self.root).args(["apply", "--whitespace=nowarn"]).arg(&patch);
        // Inside another repository's folder git would skip every path without a word.
        command.env("GIT_CEILING_DIRECTORIES", self.root.parent().expect("the copy has a parent"));
        let output = command.output().context("git apply")?;
        if !output.status.success() {
            return Ok(Err(format!("does not apply: {}", String::from_utf8_lossy(&output.stderr).trim())));
        }
        for file in &patched.files {
            if fs::read(self.root.join(file)).ok() == fs::read(self.workspace.root.join(file)).ok() {
                return Ok(Err(format!("does not change {}", file.display())));
            }
        }
        Ok(Ok(patched))
    }
}

/// A tree with a twin in it; gives the files back as they were.
struct Patched<'a> {
    tree: &'a Tree<'a>,
    files: Vec<PathBuf>,
    packages: BTreeSet<String>,
}

impl Drop for Patched<'_> {
    fn drop(&mut self) {
        for file in &self.files {
            let restored = copy_if_changed(&self.tree.workspace.root.join(file), &self.tree.root.join(file));
            restored.expect("a patched file can be restored");
        }
    }
}

/// The files a unified diff changes.
fn touched(patch: &str) -> Vec<PathBuf> {
    let names = patch.lines().filter_map(|line| line.strip_prefix("+++ "));
    names.map(|name| PathBuf::from(name.trim().strip_prefix("b/").unwrap_or(name.trim()))).collect()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_diff_names_the_files_it_changes() {
        let patch = "A dropped notify.\n\n--- a/workqueue/src/queue.rs\n+++ b/workqueue/src/queue.rs\n@@ -1,2 +1 @@\n a\n-b\n";
        assert_eq!(touched(patch), [PathBuf::from("workqueue/src/queue.rs")]);
        assert!(touched("not a diff").is_empty());
    }
}
