//! EDGE. The source of an informer's objects, which can be listed, and watched from a given version.
//!
//! Cancel safety: when an informer is shut down or dropped, or when a deadline passes, it drops the future of the call in progress; this may be a
//! call of [`next`](WatchStream::next). After the informer has dropped such a future of a watch, it never uses the watch again, so an implementation
//! only has to release its resources on drop.

use crate::{ListRequest, Page, SourceError, WatchEvent, WatchRequest};

/// A source of objects that can be listed, and watched from a given version.
///
/// An [`Informer`](crate::Informer) relies on this contract:
/// 1. the pages of a list of version *v* together contain every object in its state at *v*, except objects that are
///    [unreadable](Self::is_unreadable);
/// 2. a watch from *v* delivers every change after *v*, or fails with [`Expired`](crate::SourceErrorKind::Expired); *v* need not be the version of a
///    change;
/// 3. the versions of different objects can be compared (several objects may have the same version);
/// 4. a bookmark of *v* is delivered only after all changes up to *v*, and a watch that has delivered a change of *v* ends normally (with `None`) only
///    after all changes of *v*; with an error, it may end anywhere.
///
/// One write of the source, which has one version, may change several objects. It may also delete an object and create another one under the same key;
/// then the schema must [distinguish the two](crate::Schema::with_identity), and the deletion must be delivered before the creation. An object has at most
/// one state in one version, of which its deletion is one.
///
/// Changes should be delivered in the order of their versions, but the stored objects do not depend on this order, because an event is compared with
/// the stored object of its key. An event changes nothing, and is counted as [stale](crate::InformerStatus::stale_events), if it is repeated, if it
/// is older than the stored object, or if the object was deleted and the event is older than the deletion. The deletion of an object is also stale if
/// another object with the same version is stored under its key. (A deletion of an object that is not
/// stored changes nothing, and is not counted.) Every other event is applied. There are two limits. If an object is not stored, an addition of it at
/// or below the version of the last list or bookmark is stale. Besides, the informer remembers at most 1024 deletions since that list or bookmark; if
/// there were more, an addition is also stale if it is older than 512 of these deletions. (While a streaming list arrives, all of its deletions are
/// remembered.)
///
/// Two things do depend on the order of versions across objects:
/// - The next watch begins at the newest version *v* up to which every change was delivered. That is the newest delivered version if a list, a bookmark
///   or the normal end of the watch shows that all of its changes were delivered. Otherwise, it is the version before it, *v* − 1, so that no change is
///   lost if the watch was interrupted between two changes of *v*; the changes of *v* that were delivered before are stale. If none of them is
///   delivered again before a newer version and within [`request_timeout`](crate::ReflectorConfig::request_timeout), the source has lost them (it was
///   restored to *v* − 1) or has replaced them by newer states, and the informer lists. So a source that merges several streams must itself keep the
///   position of each stream, and a source that cannot deliver a change twice must deliver a bookmark of *v* before an error.
/// - When a wait for a version returns, every change up to that version is stored; the same holds for the version that
///   [`Store::version`](crate::Store::version) returns. This is guaranteed only if changes arrive in the order of their versions, or if the version
///   is that of a list or a bookmark. If several changes have the same version, a wait for it returns when the first of them is stored; to wait for all
///   of them, wait for a later version.
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
/// A source that wraps a different source must also forward the methods that have default implementations:
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
/// A type that can be neither listed nor watched is not a source:
/// ```compile_fail,E0277
/// use flyball_informer_cache::{Informer, Schema, Version};
///
/// let schema = Schema::new(|number: &u64| *number, |_| Version::ZERO);
/// let builder = Informer::builder(schema, vec![1, 2, 3]);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no source of objects",
    note = "an informer needs a type that implements `Source`: it can be listed, and watched from a version on",
    note = "for objects of Kubernetes there is `flyball_kube::ApiSource`; for tests, `testing::TestServer`"
)]
pub trait Source: Send + Sync + 'static {
    /// The type of the objects.
    type Object: Send + Sync + 'static;
    /// A running watch.
    type Watch: WatchStream<Object = Self::Object>;

    /// Returns one page of the list.
    ///
    /// # Errors
    /// The [kind](crate::SourceErrorKind) of the error determines what the informer does next.
    ///
    /// # Cancel safety
    /// The informer drops the future when the [`request_timeout`](crate::ReflectorConfig::request_timeout) has passed, and when it is shut down or
    /// dropped. After a timeout it lists again, so dropping the future must not lose anything that a later list needs.
    fn list(
        &self,
        request: ListRequest,
    ) -> impl Future<Output = Result<Page<Self::Object>, SourceError>> + Send;

    /// Opens a watch.
    ///
    /// # Errors
    /// The [kind](crate::SourceErrorKind) of the error determines what the informer does next.
    ///
    /// # Cancel safety
    /// The informer drops the future in the same cases as that of [`list`](Self::list). After a timeout it opens another watch, or lists again.
    fn watch(&self, request: WatchRequest) -> impl Future<Output = Result<Self::Watch, SourceError>> + Send;

    /// Returns a counter that changes whenever a part of the response to [`list`](Self::list) arrives. It may count bytes or objects, for example.
    ///
    /// The informer reads the counter each time it polls the future of a list and the future is pending. Each change of the counter restarts the
    /// [`request_timeout`](crate::ReflectorConfig::request_timeout) of the list. The default implementation returns a constant, so the timeout counts
    /// from the request. A source that wraps a different source should return the counter of the wrapped source.
    fn list_progress(&self) -> u64 {
        0
    }

    /// Returns whether this stored object still exists in the source, although the list that has just been completed does not contain it.
    ///
    /// This is for a source that may fail to decode an object. The informer calls it at the end of a list or of a streaming list, for each stored
    /// object that the list does not contain. If the method returns `true`, the stored object stays unchanged. If it returns `false`, which is the
    /// default, the object is deleted. A source that wraps a different source should forward the call.
    ///
    /// # Panics
    /// An implementation should not panic. If it does, the list is discarded, and the informer lists again after a wait.
    ///
    /// # Examples
    /// A source that reads its objects from lines with two numbers, where the number before the colon is the key:
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

    /// Returns whether the source polls. Each watch of a polling source delivers the changes that are available and then ends; if there are none, it
    /// ends after a while.
    ///
    /// Suppose that a watch ends within [`min_watch_interval`](crate::ReflectorConfig::min_watch_interval) and without an event. If the method
    /// returns `false`, this is a failure: the informer backs off and lists again. If it returns `true`, the next watch begins at the same version,
    /// `min_watch_interval` after the start of this one. So this interval is the polling period of a source that answers immediately. The default is
    /// `false`, for sources whose watches stay open. The method is called when an informer is built and when its reflector is configured, not for
    /// each watch. A source that wraps a different source should forward the call.
    fn is_polling(&self) -> bool {
        false
    }
}

/// An open watch. Dropping the stream ends the watch.
///
/// # Examples
/// A watch that replays recorded events and then ends:
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
    /// The type of the objects.
    type Object;

    /// Returns the next message; `None` if the watch ended normally. It is not called again after it has returned `None` or an error.
    ///
    /// If several messages are ready, consecutive calls should return them without a `Pending` in between, because the informer applies them as one
    /// batch.
    ///
    /// # Cancel safety
    /// An implementation need not be cancel safe: the informer polls the future until it completes, or drops it together with the stream.
    fn next(&mut self) -> impl Future<Output = Option<Result<WatchEvent<Self::Object>, SourceError>>> + Send;
}
