//! PURE. One watch: what it is of, what it was told, and how it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use kube::core::Status;
use serde_json::Value;

use super::history::Change;
use super::meta;
use super::selection::Selection;

/// What a watch hears.
#[derive(Debug, Clone)]
pub(super) enum Event {
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
pub(super) enum End {
    /// As one that has run for its time.
    Closed,
    /// As one whose connection broke.
    Broken,
}

#[derive(Debug)]
pub(super) struct Watch {
    pub(super) place: usize,
    pub(super) selection: Selection,
    pub(super) metadata_only: bool,
    pub(super) bookmarks: bool,
    /// All up to here is told, or not of interest.
    pub(super) told: u64,
    /// To be told first, before what the history says.
    pub(super) first: VecDeque<Event>,
    pub(super) bookmark_due: bool,
    /// Ends when all is told.
    pub(super) closing: bool,
    /// Has ended, whatever was to be told.
    pub(super) ended: Option<End>,
    /// Says nothing any more, not even that it ends.
    pub(super) silent: bool,
}

impl Watch {
    /// What a change is to this watch: an object that begins to be what is asked for is new to it, one that ceases to be is gone.
    pub(super) fn event(&self, change: &Change) -> Option<Event> {
        let holds = |object: &&Arc<Value>| self.selection.holds(object);
        let before = change.before.as_ref().filter(holds);
        match (before, change.after.as_ref().filter(holds)) {
            (None, None) => None,
            (None, Some(after)) => Some(Event::Added(after.clone())),
            (Some(_), Some(after)) => Some(Event::Modified(after.clone())),
            (Some(before), None) => {
                Some(Event::Deleted(Arc::new(meta::with_version(before, change.version))))
            }
        }
    }
}
