//! PURE. The state machine of the queue, without locks, clocks, threads, futures or randomness.
//!
//! The state table is in `state/entry.rs`; this file and its submodules implement the transitions. Times are passed as arguments. `now` is `None` if
//! the caller found no deadline and therefore did not read the clock. In that case the state machine uses the time that was last passed to it. That
//! time is never later than the actual time, so no key is handed out before its deadline.
//!
//! # Invariants
//! 1. Every live slot is in the key table exactly once, under its hash, and the table contains nothing else.
//! 2. A slot is in a line of the order exactly if it is `Ready`, in one of the order's heaps exactly if it is `Waiting`, and in one of the two lists
//!    of leases exactly if it is leased. That list is `reported` if the slot has the flag `REPORTED`, and `leases` otherwise.
//! 3. `dirty` is the number of slots that are `LeasedDirty`; `postponed` contains exactly the waits of the slots that are `LeasedWaiting`.
//! 4. `limits` contains a limit for a slot exactly if the slot has the flag `LIMITED`; only a `Waiting` slot has this flag.
//! 5. Once the queue is shut down, no add makes a slot dirty.
//! 6. The order's `admit` has been called for exactly the live slots, and its `begin` for exactly the leased slots.
//! 7. Each operation that can make a key Ready or hand it out calls [`observe`](QueueState::observe) once, before it changes anything. In a queue
//!    with metrics, `began` is the sum of the times at which the current leases began, and `pending_since` has entries only for Ready and dirty
//!    slots.
//!
//! It follows that a key is handed out to one lease at a time, because only `Ready` slots and due `Waiting` slots are handed out, and then they are
//! `Leased`. It also follows that no key is lost, because only `end`, `cancel` and `stop` vacate a slot, and they return its key.

mod add;
mod deadlines;
pub(crate) mod entry;
pub(crate) mod inspect;
mod lease;
pub(crate) mod memory;
pub(crate) mod metering;
pub(crate) mod order;
mod priority;
mod shutdown;
pub(crate) mod slots;
pub(crate) mod stats;
mod transitions;
pub(crate) mod types;
pub(crate) mod wait;

use std::time::Duration;

use flyball_sync::Nanos;
use hashbrown::HashTable;

use crate::state::metering::Meter;
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::{List, Slab, SparseMap};
use crate::state::wait::Wait;

/// The latest time that `horizon` can have. Deadlines at or before `horizon` count as passed, so `LAST` is before `Nanos::MAX`: a wait until
/// `Nanos::MAX` does not end even after a shutdown.
const LAST: Nanos = Nanos::new(u64::MAX - 1);
const NEXT: Duration = Duration::from_nanos(1);

/// The options that a queue is built with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Options {
    /// Whether backoff is strict, so that an add does not shorten it.
    pub(crate) strict: bool,
    /// The maximum number of distinct keys.
    pub(crate) capacity: usize,
    /// The time at which the queue was built, if it has metrics.
    pub(crate) metered: Option<Nanos>,
}

/// The state machine behind a queue.
pub(crate) struct QueueState<K, O> {
    slab: Slab<K>,
    keys: HashTable<u32>,
    /// The Ready keys and the waiting keys.
    order: O,
    /// The leases that were not reported as overdue, in the order in which they began.
    leases: List,
    reported: List,
    dirty: usize,
    postponed: SparseMap<Postponed>,
    limits: SparseMap<Nanos>,
    options: Options,
    phase: Phase,
    paused: bool,
    /// After a shutdown, the time of the shutdown; deadlines at or before it count as passed. In `DrainingDelays`, the time until which delayed
    /// keys are served.
    horizon: Nanos,
    /// The time that was last passed to an operation.
    seen: Nanos,
    /// The sequence number of the last deadline that was set.
    sequence: u32,
    /// The time at which the queue started to track ages; `None` if it does not track them.
    ages: Option<Nanos>,
    /// The counters of a queue with metrics, which tracks ages from the start.
    meter: Option<Box<Meter>>,
}

/// The wait of a leased key. It enters a heap when the lease ends, and keeps its sequence number, which orders equal deadlines.
#[derive(Clone, Copy, Debug)]
struct Postponed {
    wait: Wait,
    sequence: u32,
}

