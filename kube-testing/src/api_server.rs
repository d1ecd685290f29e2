//! SHELL. The server: one lock around its state, its faults and its log.
//!
//! | guarded by `Shared::inner` | |
//! |---|---|
//! | `state`, `faults`, `log` | the state of the server, the injected faults, the requests so far |
//! | `wakers` | wakers of watches without pending events; every change wakes all of them, after unlocking |

pub(crate) mod body;
mod client;
mod fault_injection;
mod faults;
pub(crate) mod registration;
mod wakers;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::client::ClientBuilder;
use kube::client::retry::RetryPolicy;
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, futures::OwnedNotified};
use tokio::time::Instant;
use tower::BoxError;
use tower::retry::RetryLayer;
use tower::util::MapErr;

use self::faults::{Faults, Verdict};
use self::registration::Registration;
use crate::request::RecordedRequest;
use crate::request_matcher::RequestMatcher;
use crate::state::State;
use crate::state::answer::Answer;
use crate::state::metadata;
use crate::state::watch::Next;
use crate::state::watches::End;

/// An API server in memory.
///
/// Clones are handles to the same server. Create a [`client`](Self::client) for the code under test, and change and inspect the server
/// directly.
///
/// The server is deterministic. Versions count from 1, and uids and the suffixes of generated names come from counters. The clock of the server
/// starts at 2026-01-01 and follows tokio's clock, even if tokio's time is paused.
///
/// The crate's documentation has one table of the behaviour that matches a real server, and one of the requests that are refused as not implemented.
/// Scripts of requests test the implemented behaviour: they run against this server and a kube-apiserver 1.37, and both must send the same responses.
/// The server also has these properties, which neither table contains:
///
/// - A read returns the newest state, unless the request names an earlier version: there are no stale caches.
/// - At the end of each write, before the next request, the server collects garbage and starts to serve the kinds of new custom resource definitions.
/// - Bookmarks are sent only after the initial objects of a streaming list, at the timeout of a watch, and by
///   [`send_bookmarks`](Self::send_bookmarks).
///
/// # Examples
/// ```
/// use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, api::PostParams, core::Status};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let server = ApiServer::new();
/// server.register::<ConfigMap>();
/// let api: Api<ConfigMap> = Api::default_namespaced(server.client());
///
/// let mut wanted = ConfigMap::default();
/// wanted.metadata.name = Some("a".into());
/// server.fail_next(RequestMatcher::verb(Verb::Create), 1, Status::failure("broken", "InternalError").with_code(500));
/// assert!(api.create(&PostParams::default(), &wanted).await.is_err());
/// let made = api.create(&PostParams::default(), &wanted).await?;
///
/// assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
/// assert_eq!(server.list::<ConfigMap>(), [made]);
/// assert_eq!(server.requests().len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ApiServer(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) inner: Mutex<Inner>,
    pub(crate) resumed: Arc<Notify>,
}

pub(crate) struct Inner {
    pub(crate) state: State,
    pub(crate) faults: Faults,
    log: Vec<RecordedRequest>,
    /// The wakers of watches without pending events.
    wakers: BTreeMap<u64, Waker>,
    began: Option<Instant>,
}

