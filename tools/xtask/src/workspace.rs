//! The workspace: its root, target directory, packages and files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

/// The workspace to which this command belongs.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) target: PathBuf,
    pub(crate) packages: Vec<Package>,
}

/// A member of the workspace, as `cargo metadata` reports it.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    manifest_path: PathBuf,
    publish: Option<Vec<String>>,
    pub(crate) features: BTreeMap<String, Vec<String>>,
    dependencies: Vec<Dependency>,
}

#[derive(Debug, Deserialize)]
struct Dependency {
    name: String,
    kind: Option<String>,
    optional: bool,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    packages: Vec<Package>,
    workspace_root: PathBuf,
    target_directory: PathBuf,
}

impl Workspace {
    /// Runs `cargo metadata`.
    pub(crate) fn open() -> Result<Self> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
        // If the source tree has been moved since this command was built, the manifest does not exist. Then cargo finds the root from the current
        // directory.
        let mut command = cargo();
        command.args(["metadata", "--no-deps", "--format-version", "1", "--locked"]);
        if manifest.exists() {
            command.arg("--manifest-path").arg(manifest);
        }
        let output = command.output().context("cargo metadata")?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let metadata: Metadata = serde_json::from_slice(&output.stdout).context("cargo metadata")?;
        let Metadata { mut packages, workspace_root: root, target_directory: target } = metadata;
        packages.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(Self { root, target, packages })
    }

    /// The published crates.
    pub(crate) fn published(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.is_published())
    }

    /// Returns `packages`, together with every member that depends on one of them, directly or indirectly. Development dependencies
    /// are ignored.
    pub(crate) fn with_dependants(&self, mut packages: BTreeSet<String>) -> BTreeSet<String> {
        loop {
            let mut depends = self.packages.iter().filter(|package| {
                !packages.contains(&package.name) && packages.iter().any(|name| package.depends_on(name))
            });
            match depends.next() {
                Some(package) => packages.insert(package.name.clone()),
                None => return packages,
            };
        }
    }

    /// Returns the relative paths of all files that git tracks, and of the untracked files that git does not ignore. The paths are sorted.
    pub(crate) fn files(&self) -> Result<Vec<PathBuf>> {
        let mut command = Command::new("git");
        command.current_dir(&self.root).args(["ls-files", "-z", "-co", "--exclude-standard"]);
        let output = command.output().context("git ls-files")?;
        ensure!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
        let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
        let mut files: Vec<PathBuf> = names.split_terminator('\0').map(PathBuf::from).collect();
        // Removes files that are tracked but were deleted in the work tree.
        files.retain(|file| self.root.join(file).exists());
        files.sort();
        Ok(files)
    }

    /// Returns the first eight digits of the commit hash as a number; `None` outside of a repository.
    pub(crate) fn commit(&self) -> Option<u32> {
        let mut command = Command::new("git");
        command.current_dir(&self.root).args(["rev-parse", "HEAD"]);
        let output = command.output().ok().filter(|output| output.status.success())?;
        let digits = String::from_utf8(output.stdout).ok()?;
        u32::from_str_radix(digits.get(..8)?, 16).ok()
    }

    /// Reads a file of the workspace.
    pub(crate) fn read(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = path.as_ref();
        fs::read_to_string(self.root.join(path)).with_context(|| path.display().to_string())
    }
}

impl Package {
    pub(crate) fn is_published(&self) -> bool {
        self.publish.is_none()
    }

    /// The folder of the package, relative to the root of the workspace.
    pub(crate) fn folder<'a>(&'a self, workspace: &Workspace) -> &'a Path {
        let folder = self.manifest_path.parent().expect("a manifest has a folder");
        folder.strip_prefix(&workspace.root).unwrap_or(folder)
    }

    /// Returns whether the package has a dependency with this name. Development dependencies are ignored.
    pub(crate) fn depends_on(&self, name: &str) -> bool {
        self.dependencies.iter().any(|dependency| dependency.kind.is_none() && dependency.name == name)
    }

    /// Returns whether the package is a primitive: a published crate that does not require tokio. An optional dependency on tokio is allowed.
    pub(crate) fn is_primitive(&self) -> bool {
        self.is_published()
            && !self.dependencies.iter().any(|dependency| {
                dependency.kind.is_none() && dependency.name == "tokio" && !dependency.optional
            })
    }
}

/// The cargo binary that runs this command, without the variables that `cargo run` has set for this program: a build script that depends on one of
/// them, such as that of `ring`, would run again, and everything above it would be compiled again, at each change between `cargo` and `cargo xtask`.
pub(crate) fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependencies: &[(&str, Option<&str>)]) -> Package {
        let dependency = |(name, kind): &(&str, Option<&str>)| Dependency {
            name: (*name).to_owned(),
            kind: kind.map(str::to_owned),
            optional: false,
        };
        Package {
            name: name.to_owned(),
            manifest_path: PathBuf::from(format!("/{name}/Cargo.toml")),
            publish: None,
            features: BTreeMap::new(),
            dependencies: dependencies.iter().map(dependency).collect(),
        }
    }

    #[test]
    fn dependants_are_found_at_any_distance() {
        let packages = vec![
            package("a", &[]),
            package("b", &[("a", None)]),
            package("c", &[("b", None)]),
            package("d", &[("a", Some("dev"))]),
        ];
        let workspace = Workspace { root: "/".into(), target: "/target".into(), packages };
        let dependants = |name: &str| workspace.with_dependants(BTreeSet::from([name.to_owned()]));
        assert_eq!(dependants("a"), BTreeSet::from(["a", "b", "c"].map(str::to_owned)));
        assert_eq!(dependants("c"), BTreeSet::from(["c".to_owned()]));
    }
}