/// Whether the queue is open, and otherwise the phase of its shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// All operations are allowed.
    Open,
    /// Adds are refused and leased keys do not become dirty. A waiting key still becomes Ready at its deadline, if that is at or before `horizon`.
    /// When this phase begins, `horizon` is in the future.
    DrainingDelays,
    /// Adds are refused and leased keys do not become dirty. The backlog is handed out. Waiting keys keep waiting.
    ShutDown,
    /// No key is handed out; a key whose lease ends leaves the queue.
    Stopped,
}

impl Phase {
    /// Returns the latest deadline that counts as passed: a key whose deadline is at or before this time is due.
    #[inline]
    fn due_by(self, now: Nanos, horizon: Nanos) -> Nanos {
        match self {
            Self::Open => now,
            Self::DrainingDelays => now.min(horizon),
            Self::ShutDown | Self::Stopped => horizon,
        }
    }
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    pub(crate) fn new(options: Options, order: O) -> Self {
        Self {
            slab: Slab::new(),
            keys: HashTable::new(),
            order,
            leases: List::default(),
            reported: List::default(),
            dirty: 0,
            postponed: SparseMap::default(),
            limits: SparseMap::default(),
            options,
            phase: Phase::Open,
            paused: false,
            horizon: Nanos::ZERO,
            seen: Nanos::ZERO,
            sequence: 0,
            ages: options.metered,
            meter: options.metered.map(|_| Box::default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::order::fair::Fair;
    use crate::state::order::fifo::FifoList;
    use crate::state::order::sealed::Order;
    use crate::state::types::{Added, NewKey, NextKey};
    use crate::state::wait::DelayRequest;

    /// Keys with equal deadlines keep their order when the sequence numbers are renumbered.
    #[test]
    fn sequence_numbers_survive_their_overflow() {
        let mut state = QueueState::<u32, FifoList>::new(
            Options { strict: false, capacity: usize::MAX, metered: None },
            FifoList::default(),
        );
        state.sequence = u32::MAX - 5;
        for key in 0..20 {
            let request = DelayRequest::Earliest(Nanos::new(9));
            assert_eq!(
                state.add_after_with(
                    &mut NewKey { key: Some(key), hash: key, tag: () },
                    request,
                    Nanos::ZERO
                ),
                Ok(Added::New)
            );
            state.check().unwrap();
        }
        assert!(state.sequence < 100, "the sequences were not renumbered");
        let order: Vec<u32> = std::iter::from_fn(|| match state.get(Some(Nanos::new(9))) {
            NextKey::Key(_, key) => Some(key),
            _ => None,
        })
        .collect();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }
    /// One key of the group of even keys is leased, and the group allows no more. The other due keys of that group are before the due key of the other
    /// group.
    #[test]
    fn an_operation_gathers_few_of_the_deadlines_that_have_passed() {
        let order = Fair::by_group(|key: &u32| key % 2).max_leased(1);
        let mut state = QueueState::new(
            Options { strict: false, capacity: usize::MAX, metered: None },
            order.ready_queue(),
        );
        let new = |key| NewKey { key: Some(key), hash: key, tag: order.tag(&key) };
        let at = Nanos::new;
        state.add(&mut new(0), Some(at(0))).unwrap();
        assert!(matches!(state.get(Some(at(0))), NextKey::Key(_, 0)));
        for key in (2..2_000).step_by(2).chain([1]) {
            state.add_after_with(&mut new(key), DelayRequest::Earliest(at(1)), at(0)).unwrap();
        }
        state.add(&mut new(2_000), Some(at(1))).unwrap();
        assert_eq!(state.order.count(), 65);
        let mut gathered = 0;
        let key = loop {
            match state.get(Some(at(1))) {
                NextKey::GatherMore => gathered += 1,
                NextKey::Key(_, key) => break key,
                NextKey::Wait(_) | NextKey::Empty | NextKey::Closed => panic!("a key is Ready"),
            }
        };
        assert_eq!((key, gathered, state.order.count()), (1, 14, 1_000));
        state.check().unwrap();
    }
}
