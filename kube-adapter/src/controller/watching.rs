//! EDGE. Which other objects concern those that are reconciled.
//!
//! Cancel safety: nothing runs before the controller does.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use flyball_informer_cache::{Change, Informer, NamespacedName};
use futures_util::{Stream, StreamExt};
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::trigger::{key_among, own, owned, watched};
use super::{Controller, informer};
use crate::ApiSource;

/// Which other objects concern those that are reconciled.
impl<K> Controller<K>
where
    K: Resource + Send + Sync + 'static,
    K::DynamicType: Debug + Eq + Hash + Clone + Send + Sync + Unpin,
{
    /// Of the changes of its own objects, those alone that `worth` says yes to bring a reconcile: kube-runtime's `predicate_filter`. All
    /// do by default, those that a reconcile makes by writing a status among them; a deletion never does.
    ///
    /// [`predicate`](flyball_controller::predicate) has the usual ones. It is called by the informer; one that panics loses its change. What is said
    /// last holds.
    ///
    /// # Examples
    /// ```
    /// # use flyball_controller::predicate;
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # fn example(deployments: Controller<Deployment>) {
    /// let controller = deployments.for_changes(predicate::changed(|it: &Deployment| it.metadata.generation));
    /// # }
    /// ```
    pub fn for_changes(
        mut self,
        worth: impl Fn(&Change<NamespacedName, K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.triggers[0] = own(&self.main, worth);
        self
    }

    /// Objects that name one of this controller's as an owner: when one is new, changes or goes, its owner is reconciled. One that
    /// changes hands brings both owners; one that went unseen, while the watch was down, brings its owner, too.
    ///
    /// Only their metadata is asked for and kept.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[track_caller]
    pub fn owns<C>(self, api: Api<C>, config: watcher::Config) -> Self
    where
        C: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
    {
        self.owns_with(api, (), config)
    }

    /// As [`owns`](Self::owns), of a kind that is known at run time.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[track_caller]
    pub fn owns_with<C>(mut self, api: Api<C>, _: C::DynamicType, config: watcher::Config) -> Self
    where
        C: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        C::DynamicType: Debug + Eq + Hash + Clone,
    {
        let source = ApiSource::metadata(api, config);
        let (informer, run) = informer(source, &self.troubles, &self.monitor);
        self.informers.push(run);
        self.owns_shared(&informer)
    }

    /// As [`owns`](Self::owns), of an informer that others use, too. It runs and ends by itself.
    pub fn owns_shared<C>(mut self, informer: &Informer<NamespacedName, C>) -> Self
    where
        C: Resource + Send + Sync + 'static,
    {
        self.triggers.push(owned(informer, &self.main, self.dyntype.clone()));
        self
    }

    /// Objects that concern others, as `mapper` says: when one is new, changes or goes, those are reconciled. The mapper is told the
    /// state before a change as well as the one after it, so that nobody is left out who was concerned until now.
    ///
    /// It is called by the informer, for a copy of the object, as kube-runtime's is; [`watches_shared`](Self::watches_shared)
    /// copies nothing. One that panics loses its change, and is called again for the next.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[track_caller]
    pub fn watches<W, I>(
        self,
        api: Api<W>,
        config: watcher::Config,
        mapper: impl Fn(W) -> I + Sync + Send + 'static,
    ) -> Self
    where
        W: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        W::DynamicType: Default + Debug + Clone + Eq + Hash,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
        I::IntoIter: Send,
    {
        self.watches_with(api, Default::default(), config, mapper)
    }

    /// As [`watches`](Self::watches), of a kind that is known at run time.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[track_caller]
    pub fn watches_with<W, I>(
        mut self,
        api: Api<W>,
        _: W::DynamicType,
        config: watcher::Config,
        mapper: impl Fn(W) -> I + Sync + Send + 'static,
    ) -> Self
    where
        W: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        W::DynamicType: Debug + Clone + Eq + Hash,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
        I::IntoIter: Send,
    {
        let source = ApiSource::new(api, config);
        let (informer, run) = informer(source, &self.troubles, &self.monitor);
        self.informers.push(run);
        self.watches_shared(&informer, move |object| mapper(W::clone(object)))
    }

    /// As [`watches`](Self::watches), of an informer that others use, too. It runs and ends by itself.
    pub fn watches_shared<W, I>(
        mut self,
        informer: &Informer<NamespacedName, W>,
        mapper: impl Fn(&Arc<W>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        W: Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.triggers.push(watched(informer, &self.main, mapper));
        self
    }

    /// Reconciles every object each time `trigger` says so. Its end ends nothing else.
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let main = self.main.clone();
        self.requests.push(trigger.map(move |()| main.snapshot().keys().cloned().collect()).boxed());
        self
    }

    /// Reconciles each object that `trigger` names. Its end ends nothing else.
    pub fn reconcile_on(mut self, trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        let main = self.main.clone();
        self.requests.push(trigger.map(move |named| key_among(&main, &named).into_iter().collect()).boxed());
        self
    }
}
