//! PURE. Deletes objects: preconditions, grace periods, finalizers.

use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use kube::core::Status;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::dependents::Dependents;
use crate::state::kind::Kind;
use crate::state::selection::Selection;
use crate::state::{State, metadata, seconds};
use crate::status_error;

/// The options of a deletion.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Deletion {
    pub(crate) dependents: Dependents,
    /// The requested grace period in seconds. It applies only to pods.
    pub(crate) grace: Option<i64>,
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    Terminating(Arc<Value>),
    Removed(Arc<Value>),
}

impl Deletion {
    fn of(request: &RecordedRequest, options: &Value) -> Self {
        let in_query = || request.query_param("gracePeriodSeconds")?.parse().ok();
        let grace = options["gracePeriodSeconds"].as_i64().or_else(in_query);
        Self { dependents: Dependents::asked(request, options), grace }
    }

    /// Returns the grace period of an object that is not being deleted yet.
    fn grace_of(self, kind: &Kind, object: &Value) -> i64 {
        let spec = &object["spec"];
        let is_over = matches!(object["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
        let is_scheduled = spec["nodeName"].as_str().is_some_and(|node| !node.is_empty());
        if !kind.is_pod() || is_over || !is_scheduled {
            return 0;
        }
        // If the pod has no `terminationGracePeriodSeconds`, a real server uses 30 seconds.
        let default = || spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace = self.grace.unwrap_or_else(default);
        if grace < 0 { 1 } else { grace }
    }
}

impl State {
    /// Deletes an object, or marks it as being deleted if it has finalizers or a grace period.
    pub(crate) fn delete(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        options: &Value,
        now: Timestamp,
    ) -> Result<Deleted, Box<Status>> {
        let before = self.get(kind_id, request)?;
        let kind = self.kind(kind_id);
        check_preconditions(kind, &before, options)?;
        Ok(self.begin_delete(kind_id, kind.key_of(&before), &before, Deletion::of(request, options), now))
    }

    /// Deletes the selected objects, and returns their previous states.
    pub(crate) fn delete_collection(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        options: &Value,
        now: Timestamp,
    ) -> Result<Vec<Arc<Value>>, Box<Status>> {
        let selection = Selection::of(self.kind(kind_id), request)?;
        let selected = self.objects(kind_id).iter().filter(|(_, object)| selection.matches(object));
        let selected: Vec<_> = selected.map(|(key, object)| (key.clone(), object.clone())).collect();
        for (_, object) in &selected {
            check_preconditions(self.kind(kind_id), object, options)?;
        }
        for (key, object) in &selected {
            self.begin_delete(kind_id, key.clone(), object, Deletion::of(request, options), now);
        }
        Ok(selected.into_iter().map(|(_, object)| object).collect())
    }

    pub(crate) fn begin_delete(
        &mut self,
        kind_id: usize,
        key: String,
        before: &Arc<Value>,
        deletion: Deletion,
        now: Timestamp,
    ) -> Deleted {
        let kind = self.kind(kind_id);
        let mut after = Value::clone(before);
        if metadata::has_grace(before) {
            return self.shorten_grace(kind_id, key, before, deletion, now);
        }
        deletion.dependents.hold(kind, &mut after);
        if let Some(finalizer) = kind.deletion_finalizer()
            && !metadata::is_terminating(before)
        {
            metadata::add_finalizer(&mut after, finalizer);
        }
        let grace = if metadata::is_terminating(before) { 0 } else { deletion.grace_of(kind, before) };
        if grace == 0 && !metadata::has_finalizers(&after) {
            return Deleted::Removed(self.commit(kind_id, key, None));
        }
        if metadata::is_terminating(before) {
            return Deleted::Terminating(if after == **before {
                before.clone()
            } else {
                self.commit(kind_id, key, Some(after))
            });
        }
        metadata::set(&mut after, "deletionTimestamp", after_seconds(now, grace));
        metadata::set(&mut after, "deletionGracePeriodSeconds", grace);
        metadata::raise_generation(&mut after);
        Deleted::Terminating(self.commit(kind_id, key, Some(after)))
    }

    /// Shortens a running grace period. The period is never extended. A requested period of zero ends it.
    fn shorten_grace(
        &mut self,
        kind_id: usize,
        key: String,
        before: &Arc<Value>,
        deletion: Deletion,
        now: Timestamp,
    ) -> Deleted {
        let period = before["metadata"]["deletionGracePeriodSeconds"].as_i64().unwrap_or_default();
        let asked = deletion.grace.map(|asked| if asked < 0 { 1 } else { asked });
        let Some(mut asked) = asked.filter(|asked| *asked < period) else {
            return Deleted::Terminating(before.clone());
        };
        if asked == 0 && !metadata::has_finalizers(before) {
            return Deleted::Removed(self.commit(kind_id, key, None));
        }
        let mut after = Value::clone(before);
        let ends =
            metadata::text(before, "deletionTimestamp").and_then(|text| text.parse::<Timestamp>().ok());
        let mut ends =
            ends.unwrap_or(now).saturating_add(SignedDuration::from_secs(asked - period)).unwrap_or(now);
        if ends < now {
            ends = now;
            asked = asked.min(1);
        }
        metadata::set(&mut after, "deletionTimestamp", seconds(ends));
        metadata::set(&mut after, "deletionGracePeriodSeconds", asked);
        Deleted::Terminating(self.commit(kind_id, key, Some(after)))
    }
}

fn after_seconds(now: Timestamp, later: i64) -> String {
    seconds(now.saturating_add(SignedDuration::from_secs(later)).unwrap_or(Timestamp::MAX))
}

fn check_preconditions(kind: &Kind, object: &Value, options: &Value) -> Result<(), Box<Status>> {
    let name = metadata::name(object);
    for (field, title, change) in
        [("uid", "UID", "deleted and then recreated"), ("resourceVersion", "ResourceVersion", "modified")]
    {
        let asked = options["preconditions"][field].as_str();
        let is = metadata::text(object, field).unwrap_or_default();
        if let Some(asked) = asked.filter(|asked| *asked != is) {
            let why = format!(
                "the {title} in the precondition ({asked}) does not match the {title} in record ({is}). \
                 The object might have been {change}"
            );
            // This message names the kind, not the resource.
            return Err(status_error::conflict(&kind.qualified_kind(), &kind.resource, name, &why));
        }
    }
    Ok(())
}
