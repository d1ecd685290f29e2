//! PURE. A change to the object under one key.

use std::fmt;
use std::sync::Arc;

#[cfg(feature = "testing")]
use flyball_sync::panics::DropContained;

use crate::table::record::{Name, Object};

/// A change to the object under one key, relative to the previous change that the same subscriber received for the key.
///
/// A write builds each change once, and all subscribers and observers share it: cloning a change increments one reference count, and clones neither
/// the key nor the object. A subscription may coalesce several writes into one change; then [`old`](Self::old) is the state that this subscriber
/// received last, and [`new`](Self::new) is the newest state.
///
/// | [`kind`](Self::kind) | [`old`](Self::old) | [`new`](Self::new) |
/// |---|---|---|
/// | `Initial`, `Added` | – | the object |
/// | `Updated` | the state received before | the object |
/// | `Replaced` | the last known state of the former object | the object |
/// | `Deleted`, `Missed` | the last known state | – |
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Change, Schema, Store, Version};
///
/// type Pod = (&'static str, u64);
///
/// fn line(change: &Change<&'static str, Pod>) -> String {
///     match (change.old(), change.new()) {
///         (None, Some(new)) => format!("{} created at {}", change.key(), new.1),
///         (Some(old), Some(new)) => format!("{} went from {} to {}", change.key(), old.1, new.1),
///         (_, None) => format!("{} is gone, last seen at {}", change.key(), change.object().1),
///     }
/// }
///
/// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.0, |pod| Version::new(pod.1))).build()?;
/// store.replace([("a", 1), ("b", 1)], Version::new(1));
/// let changes = store.replace([("b", 2), ("c", 2)], Version::new(2));
/// let lines: Vec<_> = changes.iter().map(line).collect();
/// assert_eq!(lines, ["a is gone, last seen at 1", "b went from 1 to 2", "c created at 2"]);
/// assert!(store.snapshot().initial_changes().all(|change| change.is_initial()));
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
pub struct Change<K, V> {
    parts: Arc<Parts<K, V>>,
}

/// The kinds of [`Change`].
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Schema, Store, Version};
///
/// let mut store = Store::builder(Schema::new(|word: &&str| word.len(), |_| Version::ZERO)).build()?;
/// store.replace(["one", "three"], Version::new(1));
/// let mut count = 0;
/// for change in store.subscribe().try_next().iter().chain(&store.replace(["one"], Version::new(2))) {
///     count += i32::from(change.kind().is_addition()) - i32::from(change.kind().is_deletion());
/// }
/// assert_eq!(count, 0); // one addition, one deletion
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// The object was added and belongs to the initial state. The initial state is the snapshot with which the subscription or observer starts. If
    /// that snapshot was taken before the store's first list, the objects of the first list also belong to the initial state.
    Initial,
    /// The object was added: before this change, the subscriber had no object under the key.
    Added,
    /// The object has a newer state. A resync, which delivers the current state again, also uses this kind.
    Updated,
    /// A different object took the place of the former object under the same key. The schema's [identity](crate::Schema::with_identity) function
    /// decides whether two objects are the same.
    Replaced,
    /// The object was deleted, and the source delivered the deletion with the last state.
    Deleted,
    /// The object was deleted, but the source did not deliver the deletion; for example, a relist no longer contained the object. The object may have
    /// changed between its last known state and its deletion.
    #[doc(alias = "DeletedFinalStateUnknown")]
    Missed,
}

impl ChangeKind {
    /// Returns whether the object was added: `Initial` or `Added`.
    #[must_use]
    pub const fn is_addition(self) -> bool {
        matches!(self, Self::Initial | Self::Added)
    }

    /// Returns whether the object no longer exists: `Deleted` or `Missed`.
    #[must_use]
    pub const fn is_deletion(self) -> bool {
        matches!(self, Self::Deleted | Self::Missed)
    }
}

struct Parts<K, V> {
    name: Arc<Name<K>>,
    kind: ChangeKind,
    /// The state that the subscriber received before this change. In a replacement that is delivered, this is the last known state of the former
    /// object.
    before: Option<Object<V>>,
    /// The newest state; for a deletion, the last known state.
    after: Object<V>,
}

impl<K, V> Change<K, V> {
    pub(crate) fn of(
        name: Arc<Name<K>>,
        kind: ChangeKind,
        before: Option<Object<V>>,
        after: Object<V>,
    ) -> Self {
        Self { parts: Arc::new(Parts { name, kind, before, after }) }
    }

