//! PURE. The whole queue as a state machine: no lock, clock, thread, future or randomness.
//!
//! The table of states is in `entry.rs`; this file moves keys through it. Times are arguments. `now` is `None` where
//! the caller saw no deadline and therefore read no clock; the last time seen stands in, which can only be too early:
//! nothing comes out before its deadline.
//!
//! # Invariants
//! 1. Every live slot is in the key table once, under its hash; the table holds nothing else.
//! 2. A slot is in the order exactly when it is `Ready`, in the heap exactly when it is `Waiting`.
//! 3. `leased`, `dirty` and `postponed` count the leased slots, those among them that are dirty, and those that wait.
//! 4. No slot becomes dirty once the queue is shut down.
//!
//! Hence a key is handed out to one lease at a time (only `Ready` and due `Waiting` slots are, and handing out makes
//! them `Leased`), and none is lost (a slot is vacated only by `end`, `cancel` and `stop`, which say so).

mod inspect;
mod moves;
mod words;

pub use inspect::{Counts, KeyState};
pub use words::{Added, Leftovers};
pub(crate) use words::{Handle, Next, Outcome};

use std::time::Duration;

use flyball_ratelimit::Nanos;
use hashbrown::HashTable;

use crate::deadlines::Deadlines;
use crate::entry::Place;
use crate::order::Order;
use crate::slab::Slab;

/// The last moment a shutdown can happen at: a wait for ever is never over.
const LAST: Nanos = Nanos::new(u64::MAX - 1);
const NEXT: Duration = Duration::from_nanos(1);

/// The state machine behind a queue.
pub(crate) struct Core<K, O> {
    slab: Slab<K>,
    keys: HashTable<u32>,
    order: O,
    deadlines: Deadlines,
    leased: usize,
    dirty: usize,
    postponed: usize,
    phase: Phase,
    /// The moment of shutdown: from then on the clock counts no more, and this is the time.
    horizon: Nanos,
    /// The last time that was told.
    seen: Nanos,
    /// The turn of the next deadline.
    turn: u32,
}

/// How far the end of the queue has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Everything goes.
    Open,
    /// No adds, no dirty marks; the backlog is handed out. What waits, stays.
    ShutDown,
    /// Nothing is handed out; leases end into nothing.
    Stopped,
}

impl<K, O: Order> Core<K, O> {
    pub(crate) fn new() -> Self {
        Self {
            slab: Slab::new(),
            keys: HashTable::new(),
            order: O::default(),
            deadlines: Deadlines::default(),
            leased: 0,
            dirty: 0,
            postponed: 0,
            phase: Phase::Open,
            horizon: Nanos::ZERO,
            seen: Nanos::ZERO,
            turn: 0,
        }
    }

    // === adding ===

    /// Makes the key Ready, or marks its lease; `None` once it is shut down.
    ///
    /// The key is taken only where it is new. Otherwise it stays with the caller, to die outside every lock, also when
    /// its `Eq` panics.
    pub(crate) fn add(&mut self, key: &mut Option<K>, hash: u64, now: Option<Nanos>) -> Option<Added>
    where
        K: Eq,
    {
        if self.phase != Phase::Open {
            return None;
        }
        let now = self.observe(now);
        let Some(slot) = self.find(key.as_ref()?, hash) else {
            let slot = self.insert(key.take()?, hash);
            self.make_ready(slot, now);
            return Some(Added::New);
        };
        let entry = self.slab.get_mut(slot);
        let added = match entry.place {
            Place::Vacant { .. } => unreachable!("invariant 1: a vacant slot is not in the key table"),
            Place::Waiting { position } if entry.at > now => {
                self.deadlines.remove(&mut self.slab, position);
                self.make_ready(slot, now);
                Added::Promoted
            }
            Place::Leased => {
                entry.place = Place::LeasedDirty;
                self.dirty += 1;
                Added::Marked
            }
            Place::LeasedWaiting { .. } => {
                let due = entry.at <= now;
                entry.place = Place::LeasedDirty;
                self.postponed -= 1;
                self.dirty += 1;
                if due { Added::Merged } else { Added::Marked }
            }
            Place::Ready { .. } | Place::Waiting { .. } | Place::LeasedDirty => Added::Merged,
        };
        Some(added)
    }

