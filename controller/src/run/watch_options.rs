//! PURE. The options of a watch: which changes become keys, and how.

use std::fmt;
use std::time::Duration;

use flyball_informer_cache::Change;
use flyball_ratelimit::Exponential;
use flyball_workqueue::{AddError, Added, Fifo, Key, Order, Priority, Queue, ThreadTimer};

/// The options of a watch: which changes of an informer become keys, and how; see
/// [`Controller::watches_with`](crate::Controller::watches_with).
///
/// # Examples
/// ```no_run
/// # use flyball_controller::{Controller, TokioTimer, WatchOptions, predicate};
/// # use flyball_informer_cache::Informer;
/// # use flyball_workqueue::{Priority, Queue};
/// # struct Pod { generation: Option<u64>, deleting: bool, finalizers: Vec<String> }
/// # fn example(pods: Informer<String, Pod>) {
/// # let queue = Queue::<String>::builder().limiter(flyball_ratelimit::controller_default()).order(Priority::new()).timer(TokioTimer::current()).build();
/// let options = WatchOptions::new()
///     .filter(predicate::spec(|pod: &Pod| (pod.generation, (pod.deleting, pod.finalizers.clone()))))
///     .priority(5)
///     .initial_priority(-5);
/// let controller = Controller::new(queue).watches_with(&pods, |change| change.key().clone(), options);
/// # }
/// ```
#[must_use = "options do nothing until they are passed to a watch"]
#[expect(clippy::type_complexity, reason = "the function types are used only here")]
pub struct WatchOptions<OK, V, K, O: Order<K> = Fifo, L = Exponential<K>, T = ThreadTimer> {
    pub(crate) filters: Vec<Box<dyn Fn(&Change<OK, V>) -> bool + Send + Sync>>,
    pub(crate) add: Option<
        Box<dyn Fn(&Queue<K, O, L, T>, &Change<OK, V>, K) -> Result<Added, AddError<K>> + Send + Sync>,
    >,
    pub(crate) priority: Option<i8>,
    pub(crate) initial_priority: Option<i8>,
    pub(crate) resync_every: Option<Duration>,
}

impl<OK, V, K: Key, O: Order<K>, L, T> WatchOptions<OK, V, K, O, L, T> {
    /// Creates the default options: every change is mapped to keys.
    pub fn new() -> Self {
        Self { filters: Vec::new(), add: None, priority: None, initial_priority: None, resync_every: None }
    }

    /// Maps only the changes for which `filter` returns `true`; [`predicate`](crate::predicate) has common filters. Of several filters, all must return
    /// `true`.
    ///
    /// A change that `filter` rejects is never mapped, not even when later changes arrive. The next reconcile of the key reads the newest state
    /// anyway. A panic in the filter is treated like a panic in the mapper.
    pub fn filter(mut self, filter: impl Fn(&Change<OK, V>) -> bool + Send + Sync + 'static) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Adds each key by a call of `add`, which can add the key with a delay, debounced, or with its own priority, for example. `add` is also called
    /// for initial objects: see [`Change::is_initial`]. The watch's [`priority`](WatchOptions::priority) and
    /// [`initial_priority`](WatchOptions::initial_priority) then have no effect. A panic in `add` is treated like a panic in the mapper.
    ///
    /// # Examples
    /// After a burst of changes, reconciles the pod as soon as it has not changed for 100 ms. While the burst lasts, reconciles the pod once per
    /// second:
    /// ```no_run
    /// # use flyball_controller::{Controller, TokioTimer, WatchOptions};
    /// # use flyball_informer_cache::{Change, Informer};
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::{AddOptions, DelayMode, Fifo, Queue};
    /// use std::time::Duration;
    /// # struct Pod;
    /// # fn example(pods: Informer<String, Pod>) {
    ///
    /// type Keys = Queue<String, Fifo, Exponential<String>, TokioTimer>;
    /// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// let queue: Keys = Queue::builder().limiter(backoff).timer(TokioTimer::current()).build();
    /// let quiet = Duration::from_millis(100);
    /// let mode = DelayMode::Debounce { max_wait: Duration::from_secs(1) };
    /// let options =
    ///     WatchOptions::new().add_with(move |queue: &Keys, _: &Change<String, Pod>, key| queue.add_with(key, AddOptions { delay: quiet, mode, ..AddOptions::default() }));
    /// let controller = Controller::new(queue).watches_with(&pods, |change| change.key().clone(), options);
    /// # }
    /// ```
    pub fn add_with(
        mut self,
        add: impl Fn(&Queue<K, O, L, T>, &Change<OK, V>, K) -> Result<Added, AddError<K>> + Send + Sync + 'static,
    ) -> Self {
        self.add = Some(Box::new(add));
        self
    }

    /// Maps every object of the informer again once per `period`, so that drift of external state is found even if no object changes. Off by
    /// default. A `period` of zero makes the run, or [`add_watch_with`](crate::ControllerHandle::add_watch_with), return an error.
    ///
    /// Each object is mapped as an [initial](Change::is_initial) addition, as when a controller starts, and the [`filter`](Self::filter) applies. Its
    /// keys are added behind all others. Only keys that the queue does not hold are added, so a resync neither changes a key's priority nor ends its
    /// backoff nor makes it dirty. In a queue with [priorities](Priority) the keys of a resync get the lowest priority, also for their retries and
    /// requeues, until they have left the queue. In a [`Fifo`] queue they go to the tail, and in a [`Fair`](flyball_workqueue::Fair) queue to the tail
    /// of their group. A resync does not call [`add_with`](Self::add_with). If other code adds a key at the same time, both adds coalesce like any
    /// other adds.
    ///
    /// The first period starts when the controller starts to map changes. The objects are spread over the period, by a hash of their keys: in each
    /// 64th of the period, about a 64th of the objects is mapped. So the load is even, although all objects were listed at the same time. If a part of
    /// the objects takes longer than its part of the period, the next part begins later. The objects are mapped one by one, and other tasks run in
    /// between. In a queue with a capacity, each resync would fill the remaining capacity with
    /// the first objects, so give the queue no capacity. Stopped informers are not resynced. If the mapper panics during a resync, the panic is
    /// counted, and the object is mapped again in the next period.
    ///
    /// # Examples
    /// ```no_run
    /// # use flyball_controller::{Controller, TokioTimer, WatchOptions};
    /// # use flyball_informer_cache::Informer;
    /// use flyball_workqueue::{Priority, Queue};
    /// use std::time::Duration;
    /// # struct Bucket;
    /// # fn example(buckets: Informer<String, Bucket>) {
    ///
    /// // Changes of a hundred thousand buckets do not wait behind their hourly check.
    /// # let backoff = flyball_ratelimit::Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
    /// let queue =
    ///     Queue::<String>::builder().order(Priority::new()).limiter(backoff).timer(TokioTimer::current()).build();
    /// let options = WatchOptions::new().resync_every(Duration::from_secs(3600));
    /// let controller = Controller::new(queue).watches_with(&buckets, |change| change.key().clone(), options);
    /// # }
    /// ```
    pub fn resync_every(mut self, period: Duration) -> Self {
        self.resync_every = Some(period);
        self
    }
}

/// Options for a queue with [priorities](Priority).
impl<OK, V, K: Key, L, T> WatchOptions<OK, V, K, Priority, L, T> {
    /// Adds the keys of this watch with this priority. The priority also applies to initial objects, unless they have
    /// [their own priority](Self::initial_priority).
    pub fn priority(mut self, priority: i8) -> Self {
        self.priority = Some(priority);
        self
    }

