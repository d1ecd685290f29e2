//! PURE. The ages of Ready keys and of leases.

use std::time::Duration;

use flyball_sync::Nanos;

use super::QueueState;
use crate::state::entry::Flags;
use crate::state::order::sealed::ReadyQueue;
use crate::state::types::LeaseId;

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
        self.ages.get_or_insert(now);
    }

    /// Returns how long the oldest Ready key has been Ready, and how long the oldest lease has been held.
    pub(super) fn oldest(&self, now: Nanos) -> (Option<Duration>, Option<Duration>) {
        let Some(kept) = self.ages else { return (None, None) };
        let age = |since: Nanos| now.since(since.max(kept));
        let at = |slot| self.slab.get(slot).at;
        let by = self.due_by(now);
        let due = self.first_wait().filter(|(at, _)| *at <= by).map(|(at, _)| at);
        let ready = self.order.heads(now, by).map(at).chain(due).min();
        (ready.map(age), self.oldest_lease(now))
    }

    /// Returns how long the oldest lease has been held.
    fn oldest_lease(&self, now: Nanos) -> Option<Duration> {
        let kept = self.ages?;
        let oldest = self.leases.front().into_iter().chain(self.reported.front());
        let since = oldest.map(|slot| self.slab.get(slot).at).min()?;
        Some(now.since(since.max(kept)))
    }

    /// Returns whether there is a lease that was not reported as overdue.
    #[inline]
    pub(crate) fn has_unreported(&self) -> bool {
        self.leases.len() > 0
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
        let tracked = self.ages.unwrap_or(now);
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
