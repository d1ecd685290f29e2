//! PURE. A FIFO list of waiters in a slab.
//!
//! # Invariants
//! 1. The waiting slots are linked from `first` to `last` in FIFO order; `waiting` is their number.
//! 2. The free slots are linked from `free`. A slot that is in neither list was served, and is kept until its owner
//!    leaves.
//! 3. `used` is the number of slots that are not free. A list without used slots gives the memory of more than [`KEPT`] slots back, so a burst of waiters
//!    costs memory only while it lasts.

const NIL: u32 = u32::MAX;
/// The number of slots that a list keeps in any case, so that waiters that come and go do not allocate.
const KEPT: usize = 1024;

/// A FIFO list of waiters. Each waiter is owned by a [`Place`], and is served or removed in O(1).
///
/// `W` is the waiter, usually a waker; `S` is the result with which it is served. A served waiter leaves the list,
/// but keeps its slot until its owner collects the result.
#[derive(Debug)]
pub struct WaitList<W, S> {
    slots: Vec<Slot<W, S>>,
    free: u32,
    first: u32,
    last: u32,
    waiting: usize,
    used: usize,
}

#[derive(Debug)]
enum Slot<W, S> {
    Free { next: u32 },
    Waiting { waiter: W, prev: u32, next: u32 },
    Served(S),
}

/// A slot of the list. Its owner releases it with [`WaitList::leave`].
#[derive(Debug, PartialEq, Eq)]
pub struct Place(u32);

/// The content of a slot that was released.
#[derive(Debug, PartialEq, Eq)]
pub enum Released<W, S> {
    /// The waiter was not served.
    Waiting(W),
    /// The waiter was served with this result.
    Served(S),
}

impl Place {
    /// Returns the number of the place's slot. Compare it with the slot numbers that [`WaitList::iter`] returns.
    #[must_use]
    pub const fn slot(&self) -> u32 {
        self.0
    }
}

impl<W, S> Default for WaitList<W, S> {
    fn default() -> Self {
        Self::new()
    }
}

impl<W, S> WaitList<W, S> {
    /// Creates an empty list.
    #[must_use]
    pub const fn new() -> Self {
        Self { slots: Vec::new(), free: NIL, first: NIL, last: NIL, waiting: 0, used: 0 }
    }

    /// The number of waiters.
    #[must_use]
    #[inline]
    pub const fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns whether the list has neither a waiter nor a served waiter that has not left.
    #[must_use]
    pub const fn is_unused(&self) -> bool {
        self.used == 0
    }

    /// Appends a waiter.
    ///
    /// # Panics
    /// Panics at 2³²−1 waiters.
    pub fn join(&mut self, waiter: W) -> Place {
        let slot = match self.free {
            NIL => {
                assert!(self.slots.len() < NIL as usize, "a list holds at most 2^32 - 1 waiters");
                self.slots.push(Slot::Free { next: NIL });
                (self.slots.len() - 1) as u32
            }
            slot => slot,
        };
        if let Slot::Free { next } = self.slots[slot as usize] {
            self.free = next;
        }
        self.slots[slot as usize] = Slot::Waiting { waiter, prev: self.last, next: NIL };
        self.set_next(self.last, slot);
        self.last = slot;
        self.waiting += 1;
        self.used += 1;
        Place(slot)
    }

    /// The oldest waiter.
    #[must_use]
    pub fn first(&self) -> Option<&W> {
        self.at(self.first)
    }

    /// The oldest waiter.
    pub fn first_mut(&mut self) -> Option<&mut W> {
        self.at_mut(self.first)
    }

    /// Serves the oldest waiter, and returns it.
    pub fn serve_first(&mut self, served: S) -> Option<W> {
        self.serve(self.first, served)
    }

    /// If a waiter waits in this slot, serves it and returns it.
    pub fn serve(&mut self, slot: u32, served: S) -> Option<W> {
        self.at(slot)?;
        match self.take(slot, Slot::Served(served)) {
            Slot::Waiting { waiter, .. } => Some(waiter),
            _ => None,
        }
    }

    /// Releases a slot. The place must belong to this list; a place of a different list can release another waiter's slot.
    ///
    /// # Panics
    /// Panics if the slot of the place does not exist or is free.
    pub fn leave(&mut self, place: Place) -> Released<W, S> {
        let free = Slot::Free { next: self.free };
        self.free = place.0;
        let released = match self.take(place.0, free) {
            Slot::Waiting { waiter, .. } => Released::Waiting(waiter),
            Slot::Served(served) => Released::Served(served),
            Slot::Free { .. } => unreachable!("a place is released only once"),
        };
        self.used -= 1;
        if self.used == 0 && self.slots.len() > KEPT {
            // All slots are free, so this drops no waiter.
            (self.slots, self.free) = (Vec::new(), NIL);
        }
        released
    }

