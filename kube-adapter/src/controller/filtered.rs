//! EDGE. Owned and watched kinds for which the controller has its own watch: all of their changes, or only those that a predicate accepts.
//!
//! Cancel safety: nothing runs before the controller runs.

use std::fmt::Debug;
use std::hash::Hash;

use flyball_informer_cache::NamespacedName;
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::{Predicate, watcher};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::Controller;
use super::mapped::MappedKeys;
use super::own_informers::rows;
use super::trigger::{owners_of, related_keys};
use crate::ApiSource;
use crate::keys::reference_key;

/// Owned and watched kinds, with a filter for their changes.
impl<K> Controller<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Like [`owns`](Self::owns), but a change causes a reconcile only if it changes the result of `predicate`. This is a kube-runtime predicate, as
    /// in `predicate_filter`.
    ///
    /// A change is accepted if the object is new, was deleted, or was replaced by a different object with the same name. It is also accepted if the
    /// hash that the predicate returns differs from the hash of the previous state, or if the predicate returns `None` for the new state. Unlike
    /// kube-runtime's filter, this filter accepts every deletion, keeps the hash of an object for longer than an hour, and stores nothing for deleted
    /// objects.
    ///
    /// Only metadata is requested, so the predicate receives a `PartialObjectMeta`. The predicate is called when the object is decoded. If the
    /// predicate panics, the panic is handled like a panic in a [mapper](Self::watches), and the change is accepted.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
    /// # use kube::{Api, Client, runtime::watcher};
    /// use kube::runtime::{Predicate, predicates};
    ///
    /// # fn example(controller: Controller<Deployment>, client: Client) {
    /// // Ignores changes of a ReplicaSet's status.
    /// let spec_or_labels = predicates::generation.combine(predicates::labels);
    /// let sets = Api::<ReplicaSet>::all(client);
    /// let controller = controller.owns_filtered(sets, watcher::Config::default(), spec_or_labels);
    /// # }
    /// ```
    #[track_caller]
    pub fn owns_filtered<C>(
        self,
        api: Api<C>,
        config: watcher::Config,
        predicate: impl Predicate<PartialObjectMeta<C>> + Send + Sync + 'static,
    ) -> Self
    where
        C: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        self.owns_where(api, &(), config, move |child| predicate.hash_property(child))
    }

    /// Like [`watches`](Self::watches), but a change causes a reconcile only if it changes the result of `predicate`, as in
    /// [`owns_filtered`](Self::owns_filtered).
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Node};
    /// # use kube::{Api, Client, ResourceExt, runtime::reflector::ObjectRef, runtime::watcher};
    /// use kube::runtime::predicates;
    ///
    /// # fn example(controller: Controller<ConfigMap>, client: Client) {
    /// let pool = |node: Node| Some(ObjectRef::new(node.labels().get("pool")?).within("pools"));
    /// // Ignores the heartbeats of nodes.
    /// let nodes = Api::<Node>::all(client);
    /// let controller = controller.watches_filtered(nodes, watcher::Config::default(), predicates::labels, pool);
    /// # }
    /// ```
    #[track_caller]
    pub fn watches_filtered<W, I>(
        self,
        api: Api<W>,
        config: watcher::Config,
        predicate: impl Predicate<W> + Send + Sync + 'static,
        mapper: impl Fn(W) -> I + Sync + Send + 'static,
    ) -> Self
    where
        W: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
        W::DynamicType: Default + Debug + Clone + Eq + Hash,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
        I::IntoIter: Send,
    {
        let property = move |object: &W| predicate.hash_property(object);
        self.watches_where(api, &W::DynamicType::default(), config, property, mapper)
    }

    #[track_caller]
    pub(super) fn owns_where<C>(
        mut self,
        api: Api<C>,
        dyntype: &C::DynamicType,
        config: watcher::Config,
        property: impl Fn(&PartialObjectMeta<C>) -> Option<u64> + Send + Sync + 'static,
    ) -> Self
    where
        C: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
        C::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner = self.dyntype.clone();
        let owners = move |child: PartialObjectMeta<C>| MappedKeys {
            property: property(&child),
            keys: keys(owners_of::<K>(&child, &owner)),
        };
        let (source, kind) = (ApiSource::metadata_only(api, config), C::kind(dyntype).into_owned());
        let (informer, run) = rows(source, kind.clone(), owners, &self.watch_errors, &self.monitor);
        self.informers.push(run);
        self.triggers.push(related_keys(&informer, &self.main, &kind));
        self
    }

    #[track_caller]
    pub(super) fn watches_where<W, I>(
        mut self,
        api: Api<W>,
        dyntype: &W::DynamicType,
        config: watcher::Config,
        property: impl Fn(&W) -> Option<u64> + Send + Sync + 'static,
        mapper: impl Fn(W) -> I + Sync + Send + 'static,
    ) -> Self
    where
        W: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let (source, kind) = (ApiSource::new(api, config), W::kind(dyntype).into_owned());
        let mapper = move |object| {
            let property = property(&object);
            MappedKeys { property, keys: keys(mapper(object)) }
        };
        let (informer, run) = rows(source, kind.clone(), mapper, &self.watch_errors, &self.monitor);
        let main = self.main.clone();
        self.informers.push(Box::new(move |config, backoff| {
            let run = run(config, backoff);
            Box::pin(async move {
                // The mapper may read the controller's own cache, so this informer starts after that cache has synced. If that cache ends before its
                // first list is complete, the controller cannot run, so the error is ignored here.
                let _ = main.ready().await;
                run.await;
            })
        }));
        self.triggers.push(related_keys(&informer, &self.main, &kind));
        self
    }
}

/// Returns the keys of these references. References with names that no API server accepts are skipped.
fn keys<K: Resource>(references: impl IntoIterator<Item = ObjectRef<K>>) -> Vec<NamespacedName> {
    references.into_iter().filter_map(|reference| reference_key(&reference).ok()).collect()
}
