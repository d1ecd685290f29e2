//! EDGE. The builder for informers. This module polls no future, so there is nothing to cancel.

use std::error::Error;
use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU32;
use std::sync::Arc;

use flyball_sync::Timer;
use flyball_sync::panics::DropContained;
use flyball_sync::random::SplitMix64;
use foldhash::quality::RandomState;

use super::failure::{OnError, SourceFailure};
use super::on_exit::NotifyOnExit;
use super::prepared::PreparedInformer;
use super::retry_backoff::ChosenBackoff;
use super::run::InformerTask;
use super::tombstones::Tombstones;
use super::{Informer, Shared};
use crate::{
    AnyIndex, DuplicateIndex, InvalidReflectorConfig, Reflector, ReflectorConfig, Schema, Source, Store,
    StoreBuilder,
};

/// The maximum number of deletions that an informer remembers. It can forget a deletion when a list or a bookmark has reached the version of the
/// deletion.
const TOMBSTONES: usize = 1024;

/// Builds an [`Informer`]. [`Informer::builder`] creates it.
///
/// # Examples
/// ```
/// use flyball_informer_cache::testing::TestServer;
/// use flyball_informer_cache::{Informer, InformerBuilder, ManualClock, Schema, Source, Version};
/// use std::num::NonZeroU32;
///
/// const WORDS: Schema<String, String> = Schema::new(String::clone, |_| Version::ZERO);
///
/// /// The settings that all informers of a program share.
/// fn words<S: Source<Object = String>>(source: S) -> InformerBuilder<String, String, S> {
///     Informer::builder(WORDS, source)
///         .page_size(NonZeroU32::new(100).unwrap())
///         .transform(|word| word.to_lowercase()) // after the key was read
/// }
///
/// let server = TestServer::new(WORDS, |_, _, _| {});
/// server.put("One".into());
/// let clock = ManualClock::new();
/// let (informer, run) = words(server).seed(1).timer(clock.timer()).build()?; // the same random numbers in every test
/// std::thread::spawn(|| flyball_sync::block_on(run));
/// flyball_sync::block_on(informer.synced())?;
/// assert_eq!(informer.store().get("One").as_deref(), Some(&"one".into()));
/// informer.shut_down();
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The last parameter is the type of the timer, `()` until [`timer`](Self::timer) sets one. An informer without a timer cannot be built:
/// ```compile_fail,E0277
/// use flyball_informer_cache::{Informer, Schema, Version, testing::TestServer};
///
/// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
/// let builder = Informer::builder(NUMBERS, TestServer::new(NUMBERS, |_, _, _| {}));
/// let (numbers, run) = builder.build()?; // `builder.timer(…)` is missing
/// # Ok::<(), flyball_informer_cache::InformerBuildError>(())
/// ```
#[must_use]
pub struct InformerBuilder<K, V, S, T = ()> {
    schema: Schema<K, V>,
    source: DropContained<S>,
    timer: DropContained<T>,
    store: StoreBuilder<K, V>,
    config: ReflectorConfig,
    seed: Option<u64>,
    on_error: Option<OnError>,
    on_build: Vec<OnBuild<K, V>>,
}

type OnBuild<K, V> = DropContained<Box<dyn FnOnce(&Store<K, V>) + Send + Sync>>;

impl<K, V, S> InformerBuilder<K, V, S>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
{
    pub(super) fn new(schema: Schema<K, V>, source: S) -> Self {
        let config = ReflectorConfig::default();
        Self {
            schema,
            source: DropContained::new(source),
            timer: DropContained::new(()),
            store: Store::builder(schema),
            config,
            seed: None,
            on_error: None,
            on_build: Vec::new(),
        }
    }
}

impl<K, V, S, T> InformerBuilder<K, V, S, T>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
{
    /// Adds an index to the store: an [`Index`](crate::Index) or a [`LabelIndex`](crate::LabelIndex).
    pub fn index(mut self, index: &impl AnyIndex<V>) -> Self {
        self.store = self.store.index(index);
        self
    }

    /// Sets a function that changes every object before it is stored. It runs once for each object of a list, a streaming list or a watch; see
    /// [`StoreBuilder::transform`]. The informer resumes watches from the version that an object had before this function ran.
    pub fn transform(mut self, transform: impl Fn(V) -> V + Send + Sync + 'static) -> Self {
        self.store = self.store.transform(transform);
        self
    }

    /// Sets the timer of the run future, which is also its clock. Each informer needs a timer of its own.
    pub fn timer<U: Timer>(self, timer: U) -> InformerBuilder<K, V, S, U> {
        let timer = DropContained::new(timer);
        let Self { schema, source, timer: _, store, config, seed, on_error, on_build } = self;
        InformerBuilder { schema, source, timer, store, config, seed, on_error, on_build }
    }

