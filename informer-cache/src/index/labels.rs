//! PURE. The index of labels. A label is a pair of a key and a value. An object may have any number of labels, but at most one for each key.

use std::any::TypeId;
use std::cmp::Ordering;
use std::fmt;
use std::sync::Arc;

use super::{AnyIndex, sealed};
use crate::Selector;
use crate::table::definition::{Definition, IndexId};

/// A handle of an index that finds objects by their labels. [`Lister::select`](crate::Lister::select) queries the index with a [`Selector`].
///
/// The index function calls its second argument with each label of an object, as `each(key, value)`. The function must follow the same rules as the
/// function of an [`Index`](crate::Index). If the function passes the same key twice, the later value counts.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{LabelIndex, Schema, Store, Version};
///
/// struct Pod { id: u64, labels: Vec<(&'static str, &'static str)> }
///
/// static LABELS: LabelIndex<Pod> = LabelIndex::new("labels", |pod, each| pod.labels.iter().for_each(|(key, value)| each(key, value)));
///
/// let mut store = Store::builder(Schema::new(|pod: &Pod| pod.id, |_| Version::ZERO)).index(&LABELS).build()?;
/// store.upsert(Pod { id: 1, labels: vec![("app", "web"), ("tier", "front")] });
/// store.upsert(Pod { id: 2, labels: vec![("app", "web")] });
/// store.upsert(Pod { id: 3, labels: vec![("app", "db")] });
///
/// let view = store.snapshot();
/// let found = |selector: &str| {
///     let mut ids: Vec<_> = view.lister().select(&LABELS, &selector.parse().unwrap()).unwrap().iter().map(|pod| pod.id).collect();
///     ids.sort();
///     ids
/// };
/// assert_eq!(found("app=web"), [1, 2]);
/// assert_eq!(found("app in (web, db), tier notin (front)"), [2, 3]);
/// assert_eq!(found("!tier"), [2, 3]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct LabelIndex<V> {
    name: &'static str,
    function: LabelsFn<V>,
}

/// A function that calls its second argument with each label of an object.
type LabelsFn<V> = fn(&V, &mut dyn FnMut(&str, &str));

impl<V> LabelIndex<V> {
    /// Creates an index of the labels that `labels` passes to its second argument.
    #[must_use]
    pub const fn new(name: &'static str, labels: LabelsFn<V>) -> Self {
        Self { name, function: labels }
    }

    /// Returns the name of the index, unique in a store.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn id(&self) -> IndexId {
        let (name, value_type) = (self.name, TypeId::of::<Label>());
        IndexId { name, value_type, single: false, unique: false, ordered: true, captured: 0 }
    }

    /// Returns whether a selector accepts the labels of an object. O((labels + requirements) × labels).
    pub(crate) fn select(&self, object: &V, selector: &Selector) -> bool {
        let labels = self.labels(object, std::iter::empty);
        selector.matches(|key| labels.iter().find(|label| *label.key == *key).map(|label| &*label.value))
    }

    /// Returns the labels of an object, at most one for each key. If a label equals one of the labels in `known`, it shares the strings of that
    /// label.
    pub(super) fn labels<'a, I>(&self, object: &V, known: impl Fn() -> I) -> Vec<Label>
    where
        I: Iterator<Item = &'a Label>,
    {
        let mut labels: Vec<Label> = Vec::new();
        (self.function)(object, &mut |key, value| {
            let shared = known().find(|known| known.is(key, value));
            let label = shared.cloned().unwrap_or_else(|| Label { key: key.into(), value: value.into() });
            match labels.iter_mut().find(|known| *known.key == *key) {
                Some(known) => *known = label,
                None => labels.push(label),
            }
        });
        labels
    }
}

/// One label. It hashes like the pair of its strings. Labels are ordered by key, then by value, so the labels with the same key are adjacent.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Label {
    pub(crate) key: Arc<str>,
    pub(crate) value: Arc<str>,
}

impl Label {
    pub(crate) fn is(&self, key: &str, value: &str) -> bool {
        *self.key == *key && *self.value == *value
    }

    /// Compares this label's key with `key`: returns `Less` or `Greater` if the label is ordered before or after all labels with that key, and
    /// `Equal` if it is one of them.
    pub(crate) fn compare_key(&self, key: &str) -> Ordering {
        (*self.key).cmp(key)
    }
}

impl<V: 'static> AnyIndex<V> for LabelIndex<V> {}

impl<V: 'static> sealed::Sealed<V> for LabelIndex<V> {
    fn define(&self) -> Definition<V> {
        Definition::labels(*self)
    }
}

// Not derived, because a derive would require `V: Copy`. Function pointers are `Copy` for all types.

impl<V> Copy for LabelIndex<V> {}

impl<V> Clone for LabelIndex<V> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> fmt::Debug for LabelIndex<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LabelIndex").field("name", &self.name).finish_non_exhaustive()
    }
}
