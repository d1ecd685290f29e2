//! PURE. How much is in a queue, and what it has counted, at one moment.

use std::time::Duration;

use flyball_sync::Nanos;

use super::QueueState;
use crate::state::order::ReadyQueue;

/// How much is in a queue, how old it is, and what the queue has counted: all of it of one moment.
///
/// Durations are by the queue's clock. All of it goes on being right while the queue drains, and after.
///
/// # Examples
/// ```
/// use flyball_workqueue::{ManualClock, Queue, QueueMetrics, QueueStats};
/// use std::time::Duration;
///
/// struct Nobody;
/// impl QueueMetrics for Nobody {}
///
/// let clock = ManualClock::new();
/// let queue = Queue::builder().clock(clock.clone()).metrics(Nobody).build();
/// queue.add("a")?;
/// queue.add_after("b", Duration::from_secs(5))?;
/// let lease = queue.try_get()?;
/// queue.add("a")?; // while it runs
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
    /// Keys that can be handed out.
    pub ready: usize,
    /// Keys that wait for a deadline, and that nobody has leased.
    pub waiting: usize,
    /// Keys held by a lease, whatever comes after it.
    pub leased: usize,
    /// Leased keys that are Ready again when their lease ends.
    pub dirty: usize,
    /// Leased keys that come back after a delay.
    pub leased_waiting: usize,
    /// How many more keys there is room for; `None` without a [capacity](crate::QueueBuilder::capacity).
    pub capacity_left: Option<usize>,
    /// Whether the queue hands out nothing, see [`pause`](crate::Queue::pause).
    pub paused: bool,
    /// Whether the queue takes no keys any more.
    pub shutting_down: bool,
    /// Whether ages are [tracked](crate::Queue::track_ages), as they are with [metrics](crate::QueueBuilder::metrics).
    pub ages_tracked: bool,
    /// For how long the oldest Ready key has been so; `None` where none is Ready, or ages are not tracked.
    ///
    /// Of each line of an [order](crate::Order) the first key is looked at. So one that was
    /// [lowered](crate::Queue::set_priority) to the end of a line of younger keys counts once it is the first there.
    pub oldest_ready: Option<Duration>,
    /// For how long the oldest lease has been held; `None` where there is none, or ages are not tracked.
    pub oldest_lease: Option<Duration>,
    /// The ages of all leases, added up. Zero without metrics.
    pub unfinished_work: Duration,
    /// How often a key came to be asked for that was not so already: by an add, by a deadline that passed, by a retry;
    /// also while a lease held it. An add that is merged is not counted. Never falls. Zero without metrics.
    pub adds: u64,
    /// How many delays were asked for and accepted: by delayed adds, requeues and backoffs, of whatever length. Never
    /// falls. Zero without metrics.
    pub delayed_adds: u64,
}

impl QueueStats {
    /// Keys that are asked for: Ready, or leased and Ready again when the lease ends (client-go's depth).
    #[must_use]
    pub fn depth(&self) -> usize {
        self.ready + self.dirty
    }
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// O(1), plus the waits that are over and the leased keys that wait, and with groups their number.
    pub(crate) fn stats(&mut self, now: Option<Nanos>) -> QueueStats {
        let now = now.unwrap_or(self.seen);
        let (ready, due_leased) = self.asked_for(now);
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

    /// How many keys are Ready, and how many leased ones wait no longer.
    pub(super) fn asked_for(&self, now: Nanos) -> (usize, usize) {
        let due = self.due_by(now);
        let due_leased = self.postponed.iter().filter(|(_, own)| own.wait.at <= due).count();
        (self.len(Some(now)), due_leased)
    }
}
