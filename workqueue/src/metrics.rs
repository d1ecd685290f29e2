//! EDGE. The metrics of a queue.
//!
//! A sink *reads* the counters of frequent operations and all gauges from `QueueStats`; the queue updates them under a lock that it holds anyway. The
//! queue *reports* durations and rare events to the sink (`QueueMetrics`) after unlocking.
//!
//! Cancel safety: nothing here waits.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::error::AddErrorKind;
use crate::lease::LeaseOutcome;
use crate::state::stats::QueueStats;

/// A sink for the events of a queue, given to [`QueueBuilder::metrics`](crate::QueueBuilder::metrics).
///
/// Every method has an empty default body; implement those that you need. The queue calls the methods while it holds no lock, on the thread that runs
/// the reported operation. So the methods may call the queue, but should be quick. **A panic in a method does not affect the queue**: the queue
/// catches the panic, after Rust's panic hook has run.
///
/// No method takes a key, because a metric labelled by key would have one series per key. Gauges, and counters that
/// change with each add, have no method: a sink reads them from [`QueueStats`], see
/// [`register`](Self::register).
///
/// # Examples
/// ```
/// use flyball_workqueue::{LeaseOutcome, ManualClock, Queue, QueueMetrics};
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct Slowest(Mutex<Duration>);
///
/// impl QueueMetrics for Slowest {
///     fn lease_ended(&self, _: LeaseOutcome, worked: Duration) {
///         let mut slowest = self.0.lock().unwrap();
///         *slowest = worked.max(*slowest);
///     }
/// }
///
/// let (slowest, clock) = (Arc::new(Slowest::default()), ManualClock::new());
/// let queue = Queue::builder().timer(clock.timer()).metrics(slowest.clone()).build();
/// queue.add("a")?;
/// let lease = queue.try_get()?;
/// clock.advance(Duration::from_secs(3));
/// lease.done();
/// assert_eq!(*slowest.0.lock().unwrap(), Duration::from_secs(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A sink that logs every event that a queue reports:
/// ```
/// use flyball_ratelimit::Exponential;
/// use flyball_workqueue::{AddErrorKind, LeaseOutcome, ManualClock, Queue, QueueMetrics, StatsReader};
/// use std::num::NonZeroU32;
/// use std::sync::{Arc, Mutex};
/// use std::time::Duration;
///
/// #[derive(Default)]
/// struct Log(Mutex<Vec<String>>);
///
/// impl Log {
///     fn push(&self, line: impl Into<String>) {
///         self.0.lock().unwrap().push(line.into());
///     }
/// }
///
/// impl QueueMetrics for Log {
///     fn register(&self, _: StatsReader) { self.push("registered"); }
///     fn dequeued(&self, queued: Duration, _: bool) { self.push(format!("dequeued after {queued:?}")); }
///     fn lease_ended(&self, outcome: LeaseOutcome, _: Duration) { self.push(format!("{outcome:?}")); }
///     fn failure_counted(&self) { self.push("failure"); }
///     fn gave_up(&self, failures: u32) { self.push(format!("gave up after {failures}")); }
///     fn add_refused(&self, reason: AddErrorKind) { self.push(reason.to_string()); }
///     fn lease_overdue(&self, age: Duration) { self.push(format!("overdue: {age:?}")); }
/// }
///
/// let (log, clock) = (Arc::new(Log::default()), ManualClock::new());
/// let second = Duration::from_secs(1);
/// let queue = Queue::builder()
///     .timer(clock.timer())
///     .limiter(Exponential::new(second..=second))
///     .give_up_after(NonZeroU32::MIN, |_, _| {})
///     .capacity(1)
///     .metrics(log.clone())
///     .build();
/// queue.add("a")?;
/// let refused = queue.add("b");
/// assert!(refused.is_err());
/// let lease = queue.try_get()?;
/// clock.advance(second);
/// flyball_sync::block_on(queue.next_overdue(second));
/// drop(lease);
/// let expected = [
///     "registered", "the queue is full", "dequeued after 0ns", "overdue: 1s", "Dropped", "failure", "gave up after 1",
/// ];
/// assert_eq!(*log.0.lock().unwrap(), expected);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a sink of queue metrics",
    note = "implement `QueueMetrics` for it, or use an adapter from flyball-ops; an `Arc` of a sink is also a sink, but a reference is not"
)]
pub trait QueueMetrics: Send + Sync + 'static {
    /// The queue was built; from now on the sink can read the queue's statistics from `queue`. Called once for each
    /// queue, before any other method.
    fn register(&self, queue: StatsReader) {
        let _ = queue;
    }

    /// A key was handed out. If the key waited for a deadline, `delayed` is true, and `queued` is the time since that deadline, which is the time by
    /// which the key was late. Otherwise `queued` is the time since the add that led to this hand-out, even if the key was still leased at that add;
    /// if the end of a lease made the key Ready, it is the time since that end.
    fn dequeued(&self, queued: Duration, delayed: bool) {
        let _ = (queued, delayed);
    }

    /// A lease ended with `outcome`. `worked` is the time since its key was handed out.
    fn lease_ended(&self, outcome: LeaseOutcome, worked: Duration) {
        let _ = (outcome, worked);
    }

    /// The limiter counted a failure of a key. Not called for a key that fails before its backoff is over, because at
    /// most one failure is counted per backoff.
    fn failure_counted(&self) {}

    /// A key was given up after this number of failures, because of the limit of the queue ([`give_up_after`](crate::QueueBuilder::give_up_after)),
    /// of its worker ([`retry_up_to`](crate::Lease::retry_up_to)) or of its limiter, such as [`MaxElapsed`](flyball_ratelimit::MaxElapsed).
    fn gave_up(&self, failures: u32) {
        let _ = failures;
    }

    /// An add was refused. An add that waits for room is not reported as refused.
    fn add_refused(&self, reason: AddErrorKind) {
        let _ = reason;
    }

    /// [`next_overdue`](crate::Queue::next_overdue) reported a lease that has been held for `age`.
    fn lease_overdue(&self, age: Duration) {
        let _ = age;
    }
}

