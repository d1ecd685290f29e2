//! A slow, obvious queue to compare with: one list of records, every rule of the state table spelled out.
//!
//! No hash, no heap, no laziness: whatever is due is moved by hand before every operation, in the order in which it
//! became due. `now` is an argument and must not go back.

use std::fmt::Debug;
use std::time::Duration;

use crate::answers::{Ending, Left, Nothing, Outcome, Refused, Seen, Tally, Time, later};
use crate::cells::{Cells, Doing, Was};
use crate::naive_backoff::{NaiveBackoffs, NaiveExponential};

/// Where a key is. `order` tells which came first; it only ever grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting { until: Time, order: u64 },
    Ready { order: u64 },
    Leased,
    LeasedDirty,
    LeasedWaiting { until: Time, order: u64 },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Life {
    Open,
    ShutDown,
    Stopped,
}

/// The queue, as the state table says it.
#[derive(Clone, Debug)]
pub struct NaiveQueue<K> {
    records: Vec<(K, State)>,
    backoffs: NaiveBackoffs<K>,
    life: Life,
    /// What came back after shut down: left over, and in no promised order.
    late: Vec<K>,
    next_order: u64,
    /// How often each cell of the state table was entered.
    pub cells: Cells,
}

impl<K: Copy + Ord + Debug> NaiveQueue<K> {
    /// An empty queue; without a limiter a failure comes back at once.
    #[must_use]
    pub fn new(limiter: Option<NaiveExponential>) -> Self {
        Self {
            records: Vec::new(),
            backoffs: NaiveBackoffs::new(limiter),
            life: Life::Open,
            late: Vec::new(),
            next_order: 0,
            cells: Cells::default(),
        }
    }

    // ---- the state table, one operation after the other ----------------------------------------------------------

    /// `add`.
    ///
    /// # Errors
    /// After shut down.
    pub fn add(&mut self, key: K, now: Time) -> Result<Outcome, Refused> {
        self.pass_deadlines(now);
        if self.life != Life::Open {
            return Err(Refused);
        }
        self.cells.hit(self.was(key), Doing::Add);
        let tail = State::Ready { order: self.order() };
        Ok(match self.state(key) {
            None => self.set(key, tail, Outcome::New),
            Some(State::Waiting { .. }) => self.set(key, tail, Outcome::Promoted),
            Some(State::Ready { .. }) => Outcome::Merged,
            Some(State::Leased) => self.set(key, State::LeasedDirty, Outcome::Marked),
            Some(State::LeasedDirty) => Outcome::Merged,
            Some(State::LeasedWaiting { .. }) => self.set(key, State::LeasedDirty, Outcome::Marked),
        })
    }

    /// Delayed add, the earliest deadline wins. What is due at once is Ready at once.
    ///
    /// # Errors
    /// After shut down.
    pub fn add_after(&mut self, key: K, after: Duration, now: Time) -> Result<Outcome, Refused> {
        self.pass_deadlines(now);
        if self.life != Life::Open {
            return Err(Refused);
        }
        let until = later(now, after);
        let order = self.order();
        self.cells.hit(self.was(key), Doing::DelayedAdd);
        let outcome = match self.state(key) {
            None => self.set(key, State::Waiting { until, order }, Outcome::New),
            Some(State::Waiting { until: before, .. }) if until < before => {
                let outcome = if until <= now { Outcome::Promoted } else { Outcome::Merged };
                self.set(key, State::Waiting { until, order }, outcome)
            }
            Some(State::Waiting { .. }) => Outcome::Merged,
            Some(State::Ready { .. }) => Outcome::Merged,
            Some(State::Leased) => self.set(key, State::LeasedWaiting { until, order }, Outcome::Marked),
            Some(State::LeasedDirty) => Outcome::Merged,
            Some(State::LeasedWaiting { until: before, .. }) if until < before => {
                let outcome = if until <= now { Outcome::Marked } else { Outcome::Merged };
                self.set(key, State::LeasedWaiting { until, order }, outcome)
            }
            Some(State::LeasedWaiting { .. }) => Outcome::Merged,
        };
        self.pass_deadlines(now);
        Ok(outcome)
    }

