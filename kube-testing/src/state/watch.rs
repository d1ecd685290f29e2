//! PURE. One watch: what it is of, what it was told, and how it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use kube::core::Status;
use serde_json::Value;

use crate::state::history::Change;
use crate::state::metadata;
use crate::state::selection::Selection;

/// What a watch hears.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Added(Arc<Value>),
    Modified(Arc<Value>),
    Deleted(Arc<Value>),
    /// Nothing happened up to this version; with the end of the first objects, or without.
    Bookmark {
        version: u64,
        initial_end: bool,
    },
    Error(Box<Status>),
}

/// How a watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// As one that has run for its time.
    Closed,
    /// As one whose connection broke.
    Broken,
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) place: usize,
    pub(crate) selection: Selection,
    pub(crate) metadata_only: bool,
    pub(crate) bookmarks: bool,
    /// All up to here is told, or not of interest.
    pub(crate) told: u64,
    /// To be told first, before what the history says.
    pub(crate) first: VecDeque<Event>,
    pub(crate) bookmark_due: bool,
    /// Ends when all is told.
    pub(crate) closing: bool,
    /// Has ended, whatever was to be told.
    pub(crate) ended: Option<End>,
    /// Says nothing any more, not even that it ends.
    pub(crate) silent: bool,
}

impl Watch {
    /// What a change is to this watch: an object that begins to be what is asked for is new to it, one that ceases to be is gone.
    pub(crate) fn event(&self, change: &Change) -> Option<Event> {
        let holds = |object: &&Arc<Value>| self.selection.holds(object);
        let before = change.before.as_ref().filter(holds);
        match (before, change.after.as_ref().filter(holds)) {
            (None, None) => None,
            (None, Some(after)) => Some(Event::Added(after.clone())),
            (Some(_), Some(after)) => Some(Event::Modified(after.clone())),
            (Some(before), None) => {
                Some(Event::Deleted(Arc::new(metadata::with_version(before, change.version))))
            }
        }
    }
}
