//! PURE. One watch: its selection, what it has sent, and how it ends.

use std::collections::VecDeque;
use std::sync::Arc;

use kube::core::Status;
use serde_json::Value;

use crate::state::history::Change;
use crate::state::metadata;
use crate::state::selection::Selection;

/// An event of a watch.
#[derive(Debug, Clone)]
pub(crate) enum Event {
    Added(Arc<Value>),
    Modified(Arc<Value>),
    Deleted(Arc<Value>),
    /// All events up to this version have been sent; `initial_end` marks the end of the initial objects.
    Bookmark {
        version: u64,
        initial_end: bool,
    },
    Error(Box<Status>),
}

/// How a watch ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Without an error.
    Closed,
    /// With a broken connection.
    Broken,
}

#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) kind_id: usize,
    pub(crate) selection: Selection,
    /// The `apiVersion` that the client has requested. The objects are sent in this version.
    pub(crate) api_version: String,
    pub(crate) metadata_only: bool,
    pub(crate) bookmarks: bool,
    /// All selected events up to this version have been sent.
    pub(crate) sent: u64,
    /// Events that are sent before the events of the history.
    pub(crate) first: VecDeque<Event>,
    pub(crate) bookmark_due: bool,
    /// Whether the watch ends when all events are sent.
    pub(crate) closing: bool,
    /// How the watch has ended; `None` while it is open. Events that were not sent before the end are lost.
    pub(crate) ended: Option<End>,
    /// Whether the watch is stalled. A stalled watch sends nothing, not even its end.
    pub(crate) stalled: bool,
}

impl Watch {
    /// Returns the event for a change. An object that starts to match the selection is reported as added, and an object that stops matching is
    /// reported as deleted.
    pub(crate) fn event(&self, change: &Change) -> Option<Event> {
        let matches = |object: &&Arc<Value>| self.selection.matches(object);
        let before = change.before.as_ref().filter(matches);
        match (before, change.after.as_ref().filter(matches)) {
            (None, None) => None,
            (None, Some(after)) => Some(Event::Added(after.clone())),
            (Some(_), Some(after)) => Some(Event::Modified(after.clone())),
            (Some(before), None) => {
                Some(Event::Deleted(Arc::new(metadata::with_version(before, change.version))))
            }
        }
    }
}
