//! PURE. Deletions that wait for dependents: the part of garbage collection that clients see as finalizers.
//!
//! On a real cluster kube-controller-manager does this, a moment later. Objects whose owners are gone are not collected here.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::State;
use crate::state::metadata;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// The `propagationPolicy` of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// None: the finalizers of the object decide.
    Default,
    /// The object waits for no dependents.
    Background,
    /// Dependents that block the deletion are deleted first.
    Foreground,
    /// Dependents stay, without this owner.
    Orphan,
}

impl Dependents {
    /// From the options in the body, or else the parameters of the request.
    pub(crate) fn asked(request: &RecordedRequest, options: &Value) -> Self {
        let asked =
            options["propagationPolicy"].as_str().or_else(|| request.query_param("propagationPolicy"));
        match asked {
            Some("Foreground") => Self::Foreground,
            Some("Background") => Self::Background,
            Some("Orphan") => Self::Orphan,
            _ => Self::Default,
        }
    }

    /// Sets the finalizer that this policy needs.
    pub(crate) fn hold(self, object: &mut Value) {
        let finalizer = match self {
            Self::Default => return,
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND),
            Self::Orphan => Some(ORPHAN),
        };
        let others =
            metadata::finalizers(object).into_iter().filter(|other| ![FOREGROUND, ORPHAN].contains(other));
        let finalizers: Vec<Value> = others.chain(finalizer).map(Value::from).collect();
        match finalizers.is_empty() {
            true => drop(metadata::of(object).remove("finalizers")),
            false => metadata::set(object, "finalizers", finalizers),
        }
    }
}

/// Whether an object waits for its dependents, to be deleted or to be left alone.
pub(crate) fn waits(object: &Value) -> bool {
    let mut finalizers = metadata::finalizers(object).into_iter();
    metadata::is_terminating(object) && finalizers.any(|finalizer| [FOREGROUND, ORPHAN].contains(&finalizer))
}

impl State {
    /// Continues all deletions that wait for dependents.
    pub(crate) fn collect(&mut self, now: Timestamp) {
        loop {
            let version = self.version;
            for (kind_id, key) in self.waiting.clone() {
                if let Some(owner) = self.objects(kind_id).get(&key).cloned() {
                    self.collect_of(kind_id, key, &owner, now);
                }
            }
            // What still waits, waits for a finalizer of a client.
            if self.version == version {
                return;
            }
        }
    }

    fn collect_of(&mut self, kind_id: usize, key: String, owner: &Arc<Value>, now: Timestamp) {
        let uid = metadata::text(owner, "uid").unwrap_or_default();
        let orphan = metadata::finalizers(owner).contains(&ORPHAN);
        let mut waits = false;
        for (of, child, object) in self.dependents(uid) {
            let references = references(&object);
            let blocks =
                references.iter().any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true);
            let shared = references.iter().any(|owner| owner["uid"] != uid && self.is_there(owner));
            if orphan || blocks && shared {
                let mut freed = Value::clone(&object);
                let left: Vec<_> = references.into_iter().filter(|owner| owner["uid"] != uid).collect();
                metadata::set(&mut freed, "ownerReferences", left);
                self.commit(of, child, Some(freed));
            } else if blocks {
                waits = true;
                if !metadata::is_terminating(&object) {
                    let own = self.dependents(metadata::text(&object, "uid").unwrap_or_default());
                    let dependents =
                        if own.is_empty() { Dependents::Default } else { Dependents::Foreground };
                    self.begin_delete(of, child, &object, dependents, now);
                }
            }
        }
        // Otherwise the next round finds whether they are gone.
        if !waits {
            let mut after = Value::clone(owner);
            Dependents::Background.hold(&mut after);
            let left = metadata::has_finalizers(&after).then_some(after);
            self.commit(kind_id, key, left);
        }
    }

    /// All objects that name this one as an owner.
    fn dependents(&self, uid: &str) -> Vec<(usize, String, Arc<Value>)> {
        let all = (0..self.kinds()).flat_map(|kind_id| {
            self.objects(kind_id).iter().map(move |(key, object)| (kind_id, key.clone(), object.clone()))
        });
        all.filter(|(_, _, object)| references(object).iter().any(|owner| owner["uid"] == uid)).collect()
    }

    fn is_there(&self, owner: &Value) -> bool {
        (0..self.kinds()).any(|kind_id| {
            self.objects(kind_id)
                .values()
                .any(|object| object["metadata"]["uid"] == owner["uid"] && !waits(object))
        })
    }
}

fn references(object: &Value) -> Vec<Value> {
    object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
}
