//! EDGE. The objects of an `Api` as the source of an informer: paged lists, watches, streaming lists.
//!
//! Cancel safety: dropping the future of a request cancels the request. If a blocking thread is already decoding a page of its response, this thread
//! decodes the page to the end, and then drops it. Dropping a watch closes its connection; a watch holds no other resource.

pub(crate) mod api_error;
mod decode;
mod listing;
mod outage;
mod request;
pub(crate) mod stream_source;
mod unreadable;
mod unreadable_counter;
mod watch;

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use flyball_informer_cache::{
    InformerBuilder, ListRequest, ListVersion, NamespacedName, Page, Source, SourceError, Store, Version,
    WatchRequest,
};
use flyball_sync::locks::{AtomicU64, Ordering};
use kube::api::{Api, ListParams, WatchParams};
use kube::core::{PartialObjectMeta, Request};
use kube::runtime::watcher;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;

pub use self::api_error::ApiError;
use self::decode::Unreadable;
use self::listing::Listing;
use self::outage::Outage;
pub use self::stream_source::{StreamSource, StreamWatch, informer_from_stream};
use self::unreadable::StoredObjects;
pub use self::unreadable::unreadable_reason;
pub use self::unreadable_counter::UnreadableCounter;
pub use self::watch::ApiWatch;

use crate::keys::object_key;
use crate::source::api_error::source_error;

/// A function that is called when objects arrive.
type OnObject = Arc<dyn Fn() + Send + Sync>;

/// The maximum size, in bytes, of a page that is decoded in the calling task. Larger pages take about a millisecond or longer, and are decoded on a
/// blocking thread.
const INLINE: usize = 64 * 1024;

/// A [`Source`] that lists and watches the objects of a [`kube::Api`]. The objects are typed, dynamic or, for an `Api<PartialObjectMeta<K>>`,
/// metadata only. They come from one namespace or from all namespaces, and can be limited by selectors.
///
/// The requests are the same as those of client-go's reflector, except for the first list: if the configuration requests the
/// [most recent](watcher::ListSemantic::MostRecent) state, which is kube's default, the first list is read from storage, not from the server's cache.
/// Later lists are read from the cache.
///
/// An object that cannot be decoded, or that has no name, is logged, [counted](Self::unreadable_counter) and skipped. If an earlier state of the
/// object was decoded, the cache keeps that state, with the new metadata, so that a `deletionTimestamp` is visible. The object is marked, and
/// [`unreadable_reason`](crate::unreadable_reason) returns the reason. A transformation of the informer is applied again to the marked object. If a
/// different source wraps this `ApiSource`, the cache of that source keeps the object unchanged. The `ApiSource` looks up the object in the cache by
/// its name, so none of this works if a transformation removes the name. If the object is deleted while it cannot be decoded, its last known state is
/// delivered, with the kind [`Missed`](flyball_informer_cache::ChangeKind::Missed). If the cache has a custom [schema](crate::schema) that does not
/// compare the `uid`, only the metadata is delivered.
///
/// A large page is decoded on a blocking thread of tokio, so it delays neither the informers nor other tasks of the runtime.
///
/// # Examples
/// ```no_run
/// use flyball_kube::ApiSource;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::{Api, Client, runtime::watcher};
///
/// # async fn run(client: Client) -> Result<(), Box<dyn std::error::Error>> {
/// let source = ApiSource::new(Api::<Pod>::all(client), watcher::Config::default().labels("app=web"));
/// let unreadable = source.unreadable_counter();
/// let pods = source.into_informer().start()?;
/// pods.synced().await?;
/// println!("{} pods, {} could not be read", pods.snapshot().len(), unreadable.get());
/// # Ok(())
/// # }
/// ```
pub struct ApiSource<K> {
    client: Client,
    request: Request,
    config: watcher::Config,
    metadata: bool,
    counter: UnreadableCounter,
    listing: Listing,
    stored: StoredObjects<K>,
    on_object: Option<OnObject>,
    /// The total number of bytes that have arrived in answers to list requests.
    arrived: AtomicU64,
    outage: Outage,
    objects: PhantomData<fn() -> K>,
}

