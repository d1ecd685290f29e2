//! PURE. The requests to a source, and the page that answers a list request.

use std::time::Duration;

use crate::Version;

/// How recent a list must be.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{ListVersion, Version};
///
/// fn query(version: ListVersion) -> String {
///     match version {
///         ListVersion::Any => "?resourceVersion=0".into(),
///         ListVersion::NotOlderThan(version) => format!("?resourceVersion={version}"),
///         ListVersion::MostRecent => String::new(),
///     }
/// }
/// assert_eq!(query(ListVersion::NotOlderThan(Version::new(7))), "?resourceVersion=7");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListVersion {
    /// Any available version, however old (Kubernetes: `resourceVersion=0`).
    Any,
    /// This version or a later one (Kubernetes: `resourceVersion=N`).
    NotOlderThan(Version),
    /// The newest version (Kubernetes: no `resourceVersion`).
    MostRecent,
}

/// A request for a list, or for the next page of a list.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{ListRequest, ListVersion, Page, Version};
///
/// /// Answers from memory, in pages. The token is the position of the next object.
/// fn page(objects: &[u64], request: &ListRequest) -> Page<u64> {
///     let start = request.continuation.as_ref().map_or(0, |token| token.parse().expect("a token of ours"));
///     let end = request.limit.map_or(objects.len(), |limit| objects.len().min(start + limit as usize));
///     let continuation = (end < objects.len()).then(|| end.to_string());
///     Page { items: objects[start..end].to_vec(), version: Version::new(1), continuation }
/// }
///
/// let mut request = ListRequest { min_version: ListVersion::Any, limit: Some(2), continuation: None };
/// let first = page(&[1, 2, 3], &request);
/// request.continuation = first.continuation;
/// let last = page(&[1, 2, 3], &request);
/// assert_eq!((first.items, last.items, last.continuation), (vec![1, 2], vec![3], None));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListRequest {
    /// How recent the list must be. If there is a continuation, this is always [`MostRecent`](ListVersion::MostRecent), because the continuation
    /// itself determines the version.
    pub min_version: ListVersion,
    /// The maximum number of items in the page, or `None` if there is no limit. A source may ignore the limit.
    pub limit: Option<u32>,
    /// The continuation that the previous page returned; the requested page starts there. `None` requests the first page.
    pub continuation: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<V> {
    /// The objects.
    pub items: Vec<V>,
    /// The version of the state that the list describes.
    pub version: Version,
    /// The continuation, a token with which the next page is requested. It is `None` or empty in the last page.
    pub continuation: Option<String>,
}

/// A request for a watch.
///
/// # Examples
/// The query of a request to a server with Kubernetes' parameters:
/// ```
/// use flyball_informer_cache::{Version, WatchRequest};
/// use std::time::Duration;
///
/// fn query(request: &WatchRequest) -> String {
///     let WatchRequest { from_version, streaming_list, timeout } = request;
///     let streaming = if *streaming_list { "&sendInitialEvents=true" } else { "" };
///     format!("?watch=true&resourceVersion={from_version}&timeoutSeconds={}{streaming}", timeout.as_secs())
/// }
///
/// let from_version = Version::new(7);
/// let request = WatchRequest { from_version, streaming_list: false, timeout: Duration::from_secs(300) };
/// assert_eq!(query(&request), "?watch=true&resourceVersion=7&timeoutSeconds=300");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchRequest {
    /// The watch delivers the changes after this version. With [`Version::ZERO`], the watch starts at any available state and first delivers the
    /// objects of that state as `Added`. For a streaming list, the version has a different meaning: the list must not be older than this version, and
    /// [`Version::ZERO`] requests the newest list.
    pub from_version: Version,
    /// Whether a streaming list is requested: the watch first delivers all existing objects as `Added`, then
    /// [`InitialListEnd`](crate::WatchEvent::InitialListEnd), and then continues as a plain watch.
    pub streaming_list: bool,
    /// How long the watch should stay open. After this time, the source should end the watch normally. A source may ignore this timeout: the informer
    /// itself ends a watch that is open for longer than this timeout plus the [`watch_timeout_grace`](crate::ReflectorConfig::watch_timeout_grace),
    /// and opens the next one at the newest version up to which every change was delivered.
    pub timeout: Duration,
}
