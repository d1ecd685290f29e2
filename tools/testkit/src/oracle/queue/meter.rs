//! What the oracle queue reports to metrics, and the numbers that metrics read from it.

use std::fmt::Debug;

use super::{OracleQueue, Phase, State};
use crate::queue_answers::{Read, Refused, Report, Time};

/// Derives the numbers for metrics from the state changes of keys.
#[derive(Clone, Debug)]
pub(super) struct Meter<K> {
    /// The time of the current state change, and whether its cause is that a deadline has passed.
    at: (Time, bool),
    /// The keys that are Ready or dirty, each with the time at which it became Ready or dirty, and with whether the cause was that a deadline had
    /// passed.
    asked: Vec<(K, Time, bool)>,
    adds: u64,
    delays: u64,
    reports: Vec<Report>,
}

impl<K: Copy + PartialEq> Meter<K> {
    pub(super) fn new() -> Self {
        Self { at: (0, false), asked: Vec::new(), adds: 0, delays: 0, reports: Vec::new() }
    }

    pub(super) fn at(&mut self, time: Time, deadline: bool) {
        self.at = (time, deadline);
    }

    /// Records that a key changes its state from `was` to `is`. `None` means that the key is not in the queue.
    pub(super) fn moved(&mut self, key: K, was: Option<State>, is: Option<State>) {
        let asks = |state| matches!(state, Some(State::Ready { .. } | State::LeasedDirty));
        match (asks(was), asks(is)) {
            (false, true) => {
                self.adds += 1;
                self.asked.push((key, self.at.0, self.at.1));
            }
            (true, false) => self.asked.retain(|(of, ..)| *of != key),
            _ => {}
        }
    }

    pub(super) fn stop(&mut self) {
        self.asked.clear();
    }

    pub(super) fn delay(&mut self) {
        self.delays += 1;
    }

    pub(super) fn report(&mut self, reports: Report) {
        self.reports.push(reports);
    }

    /// Reports that `key` is handed out. Must be called before the state of the key changes.
    pub(super) fn hand_out(&mut self, key: K, now: Time) {
        let asked = self.asked.iter().find(|(of, ..)| *of == key);
        let (since, delayed) = asked.map_or((now, false), |(_, since, delayed)| (*since, *delayed));
        self.report(Report::HandedOut { queued: now - since, delayed });
    }
}

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// Returns the reports since the last call, and removes them.
    pub fn reports(&mut self) -> Vec<Report> {
        std::mem::take(&mut self.meter.reports)
    }

    /// Returns the numbers that metrics read. They are correct only if ages were tracked from the start.
    pub fn read(&mut self, now: Time) -> Read {
        let tally = self.tally(now);
        let waits = |state: &State| matches!(state, State::Waiting(_) | State::LeasedWaiting(_));
        let oldest = self.ages(now);
        Read {
            adds: self.meter.adds,
            delays: self.meter.delays,
            depth: tally.ready + tally.dirty,
            waiting: self.records.iter().filter(|(_, state)| waits(state)).count(),
            leased: tally.leased,
            unfinished: self.leased_since.iter().map(|(_, since)| now - since).sum(),
            longest: oldest.and_then(|ages| ages.leased).unwrap_or(0),
            oldest_ready: oldest.and_then(|ages| ages.ready).unwrap_or(0),
            room: self.setup.capacity.map(|capacity| capacity.saturating_sub(self.records.len())),
        }
    }

    /// Reports a refused add.
    pub(super) fn report_refused<T>(&mut self, answer: Result<T, Refused>) -> Result<T, Refused> {
        if let Err(why) = answer {
            self.meter.report(Report::Refused(why));
        }
        answer
    }

    /// Counts the delay that the outcome of a lease requests, if the delay can still end at `until` in the present phase of the queue.
    pub(super) fn accept_delay(&mut self, until: Time) {
        let served = match self.phase {
            Phase::Open => true,
            // An infinite deadline never passes, whatever the horizon.
            Phase::Serving { horizon } => until <= horizon.min(Time::MAX - 1),
            Phase::ShutDown | Phase::Stopped => false,
        };
        if served {
            self.meter.delay();
        }
    }
}
