//! PURE. The statistics of a queue, of its groups and of its priorities, and the ages of Ready keys and of leases.

use std::time::Duration;

use flyball_sync::Nanos;

use super::QueueState;
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::Flags;
use crate::state::types::LeaseId;

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
    /// The next deadline of a waiting key, by the queue's clock; `None` if no key becomes Ready at a deadline.
    pub next_deadline: Option<Nanos>,
    /// Whether the queue is [paused](crate::Queue::pause).
    pub paused: bool,
    /// Whether the queue is shut down and refuses adds.
    pub shutting_down: bool,
    /// Whether ages are [tracked](crate::Queue::track_ages); a queue with [metrics](crate::QueueBuilder::metrics) always tracks them.
    pub ages_tracked: bool,
    /// How long the oldest Ready key has been Ready; `None` if no key is Ready, or ages are not tracked.
    ///
    /// Only the first key of each priority, or of each group, is examined. So if the priority of a key was [lowered](crate::Queue::set_priority), and
    /// the key is now behind keys that became Ready later, that key is not taken into account until it is the first. Nor are keys of a group that
    /// became Ready while more than 64 deadlines passed between two operations, and a later key is before them.
    pub oldest_ready: Option<Duration>,
    /// Like `oldest_ready`, but without the keys that their own [`Fair`](crate::Fair) group holds back: the group is suspended, has as many leases as it
    /// may have, or waits for a token of its rate. A high age means that there are too few workers, whatever the limits of the groups are.
    pub oldest_available: Option<Duration>,
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
        let leased = self.leased();
        let mut stats = QueueStats {
            ready,
            waiting: self.slab.live() - leased - ready,
            leased,
            dirty: self.dirty + due_leased,
            leased_waiting: self.postponed.len() - due_leased,
            next_deadline: self.next_wait(now),
            capacity_left: (self.options.capacity < usize::MAX).then(|| self.room()),
            paused: self.paused,
            shutting_down: !self.is_open(),
            ages_tracked: self.ages.is_some(),
            oldest_ready: self.oldest_ready(now, |_| true),
            oldest_available: self.oldest_ready(now, |slot| !self.order.is_held_back(slot, now)),
            oldest_lease: self.oldest_lease(now),
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

/// A lease that has been held for at least as long as the bound that was passed to [`Queue::next_overdue`](crate::Queue::next_overdue).
///
/// # Examples
/// See [`Queue::next_overdue`](crate::Queue::next_overdue).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverdueLease<K> {
    /// The leased key.
    pub key: K,
    /// How long the lease has been held.
    pub age: Duration,
}

/// The result of a search for an overdue lease.
pub(crate) enum NextOverdue<K> {
    Lease(OverdueLease<K>),
    /// No lease is overdue yet; the oldest unreported lease becomes overdue at this time.
    Wait(Nanos),
    /// No lease is left to report: no key is leased, or all leases were already reported.
    Empty,
    /// The queue is drained: no key is leased, and no key will be leased later.
    Drained,
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Starts to track ages. From now on, the caller must read the clock at each add and get. For keys that are in the queue already, the age is
    /// counted from now.
    pub(crate) fn track_ages(&mut self, now: Nanos) {
        // If the clock has jumped back, the age of a lease that begins now would be 0 until the clock is there again.
        self.ages = Some(self.ages.map_or(now, |ages| ages.min(now)));
    }

    /// Returns how long the oldest Ready key has been Ready, of those that count.
    fn oldest_ready(&self, now: Nanos, counts: impl Fn(u32) -> bool) -> Option<Duration> {
        let kept = self.ages?;
        let by = self.due_by(now);
        let first = self.first_wait().filter(|(at, _)| *at <= by).map(|(_, slot)| slot);
        let due = match first {
            // The keys that are due after one that does not count may count.
            Some(slot) if !counts(slot) => {
                self.order.heaps().flat_map(|waits| waits.due(by, usize::MAX)).collect()
            }
            first => Vec::from_iter(first),
        };
        let oldest = self.order.heads(now, by).chain(due).filter(|slot| counts(*slot));
        let since = oldest.map(|slot| self.slab.get(slot).at).min()?;
        Some(now.since(since.max(kept)))
    }

