//! PURE. A doubly linked list through the entries.

use crate::state::entry::NIL;
use crate::state::slab::Slab;

/// A list of slots in the order in which they were pushed. Removing a slot from the middle is O(1).
///
/// # Invariants
/// 1. The second link of a slot leads to the next slot, the first link to the previous one. From `head` the second links lead through `len` slots to
///    `tail`, and the first links lead back through the same slots.
#[derive(Debug)]
pub(crate) struct List {
    head: u32,
    tail: u32,
    len: usize,
}

impl Default for List {
    fn default() -> Self {
        Self { head: NIL, tail: NIL, len: 0 }
    }
}

impl List {
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline]
    pub(crate) fn front(&self) -> Option<u32> {
        (self.head != NIL).then_some(self.head)
    }

    #[inline]
    pub(crate) fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        slab.get_mut(slot).links = [self.tail, NIL];
        match self.tail {
            NIL => self.head = slot,
            tail => slab.get_mut(tail).links[1] = slot,
        }
        self.tail = slot;
        self.len += 1;
    }

    #[inline]
    pub(crate) fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let [prev, next] = slab.get(slot).links;
        match prev {
            NIL => self.head = next,
            prev => slab.get_mut(prev).links[1] = next,
        }
        match next {
            NIL => self.tail = prev,
            next => slab.get_mut(next).links[0] = prev,
        }
        self.len -= 1;
    }

    /// Returns all slots, from head to tail. If the list is corrupt, the iteration ends early.
    pub(crate) fn iter<'a, K>(&self, slab: &'a Slab<K>) -> impl Iterator<Item = u32> + use<'a, K> {
        let mut slot = self.head;
        let mut left = self.len + 1;
        std::iter::from_fn(move || {
            let here = slot;
            left = left.checked_sub(1)?;
            (here != NIL).then(|| {
                slot = slab.get(here).links[1];
                here
            })
        })
    }

    pub(crate) fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        let mut before = NIL;
        let mut count = 0;
        for slot in self.iter(slab) {
            if slab.get(slot).links[0] != before {
                return Err(format!("list 1: slot {slot} has a wrong back link"));
            }
            before = slot;
            count += 1;
        }
        if count != self.len || before != self.tail {
            return Err(format!("list 1: {count} of {} slots are linked", self.len));
        }
        Ok(())
    }
}