/// An `Arc` of a sink is a sink, so that the program can keep a handle to it.
impl<M: QueueMetrics + ?Sized> QueueMetrics for Arc<M> {
    fn register(&self, queue: StatsReader) {
        (**self).register(queue);
    }

    fn dequeued(&self, queued: Duration, delayed: bool) {
        (**self).dequeued(queued, delayed);
    }

    fn lease_ended(&self, outcome: LeaseOutcome, worked: Duration) {
        (**self).lease_ended(outcome, worked);
    }

    fn failure_counted(&self) {
        (**self).failure_counted();
    }

    fn gave_up(&self, failures: u32) {
        (**self).gave_up(failures);
    }

    fn add_refused(&self, reason: AddErrorKind) {
        (**self).add_refused(reason);
    }

    fn lease_overdue(&self, age: Duration) {
        (**self).lease_overdue(age);
    }
}

/// Reads the statistics of a queue. It is a weak handle, so it does not keep the queue alive.
/// [`QueueMetrics::register`] receives one.
///
/// # Examples
/// A sink that stores the reader, so that the program can read the depth of the queue at any time:
/// ```
/// use flyball_workqueue::{Queue, QueueMetrics, StatsReader};
/// use std::sync::{Arc, OnceLock};
///
/// #[derive(Default)]
/// struct Depth(OnceLock<StatsReader>);
///
/// impl QueueMetrics for Depth {
///     fn register(&self, queue: StatsReader) {
///         self.0.set(queue).expect("one sink for one queue");
///     }
/// }
///
/// let depth = Arc::new(Depth::default());
/// let queue = Queue::builder().metrics(depth.clone()).build();
/// queue.add("a")?;
/// let reader = depth.0.get().unwrap();
/// assert_eq!(reader.read().map(|stats| stats.depth()), Some(1));
/// drop(queue);
/// assert_eq!(reader.read(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StatsReader(Weak<dyn ReadStats>);

/// The operation of a queue that a reader calls. A reader holds its queue as a trait object of this trait, so [`StatsReader`] has none of the type
/// parameters of the queue.
pub(crate) trait ReadStats: Send + Sync {
    fn read(&self) -> QueueStats;
}

impl StatsReader {
    pub(crate) fn new(queue: Weak<dyn ReadStats>) -> Self {
        Self(queue)
    }

    /// Returns the statistics of the queue; `None` once the last handle and the last lease of the queue have been dropped. Takes constant time, plus
    /// one step for each deadline that has passed, one for each leased key that also waits for a deadline, and, with [`Fair`](crate::Fair), one for
    /// each group. Locks the queue, so do not call it from a clock, or from `Eq` of a key.
    ///
    /// # Panics
    /// Panics if the queue's clock panics.
    #[must_use]
    pub fn read(&self) -> Option<QueueStats> {
        Some(self.0.upgrade()?.read())
    }
}

impl fmt::Debug for StatsReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StatsReader").field("alive", &(self.0.strong_count() > 0)).finish()
    }
}
