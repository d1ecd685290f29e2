//! EDGE. Where objects come from: something that can be listed, and watched from a version on.
//!
//! Cancel safety: the informer drops the future of a call, or a watch in the middle of
//! [`next`](WatchStream::next), whenever it is shut down, dropped or out of patience. It never uses a watch again after
//! dropping one of its futures, so an implementation needs no cancel safety beyond releasing what it holds.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use crate::{Version, WatchEvent};

/// Something that can be listed, and watched from a version on.
///
/// The contract an [`Informer`](crate::Informer) relies on:
/// 1. a list of version *v* holds every object as it was at *v* (pages of one list together), but those that are [unread](Self::is_unreadable);
/// 2. a watch from *v* delivers every change after *v*, or fails with [`Expired`](SourceErrorKind::Expired);
/// 3. versions are comparable across objects (several objects may share one);
/// 4. a bookmark of *v* is delivered after every change up to *v*.
///
/// Changes should be delivered in the order of versions, but the stored objects do not depend on it: an event is compared with the stored object of its key.
/// An event that is older than the stored object, or than the deletion of an absent one, and an event that is repeated, change nothing and are counted as
/// [stale](crate::InformerStatus::stale_events). Every other event is applied. Two bounds: an addition at or below the version of the last list or bookmark is stale if the
/// object is absent; and at most 1024 deletions since then are remembered, after which an addition that is older than 512 of them is stale, too.
///
/// These depend on the order of versions across objects:
/// - the next watch begins at the newest version that was delivered, so a source that merges several streams has to keep the position of each
///   stream itself;
/// - [`Store::version`](crate::Store::version) and the waits for it promise that everything up to a version is stored only where the order holds, or at the
///   version of a list or a bookmark.
///
/// # Examples
/// A source whose objects never change:
/// ```
/// use flyball_informer_cache::{WatchEvent, ListRequest, Page, Source, SourceError, Version, WatchStream, WatchRequest};
///
/// struct Fixed(Vec<u64>);
/// struct Silent;
///
/// impl WatchStream for Silent {
///     type Object = u64;
///     async fn next(&mut self) -> Option<Result<WatchEvent<u64>, SourceError>> {
///         std::future::pending().await
///     }
/// }
///
/// impl Source for Fixed {
///     type Object = u64;
///     type Watch = Silent;
///     async fn list(&self, _: ListRequest) -> Result<Page<u64>, SourceError> {
///         Ok(Page { items: self.0.clone(), version: Version::new(1), continuation: None })
///     }
///     async fn watch(&self, _: WatchRequest) -> Result<Silent, SourceError> {
///         Ok(Silent)
///     }
/// }
/// ```
pub trait Source: Send + Sync + 'static {
    /// What is listed and watched.
    type Object: Send + Sync + 'static;
    /// A running watch.
    type Watch: WatchStream<Object = Self::Object>;

    /// One page of the list.
    ///
    /// # Errors
    /// The [kind](SourceErrorKind) of the error decides what the informer does next.
    fn list(
        &self,
        request: ListRequest,
    ) -> impl Future<Output = Result<Page<Self::Object>, SourceError>> + Send;

    /// Opens a watch.
    ///
    /// # Errors
    /// The [kind](SourceErrorKind) of the error decides what the informer does next.
    fn watch(&self, request: WatchRequest) -> impl Future<Output = Result<Self::Watch, SourceError>> + Send;

    /// A counter that changes whenever a part of the answer to [`list`](Self::list) arrives: bytes, or objects.
    ///
    /// The informer reads it each time the future of a list is pending. As long as it changes, the list goes on: its deadline,
    /// [`request_timeout`](crate::ReflectorConfig::request_timeout), counts from the last change. With the default, a constant, it counts from the request. A
    /// source that wraps another one returns the counter of that one.
    fn list_progress(&self) -> u64 {
        0
    }

    /// Whether this stored object is there although the list that just became complete does not tell it.
    ///
    /// For a source that can meet objects it cannot read: one that was known before stays as it is stored. Asked when all pages of a list,
    /// or a streaming list to its end, have been told, of each stored object that was not among them; `false`, the default, deletes it. A source
    /// that wraps another one hands the question on.
    ///
    /// # Panics
    /// It should not: a panic fails the list, which then changes nothing and is asked for again after a wait.
    ///
    /// # Examples
    /// Two numbers to a line; the one before the colon names the object:
    /// ```
    /// use flyball_informer_cache::{ListRequest, Page, Source, SourceError, Version, WatchRequest};
    /// # use flyball_informer_cache::{WatchEvent, WatchStream};
    /// use std::sync::Mutex;
    ///
    /// # struct Silent;
    /// # impl WatchStream for Silent {
    /// #     type Object = (u32, u32);
    /// #     async fn next(&mut self) -> Option<Result<WatchEvent<(u32, u32)>, SourceError>> { std::future::pending().await }
    /// # }
    /// struct Lines {
    ///     text: String,
    ///     unread: Mutex<Vec<u32>>,
    /// }
    ///
    /// impl Source for Lines {
    ///     type Object = (u32, u32);
    /// #   type Watch = Silent;
    ///     async fn list(&self, _: ListRequest) -> Result<Page<(u32, u32)>, SourceError> {
    ///         let mut unread = self.unread.lock().unwrap();
    ///         unread.clear();
    ///         let mut items = Vec::new();
    ///         for (name, value) in self.text.lines().filter_map(|line| line.split_once(':')) {
    ///             let Ok(name) = name.parse() else { continue };
    ///             match value.parse() {
    ///                 Ok(value) => items.push((name, value)),
    ///                 Err(_) => unread.push(name),
    ///             }
    ///         }
    ///         Ok(Page { items, version: Version::new(1), continuation: None })
    ///     }
    /// #   async fn watch(&self, _: WatchRequest) -> Result<Silent, SourceError> { Ok(Silent) }
    ///     // …
    ///     fn is_unreadable(&self, stored: &(u32, u32)) -> bool {
    ///         self.unread.lock().unwrap().contains(&stored.0)
    ///     }
    /// }
    /// ```
    fn is_unreadable(&self, stored: &Self::Object) -> bool {
        let _ = stored;
        false
    }

    /// Whether the source polls: each watch delivers the changes there are and ends, or ends after a while without changes.
    ///
    /// Without polling, a watch that ends within [`min_watch_interval`](crate::ReflectorConfig::min_watch_interval) without an event is a failure: the informer
    /// backs off and lists again. With polling, the next watch begins at the same version. In both cases at most one watch is opened in each
    /// `min_watch_interval`, which is therefore the period of a poll that answers at once. The default, `false`, is for a watch that stays open. The
    /// informer calls this once, when it is built. A source that wraps another one delegates to it.
    fn is_polling(&self) -> bool {
        false
    }
}

