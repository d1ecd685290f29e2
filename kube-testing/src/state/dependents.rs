//! PURE. What a deletion does with the dependents of an object: the propagation policy, and the finalizers that stand for it.

use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::kind::Kind;
use crate::state::metadata;

pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

/// The `propagationPolicy` of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// No policy is requested. The finalizers of the object determine the policy; without such a finalizer, the kind of the object does.
    Default,
    /// The object does not wait for its dependents.
    Background,
    /// Dependents that block the deletion are deleted first.
    Foreground,
    /// Dependents stay, without the reference to this owner.
    Orphan,
}

impl Dependents {
    /// Reads the policy from the options in the body, or else from the parameters of the request.
    pub(crate) fn asked(request: &RecordedRequest, options: &Value) -> Self {
        let asked =
            options["propagationPolicy"].as_str().or_else(|| request.query_param("propagationPolicy"));
        match (asked, options["orphanDependents"].as_bool()) {
            (Some("Foreground"), _) => Self::Foreground,
            (Some("Background"), _) | (None, Some(false)) => Self::Background,
            (Some("Orphan"), _) | (None, Some(true)) => Self::Orphan,
            _ => Self::Default,
        }
    }

    /// Replaces the finalizers of garbage collection with the one that this policy needs, if any.
    pub(crate) fn hold(self, kind: &Kind, object: &mut Value) {
        let held = metadata::finalizers(object).into_iter().any(|held| [FOREGROUND, ORPHAN].contains(&held));
        let finalizer = match self {
            Self::Default if held || !kind.orphans_dependents() => return,
            Self::Background => None,
            Self::Foreground => Some(FOREGROUND),
            Self::Default | Self::Orphan => Some(ORPHAN),
        };
        release(object);
        finalizer.into_iter().for_each(|finalizer| metadata::add_finalizer(object, finalizer));
    }
}

/// Removes the finalizers of garbage collection.
pub(crate) fn release(object: &mut Value) {
    for finalizer in [FOREGROUND, ORPHAN] {
        metadata::remove_finalizer(object, finalizer);
    }
}

/// Returns whether an object waits for its dependents to be deleted or orphaned.
pub(crate) fn waits(object: &Value) -> bool {
    let mut finalizers = metadata::finalizers(object).into_iter();
    metadata::is_terminating(object) && finalizers.any(|finalizer| [FOREGROUND, ORPHAN].contains(&finalizer))
}
