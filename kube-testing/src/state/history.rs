//! PURE. The history of changes.
//!
//! # Invariants
//! 1. Versions of changes increase.
//!
//! The history keeps all changes after `floor`, because a new watch can request them, and all changes that an open watch has not sent yet.

use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::Value;

use crate::state::apply::managers::Writer;

/// A write.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) version: u64,
    /// The index of the kind.
    pub(crate) kind: usize,
    pub(crate) key: String,
    pub(crate) before: Option<Arc<Value>>,
    /// The new state; `None` for a deletion.
    pub(crate) after: Option<Arc<Value>>,
    /// `None` for a write without a field manager.
    pub(crate) writer: Option<Arc<Writer>>,
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

    /// Returns all changes after a version, oldest first.
    pub(crate) fn after(&self, version: u64) -> impl DoubleEndedIterator<Item = &Change> {
        let from = self.changes.partition_point(|change| change.version <= version);
        self.changes.range(from..)
    }

    /// Returns the oldest version that can be requested.
    pub(crate) fn floor(&self) -> u64 {
        self.floor
    }

    /// Drops all changes up to a version, except those that open watches have not sent.
    pub(crate) fn forget(&mut self, up_to: u64, sent: u64) {
        self.floor = self.floor.max(up_to);
        let keep = self.changes.partition_point(|change| change.version <= up_to.min(sent));
        self.changes.drain(..keep);
    }
}
