//! Runs the programs of the book as a reader does: each is a separate project with the dependencies that its page lists.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::write;
use crate::process;
use crate::workspace::{Workspace, cargo};

/// The path at which the pages expect the clone of the repository.
const CLONE: &str = "../flyball/";

/// The folder with the project of the page *Check your own code*.
const CHECKED: &str = "docs/book/projects/checked";

/// The pages whose programs always run as separate projects. Each project compiles dependencies with its own features, so running all of them takes
/// minutes.
const FIRST_PAGES: &str = "docs/book/src/start";

pub(super) fn run(workspace: &Workspace, all: bool) -> Result<()> {
    let mut first_pages = String::new();
    for entry in fs::read_dir(workspace.root.join(FIRST_PAGES))? {
        first_pages += &fs::read_to_string(entry?.path())?;
    }
    let programs = workspace.root.join("docs/book/programs");
    let mut names = Vec::new();
    for entry in fs::read_dir(&programs)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            names.extend(path.file_stem().and_then(|stem| stem.to_str()).map(str::to_owned));
        }
    }
    names.retain(|name| all || first_pages.contains(&format!("programs/{name}.toml")));
    names.sort();
    ensure!(!names.is_empty(), "no program has dependencies");
    for name in names {
        let page = |name: &str, extension| {
            let path = programs.join(name).with_extension(extension);
            fs::read_to_string(&path).with_context(|| path.display().to_string())
        };
        let project = workspace.target.join("book-projects").join(&name);
        write(
            &project.join("Cargo.toml"),
            manifest(&name, &page(&name, "toml")?, &workspace.root.to_string_lossy()),
        )?;
        let folder = programs.join(&name);
        if folder.is_dir() {
            for entry in fs::read_dir(&folder)? {
                let entry = entry?;
                write(&project.join("src").join(entry.file_name()), fs::read(entry.path())?)?;
            }
        } else {
            write(&project.join("src/main.rs"), page(&name, "rs")?)?;
        }
        // With a copy of the workspace's lock file, the project uses the versions with which the workspace is tested. Cargo removes from this copy
        // the packages that the project does not need.
        fs::copy(workspace.root.join("Cargo.lock"), project.join("Cargo.lock"))?;
        let mut command = cargo();
        command.current_dir(&project).args(["run", "--quiet"]);
        command.env("CARGO_TARGET_DIR", workspace.target.join("book-projects/target"));
        let output = command.output().with_context(|| process::show(&command))?;
        ensure!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
        // `NAME_before` is the program before a migration, and has the same output as `NAME`.
        let expected = page(name.strip_suffix("_before").unwrap_or(&name), "out")?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(printed == expected, "{name} as a separate project prints\n{printed}and not\n{expected}");
        eprintln!("{name}: runs with the dependencies of its page");
    }
    if all { in_go(&programs) } else { Ok(()) }
}

/// Runs the programs in Go. Each prints the same output as the Rust program that replaces it.
fn in_go(programs: &Path) -> Result<()> {
    if Command::new("go").arg("version").output().is_err() {
        println!("left out: the programs in Go, because there is no `go` on the PATH");
        return Ok(());
    }
    for entry in fs::read_dir(programs.join("go"))? {
        let folder = entry?.path();
        let Some(name) = folder.file_name().filter(|_| folder.is_dir()) else { continue };
        let name = name.to_string_lossy().into_owned();
        let output = Command::new("go").args(["run", "."]).current_dir(&folder).output().context("go run")?;
        ensure!(output.status.success(), "{name} in Go: {}", String::from_utf8_lossy(&output.stderr));
        let expected = programs.join(&name).with_extension("out");
        let expected = fs::read_to_string(&expected).with_context(|| expected.display().to_string())?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(printed == expected, "{name} in Go prints\n{printed}and not\n{expected}");
        eprintln!("{name}: the program in Go prints the same");
    }
    Ok(())
}

/// Runs the model of the page *Check your own code* under loom and shuttle, and compiles its fuzz target without running it.
pub(super) fn check_own_code(workspace: &Workspace) -> Result<()> {
    let project = workspace.target.join("book-projects/checked");
    let root = format!("{}/", workspace.root.to_string_lossy());
    for file in
        ["Cargo.toml", "src/lib.rs", "tests/model.rs", "fuzz/Cargo.toml", "fuzz/fuzz_targets/rebuilds.rs"]
    {
        let text = workspace.read(Path::new(CHECKED).join(file))?;
        let workspace = if file == "Cargo.toml" { "\n[workspace]\nexclude = [\"fuzz\"]\n" } else { "" };
        let text = text.replace("../../flyball/", &root).replace(CLONE, &root);
        write(&project.join(file), format!("{text}{workspace}"))?;
    }
    fs::copy(workspace.root.join("Cargo.lock"), project.join("Cargo.lock"))?;
    fs::copy(workspace.root.join("fuzz/Cargo.lock"), project.join("fuzz/Cargo.lock"))?;
    for checker in ["loom", "shuttle"] {
        let mut command = cargo();
        command.current_dir(&project).args(["test", "--release", "--test", "model"]);
        command.env("RUSTFLAGS", format!("--cfg flyball_{checker}")).env("LOOM_MAX_PREEMPTIONS", "3");
        command.env("CARGO_TARGET_DIR", workspace.target.join("book-projects").join(checker));
        let output = command.output().with_context(|| process::show(&command))?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let ran = output.status.success() && text.contains("test result: ok. 1 passed");
        ensure!(ran, "checked, under {checker}: {text}{}", String::from_utf8_lossy(&output.stderr));
        eprintln!("checked: its model passes under {checker}");
    }
    let mut command = cargo();
    command.current_dir(project.join("fuzz")).args(["check", "--quiet"]);
    command.env("CARGO_TARGET_DIR", workspace.target.join("book-projects/target"));
    process::run(&mut command)
}

/// Returns a manifest like that of `cargo new`, with the dependencies that a page lists. Their paths lead to this clone of the repository.
fn manifest(name: &str, dependencies: &str, root: &str) -> String {
    let package = format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n");
    // The project is in a folder below the workspace, so it needs its own `[workspace]` section.
    format!("{package}\n{}\n[workspace]\n", dependencies.replace(CLONE, &format!("{root}/")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_are_those_of_this_clone() {
        let page = "[dependencies]\na = { path = \"../flyball/a\" }\n";
        let text = manifest("b", page, "/clone");
        assert!(text.contains("\na = { path = \"/clone/a\" }\n"), "{text}");
        assert!(text.contains("name = \"b\"\n"), "{text}");
    }
}
