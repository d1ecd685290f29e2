//! EDGE. The triggers of a controller: they map changes of its own objects, and of related objects, to keys.
//!
//! Cancel safety: the keys of a change are added in the call that publishes the change, without an await point in between.

use std::hash::Hash;
use std::sync::Arc;

use flyball_controller::WatchOptions;
use flyball_informer_cache::{Change, Informer, NamespacedName};
use flyball_sync::TokioTimer;
use flyball_workqueue::{
    AddError, AddOptions, Added, DelayMode, Fair, Fifo, KeyState, Order, Priority, Queue,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use super::deleted_keys::DeletedKeys;
use super::mapped::MappedObject;
use super::objects::Objects;
use super::reconcile_reasons::{Reason, Reasons};
use crate::config::Debounce;
use crate::config::boxed_policy::BoxedPolicy;
use crate::keys::reference_key;
use crate::unreadable_reason;

/// An informer and its mapper, with their types erased. The controller calls the method that is named after the order of its queue.
pub(crate) trait Trigger: Send {
    fn fifo(self: Box<Self>, to: Loop<Fifo>, options: TriggerOptions) -> Loop<Fifo>;
    fn priority(self: Box<Self>, to: Loop<Priority>, options: TriggerOptions) -> Loop<Priority>;
    fn fair(self: Box<Self>, to: Loop<ByNamespace>, options: TriggerOptions) -> Loop<ByNamespace>;
}

/// An informer, and the mapper from its changes to keys.
struct Mapped<V, F> {
    informer: Informer<NamespacedName, V>,
    keys: F,
    /// The kind of the informer's objects; `None` if they are the reconciled objects themselves.
    related: Option<Arc<str>>,
    /// Whether a change ends the strict backoff of its keys.
    ends_backoff: fn(&Change<NamespacedName, V>) -> bool,
}

impl<V, F> Mapped<V, F>
where
    V: Send + Sync + 'static,
    F: Fn(&Change<NamespacedName, V>) -> Vec<NamespacedName> + Send + Sync + 'static,
{
    fn attach<O: OrderedLoop>(self, to: Loop<O>, options: TriggerOptions) -> Loop<O> {
        let (related, ends_backoff) = (self.related, self.ends_backoff);
        let add = move |queue: &Keys<O>, change: &Change<NamespacedName, V>, key| {
            if related.is_none() && change.kind().is_deletion() {
                return options.cancel(queue, key);
            }
            if options.strict_backoff && ends_backoff(change) {
                end_backoff(queue, &key);
            }
            let origin = if change.is_initial() { Origin::InitialList } else { Origin::Change };
            options.add(queue, key, origin, || match &related {
                None => Reason::ObjectUpdated,
                Some(kind) => Reason::RelatedObjectUpdated { kind: kind.clone(), key: change.key().clone() },
            })
        };
        to.watches_with(&self.informer, self.keys, WatchOptions::new().add_with(add))
    }
}

impl<V, F> Trigger for Mapped<V, F>
where
    V: Send + Sync + 'static,
    F: Fn(&Change<NamespacedName, V>) -> Vec<NamespacedName> + Send + Sync + 'static,
{
    fn fifo(self: Box<Self>, to: Loop<Fifo>, options: TriggerOptions) -> Loop<Fifo> {
        self.attach(to, options)
    }

    fn priority(self: Box<Self>, to: Loop<Priority>, options: TriggerOptions) -> Loop<Priority> {
        self.attach(to, options)
    }

    fn fair(self: Box<Self>, to: Loop<ByNamespace>, options: TriggerOptions) -> Loop<ByNamespace> {
        self.attach(to, options)
    }
}

/// Creates the trigger of the reconciled objects: every change that passes the filter adds the key, except deletions, which cancel a delayed reconcile.
/// To act on a deletion, the user needs a finalizer, or must own objects that outlive the deleted object.
pub(crate) fn own<K>(
    informer: &Informer<NamespacedName, K>,
    filter: impl Fn(&Change<NamespacedName, K>) -> bool + Send + Sync + 'static,
) -> Box<dyn Trigger>
where
    K: Resource + Send + Sync + 'static,
{
    // An object is not reconciled while it is unreadable, so the change that makes it readable again is accepted whatever the filter returns.
    let is_unreadable = |change: &Change<NamespacedName, K>| {
        states(change).any(|state| unreadable_reason(&**state).is_some())
    };
    let keys = move |change: &Change<NamespacedName, K>| match change.kind().is_deletion() {
        false if !is_unreadable(change) && !filter(change) => Vec::new(),
        _ => vec![change.key().clone()],
    };
    Box::new(Mapped { informer: informer.clone(), keys, related: None, ends_backoff: changes_the_task })
}

/// Creates the trigger of owned objects: maps a change to the owners of the old and of the new state.
pub(crate) fn owned<K, C>(
    informer: &Informer<NamespacedName, C>,
    owners: &Objects<K>,
    kind: &str,
    dyntype: K::DynamicType,
) -> Box<dyn Trigger>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    C: Resource + Send + Sync + 'static,
{
    watched(informer, owners, kind, move |child: &Arc<C>| owners_of(&**child, &dyntype))
}

/// Returns the owners of kind `K` in the owner references of an object. The version in a reference is ignored: the client that wrote it may use a
/// different version of the kind.
pub(crate) fn owners_of<K>(child: &impl Resource, dyntype: &K::DynamicType) -> Vec<ObjectRef<K>>
where
    K: Resource,
    K::DynamicType: Clone,
{
    let (group, kind) = (K::group(dyntype), K::kind(dyntype));
    let of_this_kind = |owner: &&OwnerReference| {
        owner.kind == kind && owner.api_version.split_once('/').map_or("", |(group, _)| group) == group
    };
    let reference = |owner: &OwnerReference| {
        let reference = ObjectRef::<K>::new_with(&owner.name, dyntype.clone());
        match &child.meta().namespace {
            Some(namespace) => reference.within(namespace),
            None => reference,
        }
    };
    child.owner_references().iter().filter(of_this_kind).map(reference).collect()
}

/// Creates the trigger of related objects for which only keys are cached: maps a change to the keys of the old and of the new state.
pub(crate) fn related_keys<K>(
    informer: &Informer<NamespacedName, MappedObject>,
    main: &Objects<K>,
    kind: &str,
) -> Box<dyn Trigger>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    let main = main.clone();
    let keys = move |change: &Change<NamespacedName, MappedObject>| {
        if !MappedObject::passes(change) {
            return Vec::new();
        }
        let now = &change.object().keys;
        let before = change.old().map(|old| &old.keys).filter(|before| *before != now);
        let keys = before.into_iter().flatten().chain(now);
        keys.map(|key| main.resolve(key.clone())).collect()
    };
    Box::new(Mapped { informer: informer.clone(), keys, related: Some(kind.into()), ends_backoff: |_| false })
}

