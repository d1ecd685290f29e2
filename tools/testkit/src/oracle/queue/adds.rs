//! The operations that add, postpone or cancel a key.

use std::fmt::Debug;
use std::time::Duration;

use super::wait::Wait;
use super::{OracleQueue, Phase, State};
use crate::coverage::states::Column;
use crate::oracle::backoff::Failed;
use crate::queue_answers::{AddManyOutcome, Outcome, Refused, Time, later};
use crate::queue_setup::Mode;

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// Adds a key.
    ///
    /// # Errors
    /// Returns the reason if the queue is shut down or full.
    pub fn add(&mut self, key: K, now: Time) -> Result<Outcome, Refused> {
        let answer = self.try_add(key, now);
        self.report_refused(answer)
    }

    fn try_add(&mut self, key: K, now: Time) -> Result<Outcome, Refused> {
        self.pass_deadlines(now);
        self.admit(key)?;
        self.cells.hit(self.was(key), Column::Add);
        Ok(self.add_now(key, now))
    }

    /// Adds several keys, one after the other.
    pub fn add_many(&mut self, keys: &[K], now: Time) -> AddManyOutcome<K> {
        let mut many = AddManyOutcome { new: 0, merged: 0, promoted: 0, marked: 0, refused: Vec::new() };
        for &key in keys {
            match self.add(key, now) {
                Ok(Outcome::New) => many.new += 1,
                Ok(Outcome::Merged) => many.merged += 1,
                Ok(Outcome::Promoted) => many.promoted += 1,
                Ok(Outcome::Marked) => many.marked += 1,
                Err(why) => many.refused.push((key, why)),
            }
        }
        many
    }

    /// Tries an add that may wait for capacity. Returns `None` if the queue is full and the add has to wait.
    pub fn add_when_room(&mut self, key: K, now: Time) -> Option<Result<Outcome, Refused>> {
        match self.try_add(key, now) {
            Err(Refused::Full) => None,
            answer => Some(self.report_refused(answer)),
        }
    }

    /// Adds a key after a delay. If the key is already waiting, the earlier of the two deadlines is kept.
    ///
    /// # Errors
    /// Returns the reason if the queue is shut down or full.
    pub fn add_after(&mut self, key: K, after: Duration, now: Time) -> Result<Outcome, Refused> {
        self.add_after_with(key, after, Mode::Earliest, now)
    }

    /// Adds a key with a delay and a mode. Without a delay, and in the default mode, this is an ordinary add.
    ///
    /// # Errors
    /// Returns the reason if the queue is shut down or full.
    pub fn add_with(&mut self, key: K, after: Duration, mode: Mode, now: Time) -> Result<Outcome, Refused> {
        if after.is_zero() && mode == Mode::Earliest {
            return self.add(key, now);
        }
        self.add_after_with(key, after, mode, now)
    }

    /// Adds a key after a delay. If the key is already waiting, `mode` decides which deadline is kept. A key whose deadline is not after `now` is
    /// added without a delay.
    ///
    /// # Errors
    /// Returns the reason if the queue is shut down or full.
    pub fn add_after_with(
        &mut self,
        key: K,
        after: Duration,
        mode: Mode,
        now: Time,
    ) -> Result<Outcome, Refused> {
        self.pass_deadlines(now);
        let admitted = self.admit(key);
        self.report_refused(admitted)?;
        self.meter.delay();
        let doing = match mode {
            Mode::Earliest => Column::Earliest,
            Mode::Latest(_) => Column::Latest,
            Mode::Replace => Column::Replace,
        };
        self.cells.hit(self.was(key), doing);
        let (until, order) = (later(now, after), self.order());
        let wait = match self.state(key) {
            Some(State::Waiting(wait) | State::LeasedWaiting(wait)) => wait.combined(mode, until, now, order),
            _ => Wait::new(mode, until, now, order),
        };
        Ok(self.add_wait(key, wait, now))
    }

    /// Adds a key that has at least these failures. The failures count even if the add is refused, unless the queue is shut down.
    ///
    /// # Errors
    /// Returns the reason if the queue is shut down or full.
    pub fn add_failed(&mut self, key: K, failures: u32, now: Time) -> Result<Outcome, Refused> {
        self.pass_deadlines(now);
        if self.phase == Phase::Open && failures > 0 {
            self.backoffs.restore(key, failures);
        }
        self.add(key, now)
    }

    /// Counts a failure and adds the key after its backoff. After the shutdown, the add is refused and the failure is not counted.
    ///
    /// # Errors
    /// Returns the reason if the queue is shut down or full, or if the key has failed too often.
    pub fn add_rate_limited(&mut self, key: K, now: Time) -> Result<Outcome, Refused> {
        let answer = self.try_add_rate_limited(key, now);
        self.report_refused(answer)
    }

    fn try_add_rate_limited(&mut self, key: K, now: Time) -> Result<Outcome, Refused> {
        self.pass_deadlines(now);
        if self.phase != Phase::Open {
            return Err(Refused::ShutDown);
        }
        let failed = self.fail(key, now);
        if self.give_up(key, failed) {
            self.cells.hit(self.was(key), Column::LimitedExhausted);
            return Err(Refused::Exhausted);
        }
        self.admit(key)?;
        self.cells.hit(self.was(key), Column::Limited);
        self.meter.delay();
        let Some(Failed { until, .. }) = failed else { return Ok(self.add_now(key, now)) };
        let strict = self.setup.strict;
        let order = self.order();
        let wait = match self.state(key) {
            Some(State::Waiting(wait) | State::LeasedWaiting(wait)) => {
                if strict && !wait.backoff && wait.until <= until {
                    // The present wait does not end later than the backoff, so the backoff replaces it.
                    Wait { backoff: true, ..wait.moved(until, None, order) }
                } else {
                    let new = wait.combined(Mode::Earliest, until, now, order);
                    Wait { backoff: wait.backoff || (strict && new.until != wait.until), ..new }
                }
            }
            _ => Wait { backoff: strict, ..Wait::fixed(until, order) },
        };
        Ok(self.add_wait(key, wait, now))
    }

    /// Postpones the next run of a key, so that it starts after the delay at the earliest. Returns whether the key had a next run, that is, whether
    /// it was waiting, Ready or dirty.
    pub fn postpone(&mut self, key: K, delay: Duration, now: Time) -> bool {
        self.pass_deadlines(now);
        if self.phase != Phase::Open {
            return false;
        }
        self.cells.hit(self.was(key), Column::Postpone);
        let (until, order) = (later(now, delay), self.order());
        match self.state(key) {
            None | Some(State::Leased) => false,
            Some(_) if until <= now => true,
            Some(State::Ready { .. }) => self.set(key, State::Waiting(Wait::fixed(until, order)), true),
            Some(State::LeasedDirty) => self.set(key, State::LeasedWaiting(Wait::fixed(until, order)), true),
            Some(State::Waiting(wait)) => {
                self.set(key, State::Waiting(wait.moved(wait.until.max(until), None, order)), true)
            }
            Some(State::LeasedWaiting(wait)) => {
                self.set(key, State::LeasedWaiting(wait.moved(wait.until.max(until), None, order)), true)
            }
        }
    }

    /// Cancels the next run of a key: removes the key if it is waiting or Ready. A leased key stays leased, but is no longer dirty or waiting.
    /// Returns whether the key had a next run.
    pub fn cancel(&mut self, key: K, now: Time) -> bool {
        self.pass_deadlines(now);
        self.cells.hit(self.was(key), Column::Cancel);
        match self.state(key) {
            None | Some(State::Leased) => false,
            Some(State::Waiting(_) | State::Ready { .. }) => {
                self.remove(key);
                true
            }
            Some(State::LeasedDirty | State::LeasedWaiting(_)) => {
                self.lines.unmark(key);
                self.set(key, State::Leased, true)
            }
        }
    }

    fn admit(&mut self, key: K) -> Result<(), Refused> {
        if self.phase != Phase::Open {
            return Err(Refused::ShutDown);
        }
        let full = self.setup.capacity.is_some_and(|capacity| self.records.len() >= capacity);
        if (full || self.lines.is_full_for(key)) && self.state(key).is_none() {
            self.cells.hit(self.was(key), Column::Full);
            return Err(Refused::Full);
        }
        self.lines.add(key, self.add_priority);
        Ok(())
    }

    /// Implements the column of plain adds in the state table.
    fn add_now(&mut self, key: K, now: Time) -> Outcome {
        let tail = self.tail(now);
        match self.state(key) {
            None => self.set(key, tail, Outcome::New),
            // No add shortens a backoff.
            Some(State::Waiting(wait) | State::LeasedWaiting(wait)) if wait.backoff => Outcome::Merged,
            Some(State::Waiting(_)) => self.set(key, tail, Outcome::Promoted),
            Some(State::Ready { .. }) => Outcome::Merged,
            Some(State::Leased) => self.set(key, State::LeasedDirty, Outcome::Marked),
            Some(State::LeasedDirty) => Outcome::Merged,
            Some(State::LeasedWaiting(_)) => self.set(key, State::LeasedDirty, Outcome::Marked),
        }
    }

    /// Implements the columns of delayed adds in the state table. The caller has already computed the new wait.
    fn add_wait(&mut self, key: K, wait: Wait, now: Time) -> Outcome {
        if wait.until <= now {
            return self.add_now(key, now);
        }
        match self.state(key) {
            None => self.set(key, State::Waiting(wait), Outcome::New),
            Some(State::Waiting(_)) => self.set(key, State::Waiting(wait), Outcome::Merged),
            Some(State::Ready { .. }) => Outcome::Merged,
            Some(State::Leased) => self.set(key, State::LeasedWaiting(wait), Outcome::Marked),
            // A failed key waits for its strict backoff, even if it is dirty.
            Some(State::LeasedDirty) if wait.backoff => {
                self.set(key, State::LeasedWaiting(wait), Outcome::Merged)
            }
            Some(State::LeasedDirty) => Outcome::Merged,
            Some(State::LeasedWaiting(_)) => self.set(key, State::LeasedWaiting(wait), Outcome::Merged),
        }
    }
}
