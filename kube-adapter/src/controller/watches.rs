//! EDGE. The settings for related objects, whose changes map to the reconciled objects.
//!
//! Cancel safety: nothing runs before the controller does.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use flyball_informer_cache::{Change, Informer, NamespacedName};
use futures_util::Stream;
use kube::runtime::reflector::ObjectRef;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;

use super::key_streams::infallible;
use super::reconcile_reasons::Reason;
use super::trigger::{own, owned, watched, watched_changes};
use super::{Controller, until_synced};
use crate::keys::reference_key;

/// Settings for related objects, whose changes map to the reconciled objects.
impl<K> Controller<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// A change of one of the controller's own objects causes a reconcile only if `filter` returns `true` for the change, as with kube-runtime's
    /// `predicate_filter`. By default every such change causes a reconcile, even a change of the status that the reconcile itself has written. A
    /// deletion never causes a reconcile.
    ///
    /// The module [`predicate`](crate::predicate) has the usual predicates, and a conversion for those of kube-runtime. The informer calls the
    /// filter; if the filter panics for a change, it is called again with this change after a wait, which doubles from 100 ms up to a minute. A later
    /// call replaces the filter. The filter has no effect on a controller [over a stream](Self::for_stream), because a stream has no previous states
    /// to compare.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// use flyball_kube::predicate;
    /// use kube::runtime::{Predicate, predicates};
    ///
    /// # fn example(deployments: Controller<Deployment>, others: Controller<Deployment>) {
    /// let controller = deployments.filter_changes(predicate::spec()); // changes of the status alone cause no reconcile
    /// // Kube-runtime's predicates: the generation, and the labels, too.
    /// let generation_or_labels = predicates::generation.combine(predicates::labels);
    /// let controller = others.filter_changes(predicate::from_kube(generation_or_labels));
    /// # }
    /// ```
    pub fn filter_changes(
        mut self,
        filter: impl Fn(&Change<NamespacedName, K>) -> bool + Send + Sync + 'static,
    ) -> Self {
        if let Some(informer) = self.main.informer() {
            self.own = Some(own(informer, filter));
        }
        self
    }

    /// Reconciles the owners of the objects of this kind: when an owned object is created, changed or deleted, its owner is reconciled. If an object
    /// gets a different owner, both the old and the new owner are reconciled. The owner is also reconciled if a deletion was missed while the watch
    /// was down.
    ///
    /// An owner reference names an owner by its group and its kind; the version is ignored.
    ///
    /// Only metadata is requested. For each object, only its name, its `uid`, its version and its last owners are kept, which takes a few hundred
    /// bytes in total. To keep the objects, pass an informer to [`owns_shared`](Self::owns_shared).
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
    /// # use kube::{Api, Client, runtime::watcher};
    /// # fn example(controller: Controller<Deployment>, client: Client) {
    /// let config = watcher::Config::default().labels("app=web");
    /// let controller = controller.owns(Api::<ReplicaSet>::all(client), config);
    /// # }
    /// ```
    #[track_caller]
    pub fn owns<C>(self, api: Api<C>, config: watcher::Config) -> Self
    where
        C: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug + Send + 'static,
    {
        self.owns_with(api, (), config)
    }

    /// Like [`owns`](Self::owns), for a kind that is known at run time.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    #[track_caller]
    pub fn owns_with<C>(self, api: Api<C>, dyntype: C::DynamicType, config: watcher::Config) -> Self
    where
        C: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
        C::DynamicType: Debug + Eq + Hash + Clone,
    {
        self.owns_where(api, &dyntype, config, |_| None)
    }

    /// Like [`owns`](Self::owns), for an informer that is shared with other code. The informer runs and ends independently of the
    /// controller. Reconciles start when the informer has synced.
    pub fn owns_shared<C>(mut self, informer: &Informer<NamespacedName, C>) -> Self
    where
        C: Resource + Send + Sync + 'static,
    {
        self.required.push(until_synced(informer));
        self.triggers.push(owned(informer, &self.main, named::<C>(), self.dyntype.clone()));
        self
    }

    /// Reconciles the objects to which `mapper` maps related objects. When a related object is created, changed or deleted, the objects to which its
    /// newest and its previous state map are reconciled.
    ///
    /// The mapper is called for each decoded state of an object, including the last state in a deletion event, and for each object of a relist. The
    /// first list is decoded only after the [store](Self::store) of this controller has synced, so a mapper may read the store. For each object, only
    /// its name, its `uid`, its version and the keys to which it mapped last are kept. If a deletion was missed while the watch was down, the objects
    /// with these keys are reconciled. With [`watches_shared`](Self::watches_shared), the informer keeps the objects, and the mapper is called for
    /// both states of a change.
    ///
    /// The mapper runs in the task of the informer, or on a blocking thread. If the mapper panics, the panic is logged with the name of the
    /// object. The objects to which the previous state maps are then reconciled, and the mapper is called again when the object changes.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    ///
    /// # Examples
    /// A mapper that returns the objects that use a secret:
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// # use kube::{Api, Client, ResourceExt, runtime::reflector::ObjectRef, runtime::watcher};
    /// # fn example(controller: Controller<ConfigMap>, client: Client) {
    /// let maps = controller.store();
    /// let users = move |secret: Secret| {
    ///     let users = maps.state_filter(|map| {
    ///         map.namespace() == secret.namespace() && map.annotations().get("uses") == Some(&secret.name_any())
    ///     });
    ///     users.into_iter().map(|map| ObjectRef::from_obj(&*map)).collect::<Vec<_>>()
    /// };
    /// let controller = controller.watches(Api::<Secret>::all(client), watcher::Config::default(), users);
    /// # }
    /// ```
    #[track_caller]
    pub fn watches<W, I>(
        self,
        api: Api<W>,
        config: watcher::Config,
        mapper: impl Fn(W) -> I + Sync + Send + 'static,
    ) -> Self
    where
        W: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
        W::DynamicType: Default + Debug + Clone + Eq + Hash,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
        I::IntoIter: Send,
    {
        self.watches_with(api, Default::default(), config, mapper)
    }

    /// Like [`watches`](Self::watches), for a kind that is known at run time.
    ///
    /// # Panics
    /// Panics outside a tokio runtime.
    #[track_caller]
    pub fn watches_with<W, I>(
        self,
        api: Api<W>,
        dyntype: W::DynamicType,
        config: watcher::Config,
        mapper: impl Fn(W) -> I + Sync + Send + 'static,
    ) -> Self
    where
        W: Resource + DeserializeOwned + Clone + Debug + Send + 'static,
        W::DynamicType: Debug + Clone + Eq + Hash,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
        I::IntoIter: Send,
    {
        self.watches_where(api, &dyntype, config, |_| None, mapper)
    }

    /// Like [`watches`](Self::watches), for an informer that is shared with other code. The informer runs and ends independently of the
    /// controller. For each change the mapper is called with the state before the change and the state after it. Reconciles start when the
    /// informer has synced.
    pub fn watches_shared<W, I>(
        mut self,
        informer: &Informer<NamespacedName, W>,
        mapper: impl Fn(&Arc<W>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        W: Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.required.push(until_synced(informer));
        self.triggers.push(watched(informer, &self.main, named::<W>(), mapper));
        self
    }

    /// Like [`watches_shared`](Self::watches_shared), but the mapper receives the whole change: its kind, and the states before and after
    /// it. It must return the objects to reconcile for both states.
    ///
    /// # Examples
    /// Reconciles a service when one of its pods becomes ready or unready:
    /// ```
    /// # use flyball_kube::{Change, Controller, Informer, NamespacedName};
    /// # use k8s_openapi::api::core::v1::{Pod, Service};
    /// # use kube::{ResourceExt, runtime::reflector::ObjectRef};
    /// fn is_ready(pod: &Pod) -> bool {
    ///     let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    ///     conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    /// }
    ///
    /// fn services(change: &Change<NamespacedName, Pod>) -> Option<ObjectRef<Service>> {
    ///     let [before, now] = [change.old(), change.new()].map(|pod| pod.is_some_and(|pod| is_ready(pod)));
    ///     let pod = change.object();
    ///     let service = pod.labels().get("service").filter(|_| before != now)?;
    ///     Some(ObjectRef::new(service).within(&pod.namespace()?))
    /// }
    ///
    /// # fn example(controller: Controller<Service>, pods: &Informer<NamespacedName, Pod>) {
    /// let controller = controller.watches_shared_changes(pods, services);
    /// # }
    /// ```
    pub fn watches_shared_changes<W, I>(
        mut self,
        informer: &Informer<NamespacedName, W>,
        mapper: impl Fn(&Change<NamespacedName, W>) -> I + Send + Sync + 'static,
    ) -> Self
    where
        W: Send + Sync + 'static,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.required.push(until_synced(informer));
        self.triggers.push(watched_changes(informer, &self.main, named::<W>(), mapper));
        self
    }

    /// Reconciles every object each time `trigger` returns an item. The keys have the priority of the [initial list](crate::QueueOrder::Priority), so they
    /// do not delay the changes of other objects. When the stream ends, a controller made by [`new`](Self::new) or
    /// [`for_shared`](Self::for_shared) continues; one made by [`for_stream`](Self::for_stream) ends when all its streams have ended.
    pub fn reconcile_all_on(mut self, trigger: impl Stream<Item = ()> + Send + 'static) -> Self {
        let main = self.main.clone();
        self.streams.push(infallible(trigger, move |()| (main.keys(), Reason::BulkReconcile)));
        self
    }

    /// Reconciles each object that `trigger` returns. When the stream ends, the controller continues, unless all triggers are
    /// [streams](Self::for_stream) and all of them have ended.
    ///
    /// # Examples
    /// Reconciles objects that an external source requests, and all objects once an hour:
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// use flyball_kube::{Action, Controller};
    /// use futures_util::{StreamExt, stream};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::runtime::{reflector::ObjectRef, watcher};
    /// use kube::Api;
    /// use std::sync::Arc;
    /// use std::time::Duration;
    /// use tokio::sync::mpsc;
    /// use tokio::time::{Instant, sleep};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = ApiServer::new();
    /// # server.register::<ConfigMap>();
    /// # let map: ConfigMap = serde_json::from_value(serde_json::json!({"metadata": {"name": "settings"}}))?;
    /// # server.put(&map);
    /// # let client = server.client();
    /// let hourly = stream::repeat(()).then(|()| sleep(Duration::from_secs(3600)));
    /// let (ask, mut asked) = mpsc::channel(16);
    /// let mut reconciles = Controller::new(Api::<ConfigMap>::all(client), watcher::Config::default())
    ///     .reconcile_all_on(hourly)
    ///     .reconcile_on(stream::poll_fn(move |context| asked.poll_recv(context)))
    ///     .run(
    ///         |_, _| async { Ok::<_, kube::Error>(Action::await_change()) },
    ///         |_, _, _| Action::await_change(),
    ///         Arc::new(()),
    ///     );
    /// reconciles.next().await.expect("the first list has one")?;
    ///
    /// let began = Instant::now();
    /// ask.send(ObjectRef::new("settings").within("default")).await?;
    /// reconciles.next().await.expect("the request reconciles it")?;
    /// assert!(began.elapsed() < Duration::from_secs(1));
    /// reconciles.next().await.expect("an hour is over")?;
    /// assert!(began.elapsed() > Duration::from_secs(3500));
    /// # Ok(())
    /// # }
    /// ```
    pub fn reconcile_on(mut self, trigger: impl Stream<Item = ObjectRef<K>> + Send + 'static) -> Self {
        let main = self.main.clone();
        self.streams.push(infallible(trigger, move |named| {
            let key = reference_key(&named).map(|key| main.resolve(key));
            (key.into_iter().collect(), Reason::Unknown)
        }));
        self
    }
}

/// Returns the name of the type without its path, which serves as the name of a kind if only its type is known.
pub(crate) fn named<T>() -> &'static str {
    let name = std::any::type_name::<T>();
    let path = name.split('<').next().unwrap_or(name);
    path.rsplit("::").next().unwrap_or(path)
}
