//! PURE. The open watches: what each selects, what it has sent, and how it ends.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use kube::core::Status;
use serde_json::Value;

use crate::state::history::Change;
use crate::state::metadata;
use crate::state::selection::Selection;

#[derive(Debug, Default)]
pub(crate) struct Watches {
    opened: u64,
    pub(crate) open: BTreeMap<u64, Watch>,
}

impl Watches {
    pub(crate) fn living(&mut self) -> impl Iterator<Item = &mut Watch> {
        self.open.values_mut().filter(|watch| watch.ended.is_none())
    }

    /// Returns the number of open watches of a kind, or of all kinds for `None`. Stalled watches do not count.
    pub(crate) fn count(&self, kind_id: Option<usize>) -> usize {
        let counted = |watch: &&Watch| {
            watch.ended.is_none() && !watch.stalled && kind_id.is_none_or(|kind_id| watch.kind_id == kind_id)
        };
        self.open.values().filter(counted).count()
    }

    /// Returns the highest version up to which every open watch has sent its events: the open watches need only the
    /// changes after this version. Returns `None` if no watch is open. Stalled watches do not count.
    pub(crate) fn slowest(&self) -> Option<u64> {
        let living = self.open.values().filter(|watch| watch.ended.is_none() && !watch.stalled);
        living.map(|watch| watch.sent).min()
    }

    /// Adds a watch, and returns its id.
    pub(crate) fn add(&mut self, watch: Watch) -> u64 {
        self.opened += 1;
        self.open.insert(self.opened, watch);
        self.opened
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Handles the timeout of a watch: the watch sends the remaining events, then a bookmark, and ends.
    pub(crate) fn run_out(&mut self, id: u64) {
        if let Some(watch) = self.open.get_mut(&id) {
            watch.bookmark_due = watch.bookmarks;
            watch.closing = true;
        }
    }
}

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
