//! EDGE. A running watch: it reads the lines of a response body, each of which is an event.
//!
//! Cancel safety: see the parent module. The informer does not use a watch again after it has dropped one of the watch's futures.

use std::fmt;
use std::io;
use std::marker::PhantomData;

use flyball_informer_cache::{NamespacedName, SourceError, Version, WatchEvent, WatchRequest, WatchStream};
use futures_util::io::AsyncBufReadExt;
use futures_util::stream::{IntoAsyncRead, MapErr, TryStreamExt};
use http_body_util::{BodyDataStream, BodyExt};
use kube::Resource;
use kube::client::Body;
use kube::runtime::watcher;
use serde::de::DeserializeOwned;
use tokio::task::coop::consume_budget;
use tokio::task::yield_now;

use super::decode::{self, Fallback, Line, Unreadable};
use super::listing::Listing;
use super::outage::Outage;
use super::unreadable::StoredObjects;
use super::unreadable_counter::UnreadableCounter;
use super::{ApiSource, OnObject};
use crate::keys::object_key;
use crate::source::api_error::{is_connection_lost, source_error};

/// The capacity, in bytes, that the line buffer keeps between lines. Reading this many bytes also consumes one unit of the task's budget.
const PIECE: usize = 4096;

type Lines = IntoAsyncRead<MapErr<BodyDataStream<Body>, fn(kube::Error) -> io::Error>>;

/// A running watch of an [`ApiSource`](crate::ApiSource).
///
/// # Examples
/// ```
/// # use flyball_kube_testing::ApiServer;
/// use flyball_informer_cache::{Source, Version, WatchEvent, WatchRequest, WatchStream};
/// use flyball_kube::{ApiSource, ApiWatch};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::{Api, runtime::watcher};
/// use std::time::Duration;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let server = ApiServer::new();
/// # server.register::<ConfigMap>();
/// # server.put::<ConfigMap>(&serde_json::from_value(serde_json::json!({"metadata": {"name": "a"}}))?);
/// # let client = server.client();
/// let source = ApiSource::new(Api::<ConfigMap>::all(client), watcher::Config::default());
/// let request =
///     WatchRequest { from_version: Version::ZERO, streaming_list: false, timeout: Duration::from_secs(60) };
/// let mut watch: ApiWatch<ConfigMap> = source.watch(request).await?;
/// assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(_)))));
/// # Ok(())
/// # }
/// ```
pub struct ApiWatch<K> {
    lines: Lines,
    line: Vec<u8>,
    /// Whether the watch starts with all existing objects in unspecified order. If so, an object may be followed by objects with lower versions, so
    /// the version of an object is not a valid bookmark.
    unordered: bool,
    counter: UnreadableCounter,
    /// The undecoded objects of the list before this watch, or of the streaming list at its start.
    listing: Listing,
    /// Whether the watch starts with a streaming list that is not complete yet.
    lists: bool,
    stored: StoredObjects<K>,
    on_object: Option<OnObject>,
    outage: Outage,
    /// Objects of the list that could not be decoded. The watch returns events for them once the list is stored.
    unreadable: Vec<(NamespacedName, Unreadable)>,
    /// The version of an object that could not be decoded, and whose event was returned. If the watch is interrupted, that event is not returned again,
    /// because its metadata is stored already. So this bookmark follows it, and the next watch begins after it.
    bookmark: Option<Version>,
    url: String,
    objects: PhantomData<fn() -> K>,
}

impl<K> ApiWatch<K> {
    pub(super) fn new(source: &ApiSource<K>, body: Body, request: &WatchRequest) -> Self {
        let failed: fn(kube::Error) -> io::Error = io::Error::other;
        let lists = request.streaming_list;
        // A paged list is stored before the watch that follows it is opened.
        let unreadable = if lists { Vec::new() } else { source.listing.take() };
        Self {
            lines: body.into_data_stream().map_err(failed).into_async_read(),
            line: Vec::new(),
            unordered: request.from_version == Version::ZERO && !lists,
            counter: source.counter.clone(),
            listing: source.listing.clone(),
            lists,
            stored: source.stored.clone(),
            on_object: source.on_object.clone(),
            outage: source.outage.clone(),
            unreadable,
            bookmark: None,
            url: source.request.url_path.clone(),
            objects: PhantomData,
        }
    }