/// Setup.
impl ApiServer {
    /// Creates a server without registered kinds.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            state: State::new(),
            faults: Faults::default(),
            log: Vec::new(),
            wakers: BTreeMap::new(),
            began: None,
        };
        Self(Arc::new(Shared { inner: Mutex::new(inner), resumed: Arc::new(Notify::new()) }))
    }

    /// Registers a kind. Requests for a kind that is not registered are answered with 404.
    ///
    /// A built-in kind of Kubernetes has the `status` subresource, the generation and the selectable fields that Kubernetes gives it; a custom kind
    /// always has a `status` subresource and a generation, and has the selectable fields that [`Registration::of`] describes. A type with
    /// `#[derive(CustomResource)]` is registered like any other: `server.register::<Note>()`.
    ///
    /// # Panics
    /// Panics for a second version of a built-in kind, because objects are not converted between the versions of such a kind.
    #[track_caller]
    pub fn register<K>(&self) -> &Self
    where
        K: Resource<DynamicType: Default, Scope: 'static>,
    {
        self.register_as(Registration::of::<K>())
    }

    /// Like [`register`](Self::register), for a kind that has no Rust type, or whose scope is known only at run time.
    ///
    /// # Panics
    /// Like [`register`](Self::register).
    ///
    /// # Examples
    /// ```
    /// use flyball_kube_testing::ApiServer;
    /// use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, PostParams};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let sites = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Site"));
    /// let server = ApiServer::new();
    /// server.register_dynamic(sites.clone(), true);
    ///
    /// let api = Api::<DynamicObject>::default_namespaced_with(server.client(), &sites);
    /// let home = api.create(&PostParams::default(), &DynamicObject::new("home", &sites)).await?;
    /// assert_eq!(home.metadata.resource_version, Some(server.resource_version().to_string()));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn register_dynamic(&self, resource: ApiResource, namespaced: bool) -> &Self {
        self.register_as(Registration::dynamic(resource, namespaced))
    }

    /// Like [`register`](Self::register), for a kind that a [`Registration`] describes. If a custom kind is already registered in another version,
    /// both versions serve the same objects.
    ///
    /// # Panics
    /// Like [`register`](Self::register).
    #[track_caller]
    pub fn register_as(&self, registration: Registration) -> &Self {
        self.0.inner.lock().state.register(registration.kind);
        self
    }

    /// Creates a client of this server, with the retries of a client that [`Client::try_default`](kube::Client::try_default) creates: an answer with
    /// 429, 503 or 504 is followed by up to 15 more attempts, after the delay in the header `Retry-After` or a backoff from 5 ms. So an injected
    /// failure with one of these statuses reaches the code under test only if all of these attempts fail. Its default namespace is `default`.
    ///
    /// For a client without retries, like that of a [`Config`](kube::Config) whose `default_retry` is off, use the server as the service:
    /// `kube::Client::new(server.clone(), "default")`.
    ///
    /// # Panics
    /// Panics outside of a tokio runtime, because the client spawns a task.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        let service = MapErr::new(self.clone(), BoxError::from as fn(io::Error) -> BoxError);
        // The layer of kube's `ClientBuilder::try_from(config)`, unless `Config::default_retry` is off.
        let retries = RetryLayer::new(RetryPolicy::server_retry());
        ClientBuilder::new(service, "default").with_layer(&retries).build()
    }
}

/// Direct access to the objects. Faults do not affect these methods.
impl ApiServer {
    /// Returns all objects of a kind, sorted by `namespace/name`.
    ///
    /// # Panics
    /// Panics if the kind is not registered, or a stored object is not of this type.
    #[must_use]
    #[track_caller]
    pub fn list<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType: Default> + DeserializeOwned,
    {
        let inner = self.0.inner.lock();
        let kind_id = inner.kind_id::<K>();
        inner.state.objects(kind_id).values().map(|object| read(object)).collect()
    }

    /// Returns one object; `namespace` is ignored for a kind without namespaces.
    ///
    /// # Panics
    /// Panics if the kind is not registered, or the stored object is not of this type.
    #[must_use]
    #[track_caller]
    pub fn get<K>(&self, namespace: &str, name: &str) -> Option<K>
    where
        K: Resource<DynamicType: Default> + DeserializeOwned,
    {
        let inner = self.0.inner.lock();
        let kind_id = inner.kind_id::<K>();
        let key = inner.state.kind(kind_id).key(Some(namespace), name);
        inner.state.objects(kind_id).get(&key).map(|object| read(object))
    }

    /// Creates or replaces an object, including its status. The call never conflicts with an earlier write, and generates no name. Watches receive an
    /// event as for any write. A new object keeps its `uid` if it has one, so that other objects can name it as their owner. An object without a
    /// namespace is created in `default`.
    ///
    /// The field manager is `flyball-kube-testing`. So a later server-side apply of a field that `put` has changed is a conflict, unless the
    /// apply has `force` or the same value.
    ///
    /// # Panics
    /// Panics if the kind is not registered, or the object has no name.
    #[track_caller]
    pub fn put<K>(&self, object: &K) -> K
    where
        K: Resource<DynamicType: Default> + Serialize + DeserializeOwned,
    {
        let object = serde_json::to_value(object).expect("an object is JSON");
        assert!(metadata::text(&object, "name").is_some(), "an object without a name cannot be put");
        self.change(|inner| {
            let kind_id = inner.kind_id::<K>();
            let now = inner.now();
            let mut object = object;
            if inner.state.kind(kind_id).namespaced && metadata::text(&object, "namespace").is_none() {
                metadata::set(&mut object, "namespace", "default");
            }
            read(&inner.state.put(kind_id, object, now))
        })
    }

    /// Deletes an object immediately, whatever finalizers it has, and returns whether it existed.
    ///
    /// # Panics
    /// Panics if the kind is not registered.
    #[track_caller]
    pub fn delete<K>(&self, namespace: &str, name: &str) -> bool
    where
        K: Resource<DynamicType: Default>,
    {
        self.change(|inner| {
            let kind_id = inner.kind_id::<K>();
            let key = inner.state.kind(kind_id).key(Some(namespace), name);
            let existed = inner.state.objects(kind_id).contains_key(&key);
            if existed {
                inner.state.commit(kind_id, key, None);
            }
            existed
        })
    }

