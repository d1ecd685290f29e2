//! EDGE. The [`Source`] of an informer over a stream of kube's `watcher()`.
//!
//! Cancel safety: the stream and the incomplete list are stored in the source. Each item that the stream yields is stored there or returned, without
//! an await point in between. So if a future or a watch is dropped, no item is lost: the next future or watch continues after the last item.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use flyball_informer_cache::{
    Informer, InformerBuilder, ListRequest, NamespacedName, Page, ReflectorConfig, Source, SourceError,
    SourceErrorKind, Version, WatchEvent, WatchRequest, WatchStream,
};
use futures_core::Stream;
use futures_util::StreamExt;
use kube::Resource;
use kube::runtime::watcher;
use tokio::task::coop::consume_budget;

use crate::keys::{object_key, version_of};
use crate::source::api_error::source_error;
use crate::{ApiError, schema};
use tokio::sync::Mutex as AsyncMutex;

type Events<K> = Pin<Box<dyn Stream<Item = watcher::Result<watcher::Event<K>>> + Send>>;

/// The source of an informer that reads a stream of [`watcher()`](watcher::watcher), with or without stream adapters.
///
/// The stream determines when a relist begins; an informer cannot request a relist. So the informer needs a reflector that never requests a relist;
/// [`informer_from_stream`] configures one. The version of a list is that of its newest object, because a watcher does not return the list's own
/// version.
///
/// After an error of the stream, the informer backs off and then continues with the same stream. So the stream needs no backoff of its own. After the
/// end of the stream every request of the informer fails. An object without a name is logged and skipped.
///
/// # Examples
/// ```
/// use futures_util::stream;
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::runtime::watcher::Event;
/// use serde_json::{from_value, json};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let pod: Pod = from_value(json!({"metadata": {"namespace": "default", "name": "a", "resourceVersion": "7"}}))?;
/// let events = [Event::Init, Event::InitApply(pod), Event::InitDone].map(Ok);
/// let pods = flyball_kube::informer_from_stream(stream::iter(events)).start()?;
/// pods.synced().await?;
/// assert!(pods.store().get("default/a").is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct StreamSource<K>(Arc<AsyncMutex<State<K>>>);

struct State<K> {
    /// The stream is fused, because it is polled again after its end.
    events: Events<K>,
    /// Objects listed since the last `Init`; `None` if the list is complete.
    incomplete_list: Option<Vec<K>>,
    /// The version of the last list, or of the newest object that was delivered since then.
    newest: Version,
    /// Whether an object of this version was delivered since the last list and the last bookmark.
    unmarked: bool,
    /// An error that the watch yields next.
    error: Option<SourceError>,
}

/// Returns a builder of an informer of the objects that a stream of [`watcher()`](watcher::watcher) yields; see
/// [`StreamSource`].
pub fn informer_from_stream<K, S>(events: S) -> InformerBuilder<NamespacedName, K, StreamSource<K>>
where
    K: Resource + Send + Sync + 'static,
    S: Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static,
{
    StreamSource::new(events).into_informer()
}

impl<K: Resource + Send + Sync + 'static> StreamSource<K> {
    /// Creates a source of the objects that this stream yields.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{ListRequest, ListVersion, Source, WatchEvent, WatchRequest, WatchStream};
    /// use flyball_kube::{StreamSource, StreamWatch};
    /// use futures_util::stream;
    /// use k8s_openapi::api::core::v1::Pod;
    /// use kube::runtime::watcher::Event;
    /// use serde_json::{from_value, json};
    /// use std::time::Duration;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let pod: Pod = from_value(json!({"metadata": {"name": "a", "resourceVersion": "7"}}))?;
    /// let events = [Event::Init, Event::InitApply(pod.clone()), Event::InitDone, Event::Delete(pod)];
    /// let source = StreamSource::new(stream::iter(events.map(Ok)));
    ///
    /// let page = source.list(ListRequest { min_version: ListVersion::Any, limit: None, continuation: None }).await?;
    /// let request =
    ///     WatchRequest { from_version: page.version, streaming_list: false, timeout: Duration::from_secs(60) };
    /// let mut watch: StreamWatch<Pod> = source.watch(request).await?;
    /// assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Deleted(_)))));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn new(events: impl Stream<Item = watcher::Result<watcher::Event<K>>> + Send + 'static) -> Self {
        Self(Arc::new(AsyncMutex::new(State {
            events: Box::pin(events.fuse()),
            incomplete_list: None,
            newest: Version::ZERO,
            unmarked: false,
            error: None,
        })))
    }

    /// Returns an informer builder for these objects. Its reflector never requests a relist by itself.
    fn into_informer(self) -> InformerBuilder<NamespacedName, K, Self> {
        let config = ReflectorConfig {
            // With these values, internal errors never cause a relist, and a watch does not end because of its age.
            max_internal_error_retry_duration: Duration::MAX,
            min_watch_timeout: Duration::from_secs(365 * 24 * 3600),
            ..ReflectorConfig::default()
        };
        Informer::builder(schema(), self).reflector_config(config)
    }
}