    /// Adds the keys of initial objects with this priority, no matter whether the first list is published before the run or during it. For a
    /// key that was not in the queue, it also applies to retries and requeues, until the key has left the queue.
    ///
    /// With a priority below 0, objects that change after the start are reconciled before the objects of the first list. Keys of the first list
    /// do not starve, because each priority gets its [share](flyball_workqueue::Priority::share) of the dequeued keys.
    ///
    /// # Examples
    /// ```
    /// use flyball_controller::testing::Simulation;
    /// use flyball_controller::{Action, Controller, WatchOptions};
    /// use flyball_informer_cache::testing::TestServer;
    /// use flyball_informer_cache::{Informer, Schema, Version};
    /// use flyball_workqueue::{Priority, Queue};
    /// use std::sync::mpsc;
    ///
    /// const NUMBERS: Schema<u32, u32> = Schema::new(|number| *number, |_| Version::ZERO);
    /// let mut sim = Simulation::new(1);
    /// let server = TestServer::new(NUMBERS, |_, _, _| {});
    /// (0..3).for_each(|number| drop(server.put(number)));
    /// let numbers = sim.informer(Informer::builder(NUMBERS, server))?;
    ///
    /// let queue = Queue::builder().limiter(flyball_ratelimit::controller_default()).order(Priority::new()).timer(sim.timer()).build();
    /// let options = WatchOptions::new().initial_priority(-10);
    /// let controller = Controller::new(queue.clone()).watches_with(&numbers, |change| *change.key(), options);
    /// queue.add(9)?; // stands for a change
    /// let (send, order) = mpsc::channel();
    /// sim.run(controller, move |key, _| {
    ///     send.send(key).unwrap();
    ///     async { Ok::<_, String>(Action::await_change()) }
    /// });
    /// sim.run_until_stalled();
    /// assert_eq!(order.try_iter().collect::<Vec<_>>(), [9, 0, 1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn initial_priority(mut self, priority: i8) -> Self {
        self.initial_priority = Some(priority);
        self
    }
}

impl<OK, V, K: Key, O: Order<K>, L, T> Default for WatchOptions<OK, V, K, O, L, T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<OK, V, K, O: Order<K>, L, T> fmt::Debug for WatchOptions<OK, V, K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchOptions")
            .field("filters", &self.filters.len())
            .field("add_with", &self.add.is_some())
            .field("priority", &self.priority)
            .field("initial_priority", &self.initial_priority)
            .field("resync_every", &self.resync_every)
            .finish()
    }
}
