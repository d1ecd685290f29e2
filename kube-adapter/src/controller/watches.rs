//! EDGE. Which other objects concern those that are reconciled.
//!
//! Cancel safety: nothing runs before the controller does.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use flyball_informer_cache::{Change, Informer, NamespacedName};
use futures_util::{Stream, StreamExt};
use kube::core::PartialObjectMeta;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::reconcile_reasons::Reason;
use super::trigger::{concerned, key_among, own, owned, owners_of, watched};
use super::{Controller, filled, rows};
use crate::ApiSource;
use crate::keys::reference_key;

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
    /// let controller = deployments.filter_changes(predicate::changed(|it: &Deployment| it.metadata.generation));
    /// # }
    /// ```
    pub fn filter_changes(
        mut self,
        worth: impl Fn(&Change<NamespacedName, K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.triggers[0] = own(&self.main, worth);
        self
    }

    /// Objects that name one of this controller's as an owner: when one is new, changes or goes, its owner is reconciled. One that
    /// changes hands brings both owners; one that went unseen, while the watch was down, brings its owner, too.
    ///
    /// Only their metadata is asked for. Of each object only its name, its version and the owners it named last are kept, a few hundred bytes.
    /// [`owns_shared`](Self::owns_shared) takes an informer that keeps the objects.
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
    pub fn owns_with<C>(mut self, api: Api<C>, dyntype: C::DynamicType, config: watcher::Config) -> Self
    where
        C: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        C::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner = self.dyntype.clone();
        let owners = move |child: PartialObjectMeta<C>| keys(owners_of::<K>(&child, &owner));
        let (source, kind) = (ApiSource::metadata_only(api, config), C::kind(&dyntype).into_owned());
        let (informer, run) = rows(source, kind.clone(), owners, &self.watch_errors, &self.monitor);
        self.informers.push(run);
        self.triggers.push(concerned(&informer, &self.main, &kind));
        self
    }

    /// As [`owns`](Self::owns), of an informer that others use, too. It runs and ends by itself. Reconciles begin when it is filled.
    pub fn owns_shared<C>(mut self, informer: &Informer<NamespacedName, C>) -> Self
    where
        C: Resource + Send + Sync + 'static,
    {
        self.required.push(filled(informer));
        self.triggers.push(owned(informer, &self.main, named::<C>(), self.dyntype.clone()));
        self
    }

    /// Objects that concern others, as `mapper` says: when one is new, changes or goes, those are reconciled, and so are those that the
    /// mapper named for the state before.
    ///
    /// The mapper is called when a state of an object is read, also for the last one of an object whose deletion is seen, and again for each object of a later
    /// list. The first list is read when the [store](Self::store) of this controller is filled, so a mapper may look there. Of each object only its name, its
    /// version and the keys it was mapped to last are kept: when it goes unseen, while the watch was down, those are reconciled.
    /// [`watches_shared`](Self::watches_shared) keeps the objects, and maps the state before as well as the one after.
    ///
    /// It is called by the informer, or on a thread for blocking work. If it panics, that is logged with the name of the object: the keys it was mapped to before
    /// are reconciled, and it is mapped again when it changes.
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
        dyntype: W::DynamicType,
        config: watcher::Config,
        mapper: impl Fn(W) -> I + Sync + Send + 'static,
    ) -> Self
    where
        W: Resource + DeserializeOwned + Clone + Debug + Send + Sync + 'static,
        W::DynamicType: Debug + Clone + Eq + Hash,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
        I::IntoIter: Send,
    {
        let (source, kind) = (ApiSource::new(api, config), W::kind(&dyntype).into_owned());
        let mapper = move |object| keys(mapper(object));
        let (informer, run) = rows(source, kind.clone(), mapper, &self.watch_errors, &self.monitor);
        let main = self.main.clone();
        self.informers.push(Box::new(move |config| {
            let run = run(config);
            Box::pin(async move {
                // A mapper that looks for its objects there has to find them. Where that cache ends, so does the controller.
                let _ = main.synced().await;
                run.await;
            })
        }));
        self.triggers.push(concerned(&informer, &self.main, &kind));
        self
    }

    /// As [`watches`](Self::watches), of an informer that others use, too. It runs and ends by itself. The mapper is called at each change, for the
    /// state before and the one after it. Reconciles begin when it is filled.
    pub fn watches_shared<W, I>(
        mut self,
        informer: &Informer<NamespacedName, W>,
        mapper: impl Fn(&Arc<W>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        W: Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.required.push(filled(informer));
        self.triggers.push(watched(informer, &self.main, named::<W>(), mapper));
        self
    }

    /// Reconciles every object each time `trigger` says so. Its end ends nothing else.
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let main = self.main.clone();
        self.requests.push(
            trigger.map(move |()| (main.snapshot().keys().cloned().collect(), Reason::BulkReconcile)).boxed(),
        );
        self
    }

    /// Reconciles each object that `trigger` names. Its end ends nothing else.
    pub fn reconcile_on(mut self, trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        let main = self.main.clone();
        self.requests.push(
            trigger
                .map(move |named| (key_among(&main, &named).into_iter().collect(), Reason::Unknown))
                .boxed(),
        );
        self
    }
}

/// What objects are called whose kind is not known here: their type, without its path.
fn named<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(path)
}

/// The keys of what these references mean, without those that no API server has.
fn keys<K: Resource>(references: impl IntoIterator<Item = ObjectRef<K>>) -> Vec<NamespacedName> {
    references.into_iter().filter_map(|reference| reference_key(&reference).ok()).collect()
}
