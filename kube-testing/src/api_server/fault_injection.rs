//! SHELL. Fault injection; the server's lock guards the [`Faults`](super::faults::Faults).

use std::time::Duration;

use kube::Resource;
use kube::core::Status;

use super::ApiServer;
use super::faults::Failure;
use crate::request_matcher::RequestMatcher;
use crate::state::watches::{End, Watch};

/// Fault injection.
impl ApiServer {
    /// Answers the next `times` matching requests with this status, and does not execute them. If several faults match a request, the one that was
    /// injected first applies.
    ///
    /// A [`client`](Self::client) repeats a request that is answered with 429, 503 or 504, and each attempt counts. If the status has
    /// `retryAfterSeconds` in its details, the response has the header `Retry-After`.
    pub fn fail_next(&self, requests: RequestMatcher, times: u32, status: Status) {
        self.inject(Failure { requests, left: times, status, carried_out: false });
    }

    /// Executes the next `times` matching requests, but answers them with this status: the client receives an error although its request succeeded.
    ///
    /// # Examples
    /// The server creates the object, but answers the client with an error:
    /// ```
    /// use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, api::PostParams, core::Status};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::new();
    /// server.register::<ConfigMap>();
    /// let unknown = Status::failure("the connection to etcd was lost", "InternalError").with_code(500);
    /// server.fail_response_next(RequestMatcher::verb(Verb::Create), 1, unknown);
    ///
    /// let mut map = ConfigMap::default();
    /// map.metadata.name = Some("a".into());
    /// let api = Api::<ConfigMap>::default_namespaced(server.client());
    /// assert!(api.create(&PostParams::default(), &map).await.is_err());
    /// assert!(server.get::<ConfigMap>("default", "a").is_some());
    /// # Ok(())
    /// # }
    /// ```
    pub fn fail_response_next(&self, requests: RequestMatcher, times: u32, status: Status) {
        self.inject(Failure { requests, left: times, status, carried_out: true });
    }

    fn inject(&self, failure: Failure) {
        if failure.left > 0 {
            self.0.inner.lock().faults.failures.push(failure);
        }
    }

