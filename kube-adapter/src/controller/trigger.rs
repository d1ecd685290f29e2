//! EDGE. What brings keys to a controller: changes of its own objects, and of others that concern them.
//!
//! Cancel safety: a change becomes keys where the informer publishes it; nothing is awaited in between.

use std::sync::Arc;

use flyball_informer_cache::{Change, Informer, NamespacedName};
use flyball_workqueue::{Fifo, Priority};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use super::mapped::Row;
use super::queue_order::{Adding, ByNamespace, Loop, Turning};
use super::reconcile_reasons::Reason;
use crate::{key_of_ref, unreadable};

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
    /// The kind of its objects; `None` if they are those that are reconciled.
    related: Option<Arc<str>>,
}

impl<V, F> Mapped<V, F>
where
    V: Send + Sync + 'static,
    F: Fn(&Change<NamespacedName, V>) -> Vec<NamespacedName> + Send + Sync + 'static,
{
    fn attach<O: Turning>(self, to: Loop<O>, adding: Adding) -> Loop<O> {
        let related = self.related;
        to.on_with(&self.informer, self.keys, move |queue, change, key| {
            adding.add(queue, key, change.is_initial(), || match &related {
                None => Reason::ObjectUpdated,
                Some(kind) => Reason::RelatedObjectUpdated { kind: kind.clone(), key: change.key().clone() },
            })
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
    K: Resource + Send + Sync + 'static,
{
    // What was due meanwhile was not done.
    let is_unreadable =
        |change: &Change<NamespacedName, K>| states(change).any(|state| unreadable(&**state).is_some());
    let keys = move |change: &Change<NamespacedName, K>| match change.kind().is_deletion() {
        false if is_unreadable(change) || worth(change) => vec![change.key().clone()],
        _ => Vec::new(),
    };
    Box::new(Mapped { informer: informer.clone(), keys, related: None })
}

/// Objects that say who owns them: the owners they have, and those they had.
pub(crate) fn owned<K, C>(
    informer: &Informer<NamespacedName, C>,
    owners: &Informer<NamespacedName, K>,
    kind: &str,
    dyntype: K::DynamicType,
) -> Box<dyn Trigger>
where
    K: Resource + Send + Sync + 'static,
    K::DynamicType: Clone + Send + Sync,
    C: Resource + Send + Sync + 'static,
{
    watched(informer, owners, kind, move |child: &Arc<C>| owners_of(&**child, &dyntype))
}

/// The owners of this kind that an object says it has.
pub(crate) fn owners_of<K>(child: &impl Resource, dyntype: &K::DynamicType) -> Vec<ObjectRef<K>>
where
    K: Resource,
    K::DynamicType: Clone,
{
    let namespace = child.meta().namespace.as_deref();
    let owner = |reference| ObjectRef::<K>::from_owner_ref(namespace, reference, dyntype.clone());
    child.owner_references().iter().filter_map(owner).collect()
}

/// Objects of which nothing is kept but the keys they concern: those of the state before a change, and those of the one after it.
pub(crate) fn concerned<K>(
    informer: &Informer<NamespacedName, Row>,
    main: &Informer<NamespacedName, K>,
    kind: &str,
) -> Box<dyn Trigger>
where
    K: Resource + Send + Sync + 'static,
{
    let main = main.clone();
    let keys = move |change: &Change<NamespacedName, Row>| {
        let now = &change.object().concerns;
        let before = change.old().map(|old| &old.concerns).filter(|before| *before != now);
        let concerned = before.into_iter().flatten().chain(now);
        concerned.map(|key| among(&main, key.clone())).collect()
    };
    Box::new(Mapped { informer: informer.clone(), keys, related: Some(kind.into()) })
}

/// Objects that concern others, as `concerned` knows: it is asked of the state before a change, and of the one after it.
pub(crate) fn watched<K, W, I>(
    informer: &Informer<NamespacedName, W>,
    main: &Informer<NamespacedName, K>,
    kind: &str,
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
        let mut keys: Vec<_> = references.filter_map(|reference| key_among(&main, &reference)).collect();
        // Mostly the two states say the same.
        keys.dedup();
        keys
    };
    Box::new(Mapped { informer: informer.clone(), keys, related: Some(kind.into()) })
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
    Some(among(main, key_of_ref(reference).ok()?))
}

/// The key of what a key of such a reference means.
fn among<K>(main: &Informer<NamespacedName, K>, key: NamespacedName) -> NamespacedName
where
    K: Send + Sync + 'static,
{
    if key.namespace().is_some() {
        let view = main.snapshot();
        if !view.contains_key(&key) && view.contains_key(key.name()) {
            return NamespacedName::cluster(key.name()).unwrap_or(key);
        }
    }
    key
}

/// The state before and the one after, as far as there are such and they differ.
fn states<W>(change: &Change<NamespacedName, W>) -> impl Iterator<Item = &Arc<W>> {
    let old = change.old().filter(|old| !Arc::ptr_eq(old, change.object()));
    old.into_iter().chain([change.object()])
}