    /// Counts a failure, then a delayed add by what the backoff says. A refused add counts nothing.
    ///
    /// # Errors
    /// After shut down.
    pub fn add_rate_limited(&mut self, key: K, now: Time) -> Result<Outcome, Refused> {
        if self.life != Life::Open {
            return Err(Refused);
        }
        let until = self.fail(key, now);
        self.add_after(key, Duration::from_nanos(until - now), now)
    }

    /// `get` that never waits: the first in line.
    ///
    /// # Errors
    /// When nothing is Ready.
    pub fn try_get(&mut self, now: Time) -> Result<K, Nothing> {
        self.pass_deadlines(now);
        let first = self.in_line().first().copied();
        for (key, _) in self.records.clone() {
            if self.was(key) != Was::Ready || Some(key) == first {
                self.cells.hit(self.was(key), Doing::Get);
            }
        }
        match first {
            Some(key) => Ok(self.set(key, State::Leased, key)),
            None if self.life == Life::Open => Err(Nothing::Empty),
            // A dirty lease puts its key back in line, shut down or not.
            None if self.records.iter().any(|(_, state)| *state == State::LeasedDirty) => Err(Nothing::Empty),
            None => Err(Nothing::Closed),
        }
    }

    /// A lease ends.
    ///
    /// # Panics
    /// When the key is not leased.
    pub fn end(&mut self, key: K, ending: Ending, now: Time) {
        self.pass_deadlines(now);
        self.cells.hit(self.was(key), Doing::from(ending));
        let comes_back = match ending {
            Ending::Done => None,
            Ending::Succeed => {
                self.forget(key);
                None
            }
            Ending::RequeueAfter(delay) => {
                self.forget(key);
                Some(later(now, delay))
            }
            Ending::Retry | Ending::Dropped => Some(self.fail(key, now)),
        };
        if self.life == Life::ShutDown {
            self.late.push(key);
        }
        let new = State::Waiting { until: comes_back.unwrap_or(Time::MAX), order: self.order() };
        match (self.state(key), comes_back) {
            // Nobody will ever take it.
            (Some(State::Leased | State::LeasedDirty | State::LeasedWaiting { .. }), _)
                if self.life == Life::Stopped =>
            {
                self.remove(key);
            }
            // Whatever the outcome.
            (Some(State::LeasedDirty), _) => {
                let order = self.order();
                self.set(key, State::Ready { order }, ());
            }
            (Some(State::Leased), None) => self.remove(key),
            (Some(State::Leased), Some(_)) => self.set(key, new, ()),
            (Some(State::LeasedWaiting { until, .. }), Some(sooner)) if sooner < until => {
                self.set(key, new, ());
            }
            (Some(State::LeasedWaiting { until, order }), _) => {
                self.set(key, State::Waiting { until, order }, ());
            }
            (state, _) => panic!("{key:?} is not leased: {state:?}"),
        }
        self.pass_deadlines(now);
    }

    /// `cancel`: what was to come does not; a lease is not touched.
    pub fn cancel(&mut self, key: K, now: Time) -> bool {
        self.pass_deadlines(now);
        self.cells.hit(self.was(key), Doing::Cancel);
        match self.state(key) {
            None | Some(State::Leased) => false,
            Some(State::Waiting { .. } | State::Ready { .. }) => {
                self.remove(key);
                true
            }
            Some(State::LeasedDirty | State::LeasedWaiting { .. }) => self.set(key, State::Leased, true),
        }
    }

    /// Deadlines up to `now`, in their order; equal ones in the order of their adds. After shut down none passes.
    ///
    /// # Panics
    /// When the model contradicts itself.
    pub fn pass_deadlines(&mut self, now: Time) {
        while let Some((key, state)) = self.next_due(now) {
            self.cells.hit(self.was(key), Doing::Deadline);
            match state {
                State::Waiting { .. } => {
                    let order = self.order();
                    self.set(key, State::Ready { order }, ());
                }
                State::LeasedWaiting { .. } => self.set(key, State::LeasedDirty, ()),
                State::Ready { .. } | State::Leased | State::LeasedDirty => panic!("no deadline: {state:?}"),
            }
        }
    }

    // ---- answers -------------------------------------------------------------------------------------------------

    /// Keys in line.
    pub fn len(&mut self, now: Time) -> usize {
        self.tally(now).ready
    }