impl<K> ApiSource<PartialObjectMeta<K>>
where
    K: Resource + Clone + Send + 'static,
    PartialObjectMeta<K>: Resource + DeserializeOwned,
{
    /// Creates a source that requests only the metadata of the objects of `api`.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// use flyball_kube::ApiSource;
    /// use k8s_openapi::api::core::v1::Secret;
    /// use kube::{Api, runtime::watcher};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = ApiServer::new();
    /// # server.register::<Secret>();
    /// # let token = serde_json::json!({"metadata": {"name": "token"}, "stringData": {"key": "value"}});
    /// # server.put::<Secret>(&serde_json::from_value(token)?);
    /// # let client = server.client();
    /// // The data of the secrets is never sent to this process.
    /// let source = ApiSource::metadata_only(Api::<Secret>::all(client), watcher::Config::default());
    /// let secrets = source.into_informer().start()?;
    /// secrets.synced().await?;
    /// let token = secrets.store().get("default/token").expect("it is listed");
    /// assert_eq!(token.metadata.name.as_deref(), Some("token"));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn metadata_only(api: Api<K>, config: watcher::Config) -> Self {
        let request = Request::new(api.resource_url());
        Self::asking(api.into_client(), request, config, true)
    }
}

impl<K> ApiSource<K>
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    /// Creates a source of the objects that `api` lists and `config` selects.
    ///
    /// The source ignores the page size, the semantic and the strategy of the initial list, and the timeout, because they are options of the
    /// reflector. [`into_informer`](Self::into_informer) passes them to the reflector.
    #[must_use]
    pub fn new(api: Api<K>, config: watcher::Config) -> Self {
        let request = Request::new(api.resource_url());
        Self::asking(api.into_client(), request, config, K::metadata_api())
    }

    fn asking(client: Client, request: Request, config: watcher::Config, metadata: bool) -> Self {
        Self {
            client,
            request,
            config,
            metadata,
            counter: UnreadableCounter::default(),
            listing: Listing::default(),
            stored: StoredObjects::default(),
            on_object: None,
            arrived: AtomicU64::new(0),
            outage: Outage::default(),
            objects: PhantomData,
        }
    }

    /// Returns a counter of the objects that could not be decoded. The counter keeps counting after the source has been
    /// passed to an informer.
    #[must_use]
    pub fn unreadable_counter(&self) -> UnreadableCounter {
        self.counter.clone()
    }

    /// Makes the source count the objects that cannot be decoded with this counter.
    pub(crate) fn counted_by(self, counter: &UnreadableCounter) -> Self {
        Self { counter: counter.clone(), ..self }
    }

    /// Makes the source call `f` for each page with objects, and for each watch event of an object that was not deleted.
    pub(crate) fn on_object(self, f: impl Fn() + Send + Sync + 'static) -> Self {
        Self { on_object: Some(Arc::new(f)), ..self }
    }

    /// Returns whether the object with this key and `uid` was in the last list, but could not be decoded. Call it in [`Source::is_unreadable`] of a
    /// source that converts the objects of this source. If `uid` is `None`, only the key is compared.
    ///
    /// # Examples
    /// ```
    /// # use flyball_kube_testing::ApiServer;
    /// use flyball_informer_cache::{ListRequest, ListVersion, Source};
    /// use flyball_kube::{ApiSource, UnreadableCounter};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::api::{Api, ApiResource, DynamicObject};
    /// use kube::runtime::watcher;
    /// use serde_json::json;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let server = ApiServer::new();
    /// # server.register::<ConfigMap>();
    /// # let client = server.client();
    /// let kind = ApiResource::erase::<ConfigMap>(&());
    /// let map = DynamicObject::new("a", &kind).data(json!({"data": [7]})); // the data of a ConfigMap is no list
    /// Api::default_namespaced_with(client.clone(), &kind).create(&Default::default(), &map).await?;
    ///
    /// let source = ApiSource::new(Api::<ConfigMap>::all(client), watcher::Config::default());
    /// let unreadable: UnreadableCounter = source.unreadable_counter();
    /// let page = source.list(ListRequest { min_version: ListVersion::Any, limit: None, continuation: None }).await?;
    /// assert!(page.items.is_empty());
    /// assert!(source.has_unreadable(&"default/a".parse()?, None));
    /// assert_eq!(unreadable.get(), 1);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn has_unreadable(&self, key: &NamespacedName, uid: Option<&str>) -> bool {
        self.listing.has(key, uid)
    }

    /// Lists a page, and converts each object with `map` before the next one is decoded.
    pub(crate) async fn list_as<V: Send + 'static>(
        &self,
        request: ListRequest,
        map: impl Fn(K) -> V + Send + 'static,
    ) -> Result<Page<V>, SourceError> {
        let page = self.page(request, move |bytes| decode::page_as(bytes, &map)).await;
        page.map_err(|error| source_error(watcher::Error::InitialListFailed(error)))
    }

    /// Returns a builder of an informer of these objects, with the reflector options of the configuration; see
    /// [`reflector_config`](crate::reflector_config).
    pub fn into_informer(self) -> InformerBuilder<NamespacedName, K, Self>
    where
        K: Clone + Sync,
    {
        crate::informer::over(self)
    }

    /// Returns a function that connects the source to the store that its informer fills.
    pub(crate) fn on_build(&self) -> impl FnOnce(&Store<NamespacedName, K>) + Send + Sync + 'static
    where
        K: Clone + Sync,
    {
        let stored = self.stored.clone();
        move |store| stored.attach(store)
    }

    /// Opens a watch.
    pub(crate) async fn open(&self, request: WatchRequest) -> Result<ApiWatch<K>, SourceError> {
        if request.streaming_list {
            self.listing.begin();
        }
        let send = async || {
            // A streaming list is refused if the server has not reached the version.
            if !request.streaming_list {
                self.outage.check(request.from_version, || self.current_version()).await?;
            }
            let built = request::uncompressed(self.watch_request(&request)?);
            self.outage.noticed(request::send(&self.client, built).await)
        };
        let body = send().await.map_err(|error| source_error(watcher::Error::WatchStartFailed(error)))?;
        Ok(ApiWatch::new(self, body, &request))
    }

    /// Requests the newest version of the server, by a list of at most one object.
    async fn current_version(&self) -> Result<Version, kube::Error> {
        let request =
            ListRequest { min_version: ListVersion::MostRecent, limit: Some(1), continuation: None };
        let body = request::send(&self.client, self.list_request(request)?).await?;
        let bytes = request::read(body, &self.arrived).await?;
        let (page, _) = decode::page::<K>(&bytes).map_err(kube::Error::SerdeError)?;
        Ok(page.version)
    }

    /// Returns the total number of bytes that have arrived in answers to list requests.
    pub(crate) fn bytes_arrived(&self) -> u64 {
        // Ordering: Relaxed, because the counter publishes no other memory.
        self.arrived.load(Ordering::Relaxed)
    }

    pub(crate) fn config(&self) -> &watcher::Config {
        &self.config
    }

    fn list_request(&self, request: ListRequest) -> Result<http::Request<Vec<u8>>, kube::Error> {
        let params = ListParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            limit: request.limit,
            continue_token: request.continuation.filter(|token| !token.is_empty()),
            ..ListParams::default()
        };
        let built = match self.metadata {
            true => self.request.list_metadata(&params),
            false => self.request.list(&params),
        };
        let mut built = built.map_err(kube::Error::BuildRequest)?;
        // The version is added here, because `ListParams` omits the version "0" if there is a limit. Without a version, the server would read from
        // its storage, not from its cache.
        let version = match request.min_version {
            _ if params.continue_token.is_some() => None,
            ListVersion::MostRecent => None,
            ListVersion::Any => Some("resourceVersion=0".to_owned()),
            // With a limit, the server returns exactly this version unless `resourceVersionMatch` is set. Without a limit, `NotOlderThan` is the
            // default, so `resourceVersionMatch` is omitted, because servers before 1.19 do not support it.
            ListVersion::NotOlderThan(version) if request.limit.is_some() => {
                Some(format!("resourceVersion={version}&resourceVersionMatch=NotOlderThan"))
            }
            ListVersion::NotOlderThan(version) => Some(format!("resourceVersion={version}")),
        };
        if let Some(version) = version {
            let uri = built.uri();
            let target = format!("{}?{}&{version}", uri.path(), uri.query().unwrap_or_default());
            *built.uri_mut() =
                target.try_into().map_err(|error| kube::Error::HttpError(http::Error::from(error)))?;
        }
        built.extensions_mut().insert("list");
        Ok(built)
    }

    fn watch_request(&self, request: &WatchRequest) -> Result<http::Request<Vec<u8>>, kube::Error> {
        let params = WatchParams {
            label_selector: self.config.label_selector.clone(),
            field_selector: self.config.field_selector.clone(),
            timeout: Some(request.timeout.as_secs().clamp(1, u32::MAX.into()) as u32),
            // A streaming list needs bookmarks, because it ends with one.
            bookmarks: self.config.bookmarks || request.streaming_list,
            send_initial_events: request.streaming_list,
        };
        let from = match request.from_version {
            Version::ZERO if request.streaming_list => String::new(),
            version => version.to_string(),
        };
        let built = match self.metadata {
            true => self.request.watch_metadata(&params, &from),
            false => self.request.watch(&params, &from),
        };
        let mut built = built.map_err(kube::Error::BuildRequest)?;
        built.extensions_mut().insert("watch");
        Ok(built)
    }

    async fn page<V: Send + 'static>(
        &self,
        request: ListRequest,
        decode: impl FnOnce(&[u8]) -> serde_json::Result<(Page<V>, Vec<Unreadable>)> + Send + 'static,
    ) -> Result<Page<V>, kube::Error> {
        if request.continuation.is_none() {
            self.listing.begin();
        }
        let body = self.outage.noticed(request::send(&self.client, self.list_request(request)?).await)?;
        let bytes = request::read(body, &self.arrived).await?;
        let read = match bytes.len() > INLINE {
            true => on_blocking_thread(move || decode(&bytes)).await?,
            false => decode(&bytes),
        };
        let (page, unread) = read.map_err(kube::Error::SerdeError)?;
        self.outage.end();
        for object in unread {
            self.counter.add(&self.request.url_path, &object);
            self.listing.add(object, self.stored.is_attached());
        }
        Ok(page)
    }
}

