//! EDGE. An informer: a source, a reflector and a store, driven by one future.
//!
//! Cancel safety: the run future may be dropped at any point. In that case the store keeps its last published state, a partial list is dropped, the
//! status becomes [`Stopped`](crate::InformerState::Stopped), and all waiters are woken. After [`shut_down`](Informer::shut_down) the run future
//! completes, with the same effects. A panic of the source or the timer propagates through the run future and ends the informer in the same way, with
//! the status [`Failed`](crate::InformerState::Failed). If a user's function panics on an object, the panic is caught, and the stored object stays
//! unchanged; but a deletion is applied nevertheless, unless the key function panics. The futures of [`synced`](Informer::synced) and
//! [`stopped`](Informer::stopped) may be dropped and created again at any time.

mod builder;
mod failure;
mod on_exit;
mod prepared;
mod retry_backoff;
mod run;
mod set;
pub(crate) mod status;
mod tombstones;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

pub use self::builder::{InformerBuildError, InformerBuilder};
pub use self::failure::SourceFailure;
pub use self::prepared::PreparedInformer;
pub use self::retry_backoff::RetryBackoff;
pub use self::set::{ConfigDifference, InformerSet, InformerStartError, NotSynced, SharedInformer};
pub use self::status::{ErrorRecord, InformerState, InformerStatus};

use crate::informer::status::StatusCell;
use crate::signal::stop_signal::StopSignal;
use crate::signal::synced::Synced;
use crate::{
    AnyIndex, Change, DuplicateIndex, Observer, Schema, SharedWriter, Snapshot, Source, Stopped, Store,
    Subscription, SubscriptionBuilder,
};

/// A store that a run future keeps up to date with a source. This type is a handle: its clones refer to the same informer.
///
/// An informer runs while its run future is polled, until it is [shut down](Self::shut_down) or fails. Dropping all handles does not end it. An
/// informer that has ended cannot be restarted; build a new one.
///
/// # Examples
/// ```
/// # use flyball_informer_cache::*;
/// # struct Fixed(Vec<u64>);
/// # struct Silent;
/// # impl WatchStream for Silent {
/// #     type Object = u64;
/// #     async fn next(&mut self) -> Option<Result<WatchEvent<u64>, SourceError>> { std::future::pending().await }
/// # }
/// # impl Source for Fixed {
/// #     type Object = u64;
/// #     type Watch = Silent;
/// #     async fn list(&self, _: ListRequest) -> Result<Page<u64>, SourceError> {
/// #         Ok(Page { items: self.0.clone(), version: Version::new(1), continuation: None })
/// #     }
/// #     async fn watch(&self, _: WatchRequest) -> Result<Silent, SourceError> { Ok(Silent) }
/// # }
/// use flyball_sync::ManualClock;
///
/// const NUMBERS: Schema<u64, u64> = Schema::new(|number| *number, |_| Version::ZERO);
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let clock = ManualClock::new(); // in production a timer of the runtime, or `start()` with the feature `tokio`
/// let (numbers, run) = Informer::builder(NUMBERS, Fixed(vec![1, 2, 3])).timer(clock.timer()).build()?;
/// let running = tokio::spawn(run);
/// numbers.synced().await?;
/// assert_eq!(numbers.snapshot().len(), 3);
/// numbers.shut_down();
/// running.await.unwrap();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
pub struct Informer<K, V> {
    shared: Arc<Shared<K, V>>,
}

/// State shared by the run future and the handles.
pub(crate) struct Shared<K, V> {
    writer: SharedWriter<K, V>,
    /// The signal that is set when the run future has ended. It has its own `Arc`, so that a waiter does not keep the store alive.
    stopped: Arc<Synced>,
    status: StatusCell,
    stop: StopSignal,
}

impl<K, V> Shared<K, V> {
    fn new(writer: SharedWriter<K, V>) -> Self {
        Self { writer, stopped: Arc::default(), status: StatusCell::new(), stop: StopSignal::default() }
    }
}

