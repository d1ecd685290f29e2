//! `cargo xtask features`: checks that each published crate compiles and passes its tests with different sets of features, and that a primitive has
//! few dependencies by default.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use clap::Args;

use crate::process::{self, Ended};
use crate::workspace::{Package, Workspace, cargo};

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Run no tests: only check that the crate compiles with each set of features. `cargo test --workspace` compiles and runs the tests with the
    /// features that the members of the workspace enable, and `cargo xtask deep` runs them with other features.
    #[arg(long)]
    light: bool,
    /// Check only this package.
    package: Option<String>,
}

/// The maximum number of crates in the default build of a primitive, including the primitive itself. To allow more crates, change this constant.
const MOST_CRATES: usize = 14;
/// The adapters of a primitive. The default build of an adapter may contain one crate more than the default build of a primitive.
const ADAPTERS: [&str; 1] = ["flyball-ops"];
/// Crates that must not be in the default build of a primitive.
const NOT_BY_DEFAULT: [&str; 5] = ["tokio", "serde", "tracing", "metrics", "prometheus-client"];

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "run the failed `cargo` commands above; each names its package and features";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut complaints = Vec::new();
    let wanted = |package: &&Package| options.package.as_ref().is_none_or(|name| *name == package.name);
    let packages: Vec<_> = workspace.published().filter(wanted).collect();
    ensure!(
        !packages.is_empty(),
        "no published package is called {:?}",
        options.package.as_deref().unwrap_or("")
    );
    for package in packages {
        if package.is_primitive() {
            let crates = tree(workspace, package)?;
            println!("{}: {} crates by default", package.name, crates.len());
            complaints.extend(weigh(&package.name, &crates));
        }
        let job: &[&str] = if options.light { &["check", "--lib"] } else { &["test"] };
        for features in &combinations(package) {
            let mut command = command(workspace, package, job, features);
            complaints.extend(process::run(command.arg("--quiet")).err().map(|error| format!("{error:#}")));
        }
    }
    process::verdict(&complaints, WHAT_TO_DO)
}

fn command(workspace: &Workspace, package: &Package, job: &[&str], features: &[&str]) -> Command {
    let mut command = cargo();
    command.current_dir(&workspace.root).args(job).args(["--locked", "-p", &package.name]);
    command.args(["--no-default-features", "--features", &features.join(",")]);
    command
}

/// Returns every set of features of a package. `cargo xtask deep` checks all of them.
pub(crate) fn sets(package: &Package) -> Vec<Vec<&str>> {
    let mut sets = combinations(package);
    sets.extend(powerset(package));
    sets
}

/// Returns the name of a set of features.
pub(crate) fn name(features: &[&str]) -> String {
    if features.is_empty() { "none".to_owned() } else { features.join("+") }
}

/// Runs the tests of a package with no feature, with one or with all; with any other set, checks that it compiles.
pub(crate) fn check(workspace: &Workspace, package: &Package, features: &[&str], log: &Path) -> Result<()> {
    let tested = combinations(package).iter().any(|set| set == features);
    let mut command = command(workspace, package, if tested { &["test"] } else { &["check"] }, features);
    match process::run_logged(&mut command, log, LIMIT)? {
        Ended::By(status) if status.success() => Ok(()),
        Ended::By(status) => bail!("{}: {status}\n{}", process::show(&command), process::tail(log, 30)),
        Ended::Late => bail!("{}: not done after {} s", process::show(&command), LIMIT.as_secs()),
    }
}

/// The time limit for the tests with one set of features, with their build.
const LIMIT: Duration = Duration::from_secs(1_800);

/// Returns the sets of features to test: no feature, each feature alone, and all features.
fn combinations(package: &Package) -> Vec<Vec<&str>> {
    let features: Vec<&str> =
        package.features.keys().map(String::as_str).filter(|name| *name != "default").collect();
    let mut combinations = vec![Vec::new()];
    combinations.extend(features.iter().map(|feature| vec![*feature]));
    if features.len() > 1 {
        combinations.push(features);
    }
    combinations
}

/// Returns every set of two or more features, except for the set of all features.
fn powerset(package: &Package) -> Vec<Vec<&str>> {
    let features: Vec<&str> =
        package.features.keys().map(String::as_str).filter(|name| *name != "default").collect();
    let sets =
        (0..1_u32 << features.len()).filter(|set| (2..features.len()).contains(&(set.count_ones() as usize)));
    let of =
        |set: u32| (0..features.len()).filter(move |at| set >> at & 1 == 1).map(|at| features[at]).collect();
    sets.map(of).collect()
}

/// Returns the names of the crates in the default build of a package.
fn tree(workspace: &Workspace, package: &Package) -> Result<BTreeSet<String>> {
    let mut command = cargo();
    command.current_dir(&workspace.root).args(["tree", "--locked", "--quiet", "-p", &package.name]);
    command.args(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]);
    let output = command.output()?;
    ensure!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}

fn weigh(name: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let most = MOST_CRATES + usize::from(ADAPTERS.contains(&name));
    if crates.len() > most {
        let count = crates.len();
        complaints.push(format!("{name}: {count} crates by default, {most} are allowed: {crates:?}"));
    }
    for heavy in NOT_BY_DEFAULT.iter().filter(|heavy| crates.contains(**heavy)) {
        complaints.push(format!("{name}: {heavy} is in the default build"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crates(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn a_light_primitive_passes() {
        assert!(weigh("a", &crates(&["a", "hashbrown"])).is_empty());
    }

    #[test]
    fn a_runtime_by_default_fails() {
        assert_eq!(weigh("a", &crates(&["a", "tokio"])), ["a: tokio is in the default build"]);
    }

    #[test]
    fn too_many_crates_fail() {
        let names: Vec<String> = (0..=MOST_CRATES).map(|number| format!("c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let complaints = weigh("a", &crates(&names));
        assert!(complaints[0].starts_with("a: 15 crates by default, 14 are allowed"), "{complaints:?}");
        assert!(weigh("flyball-ops", &crates(&names)).is_empty());
    }

    #[test]
    fn an_adapter_may_have_one_crate_more_than_a_primitive_and_no_second_one() {
        let names: Vec<String> = (0..MOST_CRATES + 2).map(|number| format!("c{number}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let complaints = weigh("flyball-ops", &crates(&names));
        assert!(
            complaints[0].starts_with("flyball-ops: 16 crates by default, 15 are allowed"),
            "{complaints:?}"
        );
    }
}
