//! PURE. How long things last.

use std::time::Duration;

use flyball_sync::Nanos;

use super::{LeaseId, QueueState};
use crate::state::entry::Flags;
use crate::state::order::ReadyQueue;

/// A lease that has been held for longer than it should.
///
/// # Examples
/// See [`Queue::next_overdue`](crate::Queue::next_overdue).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OverdueLease<K> {
    /// Its key.
    pub key: K,
    /// How long it has been held.
    pub age: Duration,
}

/// What somebody who looks for overdue leases finds.
pub(crate) enum NextOverdue<K> {
    Lease(OverdueLease<K>),
    /// The oldest lease is overdue then.
    Wait(Nanos),
    /// Nothing is leased.
    Empty,
    /// Nothing is, nor will be.
    Drained,
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// The clock is read at each add and get from now on. What is there counts from now.
    pub(crate) fn track_ages(&mut self, now: Nanos) {
        self.ages.get_or_insert(now);
    }

    /// How long the oldest key has been Ready, and the oldest lease been held.
    pub(super) fn oldest(&self, now: Nanos) -> (Option<Duration>, Option<Duration>) {
        let Some(kept) = self.ages else { return (None, None) };
        let age = |since: Nanos| now.since(since.max(kept));
        let at = |slot| self.slab.get(slot).at;
        let by = self.due_by(now);
        let due = self.first_wait().filter(|(at, _)| *at <= by).map(|(at, _)| at);
        let ready = self.order.heads(now, by).map(at).chain(due).min();
        (ready.map(age), self.oldest_lease(now))
    }

    /// How long the oldest lease has been held.
    fn oldest_lease(&self, now: Nanos) -> Option<Duration> {
        let kept = self.ages?;
        let oldest = self.leases.front().into_iter().chain(self.reported.front());
        let since = oldest.map(|slot| self.slab.get(slot).at).min()?;
        Some(now.since(since.max(kept)))
    }

    /// Whether there is a lease that was not reported as overdue.
    #[inline]
    pub(crate) fn has_unreported(&self) -> bool {
        self.leases.len() > 0
    }

    /// How long a lease has been held.
    pub(crate) fn lease_age(&self, lease: LeaseId, now: Nanos) -> Option<Duration> {
        Some(now.since(self.slab.get(lease.slot).at.max(self.ages?)))
    }

    /// The oldest lease that was not reported yet, if it has been held for `bound`; reports it.
    ///
    /// The key is cloned first: a panic of `Clone` reports nothing.
    pub(crate) fn next_overdue(&mut self, bound: Duration, now: Nanos) -> NextOverdue<K>
    where
        K: Clone,
    {
        self.track_ages(now);
        if self.is_drained() {
            return NextOverdue::Drained;
        }
        let Some(slot) = self.leases.front() else { return NextOverdue::Empty };
        let since = self.slab.get(slot).at.max(self.ages.unwrap_or(now));
        let overdue = since + bound;
        if overdue > now {
            return NextOverdue::Wait(overdue);
        }
        let Some(key) = self.slab.get(slot).key.clone() else {
            unreachable!("invariant 1: a linked slot holds a key")
        };
        self.leases.unlink(&mut self.slab, slot);
        self.slab.get_mut(slot).flags.set(Flags::REPORTED, true);
        self.reported.push(&mut self.slab, slot);
        NextOverdue::Lease(OverdueLease { key, age: now.since(since) })
    }
}
