//! The operations that end and detach leases.

use std::fmt::Debug;

use super::wait::Wait;
use super::{OracleQueue, Phase, State};
use crate::coverage::states::Column;
use crate::oracle::backoff::Failed;
use crate::queue_answers::{Ending, NotDetached, Report, Time, later};
use crate::queue_setup::Mode;

/// The next run of a key that the outcome of its lease requests.
#[derive(Clone, Copy, Debug)]
enum NextRun {
    /// No further run.
    No,
    /// A run at this time.
    At(Time),
    /// A run at this time, at the end of a backoff that no add can shorten.
    Backoff(Time),
}

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// Ends a lease.
    ///
    /// # Panics
    /// Panics if the key is not leased.
    pub fn end(&mut self, key: K, ending: Ending, now: Time) {
        self.pass_deadlines(now);
        let was = self.was(key);
        self.report_ended(key, ending, now);
        let mut doing = Column::from(ending);
        let back = match ending {
            Ending::Done => NextRun::No,
            Ending::Succeed => {
                self.forget(key);
                NextRun::No
            }
            Ending::RequeueAfter(delay) | Ending::DoneAfter(delay) => {
                if matches!(ending, Ending::RequeueAfter(_)) {
                    self.forget(key);
                }
                self.accept_delay(later(now, delay));
                NextRun::At(later(now, delay))
            }
            Ending::Retry | Ending::RetryNoSooner(_) | Ending::Dropped => {
                let least = match ending {
                    Ending::RetryNoSooner(least) => later(now, least),
                    _ => now,
                };
                let failed = self.fail(key, now);
                if let Phase::Serving { .. } = self.phase {
                    self.cells.hit(was, Column::FailedServing);
                }
                match failed {
                    _ if self.give_up(key, failed) => {
                        doing = Column::Exhausted;
                        NextRun::No
                    }
                    None if least == now => {
                        doing = Column::Tail;
                        NextRun::At(now)
                    }
                    _ => {
                        let until = failed.map_or(least, |failed| failed.until.max(least));
                        self.accept_delay(until);
                        if self.setup.strict { NextRun::Backoff(until) } else { NextRun::At(until) }
                    }
                }
            }
        };
        self.cells.hit(was, doing);
        self.end_by(key, back, now);
    }

    fn end_by(&mut self, key: K, back: NextRun, now: Time) {
        self.detached.retain(|of| *of != key);
        self.leased_since.retain(|(of, _)| *of != key);
        self.overdue.retain(|of| *of != key);
        if matches!(self.phase, Phase::ShutDown | Phase::Serving { .. }) {
            self.late.push(key);
        }
        let order = self.order();
        self.lines.end(key, !matches!(back, NextRun::No));
        match (self.state(key), back) {
            // A stopped queue hands out no keys.
            (Some(State::Leased | State::LeasedDirty | State::LeasedWaiting(_)), _)
                if self.phase == Phase::Stopped =>
            {
                self.remove(key);
            }
            (Some(State::Leased), NextRun::No) => self.remove(key),
            (Some(State::Leased), NextRun::At(until)) => {
                self.set(key, State::Waiting(Wait::fixed(until, order)), ());
            }
            // In strict mode, even a dirty key waits until its backoff ends. The run after the backoff then covers the adds that made the key dirty.
            (Some(State::Leased | State::LeasedDirty), NextRun::Backoff(until)) => {
                self.set(key, State::Waiting(Wait::backoff(until, order)), ());
            }
            (Some(State::LeasedDirty), NextRun::No | NextRun::At(_)) => {
                let tail = self.tail(now);
                self.set(key, tail, ());
            }
            (Some(State::LeasedWaiting(wait)), NextRun::No) => self.set(key, State::Waiting(wait), ()),
            (Some(State::LeasedWaiting(wait)), NextRun::At(until)) => {
                let wait = wait.combined(Mode::Earliest, until, now, order);
                self.set(key, State::Waiting(wait), ());
            }
            (Some(State::LeasedWaiting(wait)), NextRun::Backoff(until)) => {
                let until = if wait.backoff { wait.until.max(until) } else { until };
                let wait = Wait { backoff: true, ..wait.moved(until, None, order) };
                self.set(key, State::Waiting(wait), ());
            }
            (state, _) => panic!("{key:?} is not leased: {state:?}"),
        }
        self.pass(now, false);
    }

    /// Detaches a lease.
    pub fn detach(&mut self, key: K, now: Time) {
        self.pass_deadlines(now);
        self.cells.hit(self.was(key), Column::Detach);
        self.detached.push(key);
    }

    /// Ends a detached lease.
    ///
    /// # Errors
    /// An error if the key has no detached lease.
    pub fn done(&mut self, key: K, now: Time) -> Result<(), NotDetached> {
        self.pass_deadlines(now);
        self.require_detached(key)?;
        self.cells.hit(self.was(key), Column::DoneKey);
        self.report_ended(key, Ending::Done, now);
        self.end_by(key, NextRun::No, now);
        Ok(())
    }

    fn require_detached(&mut self, key: K) -> Result<(), NotDetached> {
        if self.detached.contains(&key) {
            return Ok(());
        }
        self.cells.hit(self.was(key), Column::NotDetached);
        Err(NotDetached)
    }

    fn report_ended(&mut self, key: K, ending: Ending, now: Time) {
        let since = self.leased_since.iter().find(|(of, _)| *of == key).map_or(now, |(_, since)| *since);
        self.meter.report(Report::Ended(ending, now - since));
    }

    pub(super) fn fail(&mut self, key: K, now: Time) -> Option<Failed> {
        let failed = self.backoffs.fail(key, now);
        if failed.is_some_and(|failed| failed.counted) {
            self.meter.report(Report::Failed);
        }
        failed
    }

    /// If the key has failed too often, gives it up and forgets its failures. Returns whether the key was given up. A key is given up only at a
    /// failure that is counted.
    pub(super) fn give_up(&mut self, key: K, failed: Option<Failed>) -> bool {
        let failures = self.backoffs.failures(key);
        let counted = failed.is_some_and(|failed| failed.counted);
        let over = counted && self.setup.give_up_after.is_some_and(|most| failures >= most);
        if over {
            self.backoffs.forget(key);
            self.dead.push((key, failures));
            self.meter.report(Report::GaveUp(failures));
        }
        over
    }
}