    /// Keys in each state.
    pub fn tally(&mut self, now: Time) -> Tally {
        self.pass_deadlines(now);
        let mut tally = Tally::default();
        for (_, state) in &self.records {
            match state {
                State::Waiting { .. } => tally.waiting += 1,
                State::Ready { .. } => tally.ready += 1,
                State::Leased | State::LeasedWaiting { .. } => tally.leased += 1,
                State::LeasedDirty => {
                    tally.leased += 1;
                    tally.dirty += 1;
                }
            }
        }
        tally
    }

    /// Where a key is.
    pub fn seen(&mut self, key: K, now: Time) -> Seen {
        self.pass_deadlines(now);
        match self.state(key) {
            None => Seen::Absent,
            Some(State::Waiting { until, .. }) => Seen::Waiting(until),
            Some(State::Ready { .. }) => Seen::Ready,
            Some(State::Leased) => Seen::Leased,
            Some(State::LeasedDirty) => Seen::LeasedDirty,
            Some(State::LeasedWaiting { until, .. }) => Seen::LeasedWaiting(until),
        }
    }

    /// Failures counted and not forgotten.
    #[must_use]
    pub fn requeues(&self, key: K) -> u32 {
        self.backoffs.failures(key)
    }

    /// No longer open.
    #[must_use]
    pub fn is_shutting_down(&self) -> bool {
        self.life != Life::Open
    }

    /// Forgets the failures of a key, and its open backoff with them.
    pub fn forget(&mut self, key: K) {
        self.backoffs.forget(key);
    }

    /// Keys in line, first first.
    #[must_use]
    pub fn in_line(&self) -> Vec<K> {
        self.sorted(|state| match state {
            State::Ready { order } => Some((0, order)),
            _ => None,
        })
    }

    /// What is left, by key.
    #[must_use]
    pub fn left(&self) -> Left<K> {
        let waiting = self.sorted(|state| match state {
            State::Waiting { until, order } => Some((until, order)),
            _ => None,
        });
        let (mut late, waiting): (Vec<_>, _) = waiting.into_iter().partition(|key| self.late.contains(key));
        late.sort_unstable();
        Left {
            ready: self.in_line(),
            waiting,
            late,
            leased: {
                let mut leased = self.sorted(|state| match state {
                    State::Leased | State::LeasedDirty | State::LeasedWaiting { .. } => Some((0, 0)),
                    _ => None,
                });
                leased.sort_unstable();
                leased
            },
        }
    }

    // ---- by hand -------------------------------------------------------------------------------------------------

    fn fail(&mut self, key: K, now: Time) -> Time {
        self.backoffs.fail(key, now).unwrap_or(now)
    }

    fn next_due(&self, now: Time) -> Option<(K, State)> {
        if self.life != Life::Open {
            return None;
        }
        let due = self.records.iter().filter_map(|(key, state)| match state {
            State::Waiting { until, order } | State::LeasedWaiting { until, order } if *until <= now => {
                Some((*until, *order, *key, *state))
            }
            _ => None,
        });
        due.min_by_key(|(until, order, ..)| (*until, *order)).map(|(.., key, state)| (key, state))
    }

    fn sorted(&self, place: impl Fn(State) -> Option<(Time, u64)>) -> Vec<K> {
        let mut keys: Vec<_> =
            self.records.iter().filter_map(|(key, state)| Some((place(*state)?, *key))).collect();
        keys.sort_unstable();
        keys.into_iter().map(|(_, key)| key).collect()
    }

    fn state(&self, key: K) -> Option<State> {
        self.records.iter().find(|(of, _)| *of == key).map(|(_, state)| *state)
    }

    fn was(&self, key: K) -> Was {
        match self.state(key) {
            None => Was::Absent,
            Some(State::Waiting { .. }) => Was::Waiting,
            Some(State::Ready { .. }) => Was::Ready,
            Some(State::Leased) => Was::Leased,
            Some(State::LeasedDirty) => Was::LeasedDirty,
            Some(State::LeasedWaiting { .. }) => Was::LeasedWaiting,
        }
    }

    fn set<T>(&mut self, key: K, state: State, answer: T) -> T {
        self.remove(key);
        self.records.push((key, state));
        answer
    }

    fn remove(&mut self, key: K) {
        self.records.retain(|(of, _)| *of != key);
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }
}

mod ends;
#[cfg(test)]
mod tests;
