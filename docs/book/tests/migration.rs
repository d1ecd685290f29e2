//! The pages on migration: programs in Go print the same output as the programs after the migration, and a migration from kube-runtime
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

/// A folder of `programs/go` has the name of the Rust program that replaces its program.
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
