//! PURE. The state machine of the queue, without locks, clocks, threads, futures or randomness.
//!
//! This file has the state table and the steps from which the operations are built; its submodules have the operations. Times are passed as arguments. `now` is `None` if
//! the caller found no deadline and therefore did not read the clock. In that case the state machine uses the time that was last passed to it. That
//! time is never later than the actual time, so no key is handed out before its deadline.
//!
//! # State table
//!
//! The table shows the effect of each operation on a key in each state. `=` means no effect; a blank cell means that the operation cannot occur in
//! that state. Once the deadline of a key has passed, the key counts as being in the state that the last column gives, even if the queue has not
//! processed the deadline yet.
//!
//! | state | `add` | delayed add (t) | `postpone` (t) | `get` | lease ends | `cancel` | deadline |
//! |---|---|---|---|---|---|---|---|
//! | absent | → Ready (tail) | → Waiting(t) | = | | | = | |
//! | Waiting(t₀) | → Ready (tail) | by its mode, see `wait.rs` | later of the two | = | | → absent | → Ready |
//! | Ready | = | = | → Waiting(t) | → Leased | | → absent | |
//! | Leased | → Leased+dirty | → Leased+Waiting(t) | = | = | → absent, or by outcome | = | |
//! | Leased+dirty | = | = | → Leased+Waiting(t) | = | → Ready (tail) | → Leased | |
//! | Leased+Waiting(t₀) | → Leased+dirty | by its mode | later of the two | = | → Waiting(earlier of t₀ and the outcome's) | → Leased | → Leased+dirty |
//!
//! Strict backoff changes two things. An add does not shorten a wait that is a backoff. And if a lease ends as a failure, or `add_rate_limited` counts a
//! failure of a leased key, the key waits for its backoff, even if the key is dirty or has a wait with an earlier deadline.
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
pub(crate) mod inspect;
mod lease;
pub(crate) mod memory;
pub(crate) mod metering;
pub(crate) mod order;
mod priority;
mod shutdown;
pub(crate) mod slots;
pub(crate) mod stats;
pub(crate) mod types;
pub(crate) mod wait;

use std::borrow::Borrow;
use std::time::Duration;

use flyball_sync::Nanos;
use hashbrown::HashTable;

use crate::state::metering::Meter;
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::{Flags, List, Slab, SparseMap, State, spread};
use crate::state::wait::Wait;

/// The latest time that `horizon` can have. Deadlines at or before `horizon` count as passed, so `LAST` is before `Nanos::MAX`: a wait until
/// `Nanos::MAX` does not end even after a shutdown.
const LAST: Nanos = Nanos::new(u64::MAX - 1);
const NEXT: Duration = Duration::from_nanos(1);
/// A key table with more buckets than this does not fit into the CPU's first-level cache.
const LARGE: usize = 1 << 14;
/// The maximum number of due keys that one operation gathers under one lock; a batch gathers as many for each of its keys. What is then left to do before
/// waiters can be woken and conditions can be checked is done in pieces of this size, and the lock is released after each (`outlook`, `observe_to_check`).
const GATHER_LIMIT: usize = 64;

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

