//! PURE. The steps that the operations are made of. `take` and `make_ready` are whole
//! moves; `insert`, `unlink` and `remove` are halves, for the caller to complete.

use flyball_ratelimit::Nanos;

use super::Core;
use crate::entry::Place;
use crate::order::Order;

impl<K, O: Order> Core<K, O> {
    #[inline]
    pub(super) fn observe(&mut self, now: Option<Nanos>) -> Nanos {
        if let Some(now) = now {
            self.seen = now;
        }
        self.seen
    }

    #[inline]
    pub(super) fn find(&self, key: &K, hash: u64) -> Option<u32>
    where
        K: Eq,
    {
        let slab = &self.slab;
        self.keys.find(hash, |&slot| slab.get(slot).key.as_ref() == Some(key)).copied()
    }

    pub(super) fn insert(&mut self, key: K, hash: u64) -> u32 {
        let slot = self.slab.insert(key, hash);
        let slab = &self.slab;
        self.keys.insert_unique(hash, slot, |&slot| slab.get(slot).hash);
        slot
    }

    /// Vacates a slot that is linked nowhere.
    pub(super) fn remove(&mut self, slot: u32) -> Option<K> {
        let hash = self.slab.get(slot).hash;
        if let Ok(found) = self.keys.find_entry(hash, |&other| other == slot) {
            found.remove();
        }
        self.slab.remove(slot)
    }

    #[inline]
    pub(super) fn make_ready(&mut self, slot: u32, now: Nanos) {
        self.slab.get_mut(slot).at = now;
        self.order.push(&mut self.slab, slot);
    }

    pub(super) fn wait(&mut self, slot: u32, at: Nanos) {
        let turn = self.next_turn();
        self.deadlines.push(&mut self.slab, slot, at, turn);
    }

    pub(super) fn postpone(&mut self, slot: u32, at: Nanos) {
        let turn = self.next_turn();
        let entry = self.slab.get_mut(slot);
        entry.at = at;
        entry.place = Place::LeasedWaiting { turn };
    }

    /// Removes a Ready or Waiting slot.
    pub(super) fn take(&mut self, slot: u32) -> Option<K> {
        self.unlink(slot);
        self.remove(slot)
    }

    #[inline]
    pub(super) fn unlink(&mut self, slot: u32) {
        match self.slab.get(slot).place {
            Place::Waiting { position } => self.deadlines.remove(&mut self.slab, position),
            _ => self.order.unlink(&mut self.slab, slot),
        }
    }

    /// Leases whose wait is over at the moment of shutdown are dirty, so that the queue does not close before them.
    pub(super) fn mark_due_leases(&mut self) {
        for slot in self.leased_slots() {
            let entry = self.slab.get_mut(slot);
            if matches!(entry.place, Place::LeasedWaiting { .. }) && entry.at <= self.horizon {
                entry.place = Place::LeasedDirty;
                self.postponed -= 1;
                self.dirty += 1;
            }
        }
    }

    pub(super) fn unmark_leases(&mut self) {
        for slot in self.leased_slots() {
            self.slab.get_mut(slot).place = Place::Leased;
        }
        self.dirty = 0;
        self.postponed = 0;
    }

    /// Turns order equal deadlines. After 2³² of them they are dealt anew, once, in their order. O(n log n) then.
    pub(super) fn next_turn(&mut self) -> u32 {
        if self.turn == u32::MAX {
            self.renumber();
        }
        self.turn += 1;
        self.turn
    }

    pub(super) fn renumber(&mut self) {
        let turn_of = |slot: u32| match self.slab.get(slot).place {
            Place::Waiting { position } => Some(self.deadlines.turn(position)),
            Place::LeasedWaiting { turn } => Some(turn),
            _ => None,
        };
        let mut turns: Vec<_> =
            self.slab.iter().filter_map(|(slot, _)| Some((turn_of(slot)?, slot))).collect();
        turns.sort_unstable();
        let mut dealt = vec![0; turns.iter().map(|&(_, slot)| slot as usize + 1).max().unwrap_or(0)];
        for (turn, (_, slot)) in (1..).zip(&turns) {
            dealt[*slot as usize] = turn;
            if let Place::LeasedWaiting { turn: kept } = &mut self.slab.get_mut(*slot).place {
                *kept = turn;
            }
        }
        self.deadlines.renumber(|slot| dealt[slot as usize]);
        self.turn = turns.len() as u32;
    }
}
