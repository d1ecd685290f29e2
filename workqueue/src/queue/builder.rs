//! SHELL. Making a queue; what cannot work together cannot be built.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU32;

use flyball_sync::{Clock, Timer};

use crate::key::Key;
use crate::limiter::{NoLimiter, QueueLimiter};
use crate::metrics::QueueMetrics;
use crate::queue::Queue;
use crate::queue::give_up::GiveUp;
use crate::queue::shared::{Parts, Shared};
use crate::state::Options;
use crate::state::order::{Fifo, Order};
use crate::time_mode::{NoDelays, SupportsDelays, TimeMode, WithClock, WithTimer};

/// Makes a [`Queue`]: what it knows of time, and how failures are limited.
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
/// What all queues of a program have in common:
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
pub struct QueueBuilder<K, O = Fifo, L = NoLimiter, T = NoDelays> {
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
        // The keys of std's hash maps are the one source of randomness that needs no dependency.
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        let options = Options { strict: false, capacity: usize::MAX, metered: None };
        Self {
            limiter: NoLimiter,
            time: NoDelays,
            seed,
            options,
            give_up: None,
            sinks: Vec::new(),
            order: Fifo,
            keys: PhantomData,
        }
    }
}

impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: TimeMode> QueueBuilder<K, O, L, T> {
    /// Delays on the machine's monotonic clock, for blocking getters; no runtime. Replaces a clock or timer given before.
    ///
    /// # Examples
    /// A queue has no delays unless it is built with them:
    /// ```
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().with_delays().build();
    /// queue.add_after("a", Duration::from_secs(30))?;
    /// assert_eq!(queue.stats().waiting, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    /// ```compile_fail,E0599
    /// use flyball_workqueue::Queue;
    /// use std::time::Duration;
    ///
    /// let queue = Queue::new();
    /// queue.add_after("a", Duration::from_secs(30));
    /// ```
    pub fn with_delays(self) -> QueueBuilder<K, O, L, WithClock> {
        self.with_time(WithClock::default())
    }

    /// Delays on this clock, for blocking getters; no runtime.
    ///
    /// A thread that sleeps until a deadline sleeps real time. Where the clock is moved by hand and threads wait, give the
    /// queue its timer instead, as in `.timer(clock.timer())`: that wakes them.
    ///
    /// # Examples
    /// ```
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let queue = Queue::builder().clock(clock.clone()).build();
    /// queue.add_after("a", Duration::from_secs(3_600))?;
    /// clock.advance(Duration::from_secs(3_600)); // a test of an hour takes no time
    /// assert_eq!(*queue.try_get()?, "a");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn clock<C: Clock>(self, clock: C) -> QueueBuilder<K, O, L, WithClock<C>> {
        self.with_time(WithClock(clock))
    }

    /// Delays on this timer's clock, for async and blocking getters.
    ///
    /// The timer becomes the queue's own: it is armed only while somebody waits for a deadline. A
    /// `TokioTimer` whose runtime is shut down before the queue goes on as a `ThreadTimer`.
    ///
    /// # Examples
    /// ```
    /// use flyball_sync::block_on;
    /// use flyball_workqueue::{Queue, ThreadTimer};
    /// use std::time::Duration;
    ///
    /// let queue = Queue::builder().timer(ThreadTimer::new()).build(); // on tokio, `TokioTimer::current()`
    /// queue.add_after("a", Duration::from_millis(10))?;
    /// let lease = block_on(queue.get()).expect("the queue is open");
    /// lease.succeed();
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// A [`ManualClock`](crate::ManualClock) is not a timer; it makes timers:
    /// ```compile_fail,E0277
    /// use flyball_workqueue::{ManualClock, Queue};
    ///
    /// let clock = ManualClock::new();
    /// let queue = Queue::<&str>::builder().timer(clock).build(); // not `clock.timer()`
    /// ```
    pub fn timer<W: Timer>(self, timer: W) -> QueueBuilder<K, O, L, WithTimer<W>> {
        self.with_time(WithTimer(timer))
    }

    /// In which order Ready keys are handed out: [`Fifo`], unless it is [`Priority`](crate::Priority) or
    /// [`Fair`](crate::Fair).
    pub fn order<P: Order<K>>(self, order: P) -> QueueBuilder<K, P, L, T> {
        let Self { limiter, time, seed, options, give_up, sinks, keys, .. } = self;
        QueueBuilder { limiter, time, seed, options, give_up, sinks, order, keys }
    }

    /// Adds a sink that the queue reports its events to, and enables all fields of [`QueueStats`](crate::QueueStats). Tracks
    /// [ages](Queue::track_ages), and implies [`with_delays`](Self::with_delays) unless a clock or a timer is given. Each call adds a sink.
    ///
    /// A queue without metrics pays nothing for them. One with them reads its clock at each add, get and end of a lease.
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
    pub fn metrics(self, sink: impl QueueMetrics) -> QueueBuilder<K, O, L, T::WithDelays> {
        let Self { limiter, time, seed, options, give_up, mut sinks, order, keys } = self;
        sinks.push(Box::new(sink));
        QueueBuilder { limiter, time: time.with_delays(), seed, options, give_up, sinks, order, keys }
    }

    /// How many distinct keys the queue holds, Ready, waiting and leased: an add of one more is refused, or waits with
    /// [`add_when_room`](Queue::add_when_room). Nothing else is ever refused for room. 0 is no room at all; unbounded by default.
    pub fn capacity(mut self, keys: usize) -> Self {
        self.options.capacity = keys;
        self
    }

    /// Fixes the randomness that the limiter's jitter gets, so that a run replays.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Jitter};
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let deadline = |seed| {
    ///     let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60)).jitter(Jitter::Full);
    ///     let queue = Queue::builder().clock(ManualClock::new()).limiter(backoff).seed(seed).build();
    ///     queue.add_rate_limited("a").unwrap();
    ///     queue.state(&"a")
    /// };
    /// assert_eq!(deadline(7), deadline(7));
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The queue.
    ///
    /// # Panics
    /// With [`metrics`](Self::metrics): when the clock or a sink's [`register`](crate::QueueMetrics::register) does.
    pub fn build(self) -> Queue<K, O, L, T> {
        let Self { limiter: policy, time, seed, options, give_up, sinks, order, .. } = self;
        Queue { shared: Shared::new(Parts { order, policy, time, seed, options, give_up, sinks }) }
    }

    fn with_time<U: TimeMode>(self, time: U) -> QueueBuilder<K, O, L, U> {
        let Self { limiter, seed, options, give_up, sinks, order, keys, .. } = self;
        QueueBuilder { limiter, time, seed, options, give_up, sinks, order, keys }
    }
}

