//! Checks that three places name the same foreign crates for each published crate: the public API (the listing in `docs/api`, and the re-exports of
//! `lib.rs`), the allow-list `package.metadata.cargo_check_external_types`, and the table of `docs/releasing.md`. A breaking release of such a crate
//! requires a breaking release of the published crate.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result};
use serde::Deserialize;
use syn::{Item, UseTree, Visibility};

use crate::workspace::Workspace;

const PAGE: &str = "docs/releasing.md";
/// The crates of the standard library.
const STANDARD: [&str; 3] = ["alloc", "core", "std"];
/// Crates whose items users see under the name of a second crate, which the table names.
const FACADES: [(&str, &str); 4] =
    [("kube_client", "kube"), ("kube_core", "kube"), ("kube_runtime", "kube"), ("serde_core", "serde")];
/// Crates whose items a macro writes into a `where` clause. Users cannot name these items, so the table does not contain the crate.
const FROM_MACROS: [&str; 1] = ["pin_project_lite"];
/// The listings leave out derived impls, so this crate may be allowed without being listed, if it is a dependency.
const DERIVED: (&str, &str) = ("serde_core", "serde");

#[derive(Deserialize)]
struct Manifest {
    package: ManifestPackage,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct ManifestPackage {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    cargo_check_external_types: External,
}

#[derive(Deserialize)]
struct External {
    allowed_external_types: Vec<String>,
}

pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let page = workspace.read(PAGE)?;
    let mut complaints = Vec::new();
    for package in workspace.published() {
        let folder = package.folder(workspace);
        let path = folder.join("Cargo.toml").display().to_string();
        let manifest: Manifest = toml::from_str(&workspace.read(&path)?).with_context(|| path.clone())?;
        let allowed = manifest.package.metadata.cargo_check_external_types.allowed_external_types;
        let own = package.name.replace('-', "_");
        let mut paths = listed(&own, &workspace.read(format!("docs/api/{}.txt", package.name))?);
        paths.extend(reexported(&workspace.read(folder.join("src/lib.rs"))?)?);
        let derives = manifest.dependencies.contains_key(DERIVED.1);
        complaints.extend(compare(&path, &paths, &allowed, derives));
        complaints.extend(row(&package.name, &allowed, &page));
    }
    Ok(complaints)
}

/// Returns the paths in a listing that begin with the name of a foreign crate.
fn listed(own: &str, listing: &str) -> BTreeSet<String> {
    let paths = listing.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    let foreign = |path: &&str| {
        let Some((root, _)) = path.split_once("::") else { return false };
        // Associated types, such as `T::Output`, begin with an upper-case letter or, after `<T as Trait>`, with a colon.
        root.starts_with(|c: char| c.is_ascii_lowercase())
            && root != own
            && root != "crate"
            && !STANDARD.contains(&root)
    };
    paths.filter(foreign).map(str::to_owned).collect()
}

/// Returns the paths that a crate root re-exports from other crates.
fn reexported(lib: &str) -> Result<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    for item in syn::parse_file(lib)?.items {
        let Item::Use(item) = item else { continue };
        let mut path = match (item.vis, &item.tree) {
            (Visibility::Public(_), UseTree::Path(tree)) => format!("{}::", tree.ident),
            (Visibility::Public(_), UseTree::Name(tree)) => format!("{}::", tree.ident),
            _ => continue,
        };
        if path != "crate::" {
            path.push('*');
            paths.insert(path);
        }
    }
    Ok(paths)
}

/// Compares the paths with the patterns of the allow-list. A pattern is a path, or ends in `::*`.
fn compare(manifest: &str, paths: &BTreeSet<String>, allowed: &[String], derives: bool) -> Vec<String> {
    let matches = |pattern: &String, path: &String| match pattern.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => path == pattern,
    };
    let missing = paths.iter().filter(|path| !allowed.iter().any(|pattern| matches(pattern, path)));
    let mut complaints: Vec<_> = missing
        .map(|path| format!("{manifest}: the public API shows {path}: add it to allowed_external_types"))
        .collect();
    for pattern in allowed {
        let derived = derives && root(pattern) == DERIVED.0;
        if !derived && !paths.iter().any(|path| matches(pattern, path)) {
            complaints.push(format!(
                "{manifest}: {pattern} is in allowed_external_types, but not in the public API"
            ));
        }
    }
    complaints
}

