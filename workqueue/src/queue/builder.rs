//! SHELL. The builder of a queue. Invalid combinations of options do not compile.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;

use flyball_sync::{ThreadTimer, Timer};

use crate::limiter::{NoLimiter, QueueLimiter};
use crate::metrics::QueueMetrics;
use crate::queue::Key;
use crate::queue::Queue;
use crate::queue::end::GiveUp;
use crate::queue::shared::{Parts, Shared};
use crate::state::Options;
use crate::state::order::Order;
use crate::state::order::fifo::Fifo;

/// Builds a [`Queue`]; sets its timer, limiter, order, metrics and limits.
///
/// # Examples
/// ```
/// use flyball_ratelimit::Exponential;
/// use flyball_workqueue::Queue;
/// use std::time::Duration;
///
/// // For threads: delays and backoff, no runtime.
/// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
/// let queue = Queue::builder().limiter(backoff).build();
/// queue.add_after("a", Duration::from_secs(30))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A function that sets the options common to all queues of a program:
/// ```
/// use flyball_workqueue::{Key, Queue, QueueBuilder, ThreadTimer};
///
/// fn common<K: Key>() -> QueueBuilder<K> {
///     Queue::builder().capacity(10_000)
/// }
///
/// let pods = common::<String>().build();
/// let nodes = common::<u32>().timer(ThreadTimer::new()).build();
/// assert_eq!(pods.stats().capacity_left, nodes.stats().capacity_left);
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct QueueBuilder<K, O = Fifo, L = NoLimiter, T = ThreadTimer> {
    limiter: L,
    time: T,
    seed: u64,
    options: Options,
    give_up: Option<GiveUp<K>>,
    sinks: Vec<Box<dyn QueueMetrics>>,
    order: O,
    keys: PhantomData<fn() -> K>,
}