    /// Sets the seed of all random values: the jitter of waits, the timeouts of watches, and the store's hasher. Set it in tests and simulations, so
    /// that a run can be replayed. By default, every run has a different seed.
    pub fn seed(mut self, seed: u64) -> Self {
        self.store = self.store.seed(seed);
        self.seed = Some(seed);
        self
    }

    /// Sets the store's reader slots; see [`StoreBuilder::reader_slots`]. For loom models.
    #[doc(hidden)]
    pub fn reader_slots(mut self, slots: usize, lookups_to_fill: u32) -> Self {
        self.store = self.store.reader_slots(slots, lookups_to_fill);
        self
    }

    /// Sets the page size for all lists, regardless of the [version](crate::ListVersion) that they request. There is one exception: if a list fails
    /// because its continuation has expired, the next list is requested in one piece.
    pub fn page_size(mut self, size: NonZeroU32) -> Self {
        self.config.page_size = Some(size);
        self
    }

    /// Requests each list as part of a watch (a streaming list). After most failures of a streaming list, the informer requests a plain list instead;
    /// see [`ReflectorConfig::streaming_lists`].
    pub fn streaming_lists(mut self) -> Self {
        self.config.streaming_lists = true;
        self
    }

    /// Replaces the whole configuration of the reflector, including values that other methods of the builder have set.
    pub fn reflector_config(mut self, config: ReflectorConfig) -> Self {
        self.config = config;
        self
    }

    /// Returns the configuration of the reflector.
    pub(super) fn config(&self) -> ReflectorConfig {
        self.config
    }

    /// Returns whether a transformation is set.
    pub(super) fn transforms(&self) -> bool {
        self.store.transforms()
    }

