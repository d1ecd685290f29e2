//! PURE. Watches: how one begins, and its next event.

use std::collections::VecDeque;
use std::sync::Arc;

use kube::core::Status;
use serde_json::{Value, json};

use crate::request::RecordedRequest;
use crate::state::State;
use crate::state::metadata;
use crate::state::selection::Selection;
use crate::state::watches::{End, Event, Watch};
use crate::status_error;

/// The next action of a watch.
#[derive(Debug)]
pub(crate) enum Next {
    Send { event: Event, metadata_only: bool },
    Wait,
    End(End),
}

impl State {
    pub(crate) fn watch(&mut self, kind_id: usize, request: &RecordedRequest) -> Result<u64, Box<Status>> {
        let selection = Selection::of(self.kind(kind_id), request)?;
        let from = request.number("resourceVersion")?.unwrap_or(0);
        check_match(request)?;
        let all_first = request.flag("sendInitialEvents");
        let none_first = !all_first && request.query_param("sendInitialEvents").is_some();
        let bookmarks = request.flag("allowWatchBookmarks");
        let mut first = VecDeque::new();
        let mut sent = from;
        if all_first && from > self.version {
            // The error is sent as the first event, like the error for a version that is too old in the last branch below.
            first.push_back(Event::Error(status_error::too_large(from, self.version)));
        } else if none_first && from == 0 {
            sent = self.version;
        } else if all_first || from == 0 {
            let objects = self.objects(kind_id).values().filter(|object| selection.matches(object));
            first.extend(objects.cloned().map(Event::Added));
            sent = self.version;
            if all_first && bookmarks {
                first.push_back(Event::Bookmark { version: sent, initial_end: true });
            }
        } else if from < self.history.floor() {
            // The error is sent as the first event, as on a real server, which has already sent the status 200.
            first.push_back(Event::Error(status_error::too_old(from, self.history.floor())));
        }
        let watch = Watch {
            kind_id,
            selection,
            api_version: request.api_version(),
            metadata_only: request.metadata_only,
            bookmarks,
            sent,
            first,
            bookmark_due: false,
            closing: false,
            ended: None,
            stalled: false,
        };
        Ok(self.watches.add(watch))
    }

    pub(crate) fn next(&mut self, id: u64) -> Next {
        let Some(watch) = self.watches.open.get_mut(&id) else { return Next::End(End::Closed) };
        if watch.stalled {
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
            return Next::Send { event, metadata_only };
        }
        for change in self.history.after(watch.sent) {
            watch.sent = change.version;
            if change.kind == watch.kind_id
                && let Some(event) = watch.event(change)
            {
                return Next::Send { event, metadata_only };
            }
        }
        watch.sent = watch.sent.max(self.version);
        if std::mem::take(&mut watch.bookmark_due) {
            let event = Event::Bookmark { version: watch.sent, initial_end: false };
            return Next::Send { event, metadata_only };
        }
        if watch.closing {
            watch.ended = Some(End::Closed);
            return Next::End(End::Closed);
        }
        Next::Wait
    }

    /// Returns the event as a line of the response body.
    pub(crate) fn line(&self, id: u64, event: &Event, metadata_only: bool) -> Vec<u8> {
        let Some(watch) = self.watches.open.get(&id) else { return Vec::new() };
        let api_version = &watch.api_version;
        let object = |object: &Arc<Value>| match metadata_only {
            true => metadata::partial(object),
            false => Value::clone(&metadata::in_version(object, api_version)),
        };
        let line = match event {
            Event::Added(it) => json!({"type": "ADDED", "object": object(it)}),
            Event::Modified(it) => json!({"type": "MODIFIED", "object": object(it)}),
            Event::Deleted(it) => json!({"type": "DELETED", "object": object(it)}),
            Event::Bookmark { version, initial_end } => {
                let kind = &self.kind(watch.kind_id).resource.kind;
                let (api_version, kind) = match metadata_only {
                    true => ("meta.k8s.io/v1", "PartialObjectMetadata"),
                    false => (api_version.as_str(), kind.as_str()),
                };
                let mut bookmark = json!({
                    "apiVersion": api_version,
                    "kind": kind,
                    "metadata": {"resourceVersion": version.to_string()},
                });
                if *initial_end {
                    bookmark["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
                }
                json!({"type": "BOOKMARK", "object": bookmark})
            }
            Event::Error(status) => json!({"type": "ERROR", "object": status_error::body(status)}),
        };
        let mut line = line.to_string().into_bytes();
        line.push(b'\n');
        line
    }
}

/// Returns an error if the parameters of a watch cannot be combined.
fn check_match(request: &RecordedRequest) -> Result<(), Box<Status>> {
    let mut wrong = Vec::new();
    let matching = request.query_param("resourceVersionMatch");
    let asked = request.query_param("sendInitialEvents");
    if asked.is_some() && matching != Some("NotOlderThan") {
        let why = "Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
        wrong.push(("resourceVersionMatch", why.to_owned()));
    }
    if let Some(matching) = matching {
        if asked.is_none() {
            let why =
                "Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
            wrong.push(("resourceVersionMatch", why.to_owned()));
        }
        if matching != "NotOlderThan" {
            let why = format!("Unsupported value: {matching:?}: supported values: \"NotOlderThan\"");
            wrong.push(("resourceVersionMatch", why));
        }
    }
    if wrong.is_empty() { Ok(()) } else { Err(status_error::invalid_options("ListOptions", &wrong)) }
}
