//! `cargo xtask rustdoc`: builds the documentation of the published crates as docs.rs does, with all features, and with warnings as errors. Then checks
//! every link between the pages of these crates.

use anyhow::{Context, Result, ensure};

use crate::book::{html, links};
use crate::process;
use crate::workspace::{Package, Workspace, cargo};

/// What a failed run says in its last lines.
const WHAT_TO_DO: &str = "mend the links above in the documentation comments";

pub(crate) fn run(workspace: &Workspace) -> Result<()> {
    let rustdoc = crate::api::nightly_rustdoc(workspace)?;
    let packages = in_order(workspace.published().collect())?;
    for package in &packages {
        let mut command = cargo();
        command
            .current_dir(&workspace.root)
            .env("RUSTDOC", &rustdoc)
            .args(["rustdoc", "--locked", "--quiet", "--lib", "--all-features", "-p", &package.name])
            .arg("--target-dir")
            .arg(&workspace.target)
            .args(["--", "--cfg", "docsrs", "-D", "warnings"]);
        process::run(&mut command)?;
    }
    let built = workspace.target.join("doc");
    let mut pages = html::Pages::new();
    for package in &packages {
        let folder = package.name.replace('-', "_");
        let of_package =
            html::pages(&built.join(&folder)).context("rustdoc writes a folder for each crate")?;
        pages.extend(
            of_package.into_iter().map(|(path, page)| (std::path::Path::new(&folder).join(path), page)),
        );
    }
    ensure!(!pages.is_empty(), "no page in {}", built.display());
    process::verdict(&links::check_own(&pages, |path| built.join(path).exists()), WHAT_TO_DO)?;
    eprintln!("{} pages in {}, no broken link", pages.len(), built.display());
    Ok(())
}

/// Sorts the packages so that each one follows its dependencies: rustdoc links to a crate only if the pages of this crate exist.
fn in_order(mut left: Vec<&Package>) -> Result<Vec<&Package>> {
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let is_free = |package: &&Package| !left.iter().any(|other| package.depends_on(&other.name));
        let free: Vec<&Package> = left.iter().copied().filter(is_free).collect();
        ensure!(!free.is_empty(), "the packages depend on each other in a cycle");
        left.retain(|package| !free.iter().any(|other| other.name == package.name));
        ordered.extend(free);
    }
    Ok(ordered)
}
