//! The operations `shut_down`, `drain` and `stop_now`.

use std::fmt::Debug;
use std::time::Duration;

use super::{OracleQueue, Phase, State};
use crate::queue_answers::{OracleLeftovers, Time, later};

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// Shuts the queue down. After that, it hands out only the keys that are Ready or due at `now`, and each dirty key when its lease has ended.
    pub fn shut_down(&mut self, now: Time) {
        self.pass_deadlines(now);
        if matches!(self.phase, Phase::Open | Phase::Serving { .. }) {
            self.phase = Phase::ShutDown;
        }
    }

    /// Shuts the queue down. Returns the leftovers if no key is Ready or leased any more, or if the queue is stopped; otherwise returns `None`.
    pub fn drain(&mut self, now: Time) -> Option<OracleLeftovers<K>> {
        self.shut_down(now);
        self.resume();
        self.is_drained(now).then(|| self.left())
    }

    /// Shuts the queue down, but still hands out the waiting keys whose deadlines are not after the horizon. The horizon is `now` + `limit` of the
    /// first call. A queue that was already shut down does not hand out waiting keys. Returns the leftovers if the queue is drained or the `limit` of
    /// this call has elapsed.
    pub fn drain_all_timeout(&mut self, limit: Duration, now: Time) -> Option<OracleLeftovers<K>> {
        self.pass_deadlines(now);
        self.resume();
        let until = later(now, limit);
        if self.phase == Phase::Open {
            self.phase = Phase::Serving { horizon: until };
        }
        (self.is_drained(now) || until <= now).then(|| self.left())
    }

    /// Stops the queue and returns the leftovers. Removes all keys that are not leased. Leased keys stay leased, but are no longer dirty or waiting.
    pub fn stop_now(&mut self, now: Time) -> OracleLeftovers<K> {
        self.shut_down(now);
        self.phase = Phase::Stopped;
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

    /// Returns whether the queue is drained: it is shut down, no key can be handed out or is leased, and no waiting key has a deadline up to the
    /// horizon. A stopped queue is always drained.
    pub(super) fn is_drained(&mut self, now: Time) -> bool {
        // An infinite deadline never passes, whatever the horizon.
        let coming = |state: &State, horizon: Time| matches!(state, State::Waiting(wait) if wait.until <= horizon.min(Time::MAX - 1));
        match self.phase {
            Phase::Open => false,
            Phase::Serving { horizon } => {
                self.is_idle(now) && !self.records.iter().any(|(_, state)| coming(state, horizon))
            }
            Phase::ShutDown => self.is_idle(now),
            Phase::Stopped => true,
        }
    }
}
