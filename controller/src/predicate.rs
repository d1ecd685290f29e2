//! PURE. Predicates, which select the changes that cause a reconcile.
//!
//! A predicate is any function from a change to a `bool`, so `|change| first(change) && second(change)` is the conjunction of two predicates. This
//! module has common predicates for [`WatchOptions::filter`](crate::WatchOptions::filter). All of them return `true` for deletions.
//!
//! Predicates receive every change, before changes coalesce. If an object changes from A to B and back to A, a predicate receives two changes,
//! even if the workers are slow.
//!
//! # Examples
//! ```
//! use flyball_controller::predicate;
//! use flyball_informer_cache::Change;
//! use std::sync::Arc;
//!
//! struct Pod { generation: Option<u64>, deleting: bool, finalizers: Vec<String>, labels: Vec<&'static str> }
//! let pod = |generation, labels| Arc::new(Pod { generation: Some(generation), deleting: false, finalizers: vec![], labels });
//!
//! let spec = predicate::spec(|pod: &Pod| (pod.generation, (pod.deleting, pod.finalizers.clone())));
//! let labels = predicate::changed(|pod: &Pod| pod.labels.clone());
//! let either = |change: &Change<&'static str, Pod>| spec(change) || labels(change);
//!
//! assert!(either(&Change::added("a", pod(1, vec![]), false)));
//! assert!(!either(&Change::updated("a", pod(1, vec![]), pod(1, vec![])))); // only its status changed, for example
//! assert!(either(&Change::updated("a", pod(1, vec![]), pod(2, vec![]))));
//! assert!(either(&Change::updated("a", pod(2, vec![]), pod(2, vec!["new"]))));
//! ```

use flyball_informer_cache::{Change, ChangeKind};

/// Creates a predicate that returns whether an update may concern the desired state of an object, and not only its status: whether its generation
/// changed, or its deletion was requested, or its finalizers changed. `parts` returns the generation, and everything else that must not be missed, such
/// as whether the object is being deleted, and its finalizers.
///
/// The generation is `None` if objects of this type have none. Such an update always passes, because its effect is not known. A
/// [`changed`] of the generation alone would drop all updates of such an object, also the request to delete it, and for all other objects the changes of
/// the finalizers.
///
/// # Examples
/// ```
/// # use flyball_controller::predicate;
/// # use flyball_informer_cache::Change;
/// # use std::sync::Arc;
/// struct Pod { generation: Option<u64>, deleting: bool, finalizers: &'static str }
/// let spec = predicate::spec(|pod: &Pod| (pod.generation, (pod.deleting, pod.finalizers)));
///
/// let pod = |generation, deleting, finalizers| Arc::new(Pod { generation, deleting, finalizers });
/// let updates = [
///     (pod(Some(1), false, "a"), pod(Some(2), false, "a")),
///     (pod(Some(1), false, "a"), pod(Some(1), true, "a")),
///     (pod(Some(1), true, "a"), pod(Some(1), true, "")),
///     (pod(None, false, ""), pod(None, false, "")),
/// ];
/// assert!(updates.into_iter().all(|(old, new)| spec(&Change::updated("a", old, new))));
/// assert!(!spec(&Change::updated("a", pod(Some(1), false, "a"), pod(Some(1), false, "a"))));
/// ```
pub fn spec<K, V, G: PartialEq, P: PartialEq>(
    parts: impl Fn(&V) -> (Option<G>, P) + Send + Sync + 'static,
) -> impl Fn(&Change<K, V>) -> bool + Send + Sync + 'static {
    move |change| match change.old() {
        Some(old) if change.kind() == ChangeKind::Updated => {
            let (old, new) = (parts(old), parts(change.object()));
            new.0.is_none() || old != new
        }
        _ => true,
    }
}

/// Creates a predicate that returns whether an update changed this part of the object, for example its labels or its version. For the generation, use
/// [`spec`], which also passes the deletion and the finalizers.
///
/// The predicate also returns `true` for additions: if the object changed while the watch was down, an addition may be the only event that reports
/// the change.
pub fn changed<K, V, P: PartialEq>(
    part: impl Fn(&V) -> P + Send + Sync + 'static,
) -> impl Fn(&Change<K, V>) -> bool + Send + Sync + 'static {
    move |change| match change.old() {
        Some(old) if change.kind() == ChangeKind::Updated => part(old) != part(change.object()),
        _ => true,
    }
}

/// Creates a predicate that returns whether the current spec of an object has not been reconciled yet: the generation of
/// the object differs from the observed generation in its status. `generations` returns both, in this order.
///
/// Even for an addition, the predicate returns `true` only if the generations differ, so objects that are up to date cause no reconcile at the start
/// of a controller. Use the predicate only for reconciles that depend on no other input than the object itself.
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