/// Creates the trigger of related objects: calls `mapper` for the state before a change and for the state after it.
pub(crate) fn watched<K, W, I>(
    informer: &Informer<NamespacedName, W>,
    main: &Objects<K>,
    kind: &str,
    mapper: impl Fn(&Arc<W>) -> I + Send + Sync + 'static,
) -> Box<dyn Trigger>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    W: Send + Sync + 'static,
    I: IntoIterator<Item = ObjectRef<K>>,
{
    watched_changes(informer, main, kind, move |change| states(change).flat_map(&mapper).collect::<Vec<_>>())
}

/// Creates the trigger of related objects: calls `mapper` for each change.
pub(crate) fn watched_changes<K, W, I>(
    informer: &Informer<NamespacedName, W>,
    main: &Objects<K>,
    kind: &str,
    mapper: impl Fn(&Change<NamespacedName, W>) -> I + Send + Sync + 'static,
) -> Box<dyn Trigger>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
    W: Send + Sync + 'static,
    I: IntoIterator<Item = ObjectRef<K>>,
{
    let main = main.clone();
    let keys = move |change: &Change<NamespacedName, W>| {
        let references = mapper(change).into_iter();
        let keys = references.filter_map(|reference| Some(main.resolve(reference_key(&reference).ok()?)));
        let mut keys: Vec<_> = keys.collect();
        // The old and the new state usually map to the same keys.
        keys.dedup();
        keys
    };
    Box::new(Mapped { informer: informer.clone(), keys, related: Some(kind.into()), ends_backoff: |_| false })
}

/// Returns whether a change concerns more than the status of an object: its generation is new, its deletion is requested, or it is a different object
/// of the same name.
fn changes_the_task<K: Resource>(change: &Change<NamespacedName, K>) -> bool {
    change.old().is_some_and(|old| {
        let (old, new) = (old.meta(), change.object().meta());
        let deletion_requested = old.deletion_timestamp.is_none() && new.deletion_timestamp.is_some();
        old.uid != new.uid || old.generation != new.generation || deletion_requested
    })
}

