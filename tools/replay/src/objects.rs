//! PURE. The recorded objects, reduced to the fields that the controllers need.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use flyball_informer_cache::{Schema, Version};
use flyball_sync::Nanos;

/// The metadata of every object.
#[derive(Clone, Debug)]
pub(crate) struct Meta {
    /// `namespace/name`; for cluster-scoped objects only the name.
    pub(crate) name: Arc<str>,
    pub(crate) namespace: Arc<str>,
    pub(crate) uid: Arc<str>,
    pub(crate) version: Version,
    /// The time at which the cluster reached this state; no time if this is not measured.
    pub(crate) happened: Moment,
}

/// A time of the clock in nanoseconds, or 0 for no time. A clone has no time.
#[derive(Debug, Default)]
pub(crate) struct Moment(AtomicU64);

// Ordering: Relaxed in all methods; the value is only a measurement, and guards no other memory.
impl Moment {
    pub(crate) fn set(&self, now: Nanos) {
        self.0.store(now.get().max(1), Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> Option<Nanos> {
        Some(self.0.load(Ordering::Relaxed)).filter(|&at| at > 0).map(Nanos::new)
    }

    /// Sets the time unless it is already set.
    fn set_first(&self, now: Nanos) {
        let _ = self.0.compare_exchange(0, now.get().max(1), Ordering::Relaxed, Ordering::Relaxed);
    }

    fn take(&self) -> Option<Nanos> {
        Some(self.0.swap(0, Ordering::Relaxed)).filter(|&at| at > 0).map(Nanos::new)
    }
}

impl Clone for Moment {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// An object with metadata.
pub(crate) trait Object: Send + Sync + 'static {
    fn meta(&self) -> &Meta;
}

/// The schema of the stores: the key, the version and the identity of an object.
///
/// The stores share the objects with the trace, so to pass an object to a store only increments a reference count.
pub(crate) const fn schema<V: Object>() -> Schema<Arc<str>, Arc<V>> {
    Schema::new(|object: &Arc<V>| object.meta().name.clone(), |object| object.meta().version)
        .with_identity(|one, other| one.meta().uid == other.meta().uid)
}

/// The labels of a pod, or the labels that a selector requires. They are sorted by name.
pub(crate) type Labels = Arc<[(Arc<str>, Arc<str>)]>;

#[derive(Clone, Debug)]
pub(crate) struct Pod {
    pub(crate) meta: Meta,
    pub(crate) labels: Labels,
    pub(crate) owner: Option<Owner>,
    /// Whether the condition `Ready` of the pod is `True`.
    pub(crate) ready: bool,
    /// Whether the pod has a deletion timestamp or, on a live cluster, has finished.
    pub(crate) leaving: bool,
    pub(crate) address: Option<Arc<str>>,
}

/// The owner that controls a pod.
#[derive(Clone, Debug)]
pub(crate) struct Owner {
    pub(crate) uid: Arc<str>,
    /// The key of the owner if it is a ReplicaSet; `None` if the owner is of a different kind.
    pub(crate) replicaset: Option<Key>,
}

#[derive(Clone, Debug)]
pub(crate) struct ReplicaSet {
    pub(crate) meta: Meta,
    pub(crate) key: Key,
    /// The numbers of replicas and of ready replicas in the status. The controllers do not read them.
    pub(crate) reported: (u32, u32),
}

#[derive(Clone, Debug)]
pub(crate) struct Service {
    pub(crate) meta: Meta,
    pub(crate) key: Key,
    /// Empty if the Service has no selector.
    pub(crate) selector: Labels,
}

impl Service {
    /// Returns true if the selector matches the pod. A Service without a selector matches no pod.
    pub(crate) fn selects(&self, pod: &Pod) -> bool {
        let asks = |(name, value): &(Arc<str>, Arc<str>)| {
            pod.labels.iter().any(|(own, is)| own == name && is == value)
        };
        !self.selector.is_empty()
            && self.meta.namespace == pod.meta.namespace
            && self.selector.iter().all(asks)
    }
}

/// An object of which only the metadata is stored: a node, a deployment or an endpoint slice.
#[derive(Clone, Debug)]
pub(crate) struct Plain {
    pub(crate) meta: Meta,
}

macro_rules! objects {
    ($($kind:ty),*) => {$(
        impl Object for $kind {
            fn meta(&self) -> &Meta {
                &self.meta
            }
        }
    )*};
}
objects!(Pod, ReplicaSet, Service, Plain);

/// The key type of the queues: `namespace/name` of a ReplicaSet or a Service.
///
/// All keys of one object share an allocation, so a clone only increments a reference count. A key also stores the
/// time at which it was queued, so that the measurement of its wait is cheap.
#[derive(Clone)]
pub(crate) struct Key(Arc<Entry>);

struct Entry {
    name: Arc<str>,
    /// The time at which the mapper added the key to the queue; no time if the key is not queued, or only for a retry.
    queued: Moment,
    /// The time of the first change since the start of the last reconcile.
    changed: Moment,
}

impl Key {
    pub(crate) fn new(name: Arc<str>) -> Self {
        Self(Arc::new(Entry { name, queued: Moment::default(), changed: Moment::default() }))
    }

    pub(crate) fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// Stores the time at which the key is added to the queue, unless the key is already queued.
    pub(crate) fn queued_at(&self, now: Nanos) {
        self.0.queued.set_first(now);
    }

    /// Stores the time at which `object` changed, unless the time of an earlier change is already stored.
    pub(crate) fn changed_by(&self, object: &impl Object) {
        if let Some(at) = object.meta().happened.get() {
            self.0.changed.set_first(at);
        }
    }

    /// Returns true if there are clones of this key.
    #[cfg(feature = "kube")]
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.0) > 1
    }

    /// Takes the time of the first change since the start of the last reconcile, and returns how long ago it was.
    /// `None` if this is not measured, or if there was no change.
    pub(crate) fn seen_at(&self, now: Nanos) -> Option<Duration> {
        self.0.changed.take().map(|changed| now.since(changed))
    }

    /// Takes the time at which the key was queued, and returns how long ago it was. Returns `None` for a retry,
    /// because only the mapper stores this time, and a retry is queued without the mapper.
    pub(crate) fn taken_at(&self, now: Nanos) -> Option<Duration> {
        self.0.queued.take().map(|queued| now.since(queued))
    }
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.name.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.name == other.0.name
    }
}

impl Eq for Key {}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.name.fmt(f)
    }
}