    /// Returns the `resourceVersion` of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.0.inner.lock().state.version
    }

    /// Returns the number of open watches of all kinds, except [stalled](Self::stall_watches) ones.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.0.inner.lock().state.watches.count(None)
    }

    /// Returns the number of open watches of a kind, except [stalled](Self::stall_watches) ones.
    ///
    /// # Panics
    /// Panics if the kind is not registered.
    #[must_use]
    #[track_caller]
    pub fn open_watches_of<K: Resource<DynamicType: Default>>(&self) -> usize {
        let inner = self.0.inner.lock();
        let kind_id = inner.kind_id::<K>();
        inner.state.watches.count(Some(kind_id))
    }

    /// Returns all requests so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.0.inner.lock().log.clone()
    }

    /// Returns the requests that match, oldest first.
    #[must_use]
    pub fn requests_matching(&self, matcher: &RequestMatcher) -> Vec<RecordedRequest> {
        let inner = self.0.inner.lock();
        inner.log.iter().filter(|request| matcher.matches(request)).cloned().collect()
    }

    /// Clears the log of requests.
    pub fn clear_requests(&self) {
        self.0.inner.lock().log.clear();
    }
}

/// Methods for the HTTP service.
impl ApiServer {
    pub(crate) fn log(&self, request: &RecordedRequest) {
        self.0.inner.lock().log.push(request.clone());
    }

    pub(crate) fn latency(&self, request: &RecordedRequest) -> Option<Duration> {
        self.0.inner.lock().faults.latency(request)
    }

    pub(crate) fn verdict(&self, request: &RecordedRequest) -> Verdict {
        self.0.inner.lock().faults.verdict(request)
    }

    pub(crate) fn resumed(&self) -> OwnedNotified {
        self.0.resumed.clone().notified_owned()
    }

    pub(crate) fn carry_out(&self, request: &RecordedRequest, body: &[u8]) -> Answer {
        self.change(|inner| {
            let now = inner.now();
            inner.state.answer(request, body, now)
        })
    }

    pub(crate) fn poll_watch(&self, id: u64, context: &Context<'_>) -> Poll<Result<Vec<u8>, End>> {
        // Wakers are cloned and dropped without the lock, because that runs code that may call this server. Locals are dropped in reverse order.
        let waker = context.waker().clone();
        let _replaced;
        let mut inner = self.0.inner.lock();
        match inner.state.next(id) {
            Next::Send { event, metadata_only } => {
                Poll::Ready(Ok(inner.state.line(id, &event, metadata_only)))
            }
            Next::End(end) => Poll::Ready(Err(end)),
            Next::Wait => {
                _replaced = inner.wakers.insert(id, waker);
                Poll::Pending
            }
        }
    }

    pub(crate) fn run_out(&self, id: u64) {
        self.0.inner.lock().state.watches.run_out(id);
    }

    pub(crate) fn close(&self, id: u64) {
        let mut inner = self.0.inner.lock();
        inner.state.watches.close(id);
        let waker = inner.wakers.remove(&id);
        drop(inner);
        drop(waker);
    }

    /// Changes the state, and wakes every watch, which then checks whether it has pending events.
    #[track_caller]
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.0.inner.lock();
        let result = change(&mut inner);
        let now = inner.now();
        inner.state.settle(now);
        let wakers = std::mem::take(&mut inner.wakers);
        // Wakers are called after unlocking, because a waker may run code that calls this server.
        drop(inner);
        wakers::wake_all(wakers.into_values());
        result
    }
}

impl Inner {
    #[track_caller]
    pub(crate) fn kind_id<K: Resource<DynamicType: Default>>(&self) -> usize {
        let resource = ApiResource::erase::<K>(&K::DynamicType::default());
        let kind_id = self.state.kind_id_of(&resource.group, &resource.version, &resource.plural);
        kind_id.unwrap_or_else(|| panic!("register::<{}>() comes first", resource.kind))
    }

    fn now(&mut self) -> Timestamp {
        /// 2026-01-01T00:00:00Z
        const BEGINNING: i64 = 1_767_225_600;
        let now = Instant::now();
        let passed = now.saturating_duration_since(*self.began.get_or_insert(now)).as_secs();
        Timestamp::from_second(BEGINNING.saturating_add_unsigned(passed)).unwrap_or(Timestamp::MAX)
    }
}

#[track_caller]
fn read<K: DeserializeOwned>(object: &Value) -> K {
    K::deserialize(object).expect("an object of this kind")
}

impl Default for ApiServer {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inner = self.0.inner.lock();
        f.debug_struct("ApiServer")
            .field("version", &inner.state.version)
            .field("open_watches", &inner.state.watches.count(None))
            .field("requests", &inner.log.len())
            .finish_non_exhaustive()
    }
}