/// A running watch. Dropping it ends it.
pub trait WatchStream: Send + 'static {
    /// What is watched.
    type Object;

    /// The next message; `None` when the watch ended in order. After `None` or an error it is not asked again.
    ///
    /// A watch that has many messages ready should hand them out without going pending in between: the informer
    /// applies what is ready as one batch.
    fn next(&mut self) -> impl Future<Output = Option<Result<WatchEvent<Self::Object>, SourceError>>> + Send;
}

/// How fresh a list has to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ListVersion {
    /// Whatever is at hand, however old (Kubernetes: `resourceVersion=0`).
    Any,
    /// This version or a later one (Kubernetes: `resourceVersion=N`).
    NotOlderThan(Version),
    /// The newest there is (Kubernetes: no `resourceVersion`).
    MostRecent,
}

/// Asks for a list, or for the next page of one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListRequest {
    /// How fresh; always [`MostRecent`](ListVersion::MostRecent) beside a continuation, which has its own version.
    pub min_version: ListVersion,
    /// At most this many items in the page; `None` asks for everything. A source may ignore it.
    pub limit: Option<u32>,
    /// Goes on where the page that gave this token ended.
    pub continuation: Option<String>,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<V> {
    /// The objects.
    pub items: Vec<V>,
    /// The version the list was taken at.
    pub version: Version,
    /// The token of the next page; `None` or empty on the last.
    pub continuation: Option<String>,
}

