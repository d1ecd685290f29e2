//! PURE. What a queue with metrics counts, in constant time and nothing else.
//!
//! The number of adds is not counted where keys come in, which happens in many places, and for deadlines in none. It
//! follows: whatever was asked for was handed out, was withdrawn, or is there. So
//!
//! > adds = taken + withdrawn + depth
//!
//! and a key whose deadline has passed is in it before anybody has noticed.

use std::time::Duration;

use flyball_sync::Nanos;

use super::{LeaseId, NextKey, Phase, QueueState, QueueStats};
use crate::state::entry::State;
use crate::state::order::ReadyQueue;
use crate::state::sparse::SparseMap;

/// What a queue without metrics does not have.
#[derive(Debug, Default)]
pub(super) struct Meter {
    /// Keys handed out.
    taken: u64,
    /// Keys that were asked for and then not: cancelled, postponed, stopped, or held by a strict backoff.
    withdrawn: u64,
    delays: u64,
    /// The most adds that were read: a clock that jumps back must not take any of them back.
    most_adds: u64,
    /// The moments at which leases began, added up.
    began: u128,
    /// Since when a key has been asked for that does not say so itself: because it was leased then, or has been gathered
    /// into the order. Of Ready and dirty slots only.
    asked: SparseMap<Requested>,
    last: HandedOut,
}

#[derive(Clone, Copy, Debug)]
struct Requested {
    since: Nanos,
    delayed: bool,
}

/// What metrics report of a hand-out.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandedOut {
    pub(crate) queued: Duration,
    pub(crate) delayed: bool,
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// What metrics alone know.
    pub(super) fn meter_stats(&mut self, stats: &mut QueueStats, now: Nanos) {
        let Some(meter) = self.meter.as_mut() else { return };
        meter.most_adds = meter.most_adds.max(meter.taken + meter.withdrawn + stats.depth() as u64);
        let unfinished = (stats.leased as u128 * u128::from(now.get())).saturating_sub(meter.began);
        stats.unfinished_work = Duration::from_nanos(u64::try_from(unfinished).unwrap_or(u64::MAX));
        (stats.adds, stats.delayed_adds) = (meter.most_adds, meter.delays);
    }

    /// [`get`](Self::get), where there may be metrics. A queue without time does without the question.
    pub(crate) fn get_told(&mut self, now: Option<Nanos>) -> NextKey<K>
    where
        K: Clone,
    {
        if self.meter.is_none() {
            return self.get(now);
        }
        let now = self.observe(now);
        let Some((slot, pick)) = self.next_slot(now) else { return self.nothing() };
        let entry = self.slab.get(slot);
        let own = Requested { since: entry.at, delayed: entry.state == State::Waiting };
        let next = self.hand_out((slot, pick), now);
        if let Some(meter) = &mut self.meter {
            let asked = meter.asked.take(slot).unwrap_or(own);
            meter.taken += 1;
            meter.began += u128::from(now.get());
            meter.last = HandedOut { queued: now.since(asked.since), delayed: asked.delayed };
        }
        next
    }

    /// What metrics report of the last hand-out.
    pub(crate) fn handed_out(&self) -> Option<HandedOut> {
        self.meter.as_ref().map(|meter| meter.last)
    }

    /// A lease is about to end: for how long it has been held. Nothing without metrics, or where it has ended.
    ///
    /// One that nobody has `seen` was not handed out, and its key, unless it was added meanwhile, is not asked for anew.
    pub(crate) fn meter_end(&mut self, lease: LeaseId, now: Option<Nanos>, seen: bool) -> Option<Duration> {
        let comes_back = matches!(self.phase, Phase::Open | Phase::DrainingDelays);
        let meter = self.meter.as_mut()?;
        let entry = self.slab.get(lease.slot);
        let held = entry.generation == lease.generation && entry.state.is_leased();
        held.then(|| {
            meter.began -= u128::from(entry.at.get());
            meter.taken -= u64::from(!seen && comes_back && entry.state == State::Leased);
            now.unwrap_or(self.seen).since(entry.at)
        })
    }

    /// A slot has been asked for since then, by an add while it is leased, or by a deadline.
    pub(super) fn meter_asked(&mut self, slot: u32, since: Nanos, delayed: bool) {
        if let Some(meter) = &mut self.meter {
            meter.asked.set(slot, Requested { since, delayed });
        }
    }

    /// Whether a slot is in the depth.
    pub(super) fn is_asked(&self, slot: u32, now: Nanos) -> bool {
        match self.slab.get(slot).state {
            State::Ready | State::LeasedDirty => true,
            State::Waiting | State::LeasedWaiting => self.wait_of(slot).at <= self.due_by(now),
            State::Leased | State::Vacant => false,
        }
    }

    /// A slot that was asked for is so no more, and was not handed out.
    pub(super) fn meter_withdrawn(&mut self, slot: u32) {
        if let Some(meter) = &mut self.meter {
            meter.withdrawn += 1;
            meter.asked.take(slot);
        }
    }

    /// A delay was asked for and accepted.
    pub(super) fn meter_delay(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.delays += 1;
        }
    }

    /// Everything that is asked for is about to be given up.
    pub(super) fn meter_stop(&mut self, now: Option<Nanos>) {
        let (ready, due_leased) = self.asked_for(now.unwrap_or(self.seen));
        if let Some(meter) = &mut self.meter {
            meter.withdrawn += (ready + self.dirty + due_leased) as u64;
            meter.asked = SparseMap::default();
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
        match meter.asked.iter().find(|(slot, _)| !wanted(*slot)) {
            Some((slot, _)) => Err(format!("state 7: slot {slot} is not asked for, but was")),
            None => Ok(()),
        }
    }
}
