//! PURE. Who waits for tokens, first come, first served.
//!
//! # Invariants
//! 1. `waiting` is the number of slots that wait; they are linked from `first` to `last`, in the order they came.
//! 2. `threads` of them belong to threads that block.
//! 3. Those that were promised a token come first. `tokens` is what the others want.

use std::num::NonZeroU32;
use std::task::Waker;

use crate::{Nanos, Token, TooMany};

const NIL: u32 = u32::MAX;

/// Waiters in a slab, linked in the order they came.
#[derive(Debug)]
pub(crate) struct Line {
    slots: Vec<Slot>,
    free: u32,
    first: u32,
    last: u32,
    waiting: usize,
    threads: usize,
    tokens: u64,
}

#[derive(Debug)]
enum Slot {
    Free {
        next: u32,
    },
    Waiting {
        waiter: Waiter,
        prev: u32,
        next: u32,
    },
    /// It was woken and owes a poll or a drop.
    Served(Served),
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) count: NonZeroU32,
    pub(crate) waker: Waker,
    pub(crate) thread: bool,
    pub(crate) promised: Option<Token>,
}

/// What came of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It has its tokens, since that round of [`Refunds`](crate::refunds::Refunds), if they can go back at all.
    Granted { count: NonZeroU32, round: Option<u64> },
    /// The quota was changed, and never has as many.
    Refused(TooMany),
}

/// A place in the line. Its owner gives it up by [`Line::leave`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Place(u32);

impl Place {
    pub(crate) const fn slot(&self) -> u32 {
        self.0
    }
}

/// What was at a place that was given up.
#[derive(Debug)]
pub(crate) enum Left {
    Waiting(Waiter),
    Served(Served),
}

impl Line {
    pub(crate) const fn new() -> Self {
        Self { slots: Vec::new(), free: NIL, first: NIL, last: NIL, waiting: 0, threads: 0, tokens: 0 }
    }

    pub(crate) const fn waiting(&self) -> usize {
        self.waiting
    }

    pub(crate) const fn has_threads(&self) -> bool {
        self.threads > 0
    }

    /// What those want who were promised nothing.
    pub(crate) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The latest time promised to anybody. O(those who were promised one).
    pub(crate) fn promised_until(&self) -> Nanos {
        let (mut slot, mut latest) = (self.first, Nanos::ZERO);
        while let Some(Slot::Waiting { waiter: Waiter { promised: Some(token), .. }, next, .. }) =
            self.slots.get(slot as usize)
        {
            latest = latest.max(token.due());
            slot = *next;
        }
        latest
    }

