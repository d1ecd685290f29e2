//! PURE. The basic steps from which the operations are built. `make_ready`, `wait` and `lease` link a slot that is not linked. `unlink` undoes the
//! first two, `unlink_lease` the third.

use std::borrow::Borrow;

use flyball_sync::Nanos;

use super::{Postponed, QueueState};
use crate::state::entry::{Flags, State};
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::spread;
use crate::state::wait::Wait;

/// A key table with more buckets than this does not fit into the CPU's first-level cache.
const LARGE: usize = 1 << 14;
/// The maximum number of due keys that one operation gathers.
const GATHER_LIMIT: usize = 64;

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Updates and returns the time. Each operation that can make a key Ready or hand it out calls this once, before it changes anything, so the set
    /// of due keys stays the same until the end of the operation.
    #[inline]
    pub(super) fn observe(&mut self, now: Option<Nanos>) -> Nanos {
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

    /// Goes on to gather while no gathered key can be handed out even when leases end. Called before conditions such as "idle" and "closed" are checked, which
    /// would otherwise examine, in each operation, all due keys that were not gathered yet.
    ///
    /// Gathers up to the time that was last passed to an operation: an alarm may have fired too early.
    pub(crate) fn gather_suspended(&mut self) {
        if O::GATHERS {
            let by = self.due_by(self.seen);
            while self.order.count() == self.order.suspended() {
                let Some((at, slot)) = self.first_wait().filter(|(at, _)| *at <= by) else { break };
                self.gather_one(slot, at);
            }
        }
    }

    /// Gathers all due keys, and gives groups all tokens that have arrived. O(n log n).
    pub(super) fn gather_all(&mut self, now: Option<Nanos>) {
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
    pub(super) fn find<Q>(&self, key: &Q, hash: u32) -> Option<u32>
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
    pub(super) fn insert(&mut self, key: K, hash: u32, class: O::Class) -> u32 {
        let slot = self.slab.insert(key, hash);
        self.order.admit(slot, class);
        let slab = &self.slab;
        self.keys.insert_unique(spread(hash), slot, |&slot| spread(slab.get(slot).hash));
        slot
    }

    /// Vacates a slot that is not linked, and returns its key.
    #[inline]
    pub(super) fn remove(&mut self, slot: u32) -> Option<K> {
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
    pub(super) fn make_ready(&mut self, slot: u32, now: Nanos) {
        let entry = self.slab.get_mut(slot);
        entry.state = State::Ready;
        entry.at = now;
        self.order.push(&mut self.slab, slot);
    }

    pub(super) fn wait(&mut self, slot: u32, wait: Wait) {
        let sequence = self.next_sequence();
        self.wait_with_sequence(slot, wait, sequence);
    }

    pub(super) fn wait_with_sequence(&mut self, slot: u32, wait: Wait, sequence: u32) {
        self.order.wait(&mut self.slab, slot, wait.at, sequence);
        self.note_wait(slot, wait);
    }

    /// Leases a slot.
    #[inline]
    pub(super) fn lease(&mut self, slot: u32, now: Nanos) {
        let entry = self.slab.get_mut(slot);
        entry.state = State::Leased;
        entry.at = now;
        self.order.begin(slot);
        self.leases.push(&mut self.slab, slot);
    }

    /// Stores the wait of a leased key. The key starts to wait when the lease ends.
    pub(super) fn postpone_lease(&mut self, slot: u32, wait: Wait) {
        let sequence = self.next_sequence();
        self.slab.get_mut(slot).state = State::LeasedWaiting;
        self.postponed.set(slot, Postponed { wait, sequence });
    }

    /// Changes the wait of a slot, leased or not. The wait gets a new sequence number if the deadline changes.
    pub(super) fn set_wait(&mut self, slot: u32, wait: Wait) {
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
    pub(super) fn unlink(&mut self, slot: u32) {
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
    pub(super) fn unlink_lease(&mut self, slot: u32) {
        let flags = &mut self.slab.get_mut(slot).flags;
        if std::mem::take(flags).has(Flags::REPORTED) {
            self.reported.unlink(&mut self.slab, slot);
        } else {
            self.leases.unlink(&mut self.slab, slot);
        }
    }

    pub(super) fn postponed_of(&self, slot: u32) -> Postponed {
        match self.postponed.get(slot) {
            Some(postponed) => postponed,
            None => unreachable!("invariant 3: a leased slot that waits has a wait"),
        }
    }

    pub(super) fn forget_wait(&mut self, slot: u32) {
        self.postponed.take(slot);
    }
}
