//! The oracle of the queue: one list of records, and code that spells out every rule of the queue's state table.
//!
//! It has no hash table and no heap. Before every operation, it makes the keys that are due Ready, in the order of their deadlines. The caller passes
//! the time as `now`, which must not decrease from one call to the next.

mod adds;
mod ages;
mod ends;
mod gets;
mod leases;
mod meter;
mod setup;
mod state;
#[cfg(test)]
mod tests;
mod wait;

use std::fmt::Debug;

pub use self::setup::OracleSetup;
use self::wait::Wait;
use crate::coverage::states::{Cells, Column, Row};
use crate::oracle::backoff::OracleBackoffs;
use crate::oracle::order::{OracleOrder, OrderKind};
use crate::queue_answers::Time;

/// The state of a key. `order` is a sequence number: the key with the lower number became Ready first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting(Wait),
    Ready { order: u64, since: Time },
    Leased,
    LeasedDirty,
    LeasedWaiting(Wait),
}

/// The phases of a queue. In `Serving`, the queue is shut down, but waiting keys whose deadlines are not after the horizon are still handed out. At the
/// horizon, `ShutDown` follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Serving { horizon: Time },
    ShutDown,
    Stopped,
}

/// A queue that implements the state table directly.
#[derive(Clone, Debug)]
pub struct OracleQueue<K> {
    records: Vec<(K, State)>,
    setup: OracleSetup,
    /// The order of Ready keys.
    lines: OracleOrder<K>,
    /// The priority of the next add.
    add_priority: i8,
    backoffs: OracleBackoffs<K>,
    phase: Phase,
    paused: bool,
    /// Keys with a detached lease.
    detached: Vec<K>,
    /// The leased keys, each with the start of its lease, in the order in which the leases started.
    leased_since: Vec<(K, Time)>,
    /// The time since which ages are tracked.
    aged_since: Option<Time>,
    /// Leased keys that were reported as overdue.
    overdue: Vec<K>,
    /// The keys whose leases ended after the shutdown. The order in which these keys appear in the leftovers is not guaranteed.
    late: Vec<K>,
    next_order: u64,
    meter: meter::Meter<K>,
    /// Keys that failed too often, with their failure counts, in the order in which they were given up.
    pub dead: Vec<(K, u32)>,
    /// How often each cell of the state table was covered.
    pub cells: Cells,
}

impl<K: Copy + Ord + Debug> OracleQueue<K> {
    /// Creates an empty FIFO queue. Without a limiter, a failed key becomes Ready again immediately.
    #[must_use]
    pub fn new(setup: OracleSetup) -> Self {
        Self::ordered(setup, OrderKind::Fifo, |_| 0)
    }

    /// Creates an empty queue with this order; `group` returns the group of a key.
    #[must_use]
    pub fn ordered(setup: OracleSetup, kind: OrderKind, group: fn(K) -> usize) -> Self {
        Self {
            lines: OracleOrder::new(kind, group),
            add_priority: 0,
            records: Vec::new(),
            setup,
            backoffs: OracleBackoffs::new(setup.limiter, setup.bucket),
            phase: Phase::Open,
            paused: false,
            detached: Vec::new(),
            leased_since: Vec::new(),
            aged_since: None,
            overdue: Vec::new(),
            late: Vec::new(),
            next_order: 0,
            meter: meter::Meter::new(),
            dead: Vec::new(),
            cells: Cells::default(),
        }
    }

    /// Makes all keys Ready or dirty whose deadlines are at or before `now`, in the order of the deadlines. Equal deadlines are processed in the
    /// order in which they were set. After the shutdown, this applies only while the queue serves waiting keys, and only to deadlines up to the
    /// horizon.
    ///
    /// # Panics
    /// Panics if the model is inconsistent.
    pub fn pass_deadlines(&mut self, now: Time) {
        self.pass(now, true);
    }

