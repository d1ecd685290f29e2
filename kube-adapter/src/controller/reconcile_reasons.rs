//! SHELL. Why objects are reconciled, for the spans of reconciles: kube-runtime's reasons, in its words.
//!
//! | guarded by | |
//! |---|---|
//! | `Reasons::noted` | for each key that is queued, the first reason and how many there were |
//!
//! Nothing is noted while no subscriber wants the span.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use flyball_informer_cache::NamespacedName;
use flyball_sync::locks::Mutex;
use tracing::Level;

use super::TARGET;

/// Why an object is reconciled.
#[derive(Clone, Debug)]
pub(crate) enum Reason {
    /// Through `reconcile_on`, or not known.
    Unknown,
    ObjectUpdated,
    RelatedObjectUpdated {
        kind: Arc<str>,
        key: NamespacedName,
    },
    ReconcilerRequestedRetry,
    ErrorPolicyRequestedRetry,
    BulkReconcile,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("unknown"),
            Self::ObjectUpdated => f.write_str("object updated"),
            Self::RelatedObjectUpdated { kind, key } => {
                write!(f, "related object updated: {kind} {key}")
            }
            Self::ReconcilerRequestedRetry => f.write_str("reconciler requested retry"),
            Self::ErrorPolicyRequestedRetry => f.write_str("error policy requested retry"),
            Self::BulkReconcile => f.write_str("bulk reconcile requested"),
        }
    }
}

/// Those of the keys of one controller.
#[derive(Default)]
pub(crate) struct Reasons {
    noted: Mutex<HashMap<NamespacedName, PendingReason>>,
}

struct PendingReason {
    reason: Reason,
    count: u32,
    /// For a later time: a change before that is the reason instead.
    later: bool,
}

impl Reasons {
    /// Notes why a key is about to be added. Of several reasons the first is kept, and all are counted.
    pub(crate) fn note(&self, key: &NamespacedName, reason: impl FnOnce() -> Reason) {
        if !wanted() {
            return;
        }
        let mut noted = self.noted.lock();
        match noted.get_mut(key) {
            Some(before) if !before.later => before.count = before.count.saturating_add(1),
            _ => {
                noted.insert(key.clone(), PendingReason { reason: reason(), count: 1, later: false });
            }
        }
    }

    /// Notes why a key comes back later, unless there is a reason for it to come sooner.
    pub(crate) fn note_retry(&self, key: &NamespacedName, reason: Reason) {
        if wanted() {
            let noted = PendingReason { reason, count: 1, later: true };
            self.noted.lock().entry(key.clone()).or_insert(noted);
        }
    }

    /// Why a key is reconciled now, and how many reasons there were.
    pub(crate) fn take(&self, key: &NamespacedName) -> (Reason, u32) {
        let noted = if wanted() { self.noted.lock().remove(key) } else { None };
        noted.map_or((Reason::Unknown, 1), |noted| (noted.reason, noted.count))
    }
}

fn wanted() -> bool {
    tracing::span_enabled!(target: TARGET, Level::INFO)
}