    /// Returns the name of an index that this builder has and `store` does not, if there is one.
    pub(super) fn index_missing_in(&self, store: &Store<K, V>) -> Option<&'static str> {
        self.store.index_missing_in(store)
    }

    /// Sets a function for logging or metrics: `f` is called after each failure of the source (an error, a timeout, a watch that ended too early, or
    /// a panic) and after each panic of a user's function. When `f` is called, [`InformerStatus::last_error`](crate::InformerStatus::last_error)
    /// already contains the failure, or [`InformerStatus::last_panic`](crate::InformerStatus::last_panic) the panic of the user's function.
    ///
    /// The run future calls `f` and does nothing else until `f` returns, so `f` should be quick. A second `on_error` replaces the first.
    ///
    /// # Panics
    /// A panic of `f` is caught, and `f` is called again after the next failure.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{BackoffCause, Informer, Schema, SourceErrorKind, Version, testing::TestServer};
    /// use flyball_sync::ManualClock;
    /// use std::{pin::pin, sync::mpsc, task::{Context, Waker}};
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::new(1));
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// server.fail_list(SourceErrorKind::ConnectionRefused);
    /// let (sender, failures) = mpsc::channel();
    /// let (numbers, run) = Informer::builder(NUMBERS, server)
    ///     .on_error(move |failure| sender.send(failure.cause).unwrap())
    ///     .timer(ManualClock::new().timer())
    ///     .build()?;
    /// assert!(pin!(run).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// assert_eq!(failures.recv()?, BackoffCause::Failed(SourceErrorKind::ConnectionRefused));
    /// # drop(numbers);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_error(mut self, f: impl FnMut(&SourceFailure<'_>) + Send + Sync + 'static) -> Self {
        let f: Box<dyn FnMut(&SourceFailure<'_>) + Send + Sync> = Box::new(f);
        self.on_error = Some(DropContained::new(f));
        self
    }

    /// Adds a function that is called once with the store, after the store is built and before the informer runs. Use it for a source that depends on
    /// the stored objects. If you add several functions, they are called in the order in which you added them. The informer may never run: an
    /// [`InformerSet`](crate::InformerSet) discards an informer that it has built if a concurrent request has registered one first.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::{Informer, Schema, Store, Version, testing::TestServer};
    /// use flyball_sync::ManualClock;
    /// use std::sync::{Arc, OnceLock};
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::new(1));
    /// let stored: Arc<OnceLock<Store<u32, u32>>> = Arc::default();
    /// let seen = stored.clone();
    /// let builder = Informer::builder(NUMBERS, TestServer::new(NUMBERS, |_, _, _| {}));
    /// let builder = builder.on_build(move |store| seen.set(store.clone()).expect("it is built once"));
    /// let (numbers, run) = builder.timer(ManualClock::new().timer()).build()?;
    /// assert_eq!(stored.get().map(Store::len), Some(0));
    /// # drop((numbers, run));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_build(mut self, f: impl FnOnce(&Store<K, V>) + Send + Sync + 'static) -> Self {
        self.on_build.push(DropContained::new(Box::new(f)));
        self
    }

    /// Builds the informer and its run future. Run the future on any executor, so that it is polled until it completes.
    ///
    /// # Errors
    /// Returns an error if the configuration is invalid, or two indexes have the same name.
    ///
    /// # Cancel safety
    /// Dropping the run future ends the informer, even before the first poll: the request in progress, the partial list and the open watch are dropped,
    /// the store is closed with all objects that were published, and all waiters are woken. The informer cannot be continued.
    ///
    /// # Examples
    /// ```
    /// use flyball_informer_cache::testing::TestServer;
    /// use flyball_informer_cache::{Index, Informer, InformerBuildError, ManualClock, Schema, Version};
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number: &u32| *number, |_| Version::new(1));
    /// static PARITY: Index<u32, bool> = Index::new("parity", |number| number % 2 == 1);
    /// let builder = || {
    ///     let server = TestServer::new(NUMBERS, |_, _, _| {});
    ///     Informer::builder(NUMBERS, server).timer(ManualClock::new().timer()).index(&PARITY)
    /// };
    /// let (numbers, run) = builder().build()?;
    /// drop(run); // a program polls it, for example with `tokio::spawn(run)`
    /// assert!(numbers.is_stopped());
    ///
    /// assert!(matches!(builder().index(&PARITY).build(), Err(InformerBuildError::Index(_))));
    /// # Ok::<(), InformerBuildError>(())
    /// ```
    pub fn build(
        self,
    ) -> Result<(Informer<K, V>, impl Future<Output = ()> + Send + 'static), InformerBuildError>
    where
        T: Timer,
    {
        let (informer, prepared) = self.prepare()?;
        Ok((informer, prepared.run()))
    }

    /// Builds the informer without its run future. Readers can then use the informer before its reflector is configured.
    ///
    /// # Errors
    /// The same as for [`build`](Self::build).
    #[expect(clippy::type_complexity, reason = "a pair, or an error")]
    pub fn prepare(self) -> Result<(Informer<K, V>, PreparedInformer<K, V, S, T>), InformerBuildError>
    where
        T: Timer,
    {
        let Self { schema, source, timer, store, config, seed, on_error, on_build } = self;
        let mut random = SplitMix64::new(seed.unwrap_or_else(|| RandomState::default().hash_one(0)));
        let reflector = Reflector::new(config, timer.now(), random.next())?.polling(source.is_polling());
        let shared = Arc::new(Shared::new(store.build()?.into_shared()));
        on_build.into_iter().for_each(|f| f.into_inner()(&shared.writer));
        let task = InformerTask {
            shared: shared.clone(),
            schema,
            source,
            timer,
            random,
            reflector,
            batch: Vec::new(),
            partial_list: None,
            tombstones: Tombstones::new(TOMBSTONES),
            stale: 0,
            failed_lists: 0,
            last_answer: None,
            on_error,
            backoff: ChosenBackoff::default(),
        };
        let ending = NotifyOnExit::new(shared.clone());
        Ok((Informer { shared }, PreparedInformer { config, ending, task }))
    }
}

#[cfg(feature = "tokio")]
impl<K, V, S> InformerBuilder<K, V, S>
where
    K: Clone + Eq + Hash + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: Source<Object = V>,
{
    /// Builds the informer and runs it in a task of the current tokio runtime, with the runtime's timers.
    ///
    /// The task ends after [`shut_down`](Informer::shut_down), or when the runtime shuts down. Dropping the handles does not end it.
    ///
    /// # Errors
    /// The same as for [`build`](Self::build).
    ///
    /// # Panics
    /// Panics if called outside a tokio runtime.
    #[track_caller]
    pub fn start(self) -> Result<Informer<K, V>, InformerBuildError> {
        let (informer, run) = self.timer(flyball_sync::TokioTimer::current()).build()?;
        drop(tokio::spawn(run));
        Ok(informer)
    }
}

impl<K, V, S, T> fmt::Debug for InformerBuilder<K, V, S, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("InformerBuilder");
        debug.field("config", &self.config).field("seed", &self.seed).finish_non_exhaustive()
    }
}

/// The reason why an informer cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InformerBuildError {
    /// The configuration of the reflector is invalid.
    Config(InvalidReflectorConfig),
    /// Two indexes have the same name.
    Index(DuplicateIndex),
}

impl From<InvalidReflectorConfig> for InformerBuildError {
    fn from(error: InvalidReflectorConfig) -> Self {
        Self::Config(error)
    }
}

impl From<DuplicateIndex> for InformerBuildError {
    fn from(error: DuplicateIndex) -> Self {
        Self::Index(error)
    }
}

impl fmt::Display for InformerBuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Index(error) => error.fmt(f),
        }
    }
}

impl Error for InformerBuildError {}
