//! EDGE. What brings keys to a controller: changes of its own objects, and of others that concern them.
//!
//! Cancel safety: a change becomes keys where the informer publishes it; nothing is awaited in between.

use std::sync::Arc;

use flyball_informer_cache::{Change, ChangeKind, Informer, NamespacedName};
use flyball_workqueue::{Fifo, Priority};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use super::turning::{Adding, ByNamespace, Loop, Turning};
use crate::key_of_ref;

/// One informer and what its changes mean, its types out of sight: of the three, the one that fits the queue is called.
pub(crate) trait Trigger: Send {
    fn fifo(self: Box<Self>, to: Loop<Fifo>, adding: Adding) -> Loop<Fifo>;
    fn priority(self: Box<Self>, to: Loop<Priority>, adding: Adding) -> Loop<Priority>;
    fn fair(self: Box<Self>, to: Loop<ByNamespace>, adding: Adding) -> Loop<ByNamespace>;
}

/// An informer, and which keys a change of its objects brings.
struct Mapped<V, F> {
    informer: Informer<NamespacedName, V>,
    keys: F,
}

impl<V, F> Mapped<V, F>
where
    V: Send + Sync + 'static,
    F: Fn(&Change<NamespacedName, V>) -> Vec<NamespacedName> + Send + Sync + 'static,
{
    fn attach<O: Turning>(self, to: Loop<O>, adding: Adding) -> Loop<O> {
        to.on_with(&self.informer, self.keys, move |queue, change, key| {
            adding.add(queue, key, change.is_initial())
        })
    }
}

impl<V, F> Trigger for Mapped<V, F>
where
    V: Send + Sync + 'static,
    F: Fn(&Change<NamespacedName, V>) -> Vec<NamespacedName> + Send + Sync + 'static,
{
    fn fifo(self: Box<Self>, to: Loop<Fifo>, adding: Adding) -> Loop<Fifo> {
        self.attach(to, adding)
    }

    fn priority(self: Box<Self>, to: Loop<Priority>, adding: Adding) -> Loop<Priority> {
        self.attach(to, adding)
    }

    fn fair(self: Box<Self>, to: Loop<ByNamespace>, adding: Adding) -> Loop<ByNamespace> {
        self.attach(to, adding)
    }
}

/// The objects that are reconciled: every change that is worth it, but no deletion. Who wants to do something then has a finalizer, or owns what
/// is left.
pub(crate) fn own<K>(
    informer: &Informer<NamespacedName, K>,
    worth: impl Fn(&Change<NamespacedName, K>) -> bool + Send + Sync + 'static,
) -> Box<dyn Trigger>
where
    K: Send + Sync + 'static,
{
    let keys = move |change: &Change<NamespacedName, K>| match change.kind {
        ChangeKind::Deleted { .. } => Vec::new(),
        _ if worth(change) => vec![change.key().clone()],
        _ => Vec::new(),
    };
    Box::new(Mapped { informer: informer.clone(), keys })
}

/// Objects that say who owns them: the owners they have, and those they had.
pub(crate) fn owned<K, C>(
    informer: &Informer<NamespacedName, C>,
    owners: &Informer<NamespacedName, K>,
    dyntype: K::DynamicType,
) -> Box<dyn Trigger>
where
    K: Resource + Send + Sync + 'static,
    K::DynamicType: Clone + Send + Sync,
    C: Resource + Send + Sync + 'static,
{
    watched(informer, owners, move |child: &Arc<C>| {
        let namespace = child.meta().namespace.as_deref();
        let owner = |reference| ObjectRef::<K>::from_owner_ref(namespace, reference, dyntype.clone());
        child.owner_references().iter().filter_map(owner).collect::<Vec<_>>()
    })
}

/// Objects that concern others, as `concerned` knows: it is asked of the state before a change, and of the one after it.
pub(crate) fn watched<K, W, I>(
    informer: &Informer<NamespacedName, W>,
    main: &Informer<NamespacedName, K>,
    concerned: impl Fn(&Arc<W>) -> I + Send + Sync + 'static,
) -> Box<dyn Trigger>
where
    K: Resource + Send + Sync + 'static,
    W: Send + Sync + 'static,
    I: IntoIterator<Item = ObjectRef<K>>,
{
    let main = main.clone();
    let keys = move |change: &Change<NamespacedName, W>| {
        let references = states(change).flat_map(&concerned);
        references.filter_map(|reference| key_among(&main, &reference)).collect()
    };
    Box::new(Mapped { informer: informer.clone(), keys })
}

/// The key of what a reference means. The owner of an object in a namespace need not be in one itself: kube's references to such
/// an owner name the namespace all the same, and the same object must not have two keys.
pub(crate) fn key_among<K>(
    main: &Informer<NamespacedName, K>,
    reference: &ObjectRef<K>,
) -> Option<NamespacedName>
where
    K: Resource + Send + Sync + 'static,
{
    let key = key_of_ref(reference).ok()?;
    if key.namespace().is_some() {
        let view = main.snapshot();
        if !view.contains_key(&key) && view.contains_key(key.name()) {
            return NamespacedName::cluster(key.name()).ok();
        }
    }
    Some(key)
}

/// The state before and the one after, as far as there are such and they differ.
fn states<W>(change: &Change<NamespacedName, W>) -> impl Iterator<Item = &Arc<W>> {
    let old = match &change.kind {
        ChangeKind::Updated { old, new } if !Arc::ptr_eq(old, new) => Some(old),
        _ => None,
    };
    old.into_iter().chain([change.object()])
}
