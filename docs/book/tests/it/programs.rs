//! Checks the programs of the book: each prints the output shown on its page, pages include whole programs, and the dependencies shown on the pages
//! exist.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use toml::{Table, Value};

/// The maximum number of lines of a program, so that it fits on a page. Imports, comments and empty lines do not count.
const MOST_LINES: usize = 40;

fn book() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Returns every file in `folder` and its subfolders that has this extension, sorted.
fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension() == Some(OsStr::new(extension)) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Returns the names of the programs. A program is a file, or a folder with a `main.rs`.
fn programs() -> Vec<String> {
    let names = files(&book().join("programs"), "rs").into_iter().filter_map(|path| {
        let name = path.file_stem()?.to_str()?.to_owned();
        let folder = path.parent()?.file_name()?.to_str()?.to_owned();
        if folder == "programs" { Some(name) } else { (name == "main").then_some(folder) }
    });
    names.collect()
}

/// Returns the path of the file with the expected output of a program. `NAME_before` is the program before a migration, and has the same output as
/// `NAME`.
fn output_of(name: &str) -> PathBuf {
    book().join("programs").join(format!("{}.out", name.strip_suffix("_before").unwrap_or(name)))
}

/// Returns the files that pages include with `{{#include}}`, each with the pages that include it.
fn included() -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut included = BTreeMap::<PathBuf, Vec<PathBuf>>::new();
    for page in files(&book().join("src"), "md") {
        for line in read(&page).lines().filter(|line| line.contains("{{#")) {
            let path = line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}"));
            let path = path.unwrap_or_else(|| panic!("{}: {line:?} is not a whole file", page.display()));
            let path = page.parent().unwrap().join(path);
            let path = path
                .canonicalize()
                .unwrap_or_else(|_| panic!("{}: there is no {}", page.display(), path.display()));
            included.entry(path).or_default().push(page.clone());
        }
    }
    included
}

#[test]
fn every_program_prints_the_output_of_its_page() {
    for name in programs() {
        let mut program = Command::new(match &*name {
            "sqlite_source" => env!("CARGO_BIN_EXE_book-sqlite-source"),
            _ => env!("CARGO_BIN_EXE_book-programs"),
        });
        let output = program.arg(&name).output().unwrap_or_else(|error| panic!("{name}: {error}"));
        let (stdout, stderr) =
            (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
        assert!(output.status.success() && stderr.is_empty(), "{name}: {}\n{stderr}", output.status);
        let expected = read(&output_of(&name));
        assert_eq!(stdout, expected, "{name}: if this is right, write it to programs/{name}.out");
    }
}

#[test]
fn every_program_and_its_output_are_on_one_page() {
    let included = included();
    let folders = ["programs", "projects"].map(|folder| book().join(folder));
    let mut expected: Vec<PathBuf> = ["rs", "go", "out", "toml"]
        .into_iter()
        .flat_map(|kind| folders.iter().flat_map(move |folder| files(folder, kind)))
        .collect();
    for path in &mut expected {
        *path = path.canonicalize().unwrap();
    }
    for path in &expected {
        let pages = included.get(path).map_or(&[][..], Vec::as_slice);
        assert_eq!(pages.len(), 1, "{} is on {pages:?}", path.display());
    }
    let unknown: Vec<_> = included.keys().filter(|path| !expected.contains(path)).collect();
    assert!(unknown.is_empty(), "included, but no program: {unknown:?}");
    for path in expected.iter().filter(|path| path.extension() == Some(OsStr::new("out"))) {
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert!(programs().iter().any(|program| program == name), "{name}.out has no program");
    }
}

#[test]
fn a_program_is_read_in_one_glance() {
    for path in ["programs", "projects"].into_iter().flat_map(|folder| files(&book().join(folder), "rs")) {
        let (mut lines, mut import) = (0, false);
        for line in read(&path).lines() {
            assert!(!line.trim_start().starts_with("# "), "{}: a hidden line", path.display());
            import |= line.starts_with("use ");
            lines += usize::from(!import && !line.trim_start().starts_with("//") && !line.trim().is_empty());
            import &= !line.ends_with(';');
        }
        assert!(lines <= MOST_LINES, "{}: {lines} lines, {MOST_LINES} fit on a page", path.display());
    }
}

/// Returns the text of a program, that is, of its file or of all files in its folder.
fn source(name: &str) -> String {
    let path = book().join("programs").join(name);
    if path.is_dir() {
        return files(&path, "rs").iter().map(|path| read(path)).collect();
    }
    read(&path.with_extension("rs"))
}

/// Returns the crates that a program uses, that is, the first parts of its `use` paths, and of paths like that of `#[tokio::main]`.
fn imports(program: &str) -> BTreeSet<String> {
    let roots = program.lines().filter_map(|line| {
        let path = line.strip_prefix("use ").or_else(|| line.strip_prefix("#["))?;
        Some(path.split_once("::")?.0)
    });
    roots.filter(|root| !["std", "crate"].contains(root)).map(|root| root.replace('_', "-")).collect()
}

#[test]
fn every_program_lists_its_dependencies() {
    let listed = files(&book().join("programs"), "toml").into_iter();
    let listed = listed.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned());
    assert_eq!(listed.collect::<BTreeSet<_>>(), programs().into_iter().collect());
}

