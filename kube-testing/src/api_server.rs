//! SHELL. The server: one lock around its state, its faults and its log.
//!
//! | guarded by `Shared::inner` | |
//! |---|---|
//! | `state`, `faults`, `log` | what the server knows, what goes wrong, what was asked |
//! | `wakers` | of watches without anything to send; all are woken by every change, after unlocking |

mod body;
mod client;
mod fault_injection;
mod faults;
mod registration;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::core::ApiResource;
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, futures::OwnedNotified};
use tokio::time::Instant;

pub use self::body::ApiBody;
use self::faults::{Faults, Verdict};
pub use self::registration::Registration;
use crate::request::RecordedRequest;
use crate::request_matcher::RequestMatcher;
use crate::state::State;
use crate::state::answer::Answer;
use crate::state::metadata;
use crate::state::watch::End;
use crate::state::watches::Next;

/// An API server in memory.
///
/// Clones are handles of one server: make a [`client`](Self::client) of it, and change and inspect it beside that client.
///
/// It is deterministic: versions count from 1, uids and the endings of generated names are counted, and its clock begins at
/// 2026-01-01 and is tokio's, so paused time pauses it.
///
/// The crate's documentation has the table of what it does as a real server, and of what it does not do, and answers then. What is done runs in
/// scripts of requests against this server and a kube-apiserver 1.36, which have to answer the same. Beyond what that table says:
///
/// - A read always sees every write: there are no stale caches.
/// - Garbage is collected, and definitions of custom resources are served, within the write that causes it, right after its answer.
/// - Bookmarks come only at a watch's end, and by [`send_bookmarks`](Self::send_bookmarks).
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
/// server.fail_next(RequestMatcher::verb(Verb::Create), 1, Status::failure("busy", "TooManyRequests").with_code(429));
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
    /// Of watches that have nothing to send.
    wakers: BTreeMap<u64, Waker>,
    began: Option<Instant>,
}

/// Setup.
impl ApiServer {
    /// A server without kinds.
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

    /// Adds a kind. Requests for a kind that is not registered are answered with 404.
    ///
    /// A kind of Kubernetes has the `status` subresource, the generation and the fields of selectors that Kubernetes gives it; a custom one is as
    /// [`Registration::of`] says.
    ///
    /// # Panics
    /// For a second version of a kind of Kubernetes, as its versions are not converted.
    #[track_caller]
    pub fn register<K>(&self) -> &Self
    where
        K: Resource<DynamicType: Default, Scope: 'static>,
    {
        self.register_as(Registration::of::<K>())
    }

    /// As [`register`](Self::register), for a kind without a type, or whose scope is known only at run time.
    ///
    /// # Panics
    /// As [`register`](Self::register).
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

    /// As [`register`](Self::register), for a custom kind with rules of its own. Another version of a custom kind is served with the same objects.
    ///
    /// # Panics
    /// As [`register`](Self::register).
    #[track_caller]
    pub fn register_as(&self, registration: Registration) -> &Self {
        self.0.inner.lock().state.register(registration.kind);
        self
    }

    /// A client of this server. Its default namespace is `default`.
    ///
    /// # Panics
    /// Outside of a tokio runtime: the client has a task of its own.
    #[must_use]
    pub fn client(&self) -> kube::Client {
        kube::Client::new(self.clone(), "default")
    }
}

/// The objects, past all faults.
impl ApiServer {
    /// All objects of a kind, by namespace and name.
    ///
    /// # Panics
    /// If the kind is not registered, or a stored object is not of this type.
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

    /// One object; `namespace` is ignored for a kind without namespaces.
    ///
    /// # Panics
    /// If the kind is not registered, or the stored object is not of this type.
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

    /// Creates or replaces an object, status included, without conflicts and generated names. Watches get an event as of any write. A new object
    /// keeps the `uid` that it has, so that others can name it as their owner.
    ///
    /// # Panics
    /// If the kind is not registered, or the object has no name.
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

    /// Deletes an object at once, whatever finalizers it has, and returns whether it existed.
    ///
    /// # Panics
    /// If the kind is not registered.
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

    /// The `resourceVersion` of the last write.
    #[must_use]
    pub fn resource_version(&self) -> u64 {
        self.0.inner.lock().state.version
    }

    /// The number of open watches of all kinds, without [stalled](Self::stall_watches) ones.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.0.inner.lock().state.watches.count(None)
    }

    /// The number of open watches of a kind, without [stalled](Self::stall_watches) ones.
    ///
    /// # Panics
    /// If the kind is not registered.
    #[must_use]
    #[track_caller]
    pub fn open_watches_of<K: Resource<DynamicType: Default>>(&self) -> usize {
        let inner = self.0.inner.lock();
        let kind_id = inner.kind_id::<K>();
        inner.state.watches.count(Some(kind_id))
    }

    /// All requests so far, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<RecordedRequest> {
        self.0.inner.lock().log.clone()
    }

    /// The requests that match, oldest first.
    #[must_use]
    pub fn requests_matching(&self, matcher: &RequestMatcher) -> Vec<RecordedRequest> {
        let inner = self.0.inner.lock();
        inner.log.iter().filter(|request| matcher.matches(request)).cloned().collect()
    }

    /// Empties the log of requests.
    pub fn clear_requests(&self) {
        self.0.inner.lock().log.clear();
    }
}

/// For the HTTP service.
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
        let mut inner = self.0.inner.lock();
        match inner.state.next(id) {
            Next::Send { event, metadata_only } => {
                Poll::Ready(Ok(inner.state.line(id, &event, metadata_only)))
            }
            Next::End(end) => Poll::Ready(Err(end)),
            Next::Wait => {
                inner.wakers.insert(id, context.waker().clone());
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
        inner.wakers.remove(&id);
    }

    /// Changes the state, and wakes every watch: each finds out for itself whether it has something to send.
    #[track_caller]
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.0.inner.lock();
        let result = change(&mut inner);
        let now = inner.now();
        inner.state.settle(now);
        let wakers = std::mem::take(&mut inner.wakers);
        // After unlocking: a waker may run code that calls this server.
        drop(inner);
        wakers.into_values().for_each(Waker::wake);
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