impl<K> Source for ApiSource<K>
where
    K: Resource + DeserializeOwned + Send + Sync + 'static,
{
    type Object = K;
    type Watch = ApiWatch<K>;

    async fn list(&self, request: ListRequest) -> Result<Page<K>, SourceError> {
        let page = self.page(request, decode::page).await;
        let page = page.map_err(|error| source_error(watcher::Error::InitialListFailed(error)))?;
        if !page.items.is_empty() {
            self.on_object.iter().for_each(|f| f());
        }
        Ok(page)
    }

    async fn watch(&self, request: WatchRequest) -> Result<ApiWatch<K>, SourceError> {
        self.open(request).await
    }

    fn list_progress(&self) -> u64 {
        self.bytes_arrived()
    }

    fn is_unreadable(&self, stored: &K) -> bool {
        object_key(stored).is_ok_and(|key| self.has_unreadable(&key, stored.meta().uid.as_deref()))
    }
}

impl<K> fmt::Debug for ApiSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("ApiSource");
        debug.field("url", &self.request.url_path).field("config", &self.config).finish_non_exhaustive()
    }
}

/// Runs a computation on a blocking thread.
async fn on_blocking_thread<T: Send + 'static>(
    compute: impl FnOnce() -> T + Send + 'static,
) -> Result<T, kube::Error> {
    match tokio::task::spawn_blocking(compute).await {
        Ok(computed) => Ok(computed),
        Err(error) => match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(error) => Err(kube::Error::Service(error.into())),
        },
    }
}