    /// Returns the result with which the waiter at this place was served; `None` if it was not served yet.
    #[must_use]
    pub fn served(&self, place: &Place) -> Option<&S> {
        match &self.slots[place.0 as usize] {
            Slot::Served(served) => Some(served),
            _ => None,
        }
    }

    /// The number of slots: every waiter is in a slot below it.
    #[must_use]
    pub fn slots(&self) -> u32 {
        self.slots.len() as u32
    }

    /// The waiter in a slot.
    #[must_use]
    #[inline]
    pub fn at(&self, slot: u32) -> Option<&W> {
        match self.slots.get(slot as usize)? {
            Slot::Waiting { waiter, .. } => Some(waiter),
            _ => None,
        }
    }

    /// The waiter in a slot.
    #[inline]
    pub fn at_mut(&mut self, slot: u32) -> Option<&mut W> {
        match self.slots.get_mut(slot as usize)? {
            Slot::Waiting { waiter, .. } => Some(waiter),
            _ => None,
        }
    }

    /// The slot of the oldest waiter.
    #[must_use]
    pub fn first_slot(&self) -> Option<u32> {
        (self.first != NIL).then_some(self.first)
    }

    /// The slot of the newest waiter.
    #[must_use]
    pub fn last_slot(&self) -> Option<u32> {
        (self.last != NIL).then_some(self.last)
    }

    /// Returns the slot of the next waiter in FIFO order after the waiter in `slot`.
    #[must_use]
    pub fn after(&self, slot: u32) -> Option<u32> {
        match self.slots.get(slot as usize)? {
            Slot::Waiting { next, .. } => (*next != NIL).then_some(*next),
            _ => None,
        }
    }

    /// Returns the slot of the previous waiter in FIFO order before the waiter in `slot`.
    #[must_use]
    pub fn before(&self, slot: u32) -> Option<u32> {
        match self.slots.get(slot as usize)? {
            Slot::Waiting { prev, .. } => (*prev != NIL).then_some(*prev),
            _ => None,
        }
    }

    /// The waiting slots with their waiters, in FIFO order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &W)> {
        std::iter::successors(self.first_slot(), |slot| self.after(*slot))
            .filter_map(|slot| self.at(slot).map(|waiter| (slot, waiter)))
    }

    /// Checks the invariants.
    ///
    /// # Errors
    /// Returns the first invariant that is violated.
    pub fn check(&self) -> Result<(), String> {
        let (mut slot, mut before, mut linked) = (self.first, NIL, 0);
        while slot != NIL {
            let Some(Slot::Waiting { prev, next, .. }) = self.slots.get(slot as usize) else {
                return Err(format!("invariant 1: slot {slot} is linked but does not wait"));
            };
            if *prev != before {
                return Err(format!("invariant 1: {prev} is before {slot}, not {before}"));
            }
            (before, slot) = (slot, *next);
            linked += 1;
            if linked > self.slots.len() {
                return Err("invariant 1: the list is a circle".into());
            }
        }
        let waiting = self.slots.iter().filter(|slot| matches!(slot, Slot::Waiting { .. })).count();
        if (linked, waiting, before) != (self.waiting, self.waiting, self.last) {
            return Err(format!(
                "invariant 1: {linked} of {waiting} waiting slots are linked, but {} are counted",
                self.waiting
            ));
        }
        let (mut slot, mut free) = (self.free, 0);
        while let Some(Slot::Free { next }) = self.slots.get(slot as usize) {
            slot = *next;
            free += 1;
            if free > self.slots.len() {
                return Err("invariant 2: the free list is a circle".into());
            }
        }
        let all = self.slots.iter().filter(|slot| matches!(slot, Slot::Free { .. })).count();
        if (free, slot) != (all, NIL) {
            return Err(format!("invariant 2: {free} of {all} free slots are linked"));
        }
        match self.slots.len() - all == self.used {
            true => Ok(()),
            false => Err(format!(
                "invariant 3: {} slots are used, of {} with {all} free",
                self.used,
                self.slots.len()
            )),
        }
    }

    fn take(&mut self, slot: u32, by: Slot<W, S>) -> Slot<W, S> {
        let taken = std::mem::replace(&mut self.slots[slot as usize], by);
        if let Slot::Waiting { prev, next, .. } = &taken {
            self.set_next(*prev, *next);
            self.set_prev(*next, *prev);
            self.waiting -= 1;
        }
        taken
    }

    /// Sets the slot after `slot`; if `slot` is `NIL`, sets the head.
    fn set_next(&mut self, slot: u32, to: u32) {
        if slot == NIL {
            self.first = to;
        } else if let Slot::Waiting { next, .. } = &mut self.slots[slot as usize] {
            *next = to;
        }
    }

    /// Sets the slot before `slot`; if `slot` is `NIL`, sets the tail.
    fn set_prev(&mut self, slot: u32, to: u32) {
        if slot == NIL {
            self.last = to;
        } else if let Slot::Waiting { prev, .. } = &mut self.slots[slot as usize] {
            *prev = to;
        }
    }
}
