//! PURE. What becomes of the dependents of a deleted object, as far as it waits for them: the part of the garbage collector that a client sees as finalizers.
//!
//! A real server leaves this to kube-controller-manager, a moment later. What nobody owns any more is not collected here.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::request::Request;
use crate::state::State;
use crate::state::metadata;

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

/// What a deletion says of the dependents: its `propagationPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// Nothing: what the object's finalizers say stays.
    Unsaid,
    /// They come later: the object waits for nobody.
    Background,
    /// Those that block go first.
    Foreground,
    /// They stay, and do not name the object any more.
    Orphan,
}

impl Dependents {
    /// Of a request, or the options in its body.
    pub(crate) fn asked(request: &Request, options: &Value) -> Self {
        let asked = options["propagationPolicy"].as_str().or_else(|| request.param("propagationPolicy"));
        match asked {
            Some("Foreground") => Self::Foreground,
            Some("Background") => Self::Background,
            Some("Orphan") => Self::Orphan,
            _ => Self::Unsaid,
        }
    }

    /// Gives an object that is deleted so the finalizer that it needs.
    pub(crate) fn hold(self, object: &mut Value) {
        let finalizer = match self {
            Self::Unsaid => return,
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
    /// Goes on with all deletions that wait for dependents, as far as they go.
    pub(crate) fn collect(&mut self, now: Timestamp) {
        loop {
            let version = self.version;
            for (place, key) in self.waiting.clone() {
                if let Some(owner) = self.objects(place).get(&key).cloned() {
                    self.collect_of(place, key, &owner, now);
                }
            }
            // Whoever still waits does so for somebody else's finalizer.
            if self.version == version {
                return;
            }
        }
    }

    fn collect_of(&mut self, place: usize, key: String, owner: &Arc<Value>, now: Timestamp) {
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
                    let dependents = if own.is_empty() { Dependents::Unsaid } else { Dependents::Foreground };
                    self.take_away(of, child, &object, dependents, now);
                }
            }
        }
        // Those that have just gone are looked for again.
        if !waits {
            let mut after = Value::clone(owner);
            Dependents::Background.hold(&mut after);
            let left = metadata::is_held(&after).then_some(after);
            self.commit(place, key, left);
        }
    }

    /// All objects that name this one as an owner.
    fn dependents(&self, uid: &str) -> Vec<(usize, String, Arc<Value>)> {
        let all = (0..self.kinds()).flat_map(|place| {
            self.objects(place).iter().map(move |(key, object)| (place, key.clone(), object.clone()))
        });
        all.filter(|(_, _, object)| references(object).iter().any(|owner| owner["uid"] == uid)).collect()
    }

    fn is_there(&self, owner: &Value) -> bool {
        (0..self.kinds()).any(|place| {
            self.objects(place)
                .values()
                .any(|object| object["metadata"]["uid"] == owner["uid"] && !waits(object))
        })
    }
}

fn references(object: &Value) -> Vec<Value> {
    object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default()
}
