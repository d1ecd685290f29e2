//! EDGE. Controllers over streams of objects, such as the streams of kube-runtime's `reflector`, `reflect_shared` and
//! `predicate_filter`.
//!
//! Cancel safety: nothing runs before the controller does.

use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;

use futures_util::Stream;
use kube::Resource;
use kube::runtime::reflector::{self, ObjectRef};
use kube::runtime::watcher;

use super::Controller;
use super::key_streams::{fallible, infallible, related};
use super::objects::Objects;
use super::reconcile_reasons::Reason;
use super::trigger::owners_of;
use crate::keys::object_key;

/// Controllers over streams and stores of kube-runtime, with the same methods as kube-runtime's `Controller`.
///
/// These streams and stores can lose changes, as in kube-runtime; an informer loses none. See the [crate's
/// documentation](crate#streams-and-stores-of-kube-runtime).
///
/// Each stream is polled in a task of its own while the controller runs. An error of a stream is a
/// [`QueueError`](kube::runtime::controller::Error::QueueError) in the stream of results. The stream that failed is polled again after a wait, by
/// default that of kube-runtime's backoff; no other stream waits. A change whose mapper panics is logged and lost; other changes are not affected.
/// When all streams have ended, and the controller has no informer, it reconciles the queued objects and ends; delayed requeues that reconciles
/// returned are dropped.
impl<K> Controller<K>
where
    K: Resource + Clone + Send + Sync + 'static,
    K::DynamicType: Eq + Hash + Clone + Send + Sync,
{
    /// Creates a controller of the objects of a kube-runtime store, which are reconciled when the stream returns them.
    ///
    /// The objects of the stream must also be written to that store, for example by `reflect`: for an object that is not in the store, the stream of
    /// results yields an [`ObjectNotFound`](kube::runtime::controller::Error::ObjectNotFound). Reconciles start when the store is ready. With
    /// [`with_leadership`](Self::with_leadership) all objects of the store are reconciled when this process is elected.
    /// [`filter_changes`](Self::filter_changes) has no effect, because a stream has no previous states to compare; filter the stream instead.
    ///
    /// [`new`](Self::new) and [`for_shared`](Self::for_shared) use an informer, which loses no change.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::apps::v1::Deployment;
    /// # use kube::{Api, Client};
    /// use kube::runtime::{WatchStreamExt, predicates, reflector, watcher};
    ///
    /// # fn example(client: Client) {
    /// let (reader, writer) = reflector::store();
    /// let deployments = watcher(Api::<Deployment>::all(client), watcher::Config::default())
    ///     .default_backoff()
    ///     .reflect(writer)
    ///     .applied_objects()
    ///     .predicate_filter(predicates::generation, Default::default());
    /// let controller = Controller::for_stream(deployments, reader);
    /// # }
    /// ```
    pub fn for_stream(
        trigger: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
        reader: reflector::Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_stream_with(trigger, reader, K::DynamicType::default())
    }

    /// Like [`for_stream`](Self::for_stream), for a kind that is known at run time.
    ///
    /// # Examples
    /// Kinds that are known at run time. All streams are finite here, so the controller ends:
    /// ```
    /// use flyball_kube::{Action, Controller};
    /// use futures_util::{StreamExt, stream};
    /// use kube::api::{ApiResource, DynamicObject, GroupVersionKind};
    /// use kube::runtime::reflector::{ObjectRef, store::Writer};
    /// use kube::runtime::watcher::Event;
    /// use std::sync::Arc;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let kind = |name| ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", name));
    /// let [site, page, theme] = ["Site", "Page", "Theme"].map(kind);
    /// let object = |name, kind| DynamicObject::new(name, kind).within("default");
    ///
    /// let mut writer = Writer::<DynamicObject>::new(site.clone());
    /// let home = object("home", &site);
    /// for event in [Event::Init, Event::InitApply(home.clone()), Event::InitDone] {
    ///     writer.apply_watcher_event(&event);
    /// }
    /// let (pages, themes) = ([Ok(object("about", &page))], [Ok(object("dark", &theme))]);
    /// let kind = site.clone();
    /// let home_of_theme = move |_: DynamicObject| [ObjectRef::new_with("home", kind.clone()).within("default")];
    ///
    /// let reconciles = Controller::for_stream_with(stream::iter([Ok(home)]), writer.as_reader(), site)
    ///     .owns_stream_with(stream::iter(pages), page)
    ///     .watches_stream_with(stream::iter(themes), home_of_theme, theme)
    ///     .run(
    ///         |_, _| async { Ok::<_, kube::Error>(Action::await_change()) },
    ///         |_, _, _| Action::await_change(),
    ///         Arc::new(()),
    ///     );
    /// let names: Vec<_> = reconciles.map(|result| result.map(|(object, _)| object.name)).collect().await;
    /// assert!(names.into_iter().all(|name| name.is_ok_and(|name| name == "home")));
    /// # Ok(())
    /// # }
    /// ```
    pub fn for_stream_with(
        trigger: impl Stream<Item = Result<K, watcher::Error>> + Send + 'static,
        reader: reflector::Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        let mut controller = Self::over(Objects::of_kube(reader), dyntype);
        let own = |object: K| (object_key(&object).into_iter().collect(), Reason::ObjectUpdated);
        controller.streams.push(fallible(trigger, controller.watch_errors.sender.clone(), own));
        controller
    }

    /// Like [`for_stream`](Self::for_stream), but for a stream of shared objects, such as kube-runtime's `ReflectHandle`.
    ///
    /// # Examples
    /// One watch for the objects of several controllers. The stream that writes the store must be polled, too:
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
    /// # use kube::{Api, Client, ResourceExt};
    /// use futures_util::StreamExt;
    /// use kube::runtime::{WatchStreamExt, reflector, reflector::ObjectRef, watcher};
    /// use std::sync::Arc;
    ///
    /// # fn example(client: Client) {
    /// let (maps, writer) = reflector::store_shared::<ConfigMap>(256);
    /// let changed = writer.subscribe().expect("the store is shared");
    /// let (_, secrets_writer) = reflector::store_shared::<Secret>(256);
    /// let secrets = secrets_writer.subscribe().expect("the store is shared");
    /// let (_, nodes_writer) = reflector::store_shared::<Node>(256);
    /// let nodes = nodes_writer.subscribe().expect("the store is shared");
    ///
    /// let map_of_node = |node: Arc<Node>| Some(ObjectRef::new(node.labels().get("pool")?).within("pools"));
    /// let controller = Controller::for_shared_stream(changed, maps)
    ///     .owns_shared_stream(secrets)
    ///     .watches_shared_stream(nodes, map_of_node);
    ///
    /// let watch = watcher(Api::<ConfigMap>::all(client), watcher::Config::default());
    /// tokio::spawn(watch.default_backoff().reflect_shared(writer).for_each(|_| async {}));
    /// // The streams that write the stores of secrets and nodes are polled in the same way.
    /// # }
    /// ```
    pub fn for_shared_stream(
        trigger: impl Stream<Item = Arc<K>> + Send + 'static,
        reader: reflector::Store<K>,
    ) -> Self
    where
        K::DynamicType: Default,
    {
        Self::for_shared_stream_with(trigger, reader, K::DynamicType::default())
    }

    /// Like [`for_shared_stream`](Self::for_shared_stream), for a kind that is known at run time.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube::Controller;
    /// use futures_util::stream::BoxStream;
    /// use kube::api::{ApiResource, DynamicObject};
    /// use kube::runtime::reflector::{ObjectRef, Store};
    /// use std::sync::Arc;
    ///
    /// type Objects = BoxStream<'static, Arc<DynamicObject>>;
    ///
    /// /// A controller of sites, for their pages and for the themes that have the same name.
    /// fn controller(
    ///     [sites, pages, themes]: [Objects; 3],
    ///     [site, page, theme]: [ApiResource; 3],
    ///     store: Store<DynamicObject>,
    /// ) -> Controller<DynamicObject> {
    ///     let kind = site.clone();
    ///     let site_of_theme = move |theme: Arc<DynamicObject>| {
    ///         let (name, namespace) = (theme.metadata.name.as_ref()?, theme.metadata.namespace.as_ref()?);
    ///         Some(ObjectRef::new_with(name, kind.clone()).within(namespace))
    ///     };
    ///     Controller::for_shared_stream_with(sites, store, site)
    ///         .owns_shared_stream_with(pages, page)
    ///         .watches_shared_stream_with(themes, site_of_theme, theme)
    /// }
    /// ```
    pub fn for_shared_stream_with(
        trigger: impl Stream<Item = Arc<K>> + Send + 'static,
        reader: reflector::Store<K>,
        dyntype: K::DynamicType,
    ) -> Self {
        let mut controller = Self::over(Objects::of_kube(reader), dyntype);
        controller.streams.push(infallible(trigger, |object: Arc<K>| {
            (object_key(&*object).into_iter().collect(), Reason::ObjectUpdated)
        }));
        controller
    }

    /// Like [`owns`](Self::owns), but for a stream of owned objects. A deletion adds the key of the owner if the stream
    /// returns deleted objects, as kube-runtime's `touched_objects` does. A deletion that the stream misses adds no key.
    ///
    /// # Examples
    /// Streams of owned objects, and of objects that map to the controller's own objects:
    /// ```
    /// # use flyball_kube::Controller;
    /// # use k8s_openapi::api::core::v1::{ConfigMap, Node, Secret};
    /// # use kube::{Api, Client, ResourceExt};
    /// use kube::runtime::{WatchStreamExt, reflector::ObjectRef, watcher};
    ///
    /// # fn example(controller: Controller<ConfigMap>, client: Client) {
    /// let secrets = watcher(Api::<Secret>::all(client.clone()), watcher::Config::default());
    /// let nodes = watcher(Api::<Node>::all(client), watcher::Config::default());
    /// let map_of_node = |node: Node| Some(ObjectRef::new(node.labels().get("pool")?).within("pools"));
    /// let controller = controller
    ///     .owns_stream(secrets.touched_objects())
    ///     .watches_stream(nodes.touched_objects(), map_of_node);
    /// # }
    /// ```
    pub fn owns_stream<Child>(
        self,
        trigger: impl Stream<Item = Result<Child, watcher::Error>> + Send + 'static,
    ) -> Self
    where
        Child: Resource<DynamicType = ()> + Send + 'static,
    {
        self.owns_stream_with(trigger, ())
    }

    /// Like [`owns_stream`](Self::owns_stream), for a kind that is known at run time.
    pub fn owns_stream_with<Child>(
        mut self,
        trigger: impl Stream<Item = Result<Child, watcher::Error>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self
    where
        Child: Resource + Send + 'static,
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner = self.dyntype.clone();
        let related =
            related(&self.main, &dyntype, |child: &Child| child, move |child| owners_of(&child, &owner));
        self.streams.push(fallible(trigger, self.watch_errors.sender.clone(), related));
        self
    }

    /// Like [`owns_stream`](Self::owns_stream), but for a stream of shared objects.
    pub fn owns_shared_stream<Child>(self, trigger: impl Stream<Item = Arc<Child>> + Send + 'static) -> Self
    where
        Child: Resource<DynamicType = ()> + Send + 'static,
    {
        self.owns_shared_stream_with(trigger, ())
    }

    /// Like [`owns_shared_stream`](Self::owns_shared_stream), for a kind that is known at run time.
    pub fn owns_shared_stream_with<Child>(
        mut self,
        trigger: impl Stream<Item = Arc<Child>> + Send + 'static,
        dyntype: Child::DynamicType,
    ) -> Self
    where
        Child: Resource + Send + 'static,
        Child::DynamicType: Debug + Eq + Hash + Clone,
    {
        let owner = self.dyntype.clone();
        let owners = move |child: Arc<Child>| owners_of(&*child, &owner);
        let related = related(&self.main, &dyntype, |child: &Arc<Child>| &**child, owners);
        self.streams.push(infallible(trigger, related));
        self
    }

    /// Like [`watches`](Self::watches), but for a stream of related objects. The mapper is called for the objects that the stream returns,
    /// but not for their previous states.
    pub fn watches_stream<Other, I>(
        self,
        trigger: impl Stream<Item = Result<Other, watcher::Error>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        Other::DynamicType: Default + Debug + Clone,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.watches_stream_with(trigger, mapper, Other::DynamicType::default())
    }

    /// Like [`watches_stream`](Self::watches_stream), for a kind that is known at run time.
    pub fn watches_stream_with<Other, I>(
        mut self,
        trigger: impl Stream<Item = Result<Other, watcher::Error>> + Send + 'static,
        mapper: impl Fn(Other) -> I + Sync + Send + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        Other::DynamicType: Debug + Clone,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let related = related(&self.main, &dyntype, |other: &Other| other, mapper);
        self.streams.push(fallible(trigger, self.watch_errors.sender.clone(), related));
        self
    }

    /// Like [`watches_stream`](Self::watches_stream), but for a stream of shared objects.
    pub fn watches_shared_stream<Other, I>(
        self,
        trigger: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Sync + Send + 'static,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        Other::DynamicType: Default + Debug + Clone,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        self.watches_shared_stream_with(trigger, mapper, Other::DynamicType::default())
    }

    /// Like [`watches_shared_stream`](Self::watches_shared_stream), for a kind that is known at run time.
    pub fn watches_shared_stream_with<Other, I>(
        mut self,
        trigger: impl Stream<Item = Arc<Other>> + Send + 'static,
        mapper: impl Fn(Arc<Other>) -> I + Sync + Send + 'static,
        dyntype: Other::DynamicType,
    ) -> Self
    where
        Other: Resource + Send + 'static,
        Other::DynamicType: Debug + Clone,
        I: IntoIterator<Item = ObjectRef<K>> + 'static,
    {
        let related = related(&self.main, &dyntype, |other: &Arc<Other>| &**other, mapper);
        self.streams.push(infallible(trigger, related));
        self
    }
}
