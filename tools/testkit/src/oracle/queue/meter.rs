//! What those who measure a queue are told, and can read.

use std::fmt::Debug;

use super::{Life, OracleQueue, State};
use crate::queue_answers::{Read, Refused, Time, Told};

/// Every change of a record is looked at: what it was, and what it is.
#[derive(Clone, Debug)]
pub(super) struct Meter<K> {
    /// The time of what happens now, and whether it is that a deadline passes.
    at: (Time, bool),
    /// Keys that are asked for, since when, and whether by a deadline.
    asked: Vec<(K, Time, bool)>,
    adds: u64,
    delays: u64,
    told: Vec<Told>,
}

impl<K: Copy + PartialEq> Meter<K> {
    pub(super) fn new() -> Self {
        Self { at: (0, false), asked: Vec::new(), adds: 0, delays: 0, told: Vec::new() }
    }

    pub(super) fn at(&mut self, time: Time, deadline: bool) {
        self.at = (time, deadline);
    }

    /// A key was so, and is so now.
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

    pub(super) fn tell(&mut self, told: Told) {
        self.told.push(told);
    }

    /// Before the key is moved.
    pub(super) fn hand_out(&mut self, key: K, now: Time) {
        let asked = self.asked.iter().find(|(of, ..)| *of == key);
        let (since, delayed) = asked.map_or((now, false), |(_, since, delayed)| (*since, *delayed));
        self.tell(Told::HandedOut { queued: now - since, delayed });
    }
}

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// What was told since this was asked last.
    pub fn told(&mut self) -> Vec<Told> {
        std::mem::take(&mut self.meter.told)
    }

    /// What can be read. Ages must be kept from the start.
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

    /// An answer that hands the key back is told.
    pub(super) fn tell_refused<T>(&mut self, answer: Result<T, Refused>) -> Result<T, Refused> {
        if let Err(why) = answer {
            self.meter.tell(Told::Refused(why));
        }
        answer
    }

    /// A lease that ended asked for this deadline: accepted as long as it can come.
    pub(super) fn accept_delay(&mut self, until: Time) {
        let served = match self.life {
            Life::Open => true,
            // For ever is never, whatever the horizon.
            Life::Serving { horizon } => until <= horizon.min(Time::MAX - 1),
            Life::ShutDown | Life::Stopped => false,
        };
        if served {
            self.meter.delay();
        }
    }
}