    /// Reads the next line; `None` at the end. If the body ends in the middle of a line, that line is dropped; the next watch delivers its
    /// event again.
    async fn line(&mut self) -> Option<Result<(), io::Error>> {
        self.line.clear();
        self.line.shrink_to(PIECE);
        match self.lines.read_until(b'\n', &mut self.line).await {
            Ok(_) if self.line.ends_with(b"\n") => Some(Ok(())),
            Ok(_) => None,
            // A lost connection ends the watch without an error; the next watch resumes from the last version.
            Err(error) if is_connection_lost(&error) => {
                tracing::debug!(url = self.url, %error, "the connection of a watch was lost");
                self.outage.begin();
                None
            }
            Err(error) => Some(Err(error)),
        }
    }
}

impl<K: Resource + Send + 'static> ApiWatch<K> {
    /// Returns the event unchanged. If the event is part of a streaming list, the state of the list is updated.
    fn delivered(&mut self, event: WatchEvent<K>) -> WatchEvent<K> {
        if self.lists {
            match &event {
                WatchEvent::Added(object) | WatchEvent::Modified(object) | WatchEvent::Deleted(object) => {
                    drop(object_key(object).map(|key| self.listing.remove(&key)));
                }
                // The undecoded objects can already be taken here, because the watch handles them at the next poll, and the informer stores the list
                // before that poll.
                WatchEvent::InitialListEnd(_) => (self.lists, self.unreadable) = (false, self.listing.take()),
                WatchEvent::Bookmark(_) => {}
            }
        }
        event
    }

    /// Returns the event for an object that could not be decoded: its stored state with the new metadata, or `None` if no older state is stored.
    async fn with_new_metadata(&mut self, key: &NamespacedName, unread: Unreadable) -> Option<WatchEvent<K>> {
        if !self.stored.is_attached() {
            return None;
        }
        all_is_stored().await;
        self.stored.with_new_metadata(key, unread)
    }
}

/// Yields once, so that the watch is pending. The informer then stores all events that it has received, so they are in the store at the next poll.
async fn all_is_stored() {
    yield_now().await;
}

impl<K> WatchStream for ApiWatch<K>
where
    K: Resource + DeserializeOwned + Send + 'static,
{
    type Object = K;

    async fn next(&mut self) -> Option<Result<WatchEvent<K>, SourceError>> {
        let failed = |error| Some(Err(source_error(error)));
        if let Some(version) = self.bookmark.take() {
            return Some(Ok(WatchEvent::Bookmark(version)));
        }
        loop {
            while let Some((key, unread)) = self.unreadable.pop() {
                if let Some(event) = self.with_new_metadata(&key, unread).await {
                    return Some(Ok(event));
                }
            }
            if let Err(error) = self.line().await? {
                return failed(watcher::Error::WatchFailed(kube::Error::ReadEvents(error)));
            }
            // Yields to other tasks when the budget is used up, because the connection may always have more data, and the runtime may have only one
            // thread.
            for _ in 0..=self.line.len() / PIECE {
                consume_budget().await;
            }
            let (unread, fallback) = match decode::line(&self.line) {
                Line::Event(event) => {
                    if let WatchEvent::Added(_) | WatchEvent::Modified(_) = event {
                        self.on_object.iter().for_each(|f| f());
                    }
                    return Some(Ok(self.delivered(event)));
                }
                Line::Failed(status) => return failed(watcher::Error::WatchError(status)),
                Line::Unreadable(unread, fallback) => (unread, fallback),
            };
            self.counter.add(&self.url, &unread);
            match fallback {
                Fallback::Nothing => {}
                Fallback::Deliver(WatchEvent::Bookmark(version)) => {
                    match unread.key() {
                        Some(_) if self.lists => self.listing.add(unread, self.stored.is_attached()),
                        Some(key) => {
                            if let Some(event) = self.with_new_metadata(&key, unread).await {
                                self.bookmark = (!self.unordered).then_some(version);
                                return Some(Ok(event));
                            }
                        }
                        None => {}
                    }
                    if !self.unordered {
                        return Some(Ok(WatchEvent::Bookmark(version)));
                    }
                }
                Fallback::Deliver(event) => return Some(Ok(self.delivered(event))),
                Fallback::List => {
                    let error = serde::de::Error::custom(unread.error);
                    return failed(watcher::Error::WatchFailed(kube::Error::SerdeError(error)));
                }
            }
        }
    }
}

impl<K> fmt::Debug for ApiWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiWatch").field("url", &self.url).finish_non_exhaustive()
    }
}