/// Ends the backoff of a key that is about to be added. If the key becomes Ready or is leased in the meantime, the add that follows makes it Ready or
/// dirty again, so no reconcile is lost.
fn end_backoff<O: OrderedLoop>(queue: &Keys<O>, key: &NamespacedName) {
    if matches!(queue.state(key), KeyState::Waiting(_)) {
        queue.cancel(key);
    }
}

/// Returns the previous state of the object, if there is one and it is a different allocation, followed by the object of the change.
fn states<W>(change: &Change<NamespacedName, W>) -> impl Iterator<Item = &Arc<W>> {
    let old = change.old().filter(|old| !Arc::ptr_eq(old, change.object()));
    old.into_iter().chain([change.object()])
}

/// The queue of every controller of this crate, with one of three orders.
pub(crate) type Keys<O> = Queue<NamespacedName, O, BoxedPolicy, TokioTimer>;
/// The controller loop over this queue. Its type parameters do not depend on the user's types, so the loop is compiled in this crate, once for each
/// order.
pub(crate) type Loop<O> = flyball_controller::Controller<NamespacedName, O, BoxedPolicy, TokioTimer>;
/// The fair order, with namespaces as groups; objects without a namespace are one group.
pub(crate) type ByNamespace = Fair<NamespacedName, Arc<str>>;

/// A queue order for which the controller loop can run; one of three.
pub(crate) trait OrderedLoop: Order<NamespacedName> + Sized {
    /// Attaches a trigger to the controller loop.
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, options: TriggerOptions) -> Loop<Self>;
}

impl OrderedLoop for Fifo {
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, options: TriggerOptions) -> Loop<Self> {
        trigger.fifo(to, options)
    }
}

impl OrderedLoop for Priority {
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, options: TriggerOptions) -> Loop<Self> {
        trigger.priority(to, options)
    }
}

impl OrderedLoop for ByNamespace {
    fn attach(trigger: Box<dyn Trigger>, to: Loop<Self>, options: TriggerOptions) -> Loop<Self> {
        trigger.fair(to, options)
    }
}

/// Why a key is added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    InitialList,
    /// A request for all objects.
    Bulk,
    /// A change, or a request for single objects.
    Change,
}

/// How a trigger adds keys.
#[derive(Clone)]
pub(crate) struct TriggerOptions {
    pub(crate) debounce: Option<Debounce>,
    /// The priority of objects from the initial list.
    pub(crate) initial_priority: i8,
    /// Whether the queue's backoff is strict.
    pub(crate) strict_backoff: bool,
    pub(crate) reasons: Arc<Reasons>,
    pub(crate) deleted: Arc<DeletedKeys>,
}

impl TriggerOptions {
    /// Cancels the delayed reconcile of a deleted object: its retry, or the requeue that its last reconcile requested. As in kube-runtime, a reconcile
    /// that is queued already takes place, and reports that the object was not found.
    fn cancel<O: OrderedLoop>(
        &self,
        queue: &Keys<O>,
        key: NamespacedName,
    ) -> Result<Added, AddError<NamespacedName>> {
        match queue.state(&key) {
            KeyState::Waiting(_) => {
                queue.cancel(&key);
                queue.forget(&key);
                self.reasons.forget(&key);
                Ok(Added::Merged)
            }
            KeyState::Leased | KeyState::LeasedWaiting(_) => {
                self.deleted.insert(key.clone());
                queue.add(key)
            }
            _ => Ok(Added::Merged),
        }
    }

    /// Adds a key. Keys of the initial list are not debounced, because each object is listed once. They have a low priority, as have the keys of a
    /// request for all objects: so many keys at once must not delay the changes of other objects.
    pub(crate) fn add<O: OrderedLoop>(
        &self,
        queue: &Keys<O>,
        key: NamespacedName,
        origin: Origin,
        reason: impl FnOnce() -> Reason,
    ) -> Result<Added, AddError<NamespacedName>> {
        self.deleted.remove(&key);
        // The reason is recorded before the key is added, because the key may be dequeued immediately.
        self.reasons.note(&key, reason);
        let mut options = AddOptions::default();
        if origin != Origin::Change {
            options.priority = self.initial_priority;
        }
        if let Some(Debounce { quiet, max_wait }) = self.debounce
            && origin != Origin::InitialList
        {
            (options.delay, options.mode) = (quiet, DelayMode::Debounce { max_wait });
        }
        queue.add_with(key, options)
    }
}