/// The steps from which the operations are built. `make_ready`, `wait` and `lease` link a slot that is not linked. `unlink` undoes the first two,
/// `unlink_lease` the third.
impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Updates and returns the time. Each operation that can make a key Ready or hand it out calls this once, before it changes anything, so the set
    /// of due keys stays the same until the end of the operation.
    #[inline]
    fn observe(&mut self, now: Option<Nanos>) -> Nanos {
        if let Some(now) = now {
            let jumped_back = now < self.seen;
            self.seen = now;
            if O::RAISES && jumped_back {
                let by = self.due_by(now);
                self.order.clock_jumped_back(&mut self.slab, by);
            }
            if O::GATHERS {
                self.gather(now);
            }
        }
        self.seen
    }

    /// Observes the time when no operation does: at an alarm.
    pub(crate) fn note_time(&mut self, now: Nanos) {
        self.observe(Some(now));
    }

    /// Moves due keys from the heap to their positions in the order. Called only for orders that gather due keys. `observe` does this, so that a due
    /// key is placed before all keys that become Ready after its deadline.
    ///
    /// The number of keys that one operation gathers is limited: gathering a million keys would hold the lock for 0.2 s. If more deadlines than the
    /// limit pass between two operations, the remaining due keys count as Ready, but get their positions in a later operation. If no key in the order
    /// can be handed out, `get` asks its caller to [gather more](crate::state::types::NextKey::GatherMore). Otherwise a queue might never reach a key that can be handed out.
    fn gather(&mut self, now: Nanos) {
        let by = self.due_by(now);
        let mut most = GATHER_LIMIT;
        while let Some((at, slot)) = self.first_wait().filter(|(at, _)| *at <= by && most > 0) {
            most -= 1;
            // A group whose token arrives before the deadline is placed before the group of the key.
            self.order.pass_time(at, &mut most);
            self.gather_one(slot, at);
        }
        self.order.pass_time(now, &mut most);
    }

    /// Observes the time before a condition such as "idle" or "closed" is checked, and gathers until a gathered key can be handed out, now or when leases
    /// end. Returns whether this is done; otherwise the caller must unlock and call this again.
    pub(crate) fn observe_to_check(&mut self, now: Option<Nanos>) -> bool {
        self.observe(now);
        self.gather_until(0, true, &mut GATHER_LIMIT.clone())
    }

    /// Gathers due keys, and gives groups the tokens that have arrived, until more than `most` keys can be handed out, unless `most` is 0; and, if `checks`
    /// is true, until a gathered key can be handed out at least when leases end. Conditions would otherwise examine all due keys that were not gathered
    /// yet. Each step decrements `moves`; returns `false` if that is 0 and there is more to do.
    ///
    /// Uses the time that was last passed to an operation: an alarm may have fired too early.
    fn gather_until(&mut self, most: usize, checks: bool, moves: &mut usize) -> bool {
        if !O::GATHERS {
            return true;
        }
        let by = self.due_by(self.seen);
        let enough = |order: &O| {
            (most == 0 || order.available() > most) && (!checks || order.count() > order.suspended())
        };
        while !enough(&self.order) {
            let Some((at, slot)) = self.first_wait().filter(|(at, _)| *at <= by) else { break };
            if *moves == 0 {
                return false;
            }
            *moves -= 1;
            self.order.pass_time(at, moves);
            self.gather_one(slot, at);
        }
        if most > 0 && self.order.available() <= most {
            self.order.pass_time(self.seen, moves);
            return self.order.available() > most || self.order.tokens(self.seen, 0).0 == 0;
        }
        true
    }

    /// Gathers all due keys, and gives groups all tokens that have arrived. O(n log n).
    fn gather_all(&mut self, now: Option<Nanos>) {
        if O::GATHERS {
            let now = now.unwrap_or(self.seen);
            let by = self.due_by(now);
            let mut most = usize::MAX;
            while let Some((at, slot)) = self.first_wait().filter(|(at, _)| *at <= by) {
                self.order.pass_time(at, &mut most);
                self.gather_one(slot, at);
            }
            self.order.pass_time(now, &mut most);
        }
    }

    fn gather_one(&mut self, slot: u32, at: Nanos) {
        self.meter_pending(slot, at, true);
        self.unlink(slot);
        self.make_ready(slot, at);
    }

    #[inline]
    fn find<Q>(&self, key: &Q, hash: u32) -> Option<u32>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let slab = &self.slab;
        let is_key = |slot: &u32| {
            let entry = slab.get(*slot);
            entry.hash == hash && entry.key.as_ref().map(K::borrow) == Some(key)
        };
        self.keys.find(spread(hash), is_key).copied()
    }

    #[inline]
    fn insert(&mut self, key: K, hash: u32, class: O::Class) -> u32 {
        let slot = self.slab.insert(key, hash);
        self.order.admit(slot, class);
        let slab = &self.slab;
        self.keys.insert_unique(spread(hash), slot, |&slot| spread(slab.get(slot).hash));
        slot
    }

    /// Vacates a slot that is not linked, and returns its key.
    #[inline]
    fn remove(&mut self, slot: u32) -> Option<K> {
        let hash = spread(self.slab.get(slot).hash);
        let buckets = self.keys.num_buckets();
        if buckets > LARGE {
            // Reads the bucket here, so that the CPU loads it in parallel with the table's control bytes. Both reads miss the cache; in parallel,
            // they take only as long as one miss. Draining 10⁶ keys then takes 17 % less time.
            std::hint::black_box(self.keys.get_bucket(hash as usize & (buckets - 1)).copied());
        }
        if let Ok(found) = self.keys.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        self.order.vacate(slot);
        self.slab.remove(slot)
    }

    #[inline]
    fn make_ready(&mut self, slot: u32, now: Nanos) {
        let entry = self.slab.get_mut(slot);
        entry.state = State::Ready;
        entry.at = now;
        self.order.push(&mut self.slab, slot);
    }

    fn wait(&mut self, slot: u32, wait: Wait) {
        let sequence = self.next_sequence();
        self.wait_with_sequence(slot, wait, sequence);
    }

    fn wait_with_sequence(&mut self, slot: u32, wait: Wait, sequence: u32) {
        self.order.wait(&mut self.slab, slot, wait.at, sequence);
        self.note_wait(slot, wait);
    }

    /// Leases a slot.
    #[inline]
    fn lease(&mut self, slot: u32, now: Nanos) {
        let entry = self.slab.get_mut(slot);
        entry.state = State::Leased;
        entry.at = now;
        self.order.begin(slot);
        self.leases.push(&mut self.slab, slot);
    }

    /// Stores the wait of a leased key. The key starts to wait when the lease ends.
    fn postpone_lease(&mut self, slot: u32, wait: Wait) {
        let sequence = self.next_sequence();
        self.slab.get_mut(slot).state = State::LeasedWaiting;
        self.postponed.set(slot, Postponed { wait, sequence });
    }

    /// Changes the wait of a slot, leased or not. The wait gets a new sequence number if the deadline changes.
    fn set_wait(&mut self, slot: u32, wait: Wait) {
        if self.slab.get(slot).state == State::LeasedWaiting {
            let old = self.postponed_of(slot);
            let sequence = if old.wait.at == wait.at { old.sequence } else { self.next_sequence() };
            self.postponed.set(slot, Postponed { wait, sequence });
            return;
        }
        if self.slab.get(slot).at != wait.at {
            let sequence = self.next_sequence();
            self.order.rewait(&mut self.slab, slot, wait.at, sequence);
        }
        self.note_wait(slot, wait);
    }

    #[inline]
    fn note_wait(&mut self, slot: u32, wait: Wait) {
        let flags = &mut self.slab.get_mut(slot).flags;
        flags.set(Flags::BACKOFF, wait.backoff);
        let limited = flags.has(Flags::LIMITED);
        flags.set(Flags::LIMITED, wait.limit.is_some());
        match wait.limit {
            Some(limit) => self.limits.set(slot, limit),
            None if limited => drop(self.limits.take(slot)),
            None => {}
        }
    }

    /// Removes a Ready slot from the order, or a Waiting slot from its heap, together with all data on its wait.
    #[inline]
    fn unlink(&mut self, slot: u32) {
        let entry = self.slab.get_mut(slot);
        match entry.state {
            State::Waiting => {
                entry.flags.set(Flags::BACKOFF, false);
                if entry.flags.has(Flags::LIMITED) {
                    entry.flags.set(Flags::LIMITED, false);
                    self.limits.take(slot);
                }
                self.order.unwait(&mut self.slab, slot);
            }
            _ => self.order.unlink(&mut self.slab, slot),
        }
    }

    /// Removes a leased slot from the list of leases that contains it.
    #[inline]
    fn unlink_lease(&mut self, slot: u32) {
        let flags = &mut self.slab.get_mut(slot).flags;
        if std::mem::take(flags).has(Flags::REPORTED) {
            self.reported.unlink(&mut self.slab, slot);
        } else {
            self.leases.unlink(&mut self.slab, slot);
        }
    }

    fn postponed_of(&self, slot: u32) -> Postponed {
        match self.postponed.get(slot) {
            Some(postponed) => postponed,
            None => unreachable!("invariant 3: a leased slot that waits has a wait"),
        }
    }

    fn forget_wait(&mut self, slot: u32) {
        self.postponed.take(slot);
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
        let order = Fair::by_group(|key: &u32| key % 2).max_leased(|_| 1);
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
