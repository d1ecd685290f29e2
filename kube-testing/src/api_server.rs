//! SHELL. The handle: a lock around state, faults and log, and whom to wake when something changes.

mod body;
mod client;
mod fault_injection;
mod faults;

use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use jiff::Timestamp;
use kube::Resource;
use kube::core::{ApiResource, NamespaceResourceScope};
use parking_lot::Mutex;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::{Notify, futures::OwnedNotified};
use tokio::time::Instant;

pub use self::body::ApiBody;
use self::faults::{Faults, Verdict};
use crate::request::Request;
use crate::request_matcher::Call;
use crate::state::State;
use crate::state::answer::Answer;
use crate::state::kind::Kind;
use crate::state::metadata;
use crate::state::watch::End;
use crate::state::watches::Next;

/// An API server in memory.
///
/// Clones are handles of the same server: one serves ([`client`](Self::client)), others say what is true in it and what goes wrong.
/// It is the same in every run: versions count from 1, uids and the endings of generated names are counted, and its clock begins at
/// 2026-01-01 and runs as tokio's, so also on paused time.
///
/// | as the real one | not |
/// |---|---|
/// | get, list, watch, create, update, patch, delete and delete of a collection, of the kinds that are [registered](Self::register) | discovery; schemas, defaults and admission |
/// | pages of one version, also when it has gone by; `resourceVersion` and `resourceVersionMatch`; 504 for one that is not reached | what is served out of a stale cache: a read always sees every write |
/// | watches from a version, of what is there, or with `sendInitialEvents`; bookmarks; `timeoutSeconds`; 410 once the history is [forgotten](Self::compact) | bookmarks on its own but at a watch's end: see [`send_bookmarks`](Self::send_bookmarks) |
/// | label selectors; metadata only | field selectors: any path of texts is one |
/// | uid, resourceVersion, generation, creation and deletion time, `generateName`, finalizers, preconditions, conflicts, versions that a write must name, `status` apart, writes that change nothing, dry runs, deletions that wait for dependents or orphan them | these dependents go at once, and what has no owner any more stays; namespaces need not exist; grace of pods; managed fields |
/// | items of a list do not say what they are, unless they are of a CustomResourceDefinition; names are DNS subdomains | deletion of a pod or a service answers with the object |
/// | JSON patch and JSON merge patch | a strategic merge is a merge; server-side apply creates or merges |
///
/// What stands on the left is asked of it and of a kube-apiserver 1.36 by one test, as far as a request shows it; both have to answer the same.
///
/// # Examples
/// ```
/// use flyball_kube_testing::{ApiServer, Call, Verb};
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
/// server.fail_next(Call::to(Verb::Create), 1, Status::failure("busy", "TooManyRequests").with_code(429));
/// assert!(api.create(&PostParams::default(), &wanted).await.is_err());
/// let made = api.create(&PostParams::default(), &wanted).await?;
///
/// assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
/// assert_eq!(server.objects::<ConfigMap>(), [made]);
/// assert_eq!(server.requests().len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct ApiServer(pub(crate) Arc<Shared>);

pub(crate) struct Shared {
    pub(crate) inner: Mutex<Inner>,
    pub(crate) thaw: Arc<Notify>,
}

pub(crate) struct Inner {
    pub(crate) state: State,
    pub(crate) faults: Faults,
    log: Vec<Request>,
    /// Of watches that have nothing to tell.
    wakers: BTreeMap<u64, Waker>,
    began: Option<Instant>,
}

/// What a new server is.
impl ApiServer {
    /// A server that knows no kinds.
    #[must_use]
    pub fn new() -> Self {
        let inner = Inner {
            state: State::new(),
            faults: Faults::default(),
            log: Vec::new(),
            wakers: BTreeMap::new(),
            began: None,
        };
        Self(Arc::new(Shared { inner: Mutex::new(inner), thaw: Arc::new(Notify::new()) }))
    }

    /// Makes a kind known: what is asked of others is not found.
    pub fn register<K>(&self) -> &Self
    where
        K: Resource<DynamicType: Default, Scope: 'static>,
    {
        let resource = ApiResource::erase::<K>(&K::DynamicType::default());
        self.register_with(resource, TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>())
    }