impl<K: Key> QueueBuilder<K> {
    pub(crate) fn new() -> Self {
        // Stable Rust offers only one source of randomness without a dependency: each `RandomState` of std hashes with random keys.
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let options = Options { strict: false, capacity: usize::MAX, metered: None };
        Self {
            limiter: NoLimiter,
            time: ThreadTimer::new(),
            seed,
            options,
            give_up: None,
            sinks: Vec::new(),
            order: Fifo,
            keys: PhantomData,
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> QueueBuilder<K, O, L, T> {
    /// Sets the timer, which measures delays and wakes tasks at deadlines. By default, this is a [`ThreadTimer`].
    ///
    /// The queue takes ownership of the timer, and arms it only while a task waits for a time: for a deadline, with a time limit, or for an overdue
    /// lease. A blocked thread sleeps until its deadline by itself, if the timer's clock runs [in real time](Timer::is_real_time). A queue reads its
    /// clock only for an operation with a time or a failure, while keys wait for a deadline, and while it [tracks ages](Queue::track_ages).
    ///
    /// On tokio, pass a `TokioTimer`, so that deadlines need no thread, and follow a paused clock. If its runtime shuts down before the queue, the timer
    /// continues as a `ThreadTimer`. In a test, pass the timer of a [`ManualClock`](crate::ManualClock).
    ///
    /// # Examples
    /// A test of an hour takes no time:
    /// ```
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = Queue::builder().timer(clock.timer()).build();
    /// queue.add_after("a", Duration::from_secs(3_600))?;
    /// clock.advance(Duration::from_secs(3_600));
    /// assert_eq!(*queue.try_get()?, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A [`ManualClock`](crate::ManualClock) is not a timer; its method `timer` creates one:
    /// ```compile_fail,E0277
    /// use flyball_workqueue::{ManualClock, Queue};
    ///
    /// let clock = ManualClock::new();
    /// let queue = Queue::<&str>::builder().timer(clock).build(); // not `clock.timer()`
    /// ```
    pub fn timer<W: Timer>(self, timer: W) -> QueueBuilder<K, O, L, W> {
        let Self { limiter, seed, options, give_up, sinks, order, keys, .. } = self;
        QueueBuilder { limiter, time: timer, seed, options, give_up, sinks, order, keys }
    }

    /// Sets the order in which Ready keys are handed out: [`Fifo`] (the default), [`Priority`](crate::Priority) or [`Fair`](crate::Fair).
    pub fn order<P: Order<K>>(self, order: P) -> QueueBuilder<K, P, L, T> {
        let Self { limiter, time, seed, options, give_up, sinks, keys, .. } = self;
        QueueBuilder { limiter, time, seed, options, give_up, sinks, order, keys }
    }

    /// Adds a sink to which the queue reports its events; each call adds one more. All fields of [`QueueStats`](crate::QueueStats) are then in use,
    /// and the queue [tracks ages](Queue::track_ages).
    ///
    /// A queue without metrics has no overhead for them. A queue with metrics reads its clock at each add, get and end
    /// of a lease.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{LeaseOutcome, Queue, QueueMetrics};
    /// use std::time::Duration;
    ///
    /// struct Printed(&'static str);
    ///
    /// impl QueueMetrics for Printed {
    ///     fn lease_ended(&self, outcome: LeaseOutcome, worked: Duration) {
    ///         println!("{}: {outcome:?} after {worked:?}", self.0);
    ///     }
    /// }
    ///
    /// let queue = Queue::builder().metrics(Printed("pods")).build();
    /// queue.add("a")?;
    /// queue.try_get()?.succeed();
    /// assert_eq!(queue.stats().adds, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn metrics(self, sink: impl QueueMetrics) -> Self {
        let Self { limiter, time, seed, options, give_up, mut sinks, order, keys } = self;
        sinks.push(Box::new(sink));
        QueueBuilder { limiter, time, seed, options, give_up, sinks, order, keys }
    }

    /// Limits the number of distinct keys in the queue: Ready, waiting and leased. If the queue is full, an add of an absent key is refused;
    /// [`add_when_room`](Queue::add_when_room) waits instead. A full queue refuses no other operation. A queue with a capacity of 0 accepts no key;
    /// by default, the capacity is unlimited.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.options.capacity = keys;
        self
    }

    /// Sets the seed for the random numbers of the limiter's jitter, so that a run can be reproduced.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Jitter};
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let deadline = |seed| {
    ///     let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60)).jitter(Jitter::Full);
    ///     let queue = Queue::builder().timer(ManualClock::new().timer()).limiter(backoff).seed(seed).build();
    ///     queue.add_rate_limited("a").unwrap();
    ///     queue.state(&"a")
    /// };
    /// assert_eq!(deadline(7), deadline(7));
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Builds the queue.
    ///
    /// # Panics
    /// Panics if a sink's [`register`](crate::QueueMetrics::register), or the clock of a queue with
    /// [`metrics`](Self::metrics), panics.
    pub fn build(self) -> Queue<K, O, L, T> {
        let Self { limiter: policy, time, seed, options, give_up, sinks, order, .. } = self;
        Queue { shared: Shared::new(Parts { order, policy, time, seed, options, give_up, sinks }) }
    }
}

/// Options of queues without a limiter.
impl<K: Key, O: Order<K>, T: Timer> QueueBuilder<K, O, NoLimiter, T> {
    /// Sets the limiter, which decides how long a failed key waits.
    ///
    /// The limiter keeps the failures of a key at least as long as the key is in the queue, even if they are older than the policy usually keeps
    /// them. A queue has one limiter; to use two, combine them with [`MaxOf`](flyball_ratelimit::MaxOf).
    ///
    /// # Examples
    /// Each key has its own backoff, and all keys together are retried at most ten times a second:
    /// ```
    /// use flyball_ratelimit::{Exponential, Quota, RetryBudget};
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let ten = Quota::per_second(NonZeroU32::new(10).unwrap());
    /// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1_000));
    /// let queue = Queue::builder().timer(ManualClock::new().timer()).limiter(RetryBudget::new(backoff, ten)).build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry();
    /// assert_eq!((queue.stats().waiting, queue.num_requeues(&"a")), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limiter<P: QueueLimiter<K>>(self, policy: P) -> QueueBuilder<K, O, P, T> {
        let Self { time, seed, options, give_up, sinks, order, keys, .. } = self;
        QueueBuilder { limiter: policy, time, seed, options, give_up, sinks, order, keys }
    }
}

/// Options of queues with a limiter. A queue without a limiter does not count failures, and its keys back off only after
/// [a failure with a minimum](crate::LeaseOutcome::Failed).
impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: Timer> QueueBuilder<K, O, L, T> {
    /// Makes backoff strict: an add does not shorten it. A failed key does not run before its backoff is over, even if events for it arrive
    /// meanwhile. If a key in backoff gets a later deadline, by [`postpone`](Queue::postpone) or [`DelayMode::Replace`](crate::DelayMode::Replace), its
    /// backoff lasts until then. Only [`cancel`](Queue::cancel) ends a backoff early. A key that is Ready when a failure of it is counted outside a lease
    /// stays Ready.
    ///
    /// By default, an add makes a key in backoff Ready immediately. Even then, at most one failure is counted per
    /// backoff of the limiter; a longer [minimum wait](crate::LeaseOutcome::Failed) of the outcome does not count as its backoff.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::{Added, ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60));
    /// let queue = Queue::builder().timer(clock.timer()).limiter(backoff).strict_backoff().build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry();
    /// assert_eq!(queue.add("a")?, Added::Merged); // without strict backoff it would be Ready now
    /// assert!(!queue.has_ready());
    /// clock.advance(Duration::from_secs(1));
    /// assert!(queue.has_ready());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn strict_backoff(mut self) -> Self {
        self.options.strict = true;
        self
    }

