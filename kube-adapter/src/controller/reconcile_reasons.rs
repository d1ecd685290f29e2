//! SHELL. The reasons of reconciles, for spans and for debug views. The reasons and their texts are those of kube-runtime.
//!
//! | guarded by | |
//! |---|---|
//! | `Reasons::noted` | for each queued key, the first reason and the number of reasons |
//! | `Reasons::in_flight` | for each key that is being reconciled, the reason |
//! | `Reasons::requested` | an atomic flag that guards no other data; set once |
//!
//! Nothing is recorded until a subscriber enables the span, or `Monitor::in_flight` is called.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::NamespacedName;
use flyball_sync::locks::{AtomicBool, Mutex, Ordering};
use kube::runtime::controller::ReconcileReason;
use tokio::time::Instant;
use tracing::Level;

use super::TARGET;

/// Why an object is reconciled.
#[derive(Clone, Debug)]
pub(crate) enum Reason {
    /// Requested through `reconcile_on`, or unknown.
    Unknown,
    ObjectUpdated,
    RelatedObjectUpdated {
        kind: Arc<str>,
        key: NamespacedName,
    },
    ReconcilerRequestedRetry,
    ErrorPolicyRequestedRetry,
    BulkReconcile,
    /// The reason that a `ReconcileRequest` of kube-runtime carries.
    Given(ReconcileReason),
}

impl Reason {
    /// Whether all objects were requested, and not this object alone.
    pub(crate) fn is_bulk(&self) -> bool {
        matches!(self, Self::BulkReconcile | Self::Given(ReconcileReason::BulkReconcile))
    }
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
            Self::Given(reason) => reason.fmt(f),
        }
    }
}

/// A running reconcile and its reason; see [`Monitor::in_flight`](crate::Monitor::in_flight).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReconcileInFlight {
    /// The key of the object.
    pub object: NamespacedName,
    /// The text of the reason, as in kube-runtime. If several reasons were coalesced into one reconcile, this is the first one.
    pub reason: String,
    /// How many reasons were coalesced into this reconcile.
    pub reasons: u32,
    /// How long the reconcile has been running.
    pub running_for: Duration,
}

/// The reasons of the keys of one controller.
#[derive(Default)]
pub(crate) struct Reasons {
    noted: Mutex<HashMap<NamespacedName, PendingReason>>,
    in_flight: Mutex<HashMap<NamespacedName, Running>>,
    /// Whether `Monitor::in_flight` was called.
    requested: AtomicBool,
}

struct PendingReason {
    reason: Reason,
    count: u32,
    /// Whether the reason is a retry, so that the key waits for a delay. If the object changes during this delay, the reason of the change replaces
    /// this one.
    later: bool,
}

struct Running {
    reason: Reason,
    count: u32,
    since: Instant,
}

impl Reasons {
    /// Records the reason of a key that is about to be added. If there are several reasons, the first one is kept, and all are counted.
    pub(crate) fn note(&self, key: &NamespacedName, reason: impl FnOnce() -> Reason) {
        if !self.wanted() {
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

    /// Records the reason of a retry, unless a reason is already recorded for the key.
    pub(crate) fn note_retry(&self, key: &NamespacedName, reason: Reason) {
        if self.wanted() {
            let noted = PendingReason { reason, count: 1, later: true };
            self.noted.lock().entry(key.clone()).or_insert(noted);
        }
    }

    /// Removes the reason of a key whose reconcile was cancelled.
    pub(crate) fn forget(&self, key: &NamespacedName) {
        if self.wanted() {
            self.noted.lock().remove(key);
        }
    }

    /// Removes the reason of a retry that does not take place.
    pub(crate) fn forget_retry(&self, key: &NamespacedName) {
        let mut noted = self.noted.lock();
        if noted.get(key).is_some_and(|noted| noted.later) {
            noted.remove(key);
        }
    }

    /// Called when the reconcile of a key starts. Returns the first reason, the number of reasons, and a guard: the key is listed as in flight until
    /// the guard is dropped. Returns no guard if reasons are not recorded.
    pub(crate) fn begin(self: &Arc<Self>, key: &NamespacedName) -> (Reason, u32, Option<InFlightReason>) {
        if !self.wanted() {
            return (Reason::Unknown, 1, None);
        }
        let noted = self.noted.lock().remove(key);
        let (reason, count) = noted.map_or((Reason::Unknown, 1), |noted| (noted.reason, noted.count));
        let running = Running { reason: reason.clone(), count, since: Instant::now() };
        self.in_flight.lock().insert(key.clone(), running);
        (reason, count, Some(InFlightReason { of: self.clone(), key: key.clone() }))
    }

    /// Returns the reconciles in flight, the longest-running first. The first call starts the recording.
    pub(crate) fn in_flight(&self) -> Vec<ReconcileInFlight> {
        // Ordering: Relaxed, because the flag publishes no other memory.
        self.requested.store(true, Ordering::Relaxed);
        let shown = |(key, running): (&NamespacedName, &Running)| ReconcileInFlight {
            object: key.clone(),
            reason: running.reason.to_string(),
            reasons: running.count,
            running_for: running.since.elapsed(),
        };
        let mut shown: Vec<_> = self.in_flight.lock().iter().map(shown).collect();
        shown.sort_by(|a, b| b.running_for.cmp(&a.running_for).then_with(|| a.object.cmp(&b.object)));
        shown
    }

    fn wanted(&self) -> bool {
        // Ordering: Relaxed, see the store in `in_flight`.
        self.requested.load(Ordering::Relaxed) || tracing::span_enabled!(target: TARGET, Level::INFO)
    }
}

/// The guard of a reconcile in flight. Dropping the guard removes the reconcile from the list of reconciles in flight.
pub(crate) struct InFlightReason {
    of: Arc<Reasons>,
    key: NamespacedName,
}

impl Drop for InFlightReason {
    fn drop(&mut self) {
        self.of.in_flight.lock().remove(&self.key);
    }
}