    /// Makes the key wait until `at`, which is after `now`; the earliest deadline of a key holds. As [`add`](Self::add)
    /// otherwise.
    pub(crate) fn add_at(&mut self, key: &mut Option<K>, hash: u64, at: Nanos, now: Nanos) -> Option<Added>
    where
        K: Eq,
    {
        if self.phase != Phase::Open {
            return None;
        }
        self.observe(Some(now));
        let Some(slot) = self.find(key.as_ref()?, hash) else {
            let slot = self.insert(key.take()?, hash);
            self.wait(slot, at);
            return Some(Added::New);
        };
        let entry = self.slab.get(slot);
        let (place, earlier) = (entry.place, at < entry.at);
        let added = match place {
            Place::Waiting { position } if earlier => {
                let turn = self.next_turn();
                self.deadlines.advance(&mut self.slab, position, at, turn);
                Added::Merged
            }
            Place::Leased => {
                self.postpone(slot, at);
                self.postponed += 1;
                Added::Marked
            }
            Place::LeasedWaiting { .. } if earlier => {
                self.postpone(slot, at);
                Added::Merged
            }
            _ => Added::Merged,
        };
        Some(added)
    }

    // === getting ===

    /// Hands out the key that has been Ready the longest, whether it was added so or its deadline passed.
    ///
    /// The key is cloned first: a panic of `Clone` changes nothing.
    pub(crate) fn get(&mut self, now: Option<Nanos>) -> Next<K>
    where
        K: Clone,
    {
        let now = self.observe(now);
        let Some(slot) = self.next_slot(now) else { return self.nothing() };
        let entry = self.slab.get(slot);
        let Some(key) = entry.key.clone() else { unreachable!("invariant 1: a linked slot holds a key") };
        let generation = entry.generation;
        self.unlink(slot);
        self.slab.get_mut(slot).place = Place::Leased;
        self.leased += 1;
        Next::Key(Handle { slot, generation }, key)
    }

    /// Of the two heads, the one that became Ready earlier. A deadline goes before an add of the same instant: it
    /// was set before. A key that seems to be Ready since a moment to come (the clock jumped back) goes first, or
    /// deadlines would starve it until then.
    #[inline]
    fn next_slot(&self, now: Nanos) -> Option<u32> {
        if self.phase == Phase::Stopped {
            return None;
        }
        let front = self.order.front();
        match self.deadlines.first() {
            Some((at, slot)) if at <= self.due_by(now) => match front {
                Some(front) if self.precedes(front, at, now) => Some(front),
                _ => Some(slot),
            },
            _ => front,
        }
    }

    /// Whether the Ready slot `front` goes before a key whose deadline `at` has passed.
    #[inline]
    fn precedes(&self, front: u32, at: Nanos, now: Nanos) -> bool {
        let since = self.slab.get(front).at;
        since < at || since > now
    }

    fn nothing(&self) -> Next<K> {
        match (self.is_closed(), self.next_deadline()) {
            (true, _) => Next::Closed,
            (false, Some(at)) => Next::Wait(at),
            (false, None) => Next::Empty,
        }
    }

    // === ending ===

