//! A library without unit tests has `test = false` in its manifest, because cargo would compile it a second time only to run no test. Such a library
//! must not have unit tests, which would never run; and a library without unit tests must have the setting.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use toml::{Table, Value};

use super::source::Source;
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace, files: &[PathBuf]) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in &workspace.packages {
        let folder = package.folder(workspace);
        let manifest = folder.join("Cargo.toml");
        let table: Table =
            workspace.read(&manifest)?.parse().with_context(|| manifest.display().to_string())?;
        let sources = files.iter().filter(|file| file.starts_with(folder.join("src")));
        let mut tested = false;
        for file in sources.filter(|file| file.extension().is_some_and(|extension| extension == "rs")) {
            tested |= has_tests(&workspace.read(file)?);
        }
        let library = workspace.root.join(folder).join("src/lib.rs").exists();
        if library {
            complaints.extend(judge(&manifest, &table, tested));
        }
    }
    Ok(complaints)
}

fn judge(manifest: &Path, table: &Table, tested: bool) -> Option<String> {
    let compiled = table.get("lib").and_then(|lib| lib.get("test")).and_then(Value::as_bool).unwrap_or(true);
    match (compiled, tested) {
        (true, false) => {
            Some(format!("{}: no unit tests; set `test = false` in `[lib]`", manifest.display()))
        }
        (false, true) => {
            Some(format!("{}: `test = false`, so the unit tests do not run", manifest.display()))
        }
        _ => None,
    }
}

fn has_tests(text: &str) -> bool {
    let source = Source::read("src/lib.rs", text);
    source.is_ok_and(|source| {
        source.lines.iter().any(|line| {
            let code = line.code.trim();
            code.starts_with("#[test]") || code.starts_with("#[tokio::test")
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_and_the_tests_agree() {
        let judge =
            |manifest: &str, tested| judge(Path::new("a/Cargo.toml"), &manifest.parse().unwrap(), tested);
        assert_eq!(judge("[lib]\ntest = false\n", false), None);
        assert_eq!(judge("[package]\nname = \"a\"\n", true), None);
        assert!(judge("[lib]\ntest = false\n", true).unwrap().contains("do not run"));
        assert!(judge("[lib]\npath = \"x\"\n", false).unwrap().contains("no unit tests"));
    }

    #[test]
    fn tests_in_comments_and_strings_do_not_count() {
        assert!(has_tests("#[cfg(test)]\nmod tests {\n    #[test]\n    fn a() {}\n}\n"));
        assert!(has_tests("#[tokio::test(start_paused = true)]\nasync fn a() {}\n"));
        assert!(!has_tests("//! #[test]\nconst A: &str = \"\n#[test]\n\";\n"));
    }
}
