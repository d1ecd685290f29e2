//! Reads the declarations of the models from their sources, and builds the test binaries that contain the models.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use crate::process;
use crate::workspace::{Workspace, cargo};

pub(crate) const TESTS: &str = "loom-tests/tests";
pub(crate) const TABLE: &str = "loom-tests/MODELS.md";

/// A model, as its descriptor in the source declares it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Declared {
    /// `area::test`.
    pub(crate) name: String,
    /// The source file.
    pub(crate) file: PathBuf,
    /// The number of threads, including the main thread.
    pub(crate) threads: usize,
    /// The recorded minimum number of interleavings.
    pub(crate) floor: u64,
}

impl Declared {
    /// The test function.
    pub(crate) fn test(&self) -> &str {
        self.name.rsplit("::").next().expect("a split has a last part")
    }

    /// The test binary: a folder of [`TESTS`], or a file of it without the extension.
    pub(crate) fn binary(&self) -> &str {
        let below = self.file.strip_prefix(TESTS).ok();
        let first = below.and_then(|path| path.components().next()).map(|first| Path::new(first.as_os_str()));
        first.and_then(|first| first.file_stem()?.to_str()).expect("a model is in a file of the tests")
    }

    /// The crate that the model checks; `all` if it checks several together.
    pub(crate) fn package(&self) -> &'static str {
        match self.binary() {
            "workqueue" => "flyball-workqueue",
            "ratelimit" => "flyball-ratelimit",
            "composed" => "all",
            _ => "flyball-informer-cache",
        }
    }
}

/// Returns all models whose name contains `filter`, ordered by file and line.
pub(crate) fn declared(workspace: &Workspace, filter: Option<&str>) -> Result<Vec<Declared>> {
    let mut models = Vec::new();
    for file in workspace.files()? {
        if !file.starts_with(TESTS) || file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        models.extend(scan(&file, &workspace.read(&file)?).with_context(|| file.display().to_string())?);
    }
    for (at, model) in models.iter().enumerate() {
        let twice = models[..at].iter().any(|other| other.name == model.name);
        ensure!(!twice, "two models are called {}", model.name);
    }
    models.retain(|model| filter.is_none_or(|wanted| model.name.contains(wanted)));
    Ok(models)
}

/// Parses the descriptors of one file. The fields of a descriptor must be literals.
pub(crate) fn scan(file: &Path, text: &str) -> Result<Vec<Declared>> {
    let mut models = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find("Model {") {
        rest = &rest[at + "Model {".len()..];
        let end = rest.find('}').unwrap_or(rest.len());
        let descriptor = &rest[..end];
        let name = field(descriptor, "name:").and_then(|value| value.strip_prefix('"')?.split('"').next());
        let name = name.context("a Model without a literal name")?;
        ensure!(name.contains("::"), "the model {name:?} is not called area::test");
        let floor = field(descriptor, "floor:").context("a Model without a floor")?;
        let floor = number(floor).with_context(|| format!("{name}: the floor is not a literal number"))?;
        let threads = field(descriptor, "threads:").and_then(number);
        let threads = threads.with_context(|| format!("{name}: the number of threads is not literal"))?;
        models.push(Declared {
            name: name.to_owned(),
            file: file.to_owned(),
            threads: threads as usize,
            floor,
        });
    }
    Ok(models)
}

fn field<'a>(descriptor: &'a str, name: &str) -> Option<&'a str> {
    let at = descriptor.find(name)?;
    Some(descriptor[at + name.len()..].trim_start())
}

fn number(value: &str) -> Option<u64> {
    let digits: String = value.chars().filter(|c| *c != '_').take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// The tool that checks models.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Checker {
    Loom,
    Shuttle,
}

impl Checker {
    fn cfg(self) -> &'static str {
        match self {
            Self::Loom => "--cfg flyball_loom",
            Self::Shuttle => "--cfg flyball_shuttle",
        }
    }
}

/// The paths of the test binaries by name. The tests of the model runner have the name `runner`.
pub(crate) type Binaries = BTreeMap<String, PathBuf>;

/// The error that the models do not compile, with the output of the compiler.
#[derive(Debug)]
pub(crate) struct DoesNotCompile(pub(crate) String);