    /// Makes a kind known that has no type, or whose scope is known at run time only.
    pub fn register_with(&self, resource: ApiResource, namespaced: bool) -> &Self {
        self.0.inner.lock().state.register(Kind { resource, namespaced });
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

/// What is true, whatever clients were told.
impl ApiServer {
    /// All objects of a kind, by namespace and name.
    ///
    /// # Panics
    /// If the kind is not registered, or what is there is none of its type.
    #[must_use]
    #[track_caller]
    pub fn objects<K>(&self) -> Vec<K>
    where
        K: Resource<DynamicType: Default> + DeserializeOwned,
    {
        let inner = self.0.inner.lock();
        let place = inner.place::<K>();
        inner.state.objects(place).values().map(|object| read(object)).collect()
    }

    /// One object.
    ///
    /// # Panics
    /// If the kind is not registered, or what is there is none of its type.
    #[must_use]
    #[track_caller]
    pub fn object<K>(&self, namespace: &str, name: &str) -> Option<K>
    where
        K: Resource<DynamicType: Default> + DeserializeOwned,
    {
        let inner = self.0.inner.lock();
        let place = inner.place::<K>();
        let key = inner.state.kind(place).key(Some(namespace), name);
        inner.state.objects(place).get(&key).map(|object| read(object))
    }

    /// Writes an object, new or not, as it is and with its status: no conflicts, no generated names. Watches are told as of any
    /// write.
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
            let place = inner.place::<K>();
            let now = inner.now();
            let mut object = object;
            if inner.state.kind(place).namespaced && metadata::text(&object, "namespace").is_none() {
                metadata::set(&mut object, "namespace", "default");
            }
            read(&inner.state.put(place, object, now))
        })
    }

    /// Deletes an object at once, whatever finalizers it has. Whether it was there.
    ///
    /// # Panics
    /// If the kind is not registered.
    #[track_caller]
    pub fn delete<K>(&self, namespace: &str, name: &str) -> bool
    where
        K: Resource<DynamicType: Default>,
    {
        self.change(|inner| {
            let place = inner.place::<K>();
            let key = inner.state.kind(place).key(Some(namespace), name);
            let there = inner.state.objects(place).contains_key(&key);
            if there {
                inner.state.commit(place, key, None);
            }
            there
        })
    }

    /// The version of the last write.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.0.inner.lock().state.version
    }

    /// How many watches are open, of all kinds. A silenced one is not counted.
    #[must_use]
    pub fn open_watches(&self) -> usize {
        self.0.inner.lock().state.watches.count(None)
    }

    /// How many watches of a kind are open. A silenced one is not counted.
    ///
    /// # Panics
    /// If the kind is not registered.
    #[must_use]
    #[track_caller]
    pub fn open_watches_of<K: Resource<DynamicType: Default>>(&self) -> usize {
        let inner = self.0.inner.lock();
        let place = inner.place::<K>();
        inner.state.watches.count(Some(place))
    }

    /// All requests that came, oldest first.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.0.inner.lock().log.clone()
    }

    /// Those that are meant.
    #[must_use]
    pub fn requests_to(&self, call: &Call) -> Vec<Request> {
        let inner = self.0.inner.lock();
        inner.log.iter().filter(|request| call.matches(request)).cloned().collect()
    }

    /// Forgets which requests came.
    pub fn clear_requests(&self) {
        self.0.inner.lock().log.clear();
    }
}

/// For the service.
impl ApiServer {
    pub(crate) fn log(&self, request: &Request) {
        self.0.inner.lock().log.push(request.clone());
    }

    pub(crate) fn delay(&self, request: &Request) -> Option<Duration> {
        self.0.inner.lock().faults.delay(request)
    }

    pub(crate) fn verdict(&self, request: &Request) -> Verdict {
        self.0.inner.lock().faults.verdict(request)
    }

    pub(crate) fn thawed(&self) -> OwnedNotified {
        self.0.thaw.clone().notified_owned()
    }

    pub(crate) fn carry_out(&self, request: &Request, body: &[u8]) -> Answer {
        self.change(|inner| {
            let now = inner.now();
            inner.state.answer(request, body, now)
        })
    }

    pub(crate) fn poll_watch(&self, id: u64, context: &Context<'_>) -> Poll<Result<Vec<u8>, End>> {
        let mut inner = self.0.inner.lock();
        match inner.state.next(id) {
            Next::Tell { event, metadata_only } => {
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

    /// Changes something, and wakes every watch: each sees for itself whether it is concerned.
    #[track_caller]
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Inner) -> R) -> R {
        let mut inner = self.0.inner.lock();
        let result = change(&mut inner);
        if !inner.state.waiting.is_empty() {
            let now = inner.now();
            inner.state.collect(now);
        }
        let wakers = std::mem::take(&mut inner.wakers);
        // Not under the lock: a waker may run what asks this server.
        drop(inner);
        wakers.into_values().for_each(Waker::wake);
        result
    }
}

impl Inner {
    #[track_caller]
    pub(crate) fn place<K: Resource<DynamicType: Default>>(&self) -> usize {
        let resource = ApiResource::erase::<K>(&K::DynamicType::default());
        let place = self.state.place_of(&resource.group, &resource.version, &resource.plural);
        place.unwrap_or_else(|| panic!("register::<{}>() comes first", resource.kind))
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