    /// Ends a lease. A key that leaves the queue is returned, for the caller to drop outside every lock.
    ///
    /// A stale handle ends nothing.
    pub(crate) fn end(&mut self, handle: Handle, outcome: Outcome, now: Option<Nanos>) -> Option<K> {
        let now = self.observe(now);
        let Handle { slot, generation } = handle;
        let entry = self.slab.get(slot);
        let (place, at) = (entry.place, entry.at);
        if entry.generation != generation || !place.is_leased() {
            return None;
        }
        self.leased -= 1;
        if self.phase == Phase::Stopped {
            return self.remove(slot);
        }
        match place {
            Place::LeasedDirty => {
                self.dirty -= 1;
                self.make_ready(slot, now);
            }
            Place::LeasedWaiting { turn } => {
                self.postponed -= 1;
                match self.outcome(outcome, now) {
                    _ if at <= self.due_by(now) => self.make_ready(slot, now),
                    Outcome::Tail => self.make_ready(slot, now),
                    Outcome::At(other) if other < at => self.wait(slot, other),
                    _ => self.deadlines.push(&mut self.slab, slot, at, turn),
                }
            }
            _ => match self.outcome(outcome, now) {
                Outcome::Done => return self.remove(slot),
                Outcome::At(at) => self.wait(slot, at),
                Outcome::Tail => self.make_ready(slot, now),
            },
        }
        None
    }

    /// After shutdown what comes back is a leftover: it must not keep the queue from closing, also where it would
    /// come back at once, or the clock jumped back.
    fn outcome(&self, outcome: Outcome, now: Nanos) -> Outcome {
        let later = now.max(self.horizon + NEXT);
        match outcome {
            _ if self.phase == Phase::Open => outcome,
            Outcome::Done => Outcome::Done,
            Outcome::At(at) => Outcome::At(at.max(later)),
            Outcome::Tail => Outcome::At(later),
        }
    }

    /// Takes back what was asked for and has not begun; a lease goes on.
    pub(crate) fn cancel(&mut self, key: &K, hash: u64) -> (bool, Option<K>)
    where
        K: Eq,
    {
        let Some(slot) = self.find(key, hash) else { return (false, None) };
        match self.slab.get(slot).place {
            Place::Ready { .. } | Place::Waiting { .. } => (true, self.take(slot)),
            Place::LeasedDirty => {
                self.dirty -= 1;
                self.slab.get_mut(slot).place = Place::Leased;
                (true, None)
            }
            Place::LeasedWaiting { .. } => {
                self.postponed -= 1;
                self.slab.get_mut(slot).place = Place::Leased;
                (true, None)
            }
            Place::Leased | Place::Vacant { .. } => (false, None),
        }
    }

    /// Refuses adds and marks from now on. What is due now still comes out; what waits longer stays.
    pub(crate) fn shut_down(&mut self, now: Option<Nanos>) {
        if self.phase != Phase::Open {
            return;
        }
        self.horizon = self.observe(now).min(LAST);
        self.phase = Phase::ShutDown;
        if self.postponed > 0 {
            self.mark_due_leases();
        }
    }

    /// Empties the queue: what nobody holds goes into `left`, what is held ends into nothing.
    ///
    /// `left` is the caller's, so that keys die outside every lock also when a `Clone` panics.
    pub(crate) fn stop(&mut self, now: Option<Nanos>, left: &mut Leftovers<K>)
    where
        K: Clone,
    {
        // The only clones, and before anything changes: a panic of `Clone` stops nothing.
        self.clone_keys(self.leased_slots(), &mut left.leased);
        self.shut_down(now);
        let (ready, waiting, _) = self.slots(now);
        self.phase = Phase::Stopped;
        left.ready.extend(ready.into_iter().filter_map(|slot| self.take(slot)));
        left.waiting.extend(waiting.into_iter().filter_map(|slot| self.take(slot)));
        self.unmark_leases();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::order::Fifo;

    /// Equal deadlines keep their order across the point where turns are dealt anew.
    #[test]
    fn turns_survive_their_overflow() {
        let mut core = Core::<u64, Fifo>::new();
        core.turn = u32::MAX - 5;
        for key in 0..20 {
            assert_eq!(core.add_at(&mut Some(key), key, Nanos::new(9), Nanos::ZERO), Some(Added::New));
            core.check().unwrap();
        }
        assert!(core.turn < 100, "the turns were dealt anew");
        let order: Vec<u64> = std::iter::from_fn(|| match core.get(Some(Nanos::new(9))) {
            Next::Key(_, key) => Some(key),
            _ => None,
        })
        .collect();
        assert_eq!(order, (0..20).collect::<Vec<_>>());
    }
}
