//! Turns the examples of all pages into documentation tests. It searches the folder for pages, so no page can be missing from the tests.
//!
//! A program that a page includes from a file does not become a documentation test, because `tests/programs.rs` runs the program.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-changed=src");
    println!("cargo::rerun-if-changed=../../README.md");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let mut modules = String::new();
    page(Path::new("../../README.md"), "readme", &out, &mut modules);
    folder(Path::new("src"), "", &out, &mut modules);
    fs::write(out.join("pages.rs"), modules).expect("OUT_DIR can be written");
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
