//! PURE. What changed, in order.
//!
//! # Invariants
//! 1. Versions of changes grow.
//! 2. No change that a watch can still ask for is missing: those after `floor`, and those that an open watch has not sent.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

/// A write.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    /// Which of the server's kinds.
    pub(crate) kind: usize,
    pub(crate) key: String,
    pub(crate) before: Option<Arc<Value>>,
    /// None: deleted.
    pub(crate) after: Option<Arc<Value>>,
}

#[derive(Debug, Default)]
pub(crate) struct History {
    changes: VecDeque<Change>,
    floor: u64,
}

impl History {
    pub(crate) fn push(&mut self, change: Change) {
        self.changes.push_back(change);
    }

    /// All that came after a version, oldest first.
    pub(crate) fn after(&self, version: u64) -> impl DoubleEndedIterator<Item = &Change> {
        let from = self.changes.partition_point(|change| change.version <= version);
        self.changes.range(from..)
    }

    /// The oldest version that can be asked for.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Forgets all up to a version, but for what open watches have not sent yet.
    pub(crate) fn forget(&mut self, up_to: u64, sent: u64) {
        self.floor = self.floor.max(up_to);
        let keep = self.changes.partition_point(|change| change.version <= up_to.min(sent));
        self.changes.drain(..keep);
    }
}