/// For queues without a limiter yet.
impl<K: Key, O: Order<K>, T: TimeMode> QueueBuilder<K, O, NoLimiter, T> {
    /// How long a failed key waits. Implies [`with_delays`](QueueBuilder::with_delays) unless a clock or a timer is given.
    ///
    /// What the limiter counts of a key is kept as long as the key is in the queue, however long it waits there, and
    /// ages from when it has left. A queue has one limiter; [`MaxOf`](flyball_ratelimit::MaxOf) makes one of two.
    ///
    /// # Examples
    /// Each key has its own backoff, and all keys together retry at most ten times a second:
    /// ```
    /// use flyball_ratelimit::{Exponential, Quota, RetryBudget};
    /// use flyball_workqueue::{ManualClock, Queue};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let ten = Quota::per_second(NonZeroU32::new(10).unwrap());
    /// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1_000));
    /// let queue = Queue::builder().clock(ManualClock::new()).limiter(RetryBudget::new(backoff, ten)).build();
    /// queue.add("a")?;
    /// queue.try_get()?.retry();
    /// assert_eq!((queue.stats().waiting, queue.num_requeues(&"a")), (1, 1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn limiter<P: QueueLimiter<K>>(self, policy: P) -> QueueBuilder<K, O, P, T::WithDelays> {
        let Self { time, seed, options, give_up, sinks, order, keys, .. } = self;
        QueueBuilder { limiter: policy, time: time.with_delays(), seed, options, give_up, sinks, order, keys }
    }
}

/// For queues with a limiter. Without one no failure is counted, and the only backoff is the one that
/// [`retry_after_at_least`](crate::Lease::retry_after_at_least) asks for.
impl<K: Key, O: Order<K>, L: QueueLimiter<K>, T: SupportsDelays> QueueBuilder<K, O, L, T> {
    /// No add shortens a backoff: a key that failed runs at its end, however many events come meanwhile.
    ///
    /// Without it an add runs the key at once, and only failures count once per wait.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::Exponential;
    /// use flyball_workqueue::{Added, ManualClock, Queue};
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60));
    /// let queue = Queue::builder().clock(clock.clone()).limiter(backoff).strict_backoff().build();
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

    /// Gives a key up at its failure number `most`: it is not retried, its failures are forgotten, and `tell` is called
    /// with the key and their number.
    ///
    /// One allows no retry. Failures are counted by the limiter, so it is set first, and is one that
    /// [counts](flyball_ratelimit::Policy::COUNTS_FAILURES): without a limiter, or with a bucket alone, this does not compile. A key that was added
    /// while it ran runs again all the same, with a clean slate.
    ///
    /// `tell` runs outside every lock, in the thread that ends the lease, after it has ended. If it panics, so does that.
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
    ///     .clock(clock.clone())
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
    /// Nothing counts failures here, so nothing is ever given up:
    /// ```compile_fail,E0080
    /// # use flyball_workqueue::Queue;
    /// Queue::<&str>::builder().with_delays().give_up_after(std::num::NonZeroU32::MIN, |_, _| {}).build();
    /// ```
    /// ```compile_fail,E0080
    /// # use flyball_ratelimit::{Quota, TokenBucket};
    /// # use flyball_workqueue::Queue;
    /// # use std::num::NonZeroU32;
    /// let bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
    /// Queue::<&str>::builder().limiter(bucket).give_up_after(NonZeroU32::MIN, |_, _| {}).build();
    /// ```
    ///
    /// Nor could another limiter take the place of the one that counts:
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