impl<K, V> Informer<K, V>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    /// Creates a builder for an informer whose objects come from `source`. `schema` contains the functions that read the key and the version of an
    /// object.
    pub fn builder<S: Source<Object = V>>(schema: Schema<K, V>, source: S) -> InformerBuilder<K, V, S> {
        InformerBuilder::new(schema, source)
    }

    /// Returns the store that the run future writes to.
    #[must_use]
    pub fn store(&self) -> &Store<K, V> {
        &self.shared.writer
    }

    /// Adds an index to the running store; see [`SharedWriter::add_index`]. The index stays as long as the informer, because other users of the
    /// informer may come to use it.
    ///
    /// # Errors
    /// Returns an error if the store has an index of this name.
    ///
    /// # Panics
    /// Panics only if a trait method of the index values (such as `Eq` or `Ord`) panics. In that case the index is not added, and nothing else is
    /// changed.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Index, Informer, ManualClock, Schema, Version, testing::TestServer};
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
    /// static ODD: Index<u32, bool> = Index::new("odd", |number| number % 2 == 1);
    ///
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// let (numbers, run) = Informer::builder(NUMBERS, server).timer(ManualClock::new().timer()).build()?;
    /// numbers.add_index(&ODD)?; // before or while it runs
    /// assert!(numbers.store().by_index(&ODD, &true)?.is_empty());
    /// # drop(run);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn add_index(&self, index: &impl AnyIndex<V>) -> Result<(), DuplicateIndex> {
        self.shared.writer.add_index(index)
    }

    /// Returns a writer that changes the store without involving the source, for tests of code that reacts to changes of the store. Use it only while
    /// no list is in progress.
    #[cfg(feature = "testing")]
    #[doc(hidden)]
    #[must_use]
    pub fn writer(&self) -> &SharedWriter<K, V> {
        &self.shared.writer
    }

    /// Takes a consistent snapshot of the store. O(1).
    #[must_use]
    pub fn snapshot(&self) -> Snapshot<K, V> {
        self.shared.writer.snapshot()
    }

    /// Subscribes to the stored objects and all later changes. The subscription ends when the informer ends.
    #[must_use]
    pub fn subscribe(&self) -> Subscription<K, V> {
        self.shared.writer.subscribe()
    }

    /// Returns a builder for a [subscription](Self::subscribe) with a filter, a resync period, or a bound on its pending keys; see
    /// [`Store::subscription`].
    pub fn subscription(&self) -> SubscriptionBuilder<K, V> {
        self.shared.writer.subscription()
    }

    /// Calls `f` with each stored object, then with every later change, without coalescing. The run future calls `f` when it publishes a change, so
    /// `f` must return quickly. When [`stopped`](Self::stopped) returns, `f` has been called with every change that the informer published. See
    /// [`Store::observe`].
    pub fn observe(&self, f: impl Fn(&Change<K, V>) + Send + Sync + 'static) -> Observer<K, V> {
        self.shared.writer.observe(f)
    }

    /// Like [`observe`](Self::observe), but `f` is called only with later changes, and the objects that are stored now are returned as a snapshot. Use this
    /// to process many objects in pieces, with [`Snapshot::initial_changes`]. Takes O(n) time for n observers.
    ///
    /// Each change is either in the snapshot or reported to `f`. So `f` may be called with a change of an object before you process the object.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::testing::TestServer;
    /// use flyball_informer_cache::{Informer, ManualClock, Schema, Version, block_on};
    /// use std::thread;
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// server.put(7);
    /// let (numbers, run) = Informer::builder(NUMBERS, server).timer(ManualClock::new().timer()).build()?;
    /// let thread = thread::spawn(|| block_on(run));
    /// block_on(numbers.synced())?;
    ///
    /// let (objects, _observer) = numbers.observe_changes(|change| println!("{} has changed", change.key()));
    /// for change in objects.initial_changes() {
    ///     println!("{} is there", change.key());
    /// }
    /// # numbers.shut_down();
    /// # thread.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn observe_changes(
        &self,
        f: impl Fn(&Change<K, V>) + Send + Sync + 'static,
    ) -> (Snapshot<K, V>, Observer<K, V>) {
        self.shared.writer.observe_changes(f)
    }

    /// Waits until the first list is published and all observers have received it. Any number of tasks may wait; all of them are woken. An observer
    /// function must not wait for this future, because the future completes only after all observers have returned.
    ///
    /// # Errors
    /// Returns an error if the informer ended before its first list.
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    ///
    /// # Examples
    /// Runs an informer on a thread, without an async runtime:
    /// ```
    /// use flyball_informer_cache::{Informer, ManualClock, Schema, Version, block_on, testing::TestServer};
    /// use std::thread;
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// server.put(7);
    ///
    /// let timer = ManualClock::new().timer(); // in production a `ThreadTimer`
    /// let (numbers, run) = Informer::builder(NUMBERS, server).timer(timer).build()?;
    /// let thread = thread::spawn(|| block_on(run));
    /// block_on(numbers.synced())?;
    /// assert_eq!(numbers.snapshot().len(), 1);
    ///
    /// numbers.shut_down();
    /// thread.join().unwrap();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub async fn synced(&self) -> Result<(), Stopped> {
        self.shared.writer.synced().await
    }

    /// Returns whether the first list is published and all observers have received it. Once this is `true`, it stays `true`, even after the informer
    /// has ended.
    #[must_use]
    pub fn is_synced(&self) -> bool {
        self.shared.writer.is_synced()
    }

    /// Returns the status of the informer.
    #[must_use]
    pub fn status(&self) -> InformerStatus {
        let status = self.shared.status.read();
        // The version is read after the status, so it is at least the version of the last list that the status counts.
        InformerStatus { version: self.shared.writer.version(), ..status }
    }

    /// Requests a shutdown: the run future ends soon, and subscriptions end after they have delivered their pending changes.
    ///
    /// This method does not wait until the informer has ended; use [`stopped`](Self::stopped) for that. If a list is published but not yet delivered,
    /// the run future first delivers it to all observers and subscribers.
    pub fn shut_down(&self) {
        self.shared.stop.request();
    }

    /// Returns whether the informer has ended, either by a shutdown or by a failure.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Informer, InformerState, ManualClock, Schema, Version, testing::TestServer};
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// let (numbers, run) = Informer::builder(NUMBERS, server).timer(ManualClock::new().timer()).build()?;
    /// assert!(!numbers.is_stopped() && numbers.status().state == InformerState::NotStarted);
    ///
    /// drop(run); // for example, its task was aborted
    /// flyball_sync::block_on(numbers.stopped());
    /// assert!(numbers.is_stopped() && numbers.status().state.is_final());
    /// # Ok::<(), flyball_informer_cache::InformerBuildError>(())
    /// ```
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.shared.status.read().state.is_final()
    }

    /// Waits until the run future has ended, for whatever reason; the reason is part of the [`status`](Self::status).
    ///
    /// # Cancel safety
    /// Dropping the future only stops waiting.
    pub async fn stopped(&self) {
        // `wait` returns an error only for a signal that will never be set, but this signal is always set when the informer ends.
        let _ = self.shared.stopped.wait().await;
    }

    /// Returns whether a shutdown was requested, or the run future has ended.
    pub(crate) fn is_stopping(&self) -> bool {
        self.shared.stop.is_requested()
    }

    /// Returns the signal that is set when the run future has ended.
    pub(crate) fn ended_signal(&self) -> Arc<Synced> {
        self.shared.stopped.clone()
    }
}

impl<K, V> Clone for Informer<K, V> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<K, V> fmt::Debug for Informer<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Informer").field("stopped", &self.shared.stopped).finish_non_exhaustive()
    }
}
