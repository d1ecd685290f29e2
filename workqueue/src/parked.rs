//! PURE. Tasks that wait, with the wakers to wake them.

use std::task::Waker;

const NIL: u32 = u32::MAX;

/// Wakers in a slab, those not yet woken in a list, oldest first. A waker is moved out before it is woken.
///
/// # Invariants
/// 1. `waiting` is the number of slots that hold a waker; they are linked from `oldest` to `youngest`.
/// 2. `owed` is at most the number of slots whose waker was taken and whose task has not come back yet.
#[derive(Debug)]
pub(crate) struct Parked {
    slots: Vec<Slot>,
    free: u32,
    oldest: u32,
    youngest: u32,
    waiting: usize,
    owed: usize,
}

#[derive(Debug)]
enum Slot {
    Free {
        next: u32,
    },
    Waiting {
        waker: Waker,
        prev: u32,
        next: u32,
    },
    /// Its task was woken and owes a poll or a drop.
    Hinted,
}

/// The place of one waiting task.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u32);

impl Parked {
    pub(crate) fn new() -> Self {
        Self { slots: Vec::new(), free: NIL, oldest: NIL, youngest: NIL, waiting: 0, owed: 0 }
    }

    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.waiting
    }

    /// Of the tasks that were woken and have not come back, how many will find something, if there is so much.
    ///
    /// A task that was woken and is never polled again must not count for ever: as soon as somebody else has taken
    /// what it was woken for, nothing is owed to it, and the next key wakes the next task.
    #[inline]
    pub(crate) fn owed(&mut self, at_most: usize) -> usize {
        self.owed = self.owed.min(at_most);
        self.owed
    }

    /// Whether the task of `ticket` still waits for `waker`: then parking again would change nothing.
    pub(crate) fn waits_for(&self, ticket: &Ticket, waker: &Waker) -> bool {
        matches!(&self.slots[ticket.0 as usize], Slot::Waiting { waker: own, .. } if own.will_wake(waker))
    }

    pub(crate) fn park(&mut self, waker: Waker) -> Ticket {
        let slot = match self.free {
            NIL => {
                self.slots.push(Slot::Free { next: NIL });
                (self.slots.len() - 1) as u32
            }
            slot => slot,
        };
        if let Slot::Free { next } = self.slots[slot as usize] {
            self.free = next;
        }
        self.slots[slot as usize] = Slot::Waiting { waker, prev: self.youngest, next: NIL };
        self.set_next(self.youngest, slot);
        self.youngest = slot;
        self.waiting += 1;
        Ticket(slot)
    }

    /// The task of `ticket` has come back, or never will. Its waker is for the caller to drop, outside the lock.
    pub(crate) fn leave(&mut self, ticket: Ticket) -> Option<Waker> {
        let free = Slot::Free { next: self.free };
        self.free = ticket.0;
        match std::mem::replace(&mut self.slots[ticket.0 as usize], free) {
            Slot::Waiting { waker, prev, next } => {
                self.unlink(prev, next);
                Some(waker)
            }
            Slot::Hinted => {
                self.owed = self.owed.saturating_sub(1);
                None
            }
            Slot::Free { .. } => unreachable!("a ticket is used once"),
        }
    }

    /// Takes the waker that waits longest, to be woken outside the lock.
    pub(crate) fn take_one(&mut self) -> Option<Waker> {
        if self.oldest == NIL {
            return None;
        }
        let slot = &mut self.slots[self.oldest as usize];
        let Slot::Waiting { waker, prev, next } = std::mem::replace(slot, Slot::Hinted) else {
            unreachable!("invariant 1: the list links slots that wait");
        };
        self.unlink(prev, next);
        self.owed += 1;
        Some(waker)
    }

    fn unlink(&mut self, prev: u32, next: u32) {
        self.set_next(prev, next);
        self.set_prev(next, prev);
        self.waiting -= 1;
    }

    /// `NIL` before the first slot stands for the head.
    fn set_next(&mut self, slot: u32, to: u32) {
        if slot == NIL {
            self.oldest = to;
        } else if let Slot::Waiting { next, .. } = &mut self.slots[slot as usize] {
            *next = to;
        }
    }

    /// `NIL` after the last slot stands for the tail.
    fn set_prev(&mut self, slot: u32, to: u32) {
        if slot == NIL {
            self.youngest = to;
        } else if let Slot::Waiting { prev, .. } = &mut self.slots[slot as usize] {
            *prev = to;
        }
    }
}
