//! PURE. The watches that are open, and what each is told next.

use std::collections::{BTreeMap, VecDeque};

use kube::core::Status;

use crate::request::Request;
use crate::state::State;
use crate::state::list::number;
use crate::state::metadata;
use crate::state::selection::Selection;
use crate::state::status_error;
use crate::state::watch::{End, Event, Watch};

#[derive(Debug, Default)]
pub(crate) struct Watches {
    opened: u64,
    open: BTreeMap<u64, Watch>,
}

/// What a watch does next.
#[derive(Debug)]
pub(crate) enum Next {
    Tell { event: Event, metadata_only: bool },
    Wait,
    End(End),
}

impl Watches {
    pub(crate) fn living(&mut self) -> impl Iterator<Item = &mut Watch> {
        self.open.values_mut().filter(|watch| watch.ended.is_none())
    }

    /// Of those of a kind, or of all.
    pub(crate) fn count(&self, place: Option<usize>) -> usize {
        let counted = |watch: &&Watch| {
            watch.ended.is_none() && !watch.silent && place.is_none_or(|place| watch.place == place)
        };
        self.open.values().filter(counted).count()
    }

    /// How far the history has to be kept.
    pub(crate) fn slowest(&self) -> Option<u64> {
        let living = self.open.values().filter(|watch| watch.ended.is_none() && !watch.silent);
        living.map(|watch| watch.told).min()
    }

    pub(crate) fn close(&mut self, id: u64) {
        self.open.remove(&id);
    }

    /// Its time is over: it is told what there is, and how far that goes.
    pub(crate) fn run_out(&mut self, id: u64) {
        if let Some(watch) = self.open.get_mut(&id) {
            watch.bookmark_due = watch.bookmarks;
            watch.closing = true;
        }
    }
}

impl State {
    pub(crate) fn watch(&mut self, place: usize, request: &Request) -> Result<u64, Box<Status>> {
        let selection = Selection::of(request)?;
        let from = number(request, "resourceVersion")?.unwrap_or(0);
        let all_first = request.flag("sendInitialEvents");
        let matching = request.param("resourceVersionMatch");
        if all_first != (matching == Some("NotOlderThan")) || (!all_first && matching.is_some()) {
            let why = "Forbidden: sendInitialEvents and resourceVersionMatch=NotOlderThan belong together";
            return Err(status_error::invalid(self.kind(place), "", "resourceVersionMatch", why));
        }
        if all_first && from > self.version {
            return Err(status_error::too_large(from, self.version));
        }
        let mut first = VecDeque::new();
        let mut told = from;
        if all_first || from == 0 {
            let objects = self.objects(place).values().filter(|object| selection.holds(object));
            first.extend(objects.cloned().map(Event::Added));
            told = self.version;
            if all_first {
                first.push_back(Event::Bookmark { version: told, initial_end: true });
            }
        } else if from < self.history.floor() {
            // Told as the first event, as a real server does, which has said that all is well by then.
            first.push_back(Event::Error(status_error::too_old(from, self.history.floor())));
        }
        self.watches.opened += 1;
        let id = self.watches.opened;
        let watch = Watch {
            place,
            selection,
            metadata_only: request.metadata_only,
            bookmarks: request.flag("allowWatchBookmarks"),
            told,
            first,
            bookmark_due: false,
            closing: false,
            ended: None,
            silent: false,
        };
        self.watches.open.insert(id, watch);
        Ok(id)
    }

    pub(crate) fn next(&mut self, id: u64) -> Next {
        let Some(watch) = self.watches.open.get_mut(&id) else { return Next::End(End::Closed) };
        if watch.silent {
            return Next::Wait;
        }
        if let Some(end) = watch.ended {
            return Next::End(end);
        }
        let metadata_only = watch.metadata_only;
        if let Some(event) = watch.first.pop_front() {
            if matches!(event, Event::Error(_)) {
                watch.ended = Some(End::Closed);
            }
            return Next::Tell { event, metadata_only };
        }
        for change in self.history.after(watch.told) {
            watch.told = change.version;
            if change.kind == watch.place
                && let Some(event) = watch.event(change)
            {
                return Next::Tell { event, metadata_only };
            }
        }
        watch.told = watch.told.max(self.version);
        if std::mem::take(&mut watch.bookmark_due) {
            let event = Event::Bookmark { version: watch.told, initial_end: false };
            return Next::Tell { event, metadata_only };
        }
        if watch.closing {
            watch.ended = Some(End::Closed);
            return Next::End(End::Closed);
        }
        Next::Wait
    }

    /// The event as a line of the answer's body.
    pub(crate) fn line(&self, id: u64, event: &Event, metadata_only: bool) -> Vec<u8> {
        let resource = match self.watches.open.get(&id) {
            Some(watch) => &self.kind(watch.place).resource,
            None => return Vec::new(),
        };
        let object = |object: &serde_json::Value| {
            if metadata_only { metadata::partial(object) } else { object.clone() }
        };
        let line = match event {
            Event::Added(it) => serde_json::json!({"type": "ADDED", "object": object(it)}),
            Event::Modified(it) => serde_json::json!({"type": "MODIFIED", "object": object(it)}),
            Event::Deleted(it) => serde_json::json!({"type": "DELETED", "object": object(it)}),
            Event::Bookmark { version, initial_end } => {
                let (api_version, kind) = match metadata_only {
                    true => ("meta.k8s.io/v1", "PartialObjectMetadata"),
                    false => (resource.api_version.as_str(), resource.kind.as_str()),
                };
                let mut bookmark = serde_json::json!({
                    "apiVersion": api_version,
                    "kind": kind,
                    "metadata": {"resourceVersion": version.to_string()},
                });
                if *initial_end {
                    bookmark["metadata"]["annotations"] =
                        serde_json::json!({"k8s.io/initial-events-end": "true"});
                }
                serde_json::json!({"type": "BOOKMARK", "object": bookmark})
            }
            Event::Error(status) => serde_json::json!({"type": "ERROR", "object": status}),
        };
        let mut line = line.to_string().into_bytes();
        line.push(b'\n');
        line
    }
}
