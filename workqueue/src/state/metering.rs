//! PURE. The counters of a queue with metrics, each updated in constant time.
//!
//! An add is counted each time that a key becomes pending. No counter is incremented at that time: keys become pending in many places, and when a
//! deadline passes, no code runs. Instead, the number of adds is computed: each key that became pending was handed out, was withdrawn, or is still
//! pending. So
//!
//! > adds = taken + withdrawn + depth
//!
//! The depth includes a key as soon as its deadline has passed, even before an operation has processed the deadline.

use std::time::Duration;

use flyball_sync::Nanos;

use super::{Phase, QueueState};
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::SparseMap;
use crate::state::slots::State;
use crate::state::stats::QueueStats;
use crate::state::types::{LeaseId, NextKey};

/// The additional state of a queue with metrics.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// The number of keys handed out.
    taken: u64,
    /// The number of pending keys that were withdrawn: cancelled, postponed, stopped, or held back by a strict backoff.
    withdrawn: u64,
    delays: u64,
    /// The highest number of adds that the statistics have reported. It is reported instead of a lower number, which a clock that jumps back can
    /// cause.
    most_adds: u64,
    /// The sum of the times at which the current leases began.
    began: u128,
    /// For some Ready and dirty slots: the time at which the key became pending, and whether it had waited for a deadline. For all other slots the
    /// entry provides this data. A slot is in this map if its key became pending while it was leased, or if the order has gathered the key after its
    /// deadline.
    pending_since: SparseMap<PendingSince>,
    last_hand_out: HandedOut,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PendingSince {
    since: Nanos,
    delayed: bool,
}

impl Meter {
    /// Moves the memory for pending keys out. No key must be pending.
    pub(super) fn take_pending(&mut self) -> SparseMap<PendingSince> {
        std::mem::take(&mut self.pending_since)
    }
}

