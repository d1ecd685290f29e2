//! Checks that every model has a row in `MODELS.md` and a seeded fault, and that every fuzz target has an entry in
//! the manifest and a committed corpus. It is also an error if a row or a fault has no model, or if an entry has no
//! target. And `docs/evidence.md` must be what the ledger and the sources give.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::deep;
use crate::faults::{self, Fault};
use crate::fuzz;
use crate::models::{self, Declared};
use crate::workspace::Workspace;

pub(super) fn check(workspace: &Workspace, files: &[PathBuf]) -> Result<Vec<String>> {
    let models = models::declared(workspace, None)?;
    let mut complaints = rows(&models, &workspace.read(models::TABLE)?);
    let faults = faults::read(workspace)?;
    complaints.extend(paired(&models, &faults));
    complaints.extend(faults.iter().flat_map(|fault| applies(workspace, fault)));
    let manifest = workspace.read("fuzz/Cargo.toml").unwrap_or_default();
    complaints.extend(targets(&fuzz::targets(&manifest), files));
    if workspace.read(deep::PAGE)? != deep::render(workspace)? {
        complaints.push(format!(
            "{}: not what the ledger and the sources give; `cargo xtask deep --minutes 0` writes it",
            deep::PAGE
        ));
    }
    Ok(complaints)
}

/// Checks that the table lists exactly the models that have descriptors, with the floors of the descriptors.
fn rows(models: &[Declared], table: &str) -> Vec<String> {
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split('|').map(str::trim).collect())
        .collect();
    let mut complaints = Vec::new();
    for Declared { name, floor, .. } in models {
        match rows.iter().find(|row| row[0].trim_matches('`') == name) {
            None => complaints.push(format!("{}: no row for `{name}`", models::TABLE)),
            Some(row) => {
                let digits: String = row.get(3).unwrap_or(&"").chars().filter(char::is_ascii_digit).collect();
                if digits.parse() != Ok(*floor) {
                    complaints.push(format!("{}: the floor of `{name}` is {floor}", models::TABLE));
                }
            }
        }
    }
    for row in rows {
        let name = row[0].trim_matches('`');
        if !models.iter().any(|model| model.name == name) {
            complaints.push(format!("{}: no model is called `{name}`", models::TABLE));
        }
    }
    complaints
}

/// Checks that each model has exactly one fault, and that each fault has a model.
fn paired(models: &[Declared], faults: &[Fault]) -> Vec<String> {
    let mut complaints = Vec::new();
    for Declared { name, .. } in models {
        match faults.iter().filter(|fault| fault.name == *name).count() {
            0 => complaints.push(format!("{}: no fault for {name}", faults::FOLDER)),
            1 => {}
            _ => complaints.push(format!("{}: more than one fault for {name}", faults::FOLDER)),
        }
    }
    for Fault { name, listed_in, .. } in faults {
        if !models.iter().any(|model| model.name == *name) {
            complaints.push(format!("{}: no model is called {name}", listed_in.display()));
        }
    }
    complaints
}

/// Checks that the fault can be applied to the source tree and changes only shipped code.
fn applies(workspace: &Workspace, fault: &Fault) -> Vec<String> {
    let shipped = fault.packages(workspace).err();
    let found = fault.apply(|file| workspace.read(file).ok()).err();
    shipped
        .into_iter()
        .chain(found)
        .map(|why| format!("{}: {}: {why}", fault.listed_in.display(), fault.name))
        .collect()
}

fn targets(bins: &[String], files: &[PathBuf]) -> Vec<String> {
    let mut complaints = Vec::new();
    for file in files.iter().filter(|file| file.parent() == Some(Path::new("fuzz/fuzz_targets"))) {
        let stem = file.file_stem().expect("a file of the tree has a name").to_string_lossy();
        if !bins.iter().any(|bin| *bin == stem) {
            complaints.push(format!("{}: no [[bin]] in fuzz/Cargo.toml", file.display()));
        }
    }
    for bin in bins {
        let source = PathBuf::from(format!("fuzz/fuzz_targets/{bin}.rs"));
        if !files.contains(&source) {
            complaints.push(format!("{}: missing", source.display()));
        }
        let corpus = format!("fuzz/corpus/{bin}");
        if !files.iter().any(|file| file.starts_with(&corpus)) {
            complaints.push(format!("{corpus}: no committed corpus"));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn model(name: &str) -> Declared {
        Declared { name: name.to_owned(), file: "loom-tests/tests/a.rs".into(), threads: 2, floor: 1200 }
    }

    #[test]
    fn rows_and_models_agree() {
        let table = "| model | operations |\n|---|---|\n| `q::a` | add | 3 | 1 200 | x | y |\n";
        assert!(rows(&[model("q::a")], table).is_empty());
        assert_eq!(rows(&[], table), ["loom-tests/MODELS.md: no model is called `q::a`"]);
        assert_eq!(rows(&[model("q::a"), model("q::b")], table), ["loom-tests/MODELS.md: no row for `q::b`"]);
        let stale = table.replace("1 200", "900");
        assert_eq!(rows(&[model("q::a")], &stale), ["loom-tests/MODELS.md: the floor of `q::a` is 1200"]);
    }

    #[test]
    fn faults_and_models_agree() {
        let fault = Fault::new("q::a");
        assert!(paired(&[model("q::a")], std::slice::from_ref(&fault)).is_empty());
        assert_eq!(paired(&[], std::slice::from_ref(&fault)), [": no model is called q::a"]);
        assert_eq!(paired(&[model("q::b")], &[]), ["loom-tests/faults: no fault for q::b"]);
        assert_eq!(
            paired(&[model("q::a")], &[fault.clone(), fault]),
            ["loom-tests/faults: more than one fault for q::a"]
        );
    }

    #[test]
    fn targets_have_entry_and_corpus() {
        let source = PathBuf::from("fuzz/fuzz_targets/relist.rs");
        let corpus = PathBuf::from("fuzz/corpus/relist/1");
        let bins = ["relist".to_owned()];
        assert!(targets(&bins, &[source.clone(), corpus.clone()]).is_empty());
        assert_eq!(
            targets(&bins, std::slice::from_ref(&source)),
            ["fuzz/corpus/relist: no committed corpus"]
        );
        assert_eq!(targets(&bins, &[corpus]), ["fuzz/fuzz_targets/relist.rs: missing"]);
        assert_eq!(targets(&[], &[source]), ["fuzz/fuzz_targets/relist.rs: no [[bin]] in fuzz/Cargo.toml"]);
    }
}