    /// Gives a key up at its failure number `most`: the key is not retried, its failures are forgotten, and `tell` is
    /// called with the key and the number of failures.
    ///
    /// With `most` = 1, keys are given up at their first failure. The limiter counts the failures, so set the limiter first; it must be one that
    /// [counts failures](flyball_ratelimit::Policy::COUNTS_FAILURES). Without a limiter, or with a [`TokenBucket`](flyball_ratelimit::TokenBucket) as
    /// the limiter, this does not compile. A key that was added again while it was leased still runs again after it is given up, with its failures
    /// forgotten.
    ///
    /// A key is also given up, with or without this option, if the limiter returns a wait of [`Duration::MAX`](flyball_ratelimit::Failure::wait), as
    /// [`MaxElapsed`](flyball_ratelimit::MaxElapsed) does. For `tell` without a limit on the number, set `most` to [`NonZeroU32::MAX`].
    ///
    /// `tell` is called after the lease has ended, on the thread that ended it, while no lock is held. A panic in `tell`
    /// propagates to the caller that ends the lease.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// const TWICE: NonZeroU32 = NonZeroU32::new(2).unwrap();
    /// let clock = ManualClock::new();
    /// let backoff = Exponential::new(Duration::from_millis(1)..=Duration::from_secs(1));
    /// let queue = Queue::builder()
    ///     .timer(clock.timer())
    ///     .limiter(backoff)
    ///     .give_up_after(TWICE, |key, failures| println!("gave {key} up after {failures} failures"))
    ///     .build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry();
    /// clock.advance(Duration::from_millis(1));
    /// queue.try_get()?.retry();
    /// assert_eq!(queue.stats().waiting, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// This does not compile, because nothing counts failures:
    /// ```compile_fail,E0080
    /// # use flyball_workqueue::Queue;
    /// Queue::<&str>::builder().give_up_after(std::num::NonZeroU32::MIN, |_, _| {}).build();
    /// ```
    /// ```compile_fail,E0080
    /// # use flyball_ratelimit::{Quota, TokenBucket};
    /// # use flyball_workqueue::Queue;
    /// # use std::num::NonZeroU32;
    /// let bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
    /// Queue::<&str>::builder().limiter(bucket).give_up_after(NonZeroU32::MIN, |_, _| {}).build();
    /// ```
    ///
    /// You cannot replace the limiter after `give_up_after` either:
    /// ```compile_fail,E0599
    /// # use flyball_ratelimit::{Quota, TokenBucket, controller_default};
    /// # use flyball_workqueue::Queue;
    /// # use std::num::NonZeroU32;
    /// let bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
    /// let counting = Queue::<&str>::builder().limiter(controller_default());
    /// counting.give_up_after(NonZeroU32::MIN, |_, _| {}).limiter(bucket).build();
    /// ```
    pub fn give_up_after(mut self, most: NonZeroU32, tell: impl Fn(&K, u32) + Send + Sync + 'static) -> Self {
        const { assert!(L::COUNTS_FAILURES, "`give_up_after` needs a limiter that counts failures, set before it") }
        self.give_up = Some(GiveUp::new(most.get(), tell));
        self
    }
}

impl<K, O, L, T> fmt::Debug for QueueBuilder<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueBuilder").field("seed", &self.seed).finish_non_exhaustive()
    }
}
