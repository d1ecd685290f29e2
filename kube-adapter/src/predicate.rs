//! PURE. Predicates that decide which changes cause a reconcile: those of flyball-controller and those of kube-runtime.
//!
//! A predicate is any function of a [`Change`]: `|change| all(change) && any(change)` is the conjunction of two predicates. Use predicates with
//! [`Controller::filter_changes`](crate::Controller::filter_changes). All predicates of this module accept deletions.

#[doc(no_inline)]
pub use flyball_controller::predicate::{changed, generation_unobserved};

use flyball_informer_cache::{Change, ChangeKind};
use kube::runtime::Predicate;

/// Converts a predicate of kube-runtime to a filter of changes. The filter accepts an update if the hashes that the predicate returns for
/// the two states differ, or if the predicate returns `None`.
///
/// The filter also accepts additions, deletions, and changes that replace an object with another object of the same name.
///
/// # Examples
/// ```
/// # use flyball_kube::Controller;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// use flyball_kube::predicate;
/// use kube::runtime::{Predicate, predicates};
///
/// # fn example(deployments: Controller<Deployment>) {
/// let worth = predicates::generation.combine(predicates::annotations);
/// let controller = deployments.filter_changes(predicate::from_kube(worth));
/// # }
/// ```
pub fn from_kube<K, V>(
    predicate: impl Predicate<V> + Send + Sync + 'static,
) -> impl Fn(&Change<K, V>) -> bool + Send + Sync + 'static {
    move |change| match change.old() {
        Some(old) if change.kind() == ChangeKind::Updated => {
            let now = predicate.hash_property(change.object());
            now.is_none() || now != predicate.hash_property(old)
        }
        _ => true,
    }
}
