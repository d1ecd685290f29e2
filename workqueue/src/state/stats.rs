//! PURE. The statistics of a queue.

use std::time::Duration;

use flyball_sync::Nanos;

use super::QueueState;
use crate::state::order::sealed::ReadyQueue;

/// The statistics of a queue: the number of keys in each state, ages, and counters, all taken at the same time.
///
/// Durations are measured by the queue's clock. The values stay correct while the queue drains, and afterwards.
///
/// # Examples
/// ```
/// use flyball_workqueue::{ManualClock, Queue, QueueMetrics, QueueStats};
/// use std::time::Duration;
///
/// struct NoExport;
/// impl QueueMetrics for NoExport {}
///
/// let clock = ManualClock::new();
/// let queue = Queue::builder().timer(clock.timer()).metrics(NoExport).build();
/// queue.add("a")?;
/// queue.add_after("b", Duration::from_secs(5))?;
/// let lease = queue.try_get()?;
/// queue.add("a")?; // while "a" is leased
/// clock.advance(Duration::from_secs(3));
///
/// let stats: QueueStats = queue.stats();
/// assert_eq!((stats.adds, stats.depth(), stats.waiting, stats.leased), (2, 1, 1, 1));
/// assert_eq!(stats.oldest_lease, Some(Duration::from_secs(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct QueueStats {
    /// The number of Ready keys, including keys of [`Fair`](crate::Fair) groups that are suspended or at their limits.
    pub ready: usize,
    /// The number of keys that wait for a deadline and are not leased.
    pub waiting: usize,
    /// The number of leased keys, including dirty and waiting ones.
    pub leased: usize,
    /// The number of leased keys that become Ready again when their lease ends.
    pub dirty: usize,
    /// The number of leased keys that will wait for a deadline after their lease has ended.
    pub leased_waiting: usize,
    /// How many more keys the queue has room for; `None` without a [capacity](crate::QueueBuilder::capacity).
    pub capacity_left: Option<usize>,
    /// Whether the queue is [paused](crate::Queue::pause).
    pub paused: bool,
    /// Whether the queue is shut down and refuses adds.
    pub shutting_down: bool,
    /// Whether ages are [tracked](crate::Queue::track_ages); a queue with [metrics](crate::QueueBuilder::metrics) always tracks them.
    pub ages_tracked: bool,
    /// How long the oldest Ready key has been Ready; `None` if no key is Ready, or ages are not tracked.
    ///
    /// Only the first key of each priority, or of each group, is examined. So if the priority of a key was [lowered](crate::Queue::set_priority), and
    /// the key is now behind keys that became Ready later, that key is not taken into account until it is the first.
    pub oldest_ready: Option<Duration>,
    /// How long the oldest lease has been held; `None` if no key is leased, or ages are not tracked.
    pub oldest_lease: Option<Duration>,
    /// The sum of the ages of all leases. Zero without metrics.
    pub unfinished_work: Duration,
    /// The total number of times that a key became pending (Ready, or leased and dirty): by an add, by a deadline that
    /// passed, or by a retry. An add that is merged is not counted. Never decreases. Zero without metrics.
    pub adds: u64,
    /// The total number of delays that the queue accepted, however short: delays of adds, of requeues, and of backoffs.
    /// Never decreases. Zero without metrics.
    pub delayed_adds: u64,
}

impl QueueStats {
    /// The number of pending keys: those that are Ready, and those that are leased and become Ready again when the lease ends. This is client-go's
    /// depth.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.ready + self.dirty
    }
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Returns the statistics. Takes O(1), plus one step for each deadline that has passed, for each leased key that waits, and for each group.
    pub(crate) fn stats(&mut self, now: Option<Nanos>) -> QueueStats {
        let now = now.unwrap_or(self.seen);
        let (ready, due_leased) = self.pending_counts(now);
        let (oldest_ready, oldest_lease) = self.oldest(now);
        let leased = self.leased();
        let mut stats = QueueStats {
            ready,
            waiting: self.slab.live() - leased - ready,
            leased,
            dirty: self.dirty + due_leased,
            leased_waiting: self.postponed.len() - due_leased,
            capacity_left: (self.options.capacity < usize::MAX).then(|| self.room()),
            paused: self.paused,
            shutting_down: !self.is_open(),
            ages_tracked: self.ages.is_some(),
            oldest_ready,
            oldest_lease,
            ..QueueStats::default()
        };
        self.meter_stats(&mut stats, now);
        stats
    }

    /// Returns the number of Ready keys, and the number of leased keys whose wait is over.
    pub(super) fn pending_counts(&self, now: Nanos) -> (usize, usize) {
        let due = self.due_by(now);
        let due_leased = self.postponed.iter().filter(|(_, own)| own.wait.at <= due).count();
        (self.len(Some(now)), due_leased)
    }
}
