//! EDGE. What can be read of a queue at one moment, and from afar.

use std::fmt;
use std::sync::Weak;
use std::time::Duration;

/// What a queue with metrics has counted, and how much is in it: all of it of one moment.
///
/// Every key that was asked for is in at most one of `depth` and `waiting`; `leased` is beside them. Durations are by
/// the queue's clock. All of it goes on being right while the queue drains, and after.
///
/// # Examples
/// ```
/// use flyball_workqueue::{ManualClock, Metrics, Queue};
/// use std::time::Duration;
///
/// struct Nobody;
/// impl Metrics for Nobody {}
///
/// let clock = ManualClock::new();
/// let queue = Queue::builder().clock(clock.clone()).metrics(Nobody).build();
/// queue.add("a")?;
/// queue.add_after("b", Duration::from_secs(5))?;
/// let lease = queue.try_get()?;
/// queue.add("a")?; // while it runs
/// clock.advance(Duration::from_secs(3));
///
/// let read = queue.reading().expect("it has metrics");
/// assert_eq!((read.adds, read.depth, read.waiting, read.leased), (2, 1, 1, 1));
/// assert_eq!(read.longest_running, Duration::from_secs(3));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Reading {
    /// How often a key came to be asked for that was not so already: by an add, by a deadline that passed, by a retry;
    /// also while a lease held it. An add that is merged is not counted. Never falls.
    pub adds: u64,
    /// How many delays were asked for and accepted: by delayed adds, requeues and backoffs, of whatever length. Never
    /// falls.
    pub delays: u64,
    /// Keys that are asked for: Ready, or leased and Ready again when the lease ends.
    pub depth: usize,
    /// Keys whose deadline is to come, leased or not.
    pub waiting: usize,
    /// Keys held by a lease.
    pub leased: usize,
    /// The ages of all leases, added up.
    pub unfinished_work: Duration,
    /// The age of the oldest lease; zero where there is none.
    pub longest_running: Duration,
    /// How long the oldest Ready key has been so, as [`Ages`](crate::Ages) has it; zero where none is.
    pub oldest_ready: Duration,
    /// How many more keys there is room for; `None` without a [capacity](crate::QueueBuilder::capacity).
    pub room: Option<usize>,
}

/// A queue to read, without keeping it: what [`Metrics::watch`](crate::Metrics::watch) is given.
#[derive(Clone)]
pub struct Watch(Weak<dyn Watched>);

/// What a reader needs of a queue, with its types out of sight.
pub(crate) trait Watched: Send + Sync {
    fn read(&self) -> Option<Reading>;
}

impl Watch {
    pub(crate) fn new(queue: Weak<dyn Watched>) -> Self {
        Self(queue)
    }

    /// Reads the queue; `None` once it is gone, with its last handle and lease. O(1), plus the waits that are over and
    /// the leased keys that wait, and with [`Fair`](crate::Fair) the groups. Takes the queue's lock: not
    /// for the inside of a clock, or of a key's `Eq`.
    ///
    /// # Panics
    /// When the queue's clock does.
    #[must_use]
    pub fn read(&self) -> Option<Reading> {
        self.0.upgrade()?.read()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").field("alive", &(self.0.strong_count() > 0)).finish()
    }
}
