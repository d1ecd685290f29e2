//! Checkpoints of explorations that a time limit has stopped.
//!
//! Loom writes its position to a file while it explores. A process that is killed could leave a torn file, and a count that does not belong to it. So loom
//! works on a copy, and only an exploration that ended in order replaces the checkpoint.

use std::path::PathBuf;
use std::{env, fs};

use serde_json::{Value, json};

use crate::engine::{Body, Explored};

/// The checkpoint of one body.
#[derive(Debug)]
pub(crate) struct Checkpoint {
    path: PathBuf,
    /// What the explorations up to the checkpoint have counted.
    before: Option<Value>,
}

impl Checkpoint {
    /// Opens the checkpoint of a body; `None` if the variable `FLYBALL_MODEL_CHECKPOINT` is not set.
    pub(crate) fn open(at: Body) -> Option<Self> {
        let mut path = env::var_os("FLYBALL_MODEL_CHECKPOINT")?;
        path.push(format!(".{}", at.at));
        let path = PathBuf::from(path);
        let mut counts = path.clone().into_os_string();
        counts.push(".count");
        let before = fs::read(counts).ok();
        let before = before.and_then(|text| serde_json::from_slice(&text).ok());
        let checkpoint = Self { path, before };
        let working = checkpoint.working_file();
        // Without counts, the position is of no use.
        match &checkpoint.before {
            Some(_) if checkpoint.path.exists() => {
                _ = fs::copy(&checkpoint.path, working).expect("a checkpoint can be copied")
            }
            _ if working.exists() => fs::remove_file(working).expect("an old file can be removed"),
            _ => {}
        }
        Some(checkpoint)
    }

    /// The file in which loom keeps its position.
    pub(crate) fn working_file(&self) -> PathBuf {
        self.sibling("working")
    }

    /// Returns the counts if nothing is left to explore.
    pub(crate) fn complete(&self, preemptions: Option<usize>) -> Option<Explored> {
        let before = self.before.as_ref()?;
        before["complete"].as_bool()?.then(|| Explored {
            interleavings: before["interleavings"].as_u64().unwrap_or(0),
            threads: before["threads"].as_u64().unwrap_or(0) as usize,
            preemptions,
            seconds: 0.0,
            complete: true,
            floors_apply: true,
        })
    }

    /// Adds what the earlier explorations have counted, and replaces the checkpoint.
    pub(crate) fn store(&mut self, explored: &mut Explored) {
        if let Some(before) = &self.before {
            explored.interleavings += before["interleavings"].as_u64().unwrap_or(0);
            explored.threads = explored.threads.max(before["threads"].as_u64().unwrap_or(0) as usize);
        }
        // The position first: if the process is killed between the two, the count is too low, never too high.
        let working = self.working_file();
        if working.exists() {
            fs::rename(working, &self.path).expect("a checkpoint can be replaced");
        }
        let counts = json!({
            "interleavings": explored.interleavings,
            "threads": explored.threads,
            "complete": explored.complete,
        });
        let aside = self.sibling("count-working");
        fs::write(&aside, counts.to_string()).expect("the counts can be written");
        fs::rename(aside, self.sibling("count")).expect("the counts can be replaced");
    }

    fn sibling(&self, extension: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{extension}"));
        path.into()
    }
}
