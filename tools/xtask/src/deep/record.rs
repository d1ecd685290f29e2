//! Stores the last result of each rung in a file, which is replaced atomically.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The outcome of a rung.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub(super) enum Outcome {
    Passed,
    Failed,
    /// A tool is missing.
    NotRun,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotRun => "not run",
        })
    }
}

/// The result of a rung.
#[derive(Clone, Debug, Deserialize, PartialEq, Serialize)]
pub(super) struct Record {
    pub(super) rung: String,
    pub(super) commit: String,
    /// The day on which the rung began, in UTC.
    pub(super) date: String,
    pub(super) machine: String,
    pub(super) scale: f64,
    pub(super) seconds: u64,
    pub(super) outcome: Outcome,
    /// The counts that the rung printed, or a message that names the missing tool.
    pub(super) figures: String,
}

/// The last record of each rung, and the file in which they are stored.
#[derive(Debug)]
pub(super) struct State {
    file: PathBuf,
    records: Vec<Record>,
}

impl State {
    /// Reads the records from the file. If the file does not exist, there are no records.
    pub(super) fn open(file: PathBuf) -> Result<Self> {
        let records = match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes).with_context(|| file.display().to_string())?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(error).with_context(|| file.display().to_string()),
        };
        Ok(Self { file, records })
    }

    pub(super) fn records(&self) -> &[Record] {
        &self.records
    }

    /// Returns whether the rung has passed at this commit with this scale or a larger one.
    pub(super) fn passed(&self, rung: &str, commit: &str, scale: f64) -> bool {
        self.records.iter().any(|record| {
            record.rung == rung
                && record.commit == commit
                && record.scale >= scale
                && record.outcome == Outcome::Passed
        })
    }

    /// Replaces the record of the rung. Then stores all records by writing them to a temporary file and renaming this file.
    pub(super) fn note(&mut self, record: Record) -> Result<()> {
        self.records.retain(|other| other.rung != record.rung);
        self.records.push(record);
        let aside = self.file.with_extension("new");
        fs::write(&aside, serde_json::to_vec_pretty(&self.records)?)?;
        fs::rename(&aside, &self.file).with_context(|| self.file.display().to_string())
    }
}

#[cfg(test)]
pub(super) fn sample(rung: &str, commit: &str, outcome: Outcome) -> Record {
    Record {
        rung: rung.to_owned(),
        commit: commit.to_owned(),
        date: "2026-01-31".to_owned(),
        machine: "2 × x".to_owned(),
        scale: 1.0,
        seconds: 61,
        outcome,
        figures: "7 tests".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("flyball-xtask-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        folder.join("state.json")
    }

    #[test]
    fn a_killed_run_goes_on_after_what_passed() {
        let file = file("resume");
        let mut state = State::open(file.clone()).unwrap();
        state.note(sample("faults", "c1", Outcome::Passed)).unwrap();
        state.note(sample("fuzz", "c1", Outcome::Failed)).unwrap();
        state.note(sample("parity", "c1", Outcome::NotRun)).unwrap();
        drop(state);
        let state = State::open(file.clone()).unwrap();
        assert!(state.passed("faults", "c1", 1.0));
        assert!(!state.passed("fuzz", "c1", 1.0), "a failed rung counts as passed");
        assert!(!state.passed("parity", "c1", 1.0), "a rung that did not run counts as passed");
        assert!(!state.passed("shuttle", "c1", 1.0), "a rung without a record counts as passed");
        assert!(!state.passed("faults", "c2", 1.0), "another commit, other evidence");
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_trial_does_not_stand_for_a_whole_run() {
        let file = file("scale");
        let mut state = State::open(file.clone()).unwrap();
        state.note(Record { scale: 0.01, ..sample("fuzz", "c1", Outcome::Passed) }).unwrap();
        assert!(!state.passed("fuzz", "c1", 1.0));
        assert!(state.passed("fuzz", "c1", 0.01));
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_rung_has_one_record_its_last() {
        let file = file("last");
        let mut state = State::open(file.clone()).unwrap();
        state.note(sample("fuzz", "c1", Outcome::Failed)).unwrap();
        state.note(sample("fuzz", "c2", Outcome::Passed)).unwrap();
        assert_eq!(State::open(file.clone()).unwrap().records(), [sample("fuzz", "c2", Outcome::Passed)]);
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_file_that_is_not_ours_is_an_error() {
        let file = file("broken");
        fs::write(&file, "{").unwrap();
        assert!(State::open(file.clone()).is_err());
        fs::remove_dir_all(file.parent().unwrap()).unwrap();
    }
}
