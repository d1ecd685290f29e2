//! PURE. Predicates that decide which changes cause a reconcile: the predicates of flyball-controller, and a conversion for those of kube-runtime.
//!
//! A predicate is any function from a [`Change`] to a `bool`, so `|change| first(change) && second(change)` is the conjunction of two predicates. Use
//! predicates with [`Controller::filter_changes`](crate::Controller::filter_changes). All predicates of this module accept deletions.

#[doc(no_inline)]
pub use flyball_controller::predicate::{changed, generation_unobserved};

use flyball_informer_cache::{Change, ChangeKind};
use kube::Resource;
use kube::runtime::Predicate;

/// Creates a predicate that returns whether an update may concern the desired state of an object, and not only its status: its `generation` changed,
/// its deletion was requested, or its finalizers changed. Every update of an object without a generation passes, for example of a `ConfigMap`.
///
/// kube-runtime's `predicates::generation` and controller-runtime's `GenerationChangedPredicate` drop every update of an object without a generation, and
/// the changes of the finalizers of all others.
///
/// # Examples
/// ```
/// # use flyball_kube::Controller;
/// # use k8s_openapi::api::apps::v1::Deployment;
/// use flyball_kube::predicate;
///
/// # fn example(deployments: Controller<Deployment>) {
/// let controller = deployments.filter_changes(predicate::spec());
/// # }
/// ```
pub fn spec<K, V: Resource>() -> impl Fn(&Change<K, V>) -> bool + Send + Sync + 'static {
    flyball_controller::predicate::spec(|object: &V| {
        let meta = object.meta();
        (meta.generation, (meta.deletion_timestamp.is_some(), meta.finalizers.clone()))
    })
}

/// Converts a predicate of kube-runtime to a filter of changes. The filter accepts an update if the predicate returns different hashes for the old
/// and the new state, or if it returns `None` for the new state.
///
/// The filter also accepts additions, deletions, requests to delete an object, and changes that replace an object by a different object of the same
/// name. The request to delete an object changes neither its labels nor, if it has none, its generation. So a filter of kube-runtime can drop this
/// request, and then the finalizers of the object are never removed.
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
pub fn from_kube<K, V: Resource>(
    predicate: impl Predicate<V> + Send + Sync + 'static,
) -> impl Fn(&Change<K, V>) -> bool + Send + Sync + 'static {
    move |change| match change.old() {
        Some(old) if change.kind() == ChangeKind::Updated => {
            let is_deleting = |object: &V| object.meta().deletion_timestamp.is_some();
            let now = predicate.hash_property(change.object());
            now.is_none()
                || now != predicate.hash_property(old)
                || is_deleting(change.object()) && !is_deleting(old)
        }
        _ => true,
    }
}
