//! EDGE. Where objects come from: something that can be listed, and watched from a version on.
//!
//! Cancel safety: the informer drops the future of a call, or a watch in the middle of
//! [`next`](WatchStream::next), whenever it is shut down, dropped or out of patience. It never uses a watch again after
//! dropping one of its futures, so an implementation needs no cancel safety beyond releasing what it holds.

use crate::{ListRequest, Page, SourceError, WatchEvent, WatchRequest};

/// Something that can be listed, and watched from a version on.
///
/// The contract an [`Informer`](crate::Informer) relies on:
/// 1. a list of version *v* holds every object as it was at *v* (pages of one list together), but those that are [unread](Self::is_unreadable);
/// 2. a watch from *v* delivers every change after *v*, or fails with [`Expired`](crate::SourceErrorKind::Expired);
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
///
/// A source around another one hands on what has a default, too:
/// ```
/// use flyball_informer_cache::testing::ScriptedSource;
/// use flyball_informer_cache::{ListRequest, ListVersion, Page, Source, SourceError, SourceErrorKind, WatchRequest};
/// use std::sync::atomic::{AtomicU64, Ordering};
///
/// /// Counts the requests to a source.
/// struct Counted<S> {
///     source: S,
///     requests: AtomicU64,
/// }
///
/// impl<S: Source> Source for Counted<S> {
///     type Object = S::Object;
///     type Watch = S::Watch;
///
///     async fn list(&self, request: ListRequest) -> Result<Page<S::Object>, SourceError> {
///         self.requests.fetch_add(1, Ordering::Relaxed);
///         self.source.list(request).await
///     }
///
///     async fn watch(&self, request: WatchRequest) -> Result<S::Watch, SourceError> {
///         self.requests.fetch_add(1, Ordering::Relaxed);
///         self.source.watch(request).await
///     }
///
///     fn list_progress(&self) -> u64 {
///         self.source.list_progress()
///     }
///
///     fn is_unreadable(&self, stored: &S::Object) -> bool {
///         self.source.is_unreadable(stored)
///     }
///
///     fn is_polling(&self) -> bool {
///         self.source.is_polling()
///     }
/// }
///
/// let numbers = Counted { source: ScriptedSource::<u32>::new(), requests: AtomicU64::new(0) };
/// numbers.source.answer_list(Err(SourceErrorKind::ConnectionRefused.into()));
/// let request = ListRequest { min_version: ListVersion::Any, limit: None, continuation: None };
/// assert!(flyball_sync::block_on(numbers.list(request)).is_err());
/// assert_eq!(numbers.requests.into_inner(), 1);
/// ```
///
/// What has no list and no watch is no source:
/// ```compile_fail,E0277
/// use flyball_informer_cache::{Informer, Schema, Version};
///
/// let schema = Schema::new(|number: &u64| *number, |_| Version::ZERO);
/// let builder = Informer::builder(schema, vec![1, 2, 3]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of objects",
    note = "an informer follows a type that implements `Source`: what can be listed, and watched from a version on",
    note = "for objects of Kubernetes there is `flyball_kube::ApiSource`; for tests, `testing::TestServer`"
)]
pub trait Source: Send + Sync + 'static {
    /// What is listed and watched.
    type Object: Send + Sync + 'static;
    /// A running watch.
    type Watch: WatchStream<Object = Self::Object>;

    /// One page of the list.
    ///
    /// # Errors
    /// The [kind](crate::SourceErrorKind) of the error decides what the informer does next.
    fn list(
        &self,
        request: ListRequest,
    ) -> impl Future<Output = Result<Page<Self::Object>, SourceError>> + Send;

    /// Opens a watch.
    ///
    /// # Errors
    /// The [kind](crate::SourceErrorKind) of the error decides what the informer does next.
    fn watch(&self, request: WatchRequest) -> impl Future<Output = Result<Self::Watch, SourceError>> + Send;

    /// A counter that changes whenever a part of the answer to [`list`](Self::list) arrives: bytes, or objects.
    ///
    /// The informer reads it each time the future of a list is pending. As long as it changes, the list goes on: its deadline,
    /// [`request_timeout`](crate::ReflectorConfig::request_timeout), counts from the last change. With the default, a constant, it counts from the request. A
    /// source that wraps another one returns the counter of that one.
    fn list_progress(&self) -> u64 {
        0
    }

    /// Whether this stored object exists although the list that was just completed does not contain it.
    ///
    /// For a source that may fail to decode an object: an object that was decoded before stays as it is stored. Called at the end of a list or of a
    /// streaming list, for each stored object that the list does not contain; `false`, the default, deletes the object. A source
    /// that wraps another one forwards the call.
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
///
/// # Examples
/// A watch that repeats a recording, and then ends:
/// ```
/// use flyball_informer_cache::{SourceError, WatchEvent, WatchStream};
///
/// struct Recording(std::vec::IntoIter<WatchEvent<u64>>);
///
/// impl WatchStream for Recording {
///     type Object = u64;
///
///     async fn next(&mut self) -> Option<Result<WatchEvent<u64>, SourceError>> {
///         self.0.next().map(Ok)
///     }
/// }
///
/// let mut watch = Recording(vec![WatchEvent::Added(7)].into_iter());
/// flyball_sync::block_on(async {
///     assert!(matches!(watch.next().await, Some(Ok(WatchEvent::Added(7)))));
///     assert!(watch.next().await.is_none());
/// });
/// ```
pub trait WatchStream: Send + 'static {
    /// What is watched.
    type Object;

    /// The next message; `None` when the watch ended in order. After `None` or an error it is not asked again.
    ///
    /// A watch that has many messages ready should hand them out without going pending in between: the informer
    /// applies what is ready as one batch.
    fn next(&mut self) -> impl Future<Output = Option<Result<WatchEvent<Self::Object>, SourceError>>> + Send;
}