    /// Holds all matching requests without an answer until [`resume`](Self::resume) is called. Open watches continue.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Api;
    /// use std::time::Duration;
    /// use tokio::time::{Instant, sleep};
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::new();
    /// server.register::<ConfigMap>();
    /// let api = Api::<ConfigMap>::default_namespaced(server.client());
    ///
    /// server.hang(RequestMatcher::verb(Verb::Get));
    /// let get = tokio::spawn({
    ///     let api = api.clone();
    ///     async move { api.get_opt("a").await }
    /// });
    /// sleep(Duration::from_secs(60)).await;
    /// assert!(!get.is_finished());
    /// server.resume();
    /// assert_eq!(get.await??, None);
    ///
    /// let began = Instant::now();
    /// server.set_latency(RequestMatcher::any(), Duration::from_secs(2));
    /// api.get_opt("a").await?;
    /// assert_eq!(began.elapsed().as_secs(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn hang(&self, requests: RequestMatcher) {
        self.0.inner.lock().faults.hanging.push(requests);
    }

    /// Ends every [`hang`](Self::hang), so that the waiting requests are answered.
    pub fn resume(&self) {
        self.0.inner.lock().faults.hanging.clear();
        self.0.resumed.notify_waiters();
    }

    /// From now on, delays matching requests by this time before they are executed. A latency of zero removes the latency that was set with an equal
    /// matcher.
    pub fn set_latency(&self, requests: RequestMatcher, latency: Duration) {
        let latencies = &mut self.0.inner.lock().faults.latencies;
        latencies.retain(|(other, _)| *other != requests);
        if !latency.is_zero() {
            latencies.push((requests, latency));
        }
    }

    /// Ends all open watches without an error, as a real server does at their timeout. These watches do not send their pending events: the client
    /// receives the events only if it opens a new watch from an earlier version.
    ///
    /// # Examples
    /// The ways in which a watch can end or hang:
    /// ```
    /// use flyball_kube_testing::ApiServer;
    /// use futures_util::{StreamExt, TryStreamExt};
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, api::WatchParams, core::WatchEvent};
    /// use std::time::Duration;
    /// use tokio::time::timeout;
    ///
    /// # #[tokio::main(flavor = "current_thread", start_paused = true)]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::new();
    /// server.register::<ConfigMap>();
    /// let api = Api::<ConfigMap>::all(server.client());
    /// let watch = async || api.watch(&WatchParams::default(), "0").await.map(StreamExt::boxed);
    ///
    /// let mut closed = watch().await?;
    /// assert_eq!(server.open_watches(), 1);
    /// server.close_watches(); // or `close_watches_of::<ConfigMap>()`
    /// assert!(closed.try_next().await?.is_none());
    ///
    /// let mut broken = watch().await?;
    /// server.break_watches();
    /// assert!(broken.try_next().await.is_err());
    ///
    /// let mut idle = watch().await?;
    /// server.send_bookmarks();
    /// assert!(matches!(idle.try_next().await?, Some(WatchEvent::Bookmark(_))));
    ///
    /// let mut stalled = idle;
    /// server.stall_watches();
    /// server.send_bookmarks();
    /// assert!(timeout(Duration::from_secs(3600), stalled.next()).await.is_err());
    /// assert_eq!(server.open_watches(), 0); // stalled ones are not counted
    /// # Ok(())
    /// # }
    /// ```
    pub fn close_watches(&self) {
        self.each_watch(|watch| watch.ended = Some(End::Closed));
    }

    /// Ends the open watches of one kind, like [`close_watches`](Self::close_watches).
    ///
    /// # Panics
    /// Panics if the kind is not registered.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::{ConfigMap, Secret};
    /// use kube::{Api, api::WatchParams};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), kube::Error> {
    /// let server = ApiServer::new();
    /// server.register::<ConfigMap>().register::<Secret>();
    /// let maps = Api::<ConfigMap>::all(server.client()).watch(&WatchParams::default(), "0").await?;
    /// let secrets = Api::<Secret>::all(server.client()).watch(&WatchParams::default(), "0").await?;
    ///
    /// server.close_watches_of::<Secret>();
    /// assert_eq!(server.open_watches_of::<ConfigMap>(), 1);
    /// assert_eq!(server.open_watches_of::<Secret>(), 0);
    /// # drop((maps, secrets));
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn close_watches_of<K: Resource<DynamicType: Default>>(&self) {
        self.change(|inner| {
            let kind_id = inner.kind_id::<K>();
            let watches = inner.state.watches.living().filter(|watch| watch.kind_id == kind_id);
            watches.for_each(|watch| watch.ended = Some(End::Closed));
        });
    }

    /// Breaks the connections of all open watches: their streams end with an error.
    pub fn break_watches(&self) {
        self.each_watch(|watch| watch.ended = Some(End::Broken));
    }

    /// Stops sending on the open watches without ending them, like a connection whose loss the client has not noticed. New watches work.
    pub fn stall_watches(&self) {
        self.each_watch(|watch| watch.stalled = true);
    }

    /// Sends a bookmark on all open watches that allow bookmarks.
    pub fn send_bookmarks(&self) {
        self.each_watch(|watch| watch.bookmark_due = watch.bookmarks);
    }

    /// Drops the history. Watches from an earlier version, and requests for the next page of a list at an earlier version, are answered
    /// with 410. Open watches continue.
    ///
    /// # Examples
    /// A list whose second page is requested too late:
    /// ```
    /// use flyball_kube_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::{Api, api::ListParams};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::new();
    /// server.register::<ConfigMap>();
    /// for name in ["a", "b"] {
    ///     let mut map = ConfigMap::default();
    ///     map.metadata.name = Some(name.into());
    ///     server.put(&map);
    /// }
    /// let api = Api::<ConfigMap>::all(server.client());
    /// let first = api.list(&ListParams::default().limit(1)).await?;
    ///
    /// server.delete::<ConfigMap>("default", "b");
    /// server.compact();
    /// let next = ListParams::default().limit(1).continue_token(&first.metadata.continue_.unwrap());
    /// match api.list(&next).await {
    ///     Err(kube::Error::Api(status)) => assert_eq!(status.code, 410),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn compact(&self) {
        self.change(|inner| inner.state.compact());
    }

    /// Breaks open connections, and refuses new ones until [`accept_connections`](Self::accept_connections) is called. Objects and history are kept.
    ///
    /// # Examples
    /// ```
    /// use flyball_kube_testing::ApiServer;
    /// use k8s_openapi::api::core::v1::ConfigMap;
    /// use kube::Api;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let server = ApiServer::new();
    /// server.register::<ConfigMap>();
    /// let api = Api::<ConfigMap>::all(server.client());
    /// server.refuse_connections();
    /// assert!(matches!(api.list(&Default::default()).await, Err(kube::Error::Service(_))));
    /// server.accept_connections();
    /// assert!(api.list(&Default::default()).await.is_ok());
    /// # Ok(())
    /// # }
    /// ```
    pub fn refuse_connections(&self) {
        self.0.inner.lock().faults.refuses_connections = true;
        self.break_watches();
        self.0.resumed.notify_waiters();
    }

    /// Ends [`refuse_connections`](Self::refuse_connections).
    pub fn accept_connections(&self) {
        self.0.inner.lock().faults.refuses_connections = false;
    }

    fn each_watch(&self, change: impl FnMut(&mut Watch)) {
        self.change(|inner| inner.state.watches.living().for_each(change));
    }
}