    /// `deadlines` is false in the call at the end of a lease, so that the metrics do not count a passed deadline if the lease ends with a requested
    /// delay of zero.
    fn pass(&mut self, now: Time, deadlines: bool) {
        while let Some((key, state)) = self.next_due(now) {
            if let State::Waiting(wait) | State::LeasedWaiting(wait) = state {
                self.lines.advance(wait.until);
            }
            self.cells.hit(self.was(key), Column::Deadline);
            if let Phase::Serving { .. } = self.phase {
                self.cells.hit(self.was(key), Column::DeadlineServing);
            }
            match state {
                State::Waiting(wait) => {
                    self.meter.at(wait.until, deadlines);
                    let order = self.order();
                    self.set(key, State::Ready { order, since: wait.until }, ());
                }
                State::LeasedWaiting(wait) => {
                    self.meter.at(wait.until, deadlines);
                    self.set(key, State::LeasedDirty, ());
                }
                State::Ready { .. } | State::Leased | State::LeasedDirty => panic!("no deadline: {state:?}"),
            }
        }
        self.lines.advance(now);
        self.meter.at(now, false);
        // At the horizon, the service of waiting keys ends.
        if matches!(self.phase, Phase::Serving { horizon } if horizon <= now) {
            self.phase = Phase::ShutDown;
        }
    }

    fn next_due(&self, now: Time) -> Option<(K, State)> {
        let now = self.last_deadline()?.min(now);
        let due = self.records.iter().filter_map(|(key, state)| match state {
            State::Waiting(wait) | State::LeasedWaiting(wait) if wait.until <= now => {
                Some((wait.until, wait.order, *key, *state))
            }
            _ => None,
        });
        due.min_by_key(|(until, order, ..)| (*until, *order)).map(|(.., key, state)| (key, state))
    }

    /// The latest time at which a deadline may still pass; `None` if no deadline may pass any more.
    #[must_use]
    pub fn last_deadline(&self) -> Option<Time> {
        match self.phase {
            Phase::Open => Some(Time::MAX),
            Phase::Serving { horizon } => Some(horizon),
            Phase::ShutDown | Phase::Stopped => None,
        }
    }

    /// Sets the priority of the adds that follow.
    pub fn with_priority(&mut self, priority: i8) -> &mut Self {
        self.add_priority = priority;
        self
    }

    fn state(&self, key: K) -> Option<State> {
        self.records.iter().find(|(of, _)| *of == key).map(|(_, state)| *state)
    }

    fn was(&self, key: K) -> Row {
        match self.state(key) {
            None => Row::Absent,
            Some(State::Waiting(wait)) if wait.backoff => Row::Backoff,
            Some(State::Waiting(wait)) if wait.cap.is_some() => Row::Debounced,
            Some(State::Waiting(_)) => Row::Waiting,
            Some(State::Ready { .. }) => Row::Ready,
            Some(State::Leased) => Row::Leased,
            Some(State::LeasedDirty) => Row::LeasedDirty,
            Some(State::LeasedWaiting(wait)) if wait.backoff => Row::LeasedBackoff,
            Some(State::LeasedWaiting(wait)) if wait.cap.is_some() => Row::LeasedDebounced,
            Some(State::LeasedWaiting(_)) => Row::LeasedWaiting,
        }
    }

    fn set<T>(&mut self, key: K, state: State, answer: T) -> T {
        let was = self.state(key);
        let was_ready = matches!(was, Some(State::Ready { .. }));
        match state {
            State::Ready { .. } if !was_ready => self.lines.make_ready(key),
            State::Leased if was_ready => self.lines.take(key),
            State::Ready { .. } => {}
            _ if was_ready => self.lines.leave(key),
            _ => {}
        }
        self.records.retain(|(of, _)| *of != key);
        self.records.push((key, state));
        self.meter.moved(key, was, Some(state));
        answer
    }

    fn remove(&mut self, key: K) {
        self.meter.moved(key, self.state(key), None);
        if let Some(State::Ready { .. }) = self.state(key) {
            self.lines.leave(key);
        }
        self.lines.forget(key);
        self.records.retain(|(of, _)| *of != key);
    }

    /// The state of a key that becomes Ready now, behind all other Ready keys.
    fn tail(&mut self, now: Time) -> State {
        State::Ready { order: self.order(), since: now }
    }

    fn order(&mut self) -> u64 {
        self.next_order += 1;
        self.next_order
    }
}
