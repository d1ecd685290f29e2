//! Imports name the module that defines an item, and not a module that re-exports it: so an import shows which module depends on which.
//!
//! A re-export is a `use` with a visibility, in `lib.rs` or in another module of the crate. `locks.rs` of flyball-sync is an exception, because it
//! re-exports what it selects for the build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use anyhow::Result;
use syn::{Item, ItemUse, UseTree, Visibility};

use crate::workspace::Workspace;

/// The crates with this rule.
const CRATES: [&str; 5] = ["kube-lease", "kube-testing", "ratelimit", "sync", "workqueue"];

pub(super) fn check(workspace: &Workspace, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for folder in CRATES {
        let below = Path::new(folder).join("src");
        let sources = files.iter().filter(|file| file.extension().is_some_and(|end| end == "rs"));
        let sources = sources.filter_map(|file| Some((file, file.strip_prefix(&below).ok()?)));
        let modules = sources.map(|(file, relative)| {
            let text = workspace.read(file)?;
            Ok(Module::read(&file.to_string_lossy(), relative, &text))
        });
        complaints.extend(of_a_crate(&modules.collect::<Result<Vec<_>>>()?));
    }
    Ok(complaints)
}

/// The imports and re-exports of one file. Those in blocks and in inline modules, such as tests, are ignored.
struct Module {
    file: String,
    /// The segments of the module's path after `crate`.
    path: Vec<String>,
    reexported: BTreeSet<String>,
    /// The imported paths from `crate`, with their lines.
    imports: Vec<(usize, Vec<String>)>,
}

impl Module {
    /// Reads a file. A file that is not valid Rust has no imports; another rule reports it.
    fn read(file: &str, relative: &Path, text: &str) -> Self {
        let mut path: Vec<String> = relative
            .with_extension("")
            .iter()
            .map(|segment| segment.to_string_lossy().into_owned())
            .collect();
        if path == ["lib"] {
            path.clear();
        }
        let (mut reexported, mut imports) = (BTreeSet::new(), Vec::new());
        let is_test = path.iter().any(|segment| segment == "tests");
        let items = syn::parse_file(text).map(|file| file.items).unwrap_or_default();
        for item in if is_test { Vec::new() } else { items } {
            let Item::Use(ItemUse { vis, tree, use_token, .. }) = item else { continue };
            let mut found = Vec::new();
            paths(&tree, &mut Vec::new(), &mut found);
            match vis {
                Visibility::Inherited => {
                    let line = use_token.span.start().line;
                    let own = found.into_iter().filter_map(|(full, _)| from_crate(&path, full));
                    imports.extend(own.map(|path| (line, path)));
                }
                _ if file.ends_with("src/locks.rs") => {}
                _ => reexported.extend(found.into_iter().map(|(_, name)| name)),
            }
        }
        Self { file: file.to_owned(), path, reexported, imports }
    }
}

fn of_a_crate(modules: &[Module]) -> Vec<String> {
    let reexported: BTreeMap<&[String], &BTreeSet<String>> =
        modules.iter().map(|module| (&module.path[..], &module.reexported)).collect();
    let mut complaints = Vec::new();
    for module in modules {
        for (line, path) in &module.imports {
            let Some((name, parent)) = path.split_last() else { continue };
            if reexported.get(parent).is_some_and(|names| names.contains(name)) {
                let path = path.join("::");
                complaints.push(format!(
                    "{}:{line}: `crate::{path}` is a re-export: import it from the module that defines it",
                    module.file
                ));
            }
        }
    }
    complaints
}

/// Collects the paths of an import, each with the name that it introduces.
fn paths(tree: &UseTree, prefix: &mut Vec<String>, found: &mut Vec<(Vec<String>, String)>) {
    let with = |last: &dyn ToString| prefix.iter().cloned().chain([last.to_string()]).collect();
    match tree {
        UseTree::Path(path) => {
            prefix.push(path.ident.to_string());
            paths(&path.tree, prefix, found);
            prefix.pop();
        }
        UseTree::Name(name) => found.push((with(&name.ident), name.ident.to_string())),
        UseTree::Rename(rename) => found.push((with(&rename.ident), rename.rename.to_string())),
        UseTree::Group(group) => group.items.iter().for_each(|tree| paths(tree, prefix, found)),
        UseTree::Glob(_) => {}
    }
}

/// Resolves a path in the module `module` to one from `crate`. Returns `None` for a path of another crate.
fn from_crate(module: &[String], path: Vec<String>) -> Option<Vec<String>> {
    let mut base = module.to_vec();
    let mut segments = path.into_iter().peekable();
    match segments.next()?.as_str() {
        "crate" => base.clear(),
        "self" => {}
        "super" => drop(base.pop()),
        _ => return None,
    }
    while segments.next_if(|segment| segment == "super").is_some() {
        base.pop();
    }
    base.extend(segments);
    Some(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(files: &[(&str, &str)]) -> Vec<String> {
        let read =
            |(path, text): &(&str, &str)| Module::read(&format!("q/src/{path}"), Path::new(path), text);
        of_a_crate(&files.iter().map(read).collect::<Vec<_>>())
    }

    const ROOT: (&str, &str) =
        ("lib.rs", "mod time;\npub use crate::time::{Clock, Nanos as Time};\npub use other::Foreign;\n");
    const TIME: (&str, &str) =
        ("time.rs", "pub(crate) mod clock;\npub use clock::Clock;\npub struct Nanos;\n");

    #[test]
    fn an_import_of_a_reexport_is_reported() {
        let clock =
            ("time/clock.rs", "use std::fmt;\nuse crate::{Clock, Time, Foreign};\nuse super::Clock as C;\n");
        let of = |line: usize, path: &str| {
            format!(
                "q/src/time/clock.rs:{line}: `crate::{path}` is a re-export: import it from the module that defines it"
            )
        };
        let expected = [of(2, "Clock"), of(2, "Time"), of(2, "Foreign"), of(3, "time::Clock")];
        assert_eq!(check(&[ROOT, TIME, clock]), expected);
    }

    #[test]
    fn real_paths_tests_and_locks_are_allowed() {
        let user = "use crate::time::clock::Clock;\nuse super::Nanos;\nuse crate::locks::Ordering;\n\
                    #[cfg(test)]\nmod tests {\n    use crate::Clock;\n}\n";
        let locks = ("locks.rs", "pub use imp::Ordering;\n");
        assert!(
            check(&[ROOT, TIME, locks, ("time/user.rs", user), ("time/tests.rs", "use crate::Clock;\n")])
                .is_empty()
        );
    }
}