/// Asks for a watch.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchRequest {
    /// The watch tells what changed after this version. [`Version::ZERO`]: from any state at hand, which is told
    /// as `Added` first. With a streaming list: the list is not older than this, `ZERO` asks for the newest.
    pub from_version: Version,
    /// Tell all existing objects as `Added`, then [`InitialListEnd`](WatchEvent::InitialListEnd), then go on as a watch.
    pub streaming_list: bool,
    /// The source should end the watch in order after this time.
    pub timeout: Duration,
}

/// Why a source failed, as far as the informer behaves differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The version or the continuation is too old (Kubernetes: `410 Gone`, `Expired`).
    Expired,
    /// The version asked for is newer than the source's (Kubernetes: "too large resource version").
    VersionTooLarge,
    /// The source asks for fewer requests (`429`).
    TooManyRequests {
        /// Not before this time.
        retry_after: Option<Duration>,
    },
    /// Nobody answers at the moment (connection refused).
    ConnectionRefused,
    /// The source failed for a reason of its own (`500 InternalError`).
    Internal,
    /// Anything else.
    Other,
}

impl fmt::Display for SourceErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "version expired",
            Self::VersionTooLarge => "version too large",
            Self::TooManyRequests { .. } => "too many requests",
            Self::ConnectionRefused => "connection refused",
            Self::Internal => "internal error of the source",
            Self::Other => "source failed",
        })
    }
}

/// Why a list or a watch failed.
///
/// # Examples
/// ```
/// use flyball_informer_cache::{SourceError, SourceErrorKind};
///
/// let error = SourceError::new(SourceErrorKind::Expired, "410 Gone");
/// assert_eq!(error.kind(), SourceErrorKind::Expired);
/// assert_eq!(error.to_string(), "version expired: 410 Gone");
/// ```
#[derive(Debug)]
pub struct SourceError {
    kind: SourceErrorKind,
    cause: Option<Box<dyn Error + Send + Sync>>,
}

impl SourceError {
    /// An error of this kind, with its cause.
    pub fn new(kind: SourceErrorKind, cause: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self { kind, cause: Some(cause.into()) }
    }

    /// What the informer goes by.
    #[must_use]
    pub const fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// The cause it was made with: who knows the source can downcast it.
    ///
    /// [`Error::source`] is the cause's own, since the cause itself is part of the message.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{SourceError, SourceErrorKind};
    /// use std::io;
    ///
    /// let error = SourceError::new(SourceErrorKind::Other, io::Error::from(io::ErrorKind::BrokenPipe));
    /// let cause = error.cause().and_then(|cause| cause.downcast_ref::<io::Error>());
    /// assert_eq!(cause.map(io::Error::kind), Some(io::ErrorKind::BrokenPipe));
    /// assert!(SourceError::from(SourceErrorKind::Other).cause().is_none());
    /// ```
    #[must_use]
    pub fn cause(&self) -> Option<&(dyn Error + Send + Sync + 'static)> {
        self.cause.as_deref()
    }
}

/// An error without a cause worth telling.
impl From<SourceErrorKind> for SourceError {
    fn from(kind: SourceErrorKind) -> Self {
        Self { kind, cause: None }
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.cause {
            Some(cause) => write!(f, "{}: {cause}", self.kind),
            None => self.kind.fmt(f),
        }
    }
}

impl Error for SourceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The cause itself is part of the message.
        self.cause.as_deref().and_then(Error::source)
    }
}
