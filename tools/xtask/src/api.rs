//! `cargo xtask api`: lists the public API of each published crate. The listings are committed, so a reviewer sees each change of the API. Also
//! checks that a compiled example uses every public type and function, except for those that `WITHOUT_EXAMPLE` lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::process;
use crate::workspace::{Package, Workspace, cargo};

mod cancel_safety;
mod count;
mod examples;
mod excused;
mod items;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Write the listings instead of comparing them.
    #[arg(long)]
    write: bool,
    /// Only count the functions, types and fields of the committed listings.
    #[arg(long, conflicts_with = "write")]
    count: bool,
    /// With `--count`, also count the methods of this type or trait.
    #[arg(long = "type", value_name = "NAME", requires = "count")]
    type_name: Option<String>,
    /// Check or count only this package.
    package: Option<String>,
}

/// The folder with one listing per crate. A listing is the output of `cargo public-api` without auto traits, derived traits and blanket
/// implementations.
const LISTINGS: &str = "docs/api";
/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "if the change of the API is intended, `cargo xtask api --write` writes the listings; examples and cancel safety are explained in CONTRIBUTING.md";

pub(crate) fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if options.count {
        return print_counts(workspace, options);
    }
    let rustdoc = nightly_rustdoc(workspace)?;
    let list_of_excused = workspace.read(Path::new(excused::FILE)).unwrap_or_default();
    let (mut excused, mut complaints) = excused::Excused::read(&list_of_excused);
    let mut crates: Vec<(&str, Value)> = Vec::new();
    for package in options.packages(workspace) {
        let json = rustdoc_json(workspace, package, &rustdoc)?;
        let listing = list(&json)?;
        let path = listing_of(package);
        if options.write {
            fs::create_dir_all(workspace.root.join(LISTINGS))?;
            fs::write(workspace.root.join(&path), &listing)?;
        } else {
            let known = workspace.read(&path).unwrap_or_default();
            complaints.extend(differences(&path, &known, &listing));
        }
        crates.push((&package.name, serde_json::from_slice(&fs::read(&json)?).context("rustdoc's JSON")?));
    }
    let mut futures = cancel_safety::Futures::default();
    let mut items = Vec::new();
    for (name, rustdoc) in &crates {
        items.push(items::read(rustdoc)?);
        let items = items.last().expect("an element was added");
        futures.add(rustdoc, items);
        let found = examples::find(items, &mut excused);
        println!("{name}: {found}");
        complaints.extend(found.complaints);
    }
    for ((_, rustdoc), items) in crates.iter().zip(&items) {
        complaints.extend(futures.complaints(rustdoc, items));
    }
    if options.package.is_none() {
        let left = excused.left();
        complaints
            .extend(left.map(|path| format!("{}: {path} has an example, or does not exist", excused::FILE)));
    }
    process::verdict(&complaints, WHAT_TO_DO)
}

/// Prints the numbers of items in the committed listings: one row per crate, and their sum.
fn print_counts(workspace: &Workspace, options: &Options) -> Result<()> {
    let mut sum = count::Totals::default();
    let mut methods = Vec::new();
    println!("{:<24}{}", "", count::HEADING);
    for package in options.packages(workspace) {
        let counted = count::Count::of(&workspace.read(listing_of(package))?);
        println!("{:<24}{}", package.name, counted.totals());
        sum += counted.totals();
        let of = options.type_name.iter().filter(|name| counted.has_type(name));
        methods
            .extend(of.map(|name| format!("{}: {name} has {} methods", package.name, counted.methods(name))));
    }
    println!("{:<24}{sum}", "sum");
    for line in &methods {
        println!("{line}");
    }
    if let Some(name) = &options.type_name {
        ensure!(!methods.is_empty(), "no listing declares a type or trait {name}");
    }
    Ok(())
}

impl Options {
    fn packages<'a>(&self, workspace: &'a Workspace) -> impl Iterator<Item = &'a Package> {
        let wanted = |package: &&Package| self.package.as_ref().is_none_or(|name| *name == package.name);
        workspace.published().filter(wanted)
    }
}

fn listing_of(package: &Package) -> PathBuf {
    Path::new(LISTINGS).join(format!("{}.txt", package.name))
}

/// Writes a script that calls a stable rustdoc so that rustdoc accepts the unstable option for JSON output. Returns the path of the script. The
/// script sets `RUSTC_BOOTSTRAP` for rustdoc only, so that the dependencies are not rebuilt.
pub(crate) fn nightly_rustdoc(workspace: &Workspace) -> Result<PathBuf> {
    let script = workspace.target.join("api/rustdoc");
    fs::create_dir_all(workspace.target.join("api"))?;
    fs::write(&script, "#!/bin/sh\nRUSTC_BOOTSTRAP=1 exec rustdoc \"$@\"\n")?;
    #[cfg(unix)]
    fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    Ok(script)
}

fn rustdoc_json(workspace: &Workspace, package: &Package, rustdoc: &Path) -> Result<PathBuf> {
    let mut command = cargo();
    command
        .current_dir(&workspace.root)
        .env("RUSTDOC", rustdoc)
        .args(["rustdoc", "--locked", "--quiet", "--lib"]);
    command.args(["--all-features", "-p", &package.name, "--target-dir"]).arg(&workspace.target);
    command.args(["--", "-Z", "unstable-options", "--output-format", "json"]);
    process::run(&mut command)?;
    Ok(workspace.target.join("doc").join(format!("{}.json", package.name.replace('-', "_"))))
}

fn list(json: &Path) -> Result<String> {
    let mut command = Command::new("cargo-public-api");
    command.args(["public-api", "-sss", "--color", "never", "--rustdoc-json"]).arg(json);
    let output = command.output().context("cargo-public-api: `cargo install --locked cargo-public-api`")?;
    ensure!(output.status.success(), "cargo-public-api: {}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}

/// Returns one complaint for each line that was removed or added.
fn differences(path: &Path, known: &str, listing: &str) -> Vec<String> {
    let lines = |of: &str, not_in: &str, sign: &str| -> Vec<String> {
        let others: std::collections::BTreeSet<&str> = not_in.lines().collect();
        of.lines()
            .filter(|line| !others.contains(line))
            .map(|line| format!("{}: {sign} {line}", path.display()))
            .collect()
    };
    let mut all = lines(known, listing, "gone:");
    all.extend(lines(listing, known, "new:"));
    if !all.is_empty() {
        all.push(format!("{}: `cargo xtask api --write` after the changelog says so", path.display()));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_comes_or_goes_is_named() {
        let path = Path::new("docs/api/a.txt");
        assert!(differences(path, "pub fn a\npub fn b\n", "pub fn a\npub fn b\n").is_empty());
        let complaints = differences(path, "pub fn a\npub fn b\n", "pub fn a\npub fn c\n");
        assert_eq!(complaints[..2], ["docs/api/a.txt: gone: pub fn b", "docs/api/a.txt: new: pub fn c"]);
    }
}