/// Returns the name, the dependencies and the program of the page `production.md`. This program is not a file, because it needs a cluster; it is
/// compiled as a documentation test.
fn production() -> (String, String, String) {
    let page = read(&book().join("src/production.md"));
    let block = |start| {
        let (_, rest) = page.split_once(start).unwrap_or_else(|| panic!("production.md: no {start}"));
        rest.split("```").next().unwrap().to_owned()
    };
    let (dependencies, program) = (block("```toml\n"), block("```rust,no_run\n"));
    assert!(!program.lines().any(|line| line.starts_with("# ")), "production.md: a hidden line");
    ("production".to_owned(), dependencies, program)
}

#[test]
fn documented_dependencies_exist() {
    let root = book().join("../..");
    let workspace: Table = read(&root.join("Cargo.toml")).parse().unwrap();
    let versions = workspace["workspace"]["dependencies"].as_table().unwrap();
    let manifest: Table = read(&book().join("Cargo.toml")).parse().unwrap();
    let own = manifest["dependencies"].as_table().unwrap();
    let listed = files(&book().join("programs"), "toml").into_iter().map(|path| {
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        let (dependencies, program) = (read(&path), source(&name));
        (name, dependencies, program)
    });
    for (name, dependencies, program) in listed.chain([production()]) {
        let table: Table = dependencies.parse().unwrap();
        assert_eq!(table.keys().collect::<Vec<_>>(), ["dependencies"], "{name}");
        let dependencies = table["dependencies"].as_table().unwrap();
        let names: BTreeSet<_> = dependencies.keys().map(|package| package.replace('_', "-")).collect();
        assert_eq!(names, imports(&program), "{name}");
        for (package, dependency) in dependencies {
            let features = dependency.get("features").and_then(Value::as_array).cloned().unwrap_or_default();
            let Some(folder) = dependency.get("path").and_then(Value::as_str) else {
                let version = dependency.get("version").or(Some(dependency)).and_then(Value::as_str).unwrap();
                let ours = versions.get(package).unwrap_or(&own[package]);
                let ours = ours.get("version").unwrap_or(ours).as_str().unwrap();
                assert!(
                    ours.starts_with(version),
                    "{name}: {package} {version}, but {ours} in the workspace"
                );
                continue;
            };
            let folder = folder.strip_prefix("../flyball/").expect("the clone is next to the project");
            let manifest: Table = read(&root.join(folder).join("Cargo.toml")).parse().unwrap();
            assert_eq!(manifest["package"]["name"].as_str(), Some(&**package), "{name}");
            for feature in features {
                let feature = feature.as_str().unwrap();
                assert!(
                    manifest["features"].get(feature).is_some(),
                    "{name}: {package} has no feature {feature}"
                );
            }
        }
    }
}
