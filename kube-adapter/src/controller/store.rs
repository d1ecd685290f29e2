//! EDGE. A controller's cache, under the names that kube-runtime's readers use.
//!
//! Cancel safety: dropping [`ControllerStore::wait_until_ready`] forgets the wait and nothing else.

use std::fmt;
use std::sync::Arc;

use flyball_informer_cache::{Informer, NamespacedName, Stopped};
use kube::core::{Selector, SelectorExt};
use kube::runtime::reflector::ObjectRef;
use kube::{Resource, ResourceExt};

use crate::keys::reference_key;

/// The objects a controller knows, as kube-runtime's `Store` gives them: same names, same meanings. A clone costs a
/// reference count.
///
/// [`informer`](Self::informer) has the rest: views of one instant that nobody waits for, indexes, labels, changes, how the
/// watch fares.
pub struct ControllerStore<K> {
    informer: Informer<NamespacedName, K>,
}

impl<K: Resource + Send + Sync + 'static> ControllerStore<K> {
    pub(crate) fn new(informer: Informer<NamespacedName, K>) -> Self {
        Self { informer }
    }

    /// The informer behind it.
    #[must_use]
    pub fn informer(&self) -> &Informer<NamespacedName, K> {
        &self.informer
    }

    /// Waits until the first list is there. Any number may wait; all are woken.
    ///
    /// # Errors
    /// When the informer ended before, as its controller was dropped, say.
    ///
    /// # Cancel safety
    /// Dropping the future forgets the wait and nothing else.
    pub async fn wait_until_ready(&self) -> Result<(), Stopped> {
        self.informer.synced().await
    }

    /// The object a reference means. Of a kind without namespaces it is found also under a reference that has one.
    #[must_use]
    pub fn get(&self, reference: &ObjectRef<K>) -> Option<Arc<K>> {
        let store = self.informer.store();
        let key = reference_key(reference).ok()?;
        store.get(&key).or_else(|| match key.namespace() {
            Some(_) => store.get(key.name()),
            None => None,
        })
    }

    /// All objects, as of now, in no promised order. O(n).
    #[must_use]
    pub fn state(&self) -> Vec<Arc<K>> {
        self.informer.snapshot().objects().cloned().collect()
    }

    /// Some object that `wanted` says yes to. O(n); an index of the informer is O(1).
    pub fn find(&self, mut wanted: impl FnMut(&K) -> bool) -> Option<Arc<K>> {
        self.informer.snapshot().objects().find(|object| wanted(object)).cloned()
    }

    /// The objects that `wanted` says yes to. O(n).
    pub fn state_filter(&self, mut wanted: impl FnMut(&K) -> bool) -> Vec<Arc<K>> {
        self.informer.snapshot().objects().filter(|object| wanted(object)).cloned().collect()
    }

    /// The objects whose labels this selector selects. O(n).
    #[must_use]
    pub fn state_filter_selector(&self, selector: &Selector) -> Vec<Arc<K>> {
        self.state_filter(|object| selector.matches(object.labels()))
    }

    /// How many objects there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.informer.store().len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.informer.store().is_empty()
    }
}

impl<K> Clone for ControllerStore<K> {
    fn clone(&self) -> Self {
        Self { informer: self.informer.clone() }
    }
}

impl<K> fmt::Debug for ControllerStore<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControllerStore").field("informer", &self.informer).finish()
    }
}
