//! EDGE. Lists the objects of one namespace, or of all namespaces, that a label selector accepts.

use std::borrow::Borrow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use crate::table::record::cloned;
use crate::{Index, LabelIndex, MissingIndex, Selector, Store};

/// Lists objects by scope and labels, using two indexes; made by [`Store::lister`].
///
/// Any index can be the scope, for example an index by namespace, tenant or shard. Each list is a consistent view. To iterate without collecting the
/// objects into a `Vec`, or to run several queries on the same state, take a [snapshot](Store::snapshot) and [query](crate::Snapshot::query) it.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{Index, LabelIndex, NamespacedName, Schema, Selector, Store, Version};
///
/// struct Pod { name: NamespacedName, app: &'static str }
///
/// static BY_NAMESPACE: Index<Pod, String> = Index::new("namespace", |pod| pod.name.namespace().unwrap_or("").to_owned());
/// static LABELS: LabelIndex<Pod> = LabelIndex::new("labels", |pod, each| each("app", pod.app));
///
/// let schema = Schema::new(|pod: &Pod| pod.name.clone(), |_| Version::ZERO);
/// let mut store = Store::builder(schema).index(&BY_NAMESPACE).index(&LABELS).build()?;
/// store.upsert(Pod { name: "default/a".parse()?, app: "web" });
/// store.upsert(Pod { name: "default/b".parse()?, app: "db" });
/// store.upsert(Pod { name: "other/c".parse()?, app: "web" });
///
/// let pods = store.lister(&BY_NAMESPACE, &LABELS);
/// let web = Selector::everything().equals("app", "web");
/// assert_eq!(pods.list(&web)?.len(), 2);
/// assert_eq!(pods.list_in("default", &web)?[0].name.name(), "a");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Lister<K, V, S> {
    store: Store<K, V>,
    scope: Index<V, S>,
    labels: LabelIndex<V>,
}

impl<K, V, S> Lister<K, V, S>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: 'static,
{
    pub(crate) fn new(store: Store<K, V>, scope: Index<V, S>, labels: LabelIndex<V>) -> Self {
        Self { store, scope, labels }
    }

    /// Returns all objects that the selector accepts, from every scope, in unspecified order.
    ///
    /// # Errors
    /// Returns an error if the store has no such label index.
    pub fn list(&self, selector: &Selector) -> Result<Vec<Arc<V>>, MissingIndex> {
        let view = self.store.snapshot();
        let objects = cloned(view.query().select(&self.labels, selector)?.iter());
        // The snapshot is dropped explicitly: it may hold the last references to old objects, and a panic in their destructors while the function
        // returns would leak the result.
        drop(view);
        Ok(objects)
    }

    /// Returns all objects that the selector accepts from one scope, in unspecified order.
    ///
    /// # Errors
    /// Returns an error if the store lacks one of the two indexes.
    pub fn list_in<Q>(&self, scope: &Q, selector: &Selector) -> Result<Vec<Arc<V>>, MissingIndex>
    where
        S: Borrow<Q>,
        Q: Hash + Eq + ?Sized,
    {
        let view = self.store.snapshot();
        let query = view.query().by_index(&self.scope, scope)?.select(&self.labels, selector)?;
        let objects = cloned(query.iter());
        drop(query);
        drop(view);
        Ok(objects)
    }
}

impl<K, V, S> Clone for Lister<K, V, S> {
    fn clone(&self) -> Self {
        Self { store: self.store.clone(), scope: self.scope.clone(), labels: self.labels }
    }
}

impl<K, V, S> fmt::Debug for Lister<K, V, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lister")
            .field("scope", &self.scope)
            .field("labels", &self.labels)
            .finish_non_exhaustive()
    }
}