    /// Joins at the end.
    pub(crate) fn join(&mut self, count: NonZeroU32, waker: Waker, thread: bool) -> Place {
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
        let waiter = Waiter { count, waker, thread, promised: None };
        self.slots[slot as usize] = Slot::Waiting { waiter, prev: self.last, next: NIL };
        self.set_next(self.last, slot);
        self.last = slot;
        self.waiting += 1;
        self.threads += usize::from(thread);
        self.tokens += u64::from(count.get());
        Place(slot)
    }

    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.waiter(self.first)
    }

    /// Serves the first; its waker is for the caller to wake, outside the lock.
    pub(crate) fn serve_first(&mut self, served: Served) -> Option<Waiter> {
        self.serve(self.first, served)
    }

    /// The first one's waker, to be woken so that it looks for itself: it leaves another when it does.
    pub(crate) fn take_first_waker(&mut self) -> Option<Waker> {
        match self.slots.get_mut(self.first as usize)? {
            Slot::Waiting { waiter, .. } => Some(std::mem::replace(&mut waiter.waker, Waker::noop().clone())),
            _ => None,
        }
    }

    /// Serves all who want more than the burst, and were not promised it before it changed.
    ///
    /// O(those who wait).
    pub(crate) fn refuse_above(&mut self, burst: NonZeroU32, wake: &mut Vec<Waker>) {
        let mut slot = self.first;
        while let Some(Slot::Waiting { waiter, next, .. }) = self.slots.get(slot as usize) {
            let (count, next) = (waiter.count, *next);
            if count > burst && waiter.promised.is_none() {
                let refused = Served::Refused(TooMany::new(count, burst));
                wake.extend(self.serve(slot, refused).map(|waiter| waiter.waker));
            }
            slot = next;
        }
    }

    /// Promises all who have no promise yet their tokens, in their order.
    pub(crate) fn promise_all(&mut self, mut promise: impl FnMut(NonZeroU32) -> Token) {
        // From the end, as those with a promise come first.
        let mut slot = self.last;
        let mut earliest = NIL;
        while let Some(Slot::Waiting { waiter: Waiter { promised: None, .. }, prev, .. }) =
            self.slots.get(slot as usize)
        {
            earliest = slot;
            slot = *prev;
        }
        while let Some(Slot::Waiting { waiter, next, .. }) = self.slots.get_mut(earliest as usize) {
            waiter.promised = Some(promise(waiter.count));
            earliest = *next;
        }
        self.tokens = 0;
    }

    /// What came of waiting at `place`, if anything yet.
    pub(crate) fn served(&self, place: &Place) -> Option<Served> {
        match &self.slots[place.0 as usize] {
            Slot::Served(served) => Some(*served),
            _ => None,
        }
    }

    /// Whether `place` waits for `waker`: then to wait again would change nothing.
    pub(crate) fn waits_for(&self, place: &Place, waker: &Waker) -> bool {
        self.waiter(place.0).is_some_and(|waiter| waiter.waker.will_wake(waker))
    }

    /// Waits at the same place with another waker; the old one is for the caller to drop.
    pub(crate) fn wait_with(&mut self, place: &Place, waker: Waker) -> Waker {
        match &mut self.slots[place.0 as usize] {
            Slot::Waiting { waiter, .. } => std::mem::replace(&mut waiter.waker, waker),
            _ => waker,
        }
    }

    /// Gives up a place.
    pub(crate) fn leave(&mut self, place: Place) -> Left {
        let free = Slot::Free { next: self.free };
        self.free = place.0;
        match self.take(place.0, free) {
            Slot::Waiting { waiter, .. } => Left::Waiting(waiter),
            Slot::Served(served) => Left::Served(served),
            Slot::Free { .. } => unreachable!("a place is given up once"),
        }
    }

    /// The first thread. O(those before it).
    pub(crate) fn first_thread(&self) -> Option<u32> {
        let mut slot = self.first;
        while let Some(Slot::Waiting { waiter, next, .. }) = self.slots.get(slot as usize) {
            if waiter.thread {
                return Some(slot);
            }
            slot = *next;
        }
        None
    }

    /// Whoever waits there.
    pub(crate) fn waiter(&self, slot: u32) -> Option<&Waiter> {
        match self.slots.get(slot as usize)? {
            Slot::Waiting { waiter, .. } => Some(waiter),
            _ => None,
        }
    }

    /// Walks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        let (mut waiting, mut threads, mut tokens) = (0, 0, 0);
        let (mut slot, mut before) = (self.first, NIL);
        let mut promises = true;
        while let Some(found) = self.slots.get(slot as usize) {
            let Slot::Waiting { waiter, prev, next } = found else {
                return Err(format!("invariant 1: slot {slot} is linked and does not wait"));
            };
            if *prev != before {
                return Err(format!("invariant 1: {prev} is before {slot}, not {before}"));
            }
            if waiter.promised.is_some() && !promises {
                return Err(format!("invariant 3: a promise behind none, in slot {slot}"));
            }
            promises = waiter.promised.is_some();
            waiting += 1;
            threads += usize::from(waiter.thread);
            tokens += if promises { 0 } else { u64::from(waiter.count.get()) };
            (before, slot) = (slot, *next);
        }
        let all = self.slots.iter().filter(|slot| matches!(slot, Slot::Waiting { .. })).count();
        if (waiting, waiting, threads, tokens, before)
            != (self.waiting, all, self.threads, self.tokens, self.last)
        {
            return Err(format!("counted {waiting} of {all}, {threads} threads, {tokens} tokens: {self:?}"));
        }
        Ok(())
    }

    fn serve(&mut self, slot: u32, served: Served) -> Option<Waiter> {
        self.waiter(slot)?;
        match self.take(slot, Slot::Served(served)) {
            Slot::Waiting { waiter, .. } => Some(waiter),
            _ => None,
        }
    }

    fn take(&mut self, slot: u32, by: Slot) -> Slot {
        let taken = std::mem::replace(&mut self.slots[slot as usize], by);
        if let Slot::Waiting { waiter, prev, next } = &taken {
            self.set_next(*prev, *next);
            self.set_prev(*next, *prev);
            self.waiting -= 1;
            self.threads -= usize::from(waiter.thread);
            if waiter.promised.is_none() {
                self.tokens -= u64::from(waiter.count.get());
            }
        }
        taken
    }

    /// `NIL` before the first slot stands for the head.
    fn set_next(&mut self, slot: u32, to: u32) {
        if slot == NIL {
            self.first = to;
        } else if let Slot::Waiting { next, .. } = &mut self.slots[slot as usize] {
            *next = to;
        }
    }

    /// `NIL` after the last slot stands for the tail.
    fn set_prev(&mut self, slot: u32, to: u32) {
        if slot == NIL {
            self.last = to;
        } else if let Slot::Waiting { prev, .. } = &mut self.slots[slot as usize] {
            *prev = to;
        }
    }
}
