//! Checks the pages on migration: the programs in Go are complete, and the migration from kube-runtime changes only imports. `cargo xtask book --all` runs
//! the programs in Go.

use std::fs;
use std::path::{Path, PathBuf};

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

fn read(name: &str) -> String {
    let path = programs().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns the folders with the programs in Go. A folder is named after the Rust program that replaces its program.
fn go_programs() -> Vec<(String, PathBuf)> {
    let entries = fs::read_dir(programs().join("go")).unwrap().map(|entry| entry.unwrap());
    let folders = entries.filter(|entry| entry.path().is_dir());
    folders.map(|entry| (entry.file_name().into_string().unwrap(), entry.path())).collect()
}

#[test]
fn every_migration_has_a_program_before_and_after() {
    for entry in fs::read_dir(programs().join("../src/migration")).unwrap() {
        let path = entry.unwrap().path();
        let (page, name) = (fs::read_to_string(&path).unwrap(), path.file_stem().unwrap().to_str().unwrap());
        let name = name.replace('-', "_");
        let before = if programs().join("go").join(&name).is_dir() {
            format!("go/{name}/main.go")
        } else {
            format!("{name}_before.rs")
        };
        let parts = [before, format!("{name}.rs"), format!("{name}.out")];
        let at = parts.each_ref().map(|file| page.find(&format!("{{{{#include ../../programs/{file}}}}}")));
        assert!(
            at.iter().all(Option::is_some) && at.is_sorted(),
            "{name}: not on its page, in order: {parts:?}"
        );
    }
}

/// A page with a program in Go shows the command that adds the modules that the program imports.
#[test]
fn programs_in_go_list_their_modules() {
    let go_mod = read("go/go.mod");
    let modules: Vec<_> = go_mod
        .lines()
        .filter(|line| line.starts_with('\t') && !line.ends_with("// indirect"))
        .map(|line| line.trim().split_once(' ').unwrap())
        .collect();
    assert!(modules.len() >= 4, "{modules:?}");
    for (name, _) in go_programs() {
        let program = read(&format!("go/{name}/main.go"));
        let used = modules
            .iter()
            .filter(|(module, _)| ['/', '"'].iter().any(|end| program.contains(&format!("\"{module}{end}"))));
        let used: String = used.map(|(module, version)| format!(" {module}@{version}")).collect();
        let page = format!("../src/migration/{}.md", name.replace('_', "-"));
        let command = format!("\ngo get{used}\ngo mod tidy\n");
        assert!(read(&page).contains(&command), "{page}: without {command:?}");
    }
}

#[test]
fn a_controller_of_kube_runtime_changes_its_imports_alone() {
    let code = |name| {
        let text = read(name);
        let rest = text.lines().filter(|line| !line.starts_with("use ") && !line.starts_with("//!"));
        rest.map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(code("kube_runtime_before.rs"), code("kube_runtime.rs"));
}