/// Which test binaries to build.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Extent<'a> {
    /// All test binaries, and the tests of the model runner.
    All,
    /// The binaries that contain these models.
    Holding(&'a [Declared]),
    /// Only the binary that contains this model. The source tree contains a seeded fault. The output of the compiler is not printed.
    Fault(&'a Declared),
}

/// Builds the models of the source tree at `root`, which is the workspace or a copy of it with a seeded fault.
///
/// Both trees are built into the same target directory, so that their dependencies are compiled only once. But cargo identifies an artifact by its
/// path relative to the workspace and by its profile. So the members of the workspace are built with a different profile in the copy. With the same
/// profile, cargo would use the artifacts of the other tree if these were newer than the source files.
pub(crate) fn build(
    workspace: &Workspace,
    root: &Path,
    checker: Checker,
    extent: Extent<'_>,
) -> Result<std::result::Result<Binaries, DoesNotCompile>> {
    let mut command = cargo();
    command.current_dir(root).args(["test", "--locked", "--profile", "loom", "-p", "loom-tests", "--no-run"]);
    command.args(["--message-format", "json-render-diagnostics"]);
    match extent {
        Extent::All => {
            command.args(["--lib", "--tests"]);
        }
        Extent::Holding(models) => {
            let binaries: BTreeSet<&str> = models.iter().map(Declared::binary).collect();
            command.args(binaries.iter().flat_map(|binary| ["--test", binary]));
        }
        Extent::Fault(model) => {
            command.args(["--test", model.binary()]);
            // A binary is built once per fault, and the model usually fails soon, so most of the time is spent on the build. An incremental build
            // takes a quarter of the time of a full build.
            command.env("CARGO_INCREMENTAL", "1");
            for package in &workspace.packages {
                let profile = format!("profile.loom.package.\"{}\"", package.name);
                command.args(["--config", &format!("{profile}.opt-level=1")]);
                command.args(["--config", &format!("{profile}.debug=0")]);
            }
        }
    }
    command.env("CARGO_TARGET_DIR", workspace.target.join("models")).env("RUSTFLAGS", checker.cfg());
    let quiet = matches!(extent, Extent::Fault(_));
    command.stdout(Stdio::piped()).stderr(if quiet { Stdio::piped() } else { Stdio::inherit() });
    let shown = process::show(&command);
    let output = command.spawn().and_then(std::process::Child::wait_with_output).with_context(|| shown)?;
    if !output.status.success() {
        return Ok(Err(DoesNotCompile(String::from_utf8_lossy(&output.stderr).into_owned())));
    }
    let mut binaries = Binaries::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        let Ok(Artifact { target, executable: Some(executable) }) = serde_json::from_str(line) else {
            continue;
        };
        let name =
            if target.kind.iter().any(|kind| kind == "lib") { "runner".to_owned() } else { target.name };
        binaries.insert(name, executable);
    }
    Ok(Ok(binaries))
}

#[derive(Deserialize)]
struct Artifact {
    target: Target,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Target {
    name: String,
    kind: Vec<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_are_read() {
        let text = r#"
            model(Model { name: "queue::add_vs_get", threads: 3, floor: 1_200, catches: "a {lost} wake-up" }, || {});
            handoff(
                Model {
                    name: "queue::handoff_two",
                    threads: 3,
                    floor: 70,
                    catches: "x",
                },
                2,
            );
        "#;
        let models = scan(Path::new("loom-tests/tests/workqueue/queue.rs"), text).unwrap();
        assert_eq!(models[0].binary(), "workqueue");
        let seen: Vec<_> = models
            .iter()
            .map(|model| (model.name.as_str(), model.test(), model.threads, model.floor))
            .collect();
        assert_eq!(
            seen,
            [("queue::add_vs_get", "add_vs_get", 3, 1200), ("queue::handoff_two", "handoff_two", 3, 70)]
        );
    }

    #[test]
    fn a_descriptor_that_cannot_be_read_is_an_error() {
        let scan = |text| scan(Path::new("loom-tests/tests/a.rs"), text).unwrap_err().to_string();
        assert_eq!(scan("Model { name: NAME, floor: 1 }"), "a Model without a literal name");
        assert_eq!(scan("Model { name: \"a\", floor: 1 }"), "the model \"a\" is not called area::test");
        assert_eq!(scan("Model { name: \"a::b\", floor: F }"), "a::b: the floor is not a literal number");
        assert_eq!(scan("Model { name: \"a::b\", floor: 1 }"), "a::b: the number of threads is not literal");
    }
}
