//! Selects the seeded faults that a run applies. Each fault needs a separate build, so a run applies the faults of all models only in `cargo xtask
//! deep` or with `--all-faults`.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::faults::{self, Fault};
use crate::models::Declared;
use crate::workspace::Workspace;

/// The rule by which faults are selected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection<'a> {
    /// All faults.
    All,
    /// The faults that the changes since this commit may affect.
    Since(&'a str),
}

impl Selection<'_> {
    /// Returns the models whose faults are applied. If `most` is given and more are selected, returns a sample of this size: it is evenly spread over
    /// all of them, and the commit determines which ones.
    ///
    /// Models whose faults change the same crate are next to each other, so most builds recompile only that crate and its dependants.
    pub(crate) fn of<'m>(
        &self,
        workspace: &Workspace,
        models: &'m [Declared],
        most: Option<usize>,
    ) -> Result<Vec<&'m Declared>> {
        let faults = faults::read(workspace)?;
        let fault = |model: &Declared| faults.iter().find(|fault| fault.name == model.name);
        let packages = |model: &Declared| {
            fault(model).and_then(|fault| fault.packages(workspace).ok()).unwrap_or_default()
        };
        let selected: Vec<&Declared> = match *self {
            Self::All => models.iter().collect(),
            Self::Since(base) => {
                let change = Change::since(workspace, base)?;
                let concerned =
                    |model: &Declared| change.concerns(&packages(model), &model.file, fault(model));
                models.iter().filter(|model| concerned(model)).collect()
            }
        };
        let first = workspace.commit().unwrap_or(0) as usize;
        let sample = spread(selected.len(), most.unwrap_or(selected.len()), first);
        let mut chosen: Vec<&Declared> = sample.into_iter().map(|at| selected[at]).collect();
        chosen.sort_by_cached_key(|model| (packages(model), model.file.clone()));
        Ok(chosen)
    }
}

/// Returns `size` numbers below `all`, evenly spaced. The first one is `first` modulo `all`.
fn spread(all: usize, size: usize, first: usize) -> BTreeSet<usize> {
    let size = size.min(all);
    (0..size).map(|number| (first + number * all / size) % all).collect()
}

/// The changes since a commit, including those of the work tree.
#[derive(Debug)]
struct Change {
    /// The published packages with a changed source file or manifest, and all packages that depend on them.
    packages: BTreeSet<String>,
    /// The files that have changed.
    files: BTreeSet<PathBuf>,
    /// The faults of that commit.
    faults: Vec<Fault>,
}

impl Change {
    fn since(workspace: &Workspace, base: &str) -> Result<Self> {
        let files = changed(workspace, base)?;
        let touched = |folder: &Path| {
            files.iter().map(Path::new).any(|file| {
                file.starts_with(folder) && file.extension().is_some_and(|end| end == "rs" || end == "toml")
            })
        };
        let packages = workspace.published().filter(|package| touched(package.folder(workspace)));
        let packages: BTreeSet<String> = packages.map(|package| package.name.clone()).collect();
        Ok(Self {
            packages: workspace.with_dependants(packages),
            faults: faults_at(workspace, base)?,
            files: files.into_iter().map(PathBuf::from).collect(),
        })
    }

    fn concerns(&self, packages: &BTreeSet<String>, model: &Path, fault: Option<&Fault>) -> bool {
        !self.packages.is_disjoint(packages)
            || self.files.contains(model)
            || fault.is_some_and(|fault| !self.faults.contains(fault))
    }
}

/// The faults of a commit. Those in a file that cannot be parsed are missing, so they count as changed.
fn faults_at(workspace: &Workspace, commit: &str) -> Result<Vec<Fault>> {
    let listed = git(workspace, &["ls-tree", "-r", "--name-only", "--full-tree", commit, faults::FOLDER])?;
    let mut faults = Vec::new();
    for file in listed.lines() {
        let text = git(workspace, &["show", &format!("{commit}:{file}")])?;
        faults.extend(faults::parse(Path::new(file), &text).unwrap_or_default());
    }
    Ok(faults)
}

/// Files that differ from `base`, including untracked ones.
fn changed(workspace: &Workspace, base: &str) -> Result<Vec<String>> {
    let mut files = git(workspace, &["diff", "--name-only", base])?;
    files.push_str(&git(workspace, &["ls-files", "--others", "--exclude-standard"])?);
    Ok(files.lines().map(str::to_owned).collect())
}

fn git(workspace: &Workspace, arguments: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    let output = command.current_dir(&workspace.root).args(arguments).output().context("git")?;
    let message = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments.join(" "), message.trim());
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_spread_and_rotates() {
        assert_eq!(spread(10, 5, 0), BTreeSet::from([0, 2, 4, 6, 8]));
        assert_eq!(spread(10, 5, 21), BTreeSet::from([1, 3, 5, 7, 9]));
        assert_eq!(spread(3, 5, 7), BTreeSet::from([0, 1, 2]));
        assert!(spread(0, 5, 7).is_empty());
    }

    #[test]
    fn every_fault_has_its_turn_in_the_sample() {
        let seen: BTreeSet<usize> = (0..197).flat_map(|commit| spread(197, 32, commit)).collect();
        assert_eq!(seen.len(), 197);
        assert!((0..197).all(|commit| spread(197, 32, commit).len() == 32));
    }

    #[test]
    fn a_change_concerns_faults_of_its_crates_and_models_and_changed_faults() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>();
        let change = Change {
            packages: names(&["flyball-workqueue"]),
            files: BTreeSet::from(["ttl.rs".into()]),
            faults: vec![Fault::new("cache::known")],
        };
        let known = Fault::new("cache::known");
        let concerned =
            |package, file: &str, fault| change.concerns(&names(&[package]), Path::new(file), fault);
        assert!(concerned("flyball-workqueue", "queue.rs", Some(&known)));
        assert!(concerned("flyball-informer-cache", "ttl.rs", Some(&known)));
        assert!(!concerned("flyball-informer-cache", "store.rs", Some(&known)));
        assert!(concerned("flyball-informer-cache", "store.rs", Some(&Fault::new("cache::new"))));
    }
}