/// The data that metrics report about a hand-out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandedOut {
    pub(crate) queued: Duration,
    pub(crate) delayed: bool,
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Sets the statistics that only a queue with metrics has.
    pub(super) fn meter_stats(&mut self, stats: &mut QueueStats, now: Nanos) {
        let Some(meter) = self.meter.as_mut() else { return };
        meter.most_adds = meter.most_adds.max(meter.taken + meter.withdrawn + stats.depth() as u64);
        let unfinished = (stats.leased as u128 * u128::from(now.get())).saturating_sub(meter.began);
        stats.unfinished_work = Duration::from_nanos(u64::try_from(unfinished).unwrap_or(u64::MAX));
        (stats.adds, stats.delayed_adds) = (meter.most_adds, meter.delays);
    }

    /// Like [`get`](Self::get), for a queue that may have metrics. A queue without a clock has no metrics, and calls `get` directly.
    pub(crate) fn get_metered(&mut self, now: Option<Nanos>) -> NextKey<K>
    where
        K: Clone,
    {
        if self.meter.is_none() {
            return self.get(now);
        }
        let was_read = now.is_some();
        let now = self.observe(now);
        let Some((slot, pick)) = self.next_slot(now) else { return self.no_key(was_read) };
        let entry = self.slab.get(slot);
        let own = PendingSince { since: entry.at, delayed: entry.state == State::Waiting };
        let next = self.hand_out((slot, pick), now);
        if let Some(meter) = &mut self.meter {
            let pending = meter.pending_since.take(slot).unwrap_or(own);
            meter.taken += 1;
            meter.began += u128::from(now.get());
            meter.last_hand_out = HandedOut { queued: now.since(pending.since), delayed: pending.delayed };
        }
        next
    }

    /// Returns the data that metrics report about the last hand-out.
    pub(crate) fn handed_out(&self) -> Option<HandedOut> {
        self.meter.as_ref().map(|meter| meter.last_hand_out)
    }

    /// Returns how long a lease that is about to end has been held; `None` without metrics, or if the lease has ended.
    ///
    /// `seen` is false if no worker has started on the key. If the end of such a lease makes the key pending again, its hand-out is subtracted from
    /// `taken`; otherwise a second add would be counted.
    pub(crate) fn meter_end(&mut self, lease: LeaseId, now: Option<Nanos>, seen: bool) -> Option<Duration> {
        let comes_back = !seen && self.comes_back(lease.slot, now.unwrap_or(self.seen));
        let meter = self.meter.as_mut()?;
        let entry = self.slab.get(lease.slot);
        let held = entry.generation == lease.generation && entry.state.is_leased();
        held.then(|| {
            meter.began -= u128::from(entry.at.get());
            meter.taken -= u64::from(comes_back);
            now.unwrap_or(self.seen).since(entry.at)
        })
    }

    /// Returns whether a leased key is not pending now, but becomes Ready if its lease ends with `Transition::NotBegun`.
    fn comes_back(&self, slot: u32, now: Nanos) -> bool {
        let served = match self.phase {
            Phase::Open => true,
            Phase::DrainingDelays => now < self.horizon,
            Phase::ShutDown | Phase::Stopped => false,
        };
        let is_free = match self.slab.get(slot).state {
            State::Leased => true,
            State::LeasedWaiting => !self.is_pending(slot, now) && !self.holds(self.wait_of(slot)),
            _ => false,
        };
        served && is_free
    }

    /// Stores the time at which the key of a slot became pending: the time of an add while the key was leased, or the key's deadline.
    pub(super) fn meter_pending(&mut self, slot: u32, since: Nanos, delayed: bool) {
        if let Some(meter) = &mut self.meter {
            meter.pending_since.set(slot, PendingSince { since, delayed });
        }
    }

    /// Like [`meter_pending`](Self::meter_pending), unless it is known already since when the key has been pending.
    pub(super) fn meter_still_pending(&mut self, slot: u32, since: Nanos, delayed: bool) {
        if self.meter.as_ref().is_some_and(|meter| meter.pending_since.get(slot).is_none()) {
            self.meter_pending(slot, since, delayed);
        }
    }

    /// Returns whether the key of a slot is pending, so that it counts in the depth.
    pub(super) fn is_pending(&self, slot: u32, now: Nanos) -> bool {
        match self.slab.get(slot).state {
            State::Ready | State::LeasedDirty => true,
            State::Waiting | State::LeasedWaiting => self.wait_of(slot).at <= self.due_by(now),
            State::Leased | State::Vacant => false,
        }
    }

    /// Counts the pending key of a slot as withdrawn: it will not be handed out.
    pub(super) fn meter_withdrawn(&mut self, slot: u32) {
        if let Some(meter) = &mut self.meter {
            meter.withdrawn += 1;
            meter.pending_since.take(slot);
        }
    }

    /// Counts a delay that was accepted.
    pub(super) fn meter_delay(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.delays += 1;
        }
    }

    /// Counts all pending keys as withdrawn, before the queue is stopped.
    pub(super) fn meter_stop(&mut self, now: Option<Nanos>) {
        let (ready, due_leased) = self.pending_counts(now.unwrap_or(self.seen));
        if let Some(meter) = &mut self.meter {
            meter.withdrawn += (ready + self.dirty + due_leased) as u64;
            meter.pending_since = SparseMap::default();
        }
    }

    pub(super) fn check_meter(&self) -> Result<(), String> {
        let Some(meter) = &self.meter else { return Ok(()) };
        let mut began = 0;
        for (_, entry) in self.slab.iter().filter(|(_, entry)| entry.state.is_leased()) {
            began += u128::from(entry.at.get());
        }
        if began != meter.began {
            return Err(format!("state 7: leases began at {began}, summed {}", meter.began));
        }
        let wanted = |slot| matches!(self.slab.get(slot).state, State::Ready | State::LeasedDirty);
        match meter.pending_since.iter().find(|(slot, _)| !wanted(*slot)) {
            Some((slot, _)) => Err(format!("state 7: slot {slot} is not pending, but has a time")),
            None => Ok(()),
        }
    }
}