impl<K: Resource + Send + Sync + 'static> Source for StreamSource<K> {
    type Object = K;
    type Watch = StreamWatch<K>;

    async fn list(&self, _: ListRequest) -> Result<Page<K>, SourceError> {
        let mut state = self.0.lock().await;
        let over = || source_error(watcher::Error::InitialListFailed(words("the stream is over")));
        loop {
            let event = state.events.next().await.ok_or_else(over)?;
            let items = state.collect(event.map_err(source_error)?);
            if let Some(items) = items {
                // The version is computed from this list alone, even if it is lower than the version of the previous list: if the server was restored
                // to an earlier version, the cache must follow. The version is at least 1, because version zero would request a watch from any state.
                let newest = items.iter().map(version_of).max().unwrap_or_default();
                (state.newest, state.unmarked) = (newest.max(Version::new(1)), false);
                return Ok(Page { items, version: state.newest, continuation: None });
            }
            consume_budget().await;
        }
    }

    async fn watch(&self, _: WatchRequest) -> Result<StreamWatch<K>, SourceError> {
        Ok(StreamWatch(self.0.clone()))
    }
}

impl<K: Resource> State<K> {
    /// Adds an event to the incomplete list, and returns the objects of the list when it is complete.
    fn collect(&mut self, event: watcher::Event<K>) -> Option<Vec<K>> {
        match event {
            watcher::Event::Init => self.incomplete_list = Some(Vec::new()),
            watcher::Event::InitDone => return self.incomplete_list.take(),
            watcher::Event::InitApply(object) | watcher::Event::Apply(object) => {
                if let Some(incomplete_list) = &mut self.incomplete_list
                    && is_named(&object)
                {
                    incomplete_list.push(object);
                }
            }
            watcher::Event::Delete(object) => {
                if let Some(incomplete_list) = &mut self.incomplete_list {
                    incomplete_list.retain(|other| object_key(other).ok() != object_key(&object).ok());
                }
            }
        }
        None
    }

    fn delivered(&mut self, object: &K) {
        let version = version_of(object);
        if version > self.newest {
            (self.newest, self.unmarked) = (version, true);
        }
    }

    /// Returns the bookmark that must precede an error after which the stream continues.
    ///
    /// Without it, the informer would watch again from before the newest version, because the error might separate two changes of that version. But the
    /// stream does not yield a change twice, so the informer would list, and miss all changes up to the next `Init`.
    fn bookmark(&mut self) -> Option<WatchEvent<K>> {
        std::mem::take(&mut self.unmarked).then_some(WatchEvent::Bookmark(self.newest))
    }
}

/// A running watch of a [`StreamSource`].
pub struct StreamWatch<K>(Arc<AsyncMutex<State<K>>>);

impl<K: Resource + Send + Sync + 'static> WatchStream for StreamWatch<K> {
    type Object = K;

    async fn next(&mut self) -> Option<Result<WatchEvent<K>, SourceError>> {
        let mut state = self.0.lock().await;
        loop {
            if let Some(error) = state.error.take() {
                return Some(Err(error));
            }
            let event = match state.events.next().await {
                Some(Ok(event)) => event,
                Some(Err(error)) => {
                    state.error = Some(failed(error));
                    match state.bookmark() {
                        Some(bookmark) => return Some(Ok(bookmark)),
                        None => continue,
                    }
                }
                None => {
                    return Some(Err(source_error(watcher::Error::WatchFailed(words("the stream is over")))));
                }
            };
            match event {
                watcher::Event::Apply(object) if is_named(&object) => {
                    state.delivered(&object);
                    return Some(Ok(WatchEvent::Modified(object)));
                }
                watcher::Event::Delete(object) if is_named(&object) => {
                    state.delivered(&object);
                    return Some(Ok(WatchEvent::Deleted(object)));
                }
                watcher::Event::Init => {
                    state.incomplete_list = Some(Vec::new());
                    let error = ApiError::from(watcher::Error::WatchFailed(words("the stream began anew")));
                    return Some(Err(SourceError::new(SourceErrorKind::Expired, error)));
                }
                // These events have no meaning here: the first two occur only within a list, and the objects of the others have no name.
                watcher::Event::InitApply(_) | watcher::Event::InitDone => {}
                watcher::Event::Apply(_) | watcher::Event::Delete(_) => {}
            }
        }
    }
}

/// Converts an error that the stream yields during a watch. The watcher continues after the error, so the error has the kind `Expired` only if the
/// watcher must list again.
fn failed(error: watcher::Error) -> SourceError {
    let restarts = matches!(error, watcher::Error::WatchError(_));
    let error = ApiError::from(error);
    let kind = match error.kind() {
        SourceErrorKind::Expired if restarts => SourceErrorKind::Expired,
        kind @ (SourceErrorKind::TooManyRequests { .. } | SourceErrorKind::ConnectionRefused) => kind,
        _ => SourceErrorKind::Internal,
    };
    SourceError::new(kind, error)
}

fn words(text: &str) -> kube::Error {
    kube::Error::Service(text.into())
}

fn is_named(object: &impl Resource) -> bool {
    let key = object_key(object);
    if let Err(error) = &key {
        tracing::warn!(object = object.meta().name, %error, "an object of a stream has no key and is skipped");
    }
    key.is_ok()
}

impl<K> fmt::Debug for StreamSource<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSource").finish_non_exhaustive()
    }
}

impl<K> fmt::Debug for StreamWatch<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamWatch").finish_non_exhaustive()
    }
}
