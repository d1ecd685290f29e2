//! `docs/evidence/ledger.jsonl`: one line for each slice of a rung that ran. Lines are only ever added, so results outlive the machine that made them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::OpenOptions;
use std::io::{ErrorKind, Write};
use std::path::Path;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The path of the ledger, relative to the root of the workspace.
pub(crate) const LEDGER: &str = "docs/evidence/ledger.jsonl";

/// The result of one slice: a part of a rung that ran for some minutes.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Slice {
    pub(crate) rung: String,
    /// The crate whose sources the slice covers, together with the crates of the family below it; `all` for every published crate.
    #[serde(rename = "crate")]
    pub(crate) package: String,
    /// The hash of the covered sources.
    pub(crate) sources: String,
    pub(crate) passed: bool,
    /// The work done for each item, in the unit of the rung. An item is a model, a fuzz target, or the whole crate.
    pub(crate) counts: BTreeMap<String, u64>,
    /// The items of which nothing is left to do, whatever their counts: models that were explored completely.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) complete: BTreeSet<String>,
    /// What the slice printed about its counts, or about its failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) note: String,
    /// The time that the slice took, without its build.
    pub(crate) seconds: u64,
    /// The day on which the slice began, in UTC.
    pub(crate) date: String,
    pub(crate) machine: String,
    /// The versions of the compiler and of the tool that the rung uses.
    pub(crate) tools: String,
    pub(crate) commit: String,
}

/// Reads the ledger. If the file does not exist, there are no slices.
pub(crate) fn read(root: &Path) -> Result<Vec<Slice>> {
    match std::fs::read_to_string(root.join(LEDGER)) {
        Ok(text) => parse(&text),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error).context(LEDGER),
    }
}

fn parse(text: &str) -> Result<Vec<Slice>> {
    let lines = text.lines().enumerate();
    lines
        .map(|(at, line)| serde_json::from_str(line).with_context(|| format!("{LEDGER}:{}", at + 1)))
        .collect()
}

/// Adds a line.
pub(super) fn append(root: &Path, slice: &Slice) -> Result<()> {
    let path = root.join(LEDGER);
    std::fs::create_dir_all(path.parent().expect("the ledger is in a folder"))?;
    let mut file = OpenOptions::new().create(true).append(true).open(path).context(LEDGER)?;
    // One write, so that a run that is killed leaves no part of a line.
    file.write_all(format!("{}\n", serde_json::to_string(slice)?).as_bytes()).context(LEDGER)
}

#[cfg(test)]
pub(super) fn sample(rung: &str, package: &str, sources: &str, counts: &[(&str, u64)]) -> Slice {
    Slice {
        rung: rung.to_owned(),
        package: package.to_owned(),
        sources: sources.to_owned(),
        passed: true,
        counts: counts.iter().map(|(item, count)| ((*item).to_owned(), *count)).collect(),
        complete: BTreeSet::new(),
        note: String::new(),
        seconds: 60,
        date: "2026-01-31".to_owned(),
        machine: "2 × x".to_owned(),
        tools: "rustc 1".to_owned(),
        commit: "c1".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn appended_slices_are_read_in_their_order() {
        let root = std::env::temp_dir().join(format!("flyball-xtask-{}-ledger", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        assert_eq!(read(&root).unwrap(), []);
        let slices =
            [sample("fuzz", "a", "1", &[("x", 5)]), sample("loom-4", "b", "2", &[("q::a", 7), ("q::b", 8)])];
        for slice in &slices {
            append(&root, slice).unwrap();
        }
        assert_eq!(read(&root).unwrap(), slices);
        std::fs::remove_dir_all(root).unwrap();
    }

    #[test]
    fn a_line_that_is_no_slice_is_named() {
        let line = serde_json::to_string(&sample("fuzz", "a", "1", &[])).unwrap();
        let error = parse(&format!("{line}\n{{}}\n")).unwrap_err();
        assert!(format!("{error:#}").starts_with("docs/evidence/ledger.jsonl:2: missing field"), "{error:#}");
    }
}