    /// Returns the key of the object.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.parts.name.key
    }

    /// Returns the kind of the change.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        self.parts.kind
    }

    /// Returns the state before the change, or `None` for an addition. For an update, this is the state that the subscriber received last. For a
    /// replacement, it is the last known state of the object that no longer exists; for a deletion, it is the same as [`object`](Self::object).
    #[must_use]
    pub fn old(&self) -> Option<&Arc<V>> {
        match self.parts.kind {
            ChangeKind::Initial | ChangeKind::Added => None,
            ChangeKind::Updated | ChangeKind::Replaced => self.parts.before.as_deref(),
            ChangeKind::Deleted | ChangeKind::Missed => Some(&*self.parts.after),
        }
    }

    /// Returns the object after the change, or `None` for a deletion.
    #[expect(clippy::new_ret_no_self, reason = "the counterpart of `old`, no constructor")]
    #[must_use]
    pub fn new(&self) -> Option<&Arc<V>> {
        (!self.parts.kind.is_deletion()).then_some(&*self.parts.after)
    }

    /// Returns the newest known state of the object. For a deletion with the kind [`Deleted`](ChangeKind::Deleted), this is the object that the source
    /// delivered with the deletion, even if it differs from the stored state; for [`Missed`](ChangeKind::Missed), it is the stored state.
    #[must_use]
    pub fn object(&self) -> &Arc<V> {
        &self.parts.after
    }

    /// Returns whether the object belongs to the initial state: [`ChangeKind::Initial`].
    #[must_use]
    pub fn is_initial(&self) -> bool {
        self.parts.kind == ChangeKind::Initial
    }

    pub(crate) fn after(&self) -> &Object<V> {
        &self.parts.after
    }

    /// Returns the state that the subscriber received before this change, whatever the kind of the change.
    pub(crate) fn held(&self) -> Option<&Object<V>> {
        self.parts.before.as_ref()
    }

    pub(crate) fn name(&self) -> &Arc<Name<K>> {
        &self.parts.name
    }

    /// Creates a change of the same key, with this kind and these states.
    pub(crate) fn with(&self, kind: ChangeKind, before: Option<Object<V>>, after: Object<V>) -> Self {
        Self::of(self.parts.name.clone(), kind, before, after)
    }

    /// Sets the kind and the new state of the change. If other code shares the change, `self` becomes a copy first. Returns the former new state.
    ///
    /// Drops no object, as long as the caller keeps the returned state alive.
    pub(crate) fn set_state(&mut self, kind: ChangeKind, after: Object<V>) -> Object<V> {
        if let Some(parts) = Arc::get_mut(&mut self.parts) {
            parts.kind = kind;
            return std::mem::replace(&mut parts.after, after);
        }
        let previous = self.parts.after.clone();
        *self = self.with(kind, self.parts.before.clone(), after);
        previous
    }
}

/// Constructors of changes, for unit tests of code that receives them. In production, only a store creates changes.
#[cfg(feature = "testing")]
impl<K, V> Change<K, V> {
    /// Creates an addition. Its kind is [`ChangeKind::Initial`] if `initial` is true, otherwise [`ChangeKind::Added`].
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Change, ChangeKind};
    /// use std::sync::Arc;
    ///
    /// type Pod = (u32, &'static str);
    ///
    /// /// The function under test: the nodes that a change concerns.
    /// fn nodes(change: &Change<u32, Pod>) -> Vec<&'static str> {
    ///     change.old().into_iter().chain(change.new()).map(|pod| pod.1).collect()
    /// }
    ///
    /// let pod = |node| Arc::new((7, node));
    /// assert_eq!(nodes(&Change::added(7, pod("n1"), true)), ["n1"]);
    /// assert_eq!(nodes(&Change::updated(7, pod("n1"), pod("n2"))), ["n1", "n2"]);
    /// assert_eq!(nodes(&Change::replaced(7, pod("n1"), pod("n3"))), ["n1", "n3"]);
    /// assert_eq!(nodes(&Change::deleted(7, pod("n3"), false)), ["n3"]);
    /// assert_eq!(Change::deleted(7, pod("n3"), true).kind(), ChangeKind::Missed);
    /// ```
    #[must_use]
    pub fn added(key: K, object: Arc<V>, initial: bool) -> Self {
        let kind = if initial { ChangeKind::Initial } else { ChangeKind::Added };
        Self::of(name(key), kind, None, DropContained::new(object))
    }

    /// Creates an update of an object to a newer state.
    #[must_use]
    pub fn updated(key: K, old: Arc<V>, new: Arc<V>) -> Self {
        Self::of(name(key), ChangeKind::Updated, Some(DropContained::new(old)), DropContained::new(new))
    }

    /// Creates a replacement: the object `new` takes the place of an object whose last known state is `last`.
    #[must_use]
    pub fn replaced(key: K, last: Arc<V>, new: Arc<V>) -> Self {
        Self::of(name(key), ChangeKind::Replaced, Some(DropContained::new(last)), DropContained::new(new))
    }

    /// Creates a deletion of an object whose last known state is `last`. If `missed` is true, the kind is [`ChangeKind::Missed`]: the source did not
    /// deliver the deletion.
    #[must_use]
    pub fn deleted(key: K, last: Arc<V>, missed: bool) -> Self {
        let kind = if missed { ChangeKind::Missed } else { ChangeKind::Deleted };
        let last = DropContained::new(last);
        Self::of(name(key), kind, Some(last.clone()), last)
    }
}

#[cfg(feature = "testing")]
fn name<K>(key: K) -> Arc<Name<K>> {
    Arc::new(Name { hash: 0, key: DropContained::new(key) })
}

// Not derived, because a derive would require `K: Clone` and `V: Clone`.
impl<K, V> Clone for Change<K, V> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

/// Prints only the key and the kind, so that `V` need not implement `Debug`.
impl<K: fmt::Debug, V> fmt::Debug for Change<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("key", self.key()).field("kind", &self.kind()).finish_non_exhaustive()
    }
}
