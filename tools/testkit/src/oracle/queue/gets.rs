//! The operations that dequeue keys, and `pause` and `resume`.

use std::fmt::Debug;

use super::{OracleQueue, Phase, State};
use crate::coverage::states::{Column, Row};
use crate::oracle::order::GroupLimits;
use crate::queue_answers::{GetError, Time};

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// Dequeues the first Ready key without waiting.
    ///
    /// # Errors
    /// Returns the reason if no key can be handed out.
    pub fn try_get(&mut self, now: Time) -> Result<K, GetError> {
        self.pass_deadlines(now);
        let first = self.lines.next();
        if first.is_some() && self.paused {
            return Err(GetError::Empty);
        }
        for (key, _) in self.records.clone() {
            if self.was(key) != Row::Ready || Some(key) == first {
                self.cells.hit(self.was(key), Column::Get);
            }
        }
        match first {
            Some(key) => {
                self.meter.hand_out(key, now);
                self.leased_since.push((key, now));
                Ok(self.set(key, State::Leased, key))
            }
            None if self.is_closed(now) => Err(GetError::Closed),
            None => Err(GetError::Empty),
        }
    }

    /// Dequeues Ready keys, at most `most` of them, until no further key can be handed out.
    ///
    /// # Errors
    /// Returns the reason if no key at all can be handed out.
    pub fn try_get_many(&mut self, most: usize, now: Time) -> Result<Vec<K>, GetError> {
        let mut keys = vec![self.try_get(now)?];
        while keys.len() < most {
            match self.try_get(now) {
                Ok(key) => keys.push(key),
                Err(_) => break,
            }
        }
        Ok(keys)
    }

    /// Returns whether the queue is closed: it hands out no key now and will not hand out any later.
    fn is_closed(&mut self, now: Time) -> bool {
        let tally = self.tally(now);
        match self.phase {
            Phase::Open => false,
            Phase::Serving { .. } => self.is_drained(now),
            // A dirty key becomes Ready when its lease ends, even after the shutdown.
            Phase::ShutDown | Phase::Stopped => tally.ready == self.lines.suspended() && tally.dirty == 0,
        }
    }

    /// Changes the limits of a group, unless the queue is closed.
    pub fn limit(&mut self, group: usize, limits: GroupLimits, now: Time) {
        if !self.is_closed(now) {
            self.lines.limit(group, limits);
        }
    }

    /// Pauses the queue until `resume`.
    pub fn pause(&mut self) {
        self.paused = true;
    }

    /// Resumes the queue.
    pub fn resume(&mut self) {
        self.paused = false;
    }

    /// Whether the queue is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Returns whether no key can be handed out and no key is leased.
    pub fn is_idle(&mut self, now: Time) -> bool {
        let tally = self.tally(now);
        tally.ready == self.lines.suspended() && tally.leased == 0
    }
}
