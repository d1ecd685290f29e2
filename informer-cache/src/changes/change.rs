//! PURE. What happened to the object of one key.

use std::fmt;
use std::sync::Arc;

use crate::table::record::Name;

/// What happened to the object of one key since a subscriber received its previous change.
///
/// It is built once per write and shared: a clone costs one reference count, whatever the key and the object are. For a subscription several writes may have
/// been merged into it; then [`old`](Self::old) is the state that this subscriber received last, and [`new`](Self::new) is the newest.
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
/// assert_eq!(count, 0); // one was there, one went
/// # Ok::<(), flyball_informer_cache::DuplicateIndex>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ChangeKind {
    /// An addition that belongs to the beginning: to the snapshot that a subscription or an observer starts with, or, where that was taken earlier, to the
    /// store's first list.
    Initial,
    /// The key was unknown to this subscriber.
    Added,
    /// The same object, newer (or the same again: a resync).
    Updated,
    /// Another object under the same key, by the schema's identity: the former one is gone.
    Replaced,
    /// The object is gone, and its last state was delivered with the deletion.
    Deleted,
    /// The object is gone, and the deletion itself was not seen: a relist noticed it, say, so there may have been newer states than the last known one.
    #[doc(alias = "DeletedFinalStateUnknown")]
    Missed,
}

impl ChangeKind {
    /// Whether the key was unknown before: `Initial` or `Added`.
    #[must_use]
    pub const fn is_addition(self) -> bool {
        matches!(self, Self::Initial | Self::Added)
    }

    /// Whether there is no object any more: `Deleted` or `Missed`.
    #[must_use]
    pub const fn is_deletion(self) -> bool {
        matches!(self, Self::Deleted | Self::Missed)
    }
}

struct Parts<K, V> {
    name: Arc<Name<K>>,
    kind: ChangeKind,
    /// What the subscriber held before; of a replacement that is delivered, the last known state of the former object.
    before: Option<Arc<V>>,
    /// The newest state; of a deletion the last known one.
    after: Arc<V>,
}

impl<K, V> Change<K, V> {
    pub(crate) fn of(name: Arc<Name<K>>, kind: ChangeKind, before: Option<Arc<V>>, after: Arc<V>) -> Self {
        Self { parts: Arc::new(Parts { name, kind, before, after }) }
    }

    /// The key of the object.
    #[must_use]
    pub fn key(&self) -> &K {
        &self.parts.name.key
    }

    /// What happened.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        self.parts.kind
    }

    /// The state before: of an update the one this subscriber received last, of a replacement or a deletion the last known one.
    #[must_use]
    pub fn old(&self) -> Option<&Arc<V>> {
        match self.parts.kind {
            ChangeKind::Initial | ChangeKind::Added => None,
            ChangeKind::Updated | ChangeKind::Replaced => self.parts.before.as_ref(),
            ChangeKind::Deleted | ChangeKind::Missed => Some(&self.parts.after),
        }
    }

    /// The object now; `None` after a deletion.
    #[expect(clippy::new_ret_no_self, reason = "the counterpart of `old`, no constructor")]
    #[must_use]
    pub fn new(&self) -> Option<&Arc<V>> {
        (!self.parts.kind.is_deletion()).then_some(&self.parts.after)
    }

    /// The newest state there is: the object now, or the last known state of a deleted one.
    #[must_use]
    pub fn object(&self) -> &Arc<V> {
        &self.parts.after
    }

    /// Whether this is an object of the beginning: [`ChangeKind::Initial`].
    #[must_use]
    pub fn is_initial(&self) -> bool {
        self.parts.kind == ChangeKind::Initial
    }

    /// What a subscriber held before, whatever the kind.
    pub(crate) fn held(&self) -> Option<&Arc<V>> {
        self.parts.before.as_ref()
    }

    pub(crate) fn name(&self) -> &Arc<Name<K>> {
        &self.parts.name
    }

    /// Another change of the same key.
    pub(crate) fn with(&self, kind: ChangeKind, before: Option<Arc<V>>, after: Arc<V>) -> Self {
        Self::of(self.parts.name.clone(), kind, before, after)
    }

    /// Makes it another kind of change to another state, as one that nobody else shares: in place where nobody does. Gives back the state it led to.
    ///
    /// Drops the last reference to nothing but an allocation of its own, as long as the caller keeps that state.
    pub(crate) fn lead_to(&mut self, kind: ChangeKind, after: Arc<V>) -> Arc<V> {
        if let Some(parts) = Arc::get_mut(&mut self.parts) {
            parts.kind = kind;
            return std::mem::replace(&mut parts.after, after);
        }
        let led_to = self.parts.after.clone();
        *self = self.with(kind, self.parts.before.clone(), after);
        led_to
    }
}

/// For unit tests of what consumes changes; a store makes its own.
#[cfg(feature = "testing")]
impl<K, V> Change<K, V> {
    /// An addition, [initial](ChangeKind::Initial) or not.
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
        Self::of(Arc::new(Name { hash: 0, key }), kind, None, object)
    }

    /// The same object, newer.
    #[must_use]
    pub fn updated(key: K, old: Arc<V>, new: Arc<V>) -> Self {
        Self::of(Arc::new(Name { hash: 0, key }), ChangeKind::Updated, Some(old), new)
    }

    /// Another object in the place of one, whose last known state is given.
    #[must_use]
    pub fn replaced(key: K, last: Arc<V>, new: Arc<V>) -> Self {
        Self::of(Arc::new(Name { hash: 0, key }), ChangeKind::Replaced, Some(last), new)
    }

    /// An object that is gone, with its last known state; whether the deletion itself was not seen.
    #[must_use]
    pub fn deleted(key: K, last: Arc<V>, missed: bool) -> Self {
        let kind = if missed { ChangeKind::Missed } else { ChangeKind::Deleted };
        Self::of(Arc::new(Name { hash: 0, key }), kind, Some(last.clone()), last)
    }
}

// Not derived: the key and the objects are shared, so nothing is asked of their types.
impl<K, V> Clone for Change<K, V> {
    fn clone(&self) -> Self {
        Self { parts: self.parts.clone() }
    }
}

/// Without the objects, so that nothing is asked of them.
impl<K: fmt::Debug, V> fmt::Debug for Change<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Change").field("key", self.key()).field("kind", &self.kind()).finish_non_exhaustive()
    }
}
