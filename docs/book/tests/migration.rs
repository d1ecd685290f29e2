//! Checks the pages on migration: a program in Go prints the same output as the Rust program that replaces it, and the migration from kube-runtime
//! changes only imports.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

fn programs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("programs")
}

fn read(name: &str) -> String {
    let path = programs().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Each folder in `programs/go` has a program in Go, and is named after the Rust program that replaces it.
#[test]
fn every_program_in_go_prints_what_the_program_in_rust_prints() {
    if Command::new("go").arg("version").output().is_err() {
        eprintln!("skipped the programs in Go: there is no `go` on the PATH");
        return;
    }
    for entry in fs::read_dir(programs().join("go")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_dir() {
            continue;
        }
        let name = path.file_name().unwrap().to_str().unwrap();
        let output =
            Command::new("go").args(["run", "."]).current_dir(&path).output().expect("go can be run");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{name}: {}\n{stderr}", output.status);
        assert_eq!(String::from_utf8(output.stdout).unwrap(), read(&format!("{name}.out")), "{name}");
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
