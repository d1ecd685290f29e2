//! PURE. First in, first out.

use crate::entry::{NIL, Place};
use crate::order::Order;
use crate::order::sealed::Links;
use crate::slab::Slab;

/// Strict first in, first out: a doubly linked list through the entries, so a key leaves the middle in O(1).
///
/// # Invariants
/// 1. Following `next` from `head` visits `len` slots, all `Ready`, and ends at `tail`; `prev` mirrors it.
#[derive(Debug)]
pub struct Fifo {
    head: u32,
    tail: u32,
    len: usize,
}

impl Default for Fifo {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }
}

impl Order for Fifo {}

impl Links for Fifo {
    #[inline]
    fn count(&self) -> usize {
        self.len
    }

    #[inline]
    fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        slab.get_mut(slot).place = Place::Ready { prev: self.tail, next: NIL };
        self.set_next(slab, self.tail, slot);
        self.tail = slot;
        self.len += 1;
    }

    #[inline]
    fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let Place::Ready { prev, next } = slab.get(slot).place else {
            unreachable!("only a Ready slot is unlinked");
        };
        self.set_next(slab, prev, next);
        self.set_prev(slab, next, prev);
        self.len -= 1;
    }

    fn slots<K>(&self, slab: &Slab<K>) -> Vec<u32> {
        let mut slots = Vec::with_capacity(self.len);
        let mut slot = self.head;
        while slot != NIL && slots.len() <= self.len {
            slots.push(slot);
            let Place::Ready { next, .. } = slab.get(slot).place else { break };
            slot = next;
        }
        slots
    }
}

impl Fifo {
    /// `NIL` before the first slot stands for the head.
    #[inline]
    fn set_next<K>(&mut self, slab: &mut Slab<K>, slot: u32, to: u32) {
        if slot == NIL {
            self.head = to;
        } else if let Place::Ready { next, .. } = &mut slab.get_mut(slot).place {
            *next = to;
        }
    }

    /// `NIL` after the last slot stands for the tail.
    #[inline]
    fn set_prev<K>(&mut self, slab: &mut Slab<K>, slot: u32, to: u32) {
        if slot == NIL {
            self.tail = to;
        } else if let Place::Ready { prev, .. } = &mut slab.get_mut(slot).place {
            *prev = to;
        }
    }
}
