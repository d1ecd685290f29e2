//! Shut down, drain, stop now.

use std::fmt::Debug;

use super::{Life, NaiveQueue, State};
use crate::answers::{Left, Time};

impl<K: Copy + Ord + Debug> NaiveQueue<K> {
    /// No more adds; what is due by now still comes out.
    pub fn shut_down(&mut self, now: Time) {
        self.pass_deadlines(now);
        if self.life == Life::Open {
            self.life = Life::ShutDown;
        }
    }

    /// Shuts down; the leftovers once nothing is Ready or Leased, or once the queue was stopped.
    pub fn drain(&mut self, now: Time) -> Option<Left<K>> {
        self.shut_down(now);
        let tally = self.tally(now);
        let over = self.life == Life::Stopped || (tally.ready == 0 && tally.leased == 0);
        over.then(|| self.left())
    }

    /// Takes out everything that is not leased, and what leased keys were to do next.
    pub fn stop_now(&mut self, now: Time) -> Left<K> {
        self.shut_down(now);
        self.life = Life::Stopped;
        let left = self.left();
        self.records.retain(|(_, state)| !matches!(state, State::Ready { .. } | State::Waiting { .. }));
        for (_, state) in &mut self.records {
            *state = State::Leased;
        }
        left
    }
}
