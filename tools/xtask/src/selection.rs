//! Selects the seeded faults that a run applies. Each fault needs a separate build, so a run applies the faults of all models only in `cargo xtask
//! deep` or with `--all-faults`.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::faults::{self, Fault};
use crate::models::{self, Declared};
use crate::workspace::Workspace;

/// The rule by which faults are selected.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Selection<'a> {
    /// All faults.
    All,
    /// The faults that the changes since this commit may affect.
    Since(&'a str),
    /// This number of faults, evenly spread over all of them. The commit determines which ones.
    Sample(usize),
}

impl Selection<'_> {
    /// Returns the models whose faults are applied. Models whose faults change the same crate are next to each other, so most builds recompile only
    /// that crate and its dependants.
    pub(crate) fn of<'m>(&self, workspace: &Workspace, models: &'m [Declared]) -> Result<Vec<&'m Declared>> {
        let faults = faults::read(workspace)?;
        let fault = |model: &Declared| faults.iter().find(|fault| fault.name == model.name);
        let packages = |model: &Declared| {
            fault(model).and_then(|fault| fault.packages(workspace).ok()).unwrap_or_default()
        };
        let mut chosen: Vec<&Declared> = match *self {
            Self::All => models.iter().collect(),
            Self::Since(base) => {
                let change = Change::since(workspace, base)?;
                let concerned =
                    |model: &Declared| change.concerns(&packages(model), &model.binary, fault(model));
                models.iter().filter(|model| concerned(model)).collect()
            }
            Self::Sample(size) => {
                let first = workspace.commit().unwrap_or(0) as usize;
                spread(models.len(), size, first).into_iter().map(|at| &models[at]).collect()
            }
        };
        chosen.sort_by_cached_key(|model| (packages(model), model.binary.clone()));
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
    /// The test binaries whose sources have changed.
    binaries: BTreeSet<String>,
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
        let below = |file: &str| {
            let path = Path::new(file).strip_prefix(models::TESTS).ok()?;
            let first = path.components().next()?.as_os_str().to_str()?;
            Some(first.trim_end_matches(".rs").trim_end_matches("_ops").to_owned())
        };
        Ok(Self {
            packages: workspace.with_dependants(packages),
            binaries: files.iter().filter_map(|file| below(file)).collect(),
            faults: faults_at(workspace, base)?,
        })
    }

    fn concerns(&self, packages: &BTreeSet<String>, binary: &str, fault: Option<&Fault>) -> bool {
        !self.packages.is_disjoint(packages)
            || self.binaries.contains(binary)
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
            binaries: names(&["ttl"]),
            faults: vec![Fault::new("cache::known")],
        };
        let known = Fault::new("cache::known");
        assert!(change.concerns(&names(&["flyball-workqueue"]), "workqueue", Some(&known)));
        assert!(change.concerns(&names(&["flyball-informer-cache"]), "ttl", Some(&known)));
        assert!(!change.concerns(&names(&["flyball-informer-cache"]), "cache", Some(&known)));
        assert!(change.concerns(
            &names(&["flyball-informer-cache"]),
            "cache",
            Some(&Fault::new("cache::new"))
        ));
    }
}
