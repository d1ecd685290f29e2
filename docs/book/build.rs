//! Turns the examples of all pages into documentation tests, and the programs that are one file into modules of one binary. It searches the folders for
//! pages and programs, so none can be missing from the tests.
//!
//! A program that a page includes from a file does not become a documentation test, because `tests/it/programs.rs` runs the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../../README.md");
    println!("cargo::rerun-if-changed=programs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut modules = String::new();
    page(Path::new("../../README.md"), "readme", &out, &mut modules);
    folder(Path::new("src"), "", &out, &mut modules);
    fs::write(out.join("pages.rs"), modules).expect("OUT_DIR can be written");
    fs::write(out.join("programs.rs"), programs(&out)).expect("OUT_DIR can be written");
}

/// Writes a copy of each program, in which a function calls `main`, which is private. Returns the modules, and a function that runs the program with a
/// given name.
fn programs(out: &Path) -> String {
    let entries = fs::read_dir("programs").expect("the programs can be read");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the programs can be read").path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "rs"));
    paths.sort();
    let (mut modules, mut arms) = (String::new(), String::new());
    for path in paths {
        let name = path.file_stem().and_then(|stem| stem.to_str()).expect("names are UTF-8");
        let mut text = fs::read_to_string(&path).expect("a program can be read");
        text.push_str("\npub(crate) fn run() -> std::process::ExitCode {\n    crate::status(main)\n}\n");
        let copy = out.join(format!("program_{name}.rs"));
        fs::write(&copy, text).expect("OUT_DIR can be written");
        writeln!(modules, "#[path = {copy:?}]\nmod {name};").expect("writing to a String does not fail");
        writeln!(arms, "        {name:?} => {name}::run(),").expect("writing to a String does not fail");
    }
    format!(
        "{modules}\nfn run(name: &str) -> std::process::ExitCode {{\n    match name {{\n{arms}        \
         _ => panic!(\"no program is called {{name:?}}\"),\n    }}\n}}\n"
    )
}

fn folder(folder: &Path, prefix: &str, out: &Path, modules: &mut String) {
    let entries = fs::read_dir(folder).expect("the sources can be read");
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("the sources can be read").path()).collect();
    paths.sort();
    for path in paths {
        let stem =
            path.file_stem().and_then(|stem| stem.to_str()).expect("names are UTF-8").replace('-', "_");
        if path.is_dir() {
            self::folder(&path, &format!("{prefix}{stem}_"), out, modules);
        } else if path.extension().is_some_and(|extension| extension == "md") && stem != "SUMMARY" {
            page(&path, &format!("{prefix}{stem}"), out, modules);
        }
    }
}

/// Writes a copy of the page, and a module whose documentation is the copy. In the copy, included programs are marked as plain text. The line numbers
/// of the page do not change.
fn page(path: &Path, name: &str, out: &Path, modules: &mut String) {
    let text = fs::read_to_string(path).expect("the page can be read");
    let text = text.replace("```rust\n{{#include", "```text\n{{#include");
    let copy = out.join(format!("{name}.md"));
    fs::write(&copy, text).expect("OUT_DIR can be written");
    writeln!(modules, "/// `{}`\n#[doc = include_str!({copy:?})]\npub mod {name} {{}}", path.display())
        .expect("writing to a String does not fail");
}