fn root(path: &str) -> &str {
    path.split("::").next().unwrap_or(path)
}

/// Compares the row of the table with the allow-list. The second cell has the flyball crates, the third the others.
fn row(package: &str, allowed: &[String], page: &str) -> Vec<String> {
    let roots = allowed.iter().map(|pattern| root(pattern)).filter(|root| !FROM_MACROS.contains(root));
    let names: BTreeSet<String> = roots
        .map(|root| FACADES.iter().find(|(part, _)| *part == root).map_or(root, |(_, whole)| whole))
        .map(|name| name.replace('_', "-"))
        .collect();
    let (ours, others): (Vec<_>, Vec<_>) = names.into_iter().partition(|name| name.starts_with("flyball-"));
    let ours = ours.iter().map(|name| name.trim_start_matches("flyball-").to_owned()).collect();
    let cell = |names: Vec<String>| if names.is_empty() { "–".to_owned() } else { names.join(", ") };
    let row = format!("| {package} | {} | {} |", cell(ours), cell(others));
    match page.lines().any(|line| line == row) {
        true => Vec::new(),
        false => vec![format!("{PAGE}: the table has no row {row}")],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned<C: FromIterator<String>>(names: &[&str]) -> C {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn reads_paths_of_foreign_crates() {
        let listing = "pub use a::X\n\
            pub fn a::f<T>(&mut core::task::Context<'_>) -> <T as serde_core::Ser>::Ok where T: b::Tr, T::Out: 'static\n\
            pub a::E::V(crate::private::Y)\n";
        assert_eq!(listed("a", listing), owned::<BTreeSet<_>>(&["b::Tr", "serde_core::Ser"]));
        let lib = "pub use crate::x::Y;\npub use b::{C, D};\npub use c;\nuse d::E;\n";
        assert_eq!(reexported(lib).unwrap(), owned::<BTreeSet<_>>(&["b::*", "c::*"]));
    }

    #[test]
    fn a_type_that_is_not_allowed_fails() {
        let paths = owned(&["b::c::D", "tokio::Handle"]);
        let complaints = compare("a/Cargo.toml", &paths, &owned::<Vec<_>>(&["b::*"]), false);
        assert_eq!(
            complaints,
            ["a/Cargo.toml: the public API shows tokio::Handle: add it to allowed_external_types"]
        );
    }

    #[test]
    fn an_allowed_crate_that_the_api_does_not_show_fails() {
        let allowed = owned::<Vec<_>>(&["b::*", "serde_core::*"]);
        let paths = owned(&["b::c::D"]);
        assert!(compare("a/Cargo.toml", &paths, &allowed, true).is_empty());
        assert_eq!(
            compare("a/Cargo.toml", &paths, &allowed, false),
            ["a/Cargo.toml: serde_core::* is in allowed_external_types, but not in the public API"]
        );
    }

    #[test]
    fn a_table_that_differs_from_the_allow_list_fails() {
        let allowed =
            owned::<Vec<_>>(&["flyball_sync::*", "kube_core::*", "kube_client::*", "serde_json::Value"]);
        let page = "| crate | flyball crates | others |\n| flyball-a | sync | kube, serde-json |\n";
        assert!(row("flyball-a", &allowed, page).is_empty());
        assert_eq!(
            row("flyball-a", &owned::<Vec<_>>(&["flyball_sync::*"]), page),
            ["docs/releasing.md: the table has no row | flyball-a | sync | – |"]
        );
    }

    #[test]
    fn this_workspace_passes() {
        assert_eq!(check(&Workspace::open().unwrap()).unwrap(), Vec::<String>::new());
    }
}