    /// Returns how long the oldest lease has been held.
    fn oldest_lease(&self, now: Nanos) -> Option<Duration> {
        let kept = self.ages?;
        let oldest = self.leases.front().into_iter().chain(self.reported.front());
        let since = oldest.map(|slot| self.slab.get(slot).at).min()?;
        Some(now.since(since.max(kept)))
    }

    /// Returns when the oldest lease began that was not reported as overdue, according to the last reading of the clock.
    #[inline]
    pub(crate) fn oldest_unreported(&self) -> Option<Nanos> {
        Some(self.slab.get(self.leases.front()?).at)
    }

    /// Returns how long a lease has been held.
    pub(crate) fn lease_age(&self, lease: LeaseId, now: Nanos) -> Option<Duration> {
        Some(now.since(self.slab.get(lease.slot).at.max(self.ages?)))
    }

    /// Checks the oldest lease that was not reported yet. If it has been held for at least `bound`, marks it as reported and returns it.
    ///
    /// The key is cloned before the lease is marked, so that the lease is not marked as reported if `Clone` panics.
    pub(crate) fn next_overdue(&mut self, bound: Duration, now: Nanos) -> NextOverdue<K>
    where
        K: Clone,
    {
        let drained = self.is_drained(Some(now));
        let tracked = self.ages.map_or(now, |ages| ages.min(now));
        let first = self.leases.front().filter(|_| !drained);
        let first = first.map(|slot| (slot, self.slab.get(slot).at.max(tracked)));
        // `Clone` may panic, so the key is cloned before anything changes. If the queue already tracked ages then, and no operation noted it, ages would
        // count from the panic, although no operation would read the clock.
        let key = match first {
            Some((slot, since)) if since + bound <= now => self.slab.get(slot).key.clone(),
            _ => None,
        };
        self.track_ages(now);
        let Some((slot, since)) = first else {
            return if drained { NextOverdue::Drained } else { NextOverdue::Empty };
        };
        let Some(key) = key else { return NextOverdue::Wait(since + bound) };
        self.leases.unlink(&mut self.slab, slot);
        self.slab.get_mut(slot).flags.set(Flags::REPORTED, true);
        self.reported.push(&mut self.slab, slot);
        NextOverdue::Lease(OverdueLease { key, age: now.since(since) })
    }
}

/// The numbers of keys of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct GroupStats<G> {
    /// The group.
    pub group: G,
    /// The number of all its keys.
    pub total: usize,
    /// The number of its Ready keys.
    pub ready: usize,
    /// The number of its leased keys.
    pub leased: usize,
    /// The number of its Ready keys that cannot be handed out because the group is
    /// [suspended](crate::Fair::max_leased).
    pub suspended: usize,
    /// The number of its Ready keys that cannot be handed out before a lease of the group ends, because the group is at its
    /// [limit of leases](crate::Fair::max_leased).
    pub lease_limited: usize,
    /// The number of its Ready keys that cannot be handed out before more tokens of the group's [rate](crate::Fair::rate) arrive.
    pub rate_limited: usize,
    /// How many more keys the group has room for, without regard to the capacity of the queue; `None` if the group has no
    /// [capacity](crate::Fair::capacity).
    pub capacity_left: Option<usize>,
}

impl GroupStats<usize> {
    /// Returns the sum of `self` and `other`.
    pub(super) fn and(self, other: Self) -> Self {
        let room = self.capacity_left.into_iter().chain(other.capacity_left).reduce(usize::saturating_add);
        Self {
            group: self.group + other.group,
            total: self.total + other.total,
            ready: self.ready + other.ready,
            leased: self.leased + other.leased,
            suspended: self.suspended + other.suspended,
            lease_limited: self.lease_limited + other.lease_limited,
            rate_limited: self.rate_limited + other.rate_limited,
            capacity_left: room,
        }
    }
}

/// The statistics of the groups with the most Ready keys, and the sum of the statistics of all other groups.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub struct TopGroups<G> {
    /// The groups with the most Ready keys, in descending order of the number of these keys.
    pub groups: Vec<GroupStats<G>>,
    /// The sum of the statistics of all other groups. `group` is the number of these groups, and `capacity_left` is the sum over those that have a
    /// capacity.
    pub others: GroupStats<usize>,
}
