//! PURE. Predicates: which changes cause a reconcile.
//!
//! A predicate is any function of a change: `|change| all(change) && any(change)` is the conjunction of two predicates. This module has the common
//! ones, for [`WatchOptions::filter`](crate::WatchOptions::filter). All of them accept deletions.
//!
//! Predicates receive every change, before changes coalesce. If an object goes from A to B and back to A, that is two changes, even if the workers
//! are slow.
//!
//! # Examples
//! ```
//! use flyball_controller::predicate;
//! use flyball_informer_cache::Change;
//! use std::sync::Arc;
//!
//! struct Pod { generation: u64, labels: Vec<&'static str> }
//! let pod = |generation, labels| Arc::new(Pod { generation, labels });
//!
//! let spec = predicate::changed(|pod: &Pod| pod.generation);
//! let labels = predicate::changed(|pod: &Pod| pod.labels.clone());
//! let either = |change: &Change<&'static str, Pod>| spec(change) || labels(change);
//!
//! assert!(either(&Change::added("a", pod(1, vec![]), false)));
//! assert!(!either(&Change::updated("a", pod(1, vec![]), pod(1, vec![])))); // only its status changed, for example
//! assert!(either(&Change::updated("a", pod(1, vec![]), pod(2, vec![]))));
//! assert!(either(&Change::updated("a", pod(2, vec![]), pod(2, vec!["new"]))));
//! ```

use flyball_informer_cache::{Change, ChangeKind};

/// Returns whether an update changed this part of the object, for example its generation, its labels or its version.
///
/// Returns `true` for additions, too: if the object changed while the watch was down, an addition may be the only event that reports it.
pub fn changed<K, V, P: PartialEq>(
    part: impl Fn(&V) -> P + Send + Sync + 'static,
) -> impl Fn(&Change<K, V>) -> bool + Send + Sync + 'static {
    move |change| match change.old() {
        Some(old) if change.kind() == ChangeKind::Updated => part(old) != part(change.object()),
        _ => true,
    }
}

/// Returns whether the spec of an object has yet to be acted on: its generation differs from the observed generation in its
/// status. `generations` returns both, in this order.
///
/// Returns `true` for an addition only if the generations differ: after a start, objects that are up to date cause no
/// reconcile. Use it only for reconciles whose single input is the object itself.
///
/// # Examples
/// ```
/// # use flyball_controller::predicate;
/// # use flyball_informer_cache::Change;
/// # use std::sync::Arc;
/// let stale = predicate::generation_unobserved(|(generation, observed): &(u64, Option<u64>)| (*generation, *observed));
/// assert!(stale(&Change::added("new", Arc::new((1, None)), true)));
/// assert!(!stale(&Change::added("done", Arc::new((1, Some(1))), true)));
/// assert!(stale(&Change::deleted("gone", Arc::new((1, Some(1))), false)));
/// ```
pub fn generation_unobserved<K, V, G: PartialEq>(
    generations: impl Fn(&V) -> (G, Option<G>) + Send + Sync + 'static,
) -> impl Fn(&Change<K, V>) -> bool + Send + Sync + 'static {
    move |change| {
        change.new().is_none_or(|object| {
            let (generation, observed) = generations(object);
            observed != Some(generation)
        })
    }
}
