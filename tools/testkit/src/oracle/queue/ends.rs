//! The operations `shut_down`, `drain` and `stop_now`.

use std::fmt::Debug;
use std::time::Duration;

use super::{Life, OracleQueue, State};
use crate::queue_answers::{Left, Time, later};

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// No more adds; what is due by now still comes out, and no more than that.
    pub fn shut_down(&mut self, now: Time) {
        self.pass_deadlines(now);
        if matches!(self.life, Life::Open | Life::Serving { .. }) {
            self.life = Life::ShutDown;
        }
    }

    /// Shuts down; the leftovers once nothing is Ready or Leased, or once the queue was stopped.
    pub fn drain(&mut self, now: Time) -> Option<Left<K>> {
        self.shut_down(now);
        self.resume();
        self.is_drained(now).then(|| self.left())
    }

    /// No more adds; what is due by the horizon still comes out. The first call decides on the horizon, and a queue that
    /// was shut down serves nothing; each call gets the leftovers once that is done, or once its own time is over.
    pub fn drain_all_timeout(&mut self, limit: Duration, now: Time) -> Option<Left<K>> {
        self.pass_deadlines(now);
        self.resume();
        let until = later(now, limit);
        if self.life == Life::Open {
            self.life = Life::Serving { horizon: until };
        }
        (self.is_drained(now) || until <= now).then(|| self.left())
    }

    /// Takes out everything that is not leased, and what leased keys were to do next.
    pub fn stop_now(&mut self, now: Time) -> Left<K> {
        self.shut_down(now);
        self.life = Life::Stopped;
        let left = self.left();
        self.meter.stop();
        for (key, state) in &mut self.records {
            match state {
                State::Ready { .. } => {
                    self.lines.leave(*key);
                    self.lines.forget(*key);
                }
                State::Waiting(_) => self.lines.forget(*key),
                _ => {
                    self.lines.unmark(*key);
                    *state = State::Leased;
                }
            }
        }
        self.records.retain(|(_, state)| *state == State::Leased);
        left
    }

    /// Nobody will ever do more: nothing is Ready, nothing is leased, and nothing comes before the horizon.
    pub(super) fn is_drained(&mut self, now: Time) -> bool {
        // An infinite deadline never passes, whatever the horizon.
        let coming = |state: &State, horizon: Time| matches!(state, State::Waiting(wait) if wait.until <= horizon.min(Time::MAX - 1));
        match self.life {
            Life::Open => false,
            Life::Serving { horizon } => {
                self.is_idle(now) && !self.records.iter().any(|(_, state)| coming(state, horizon))
            }
            Life::ShutDown => self.is_idle(now),
            Life::Stopped => true,
        }
    }
}
