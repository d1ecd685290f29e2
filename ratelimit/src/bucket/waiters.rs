//! PURE. The waiters for tokens, in FIFO order.
//!
//! # Invariants
//! 1. `threads` is the number of waiters that are blocked threads.
//! 2. Waiters that were promised tokens come first. `tokens` is the number of tokens that the others need.
//! 3. `deadlines` are the times at which tasks time out, in order of arrival at equal times, each with its slot.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::task::Waker;

use flyball_sync::waiting::{Left, Place, WaitList, WakeBatch};

use crate::{InsufficientCapacity, Nanos, Reservation};

/// A time, and the number of the waiter.
type Deadline = (Nanos, u64);

/// Waiters in the order they came.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    list: WaitList<Waiter, Served>,
    threads: usize,
    tokens: u64,
    deadlines: BTreeMap<Deadline, u32>,
    /// How many have come with a deadline.
    came: u64,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) count: NonZeroU32,
    pub(crate) waker: Waker,
    pub(crate) thread: bool,
    pub(crate) promised: Option<Reservation>,
    /// When it gives up, if it is a task that does.
    until: Option<Deadline>,
}

/// What came of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// It has its tokens, since that round of [`UnclaimedGrants`](crate::bucket::unclaimed::UnclaimedGrants), if they can go back at all.
    Granted { count: NonZeroU32, round: Option<u64> },
    /// The quota was changed, and never has as many.
    Refused(InsufficientCapacity),
    /// Its deadline came first.
    TimedOut,
}

impl WaitQueue {
    pub(crate) const fn new() -> Self {
        Self { list: WaitList::new(), threads: 0, tokens: 0, deadlines: BTreeMap::new(), came: 0 }
    }

    pub(crate) const fn waiting(&self) -> usize {
        self.list.waiting()
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
        let promised = self.list.iter().map_while(|(_, waiter)| waiter.promised.as_ref());
        promised.map(Reservation::due).max().unwrap_or(Nanos::ZERO)
    }

    /// Joins at the end.
    pub(crate) fn join(
        &mut self,
        count: NonZeroU32,
        waker: Waker,
        thread: bool,
        until: Option<Nanos>,
    ) -> Place {
        self.threads += usize::from(thread);
        self.tokens += u64::from(count.get());
        let until = until.map(|until| (until, self.came));
        let place = self.list.join(Waiter { count, waker, thread, promised: None, until });
        self.deadlines.extend(until.map(|until| (until, place.slot())));
        self.came += u64::from(until.is_some());
        place
    }

    /// When the next one gives up.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.deadlines.first_key_value().map(|((until, _), _)| *until)
    }

    /// The next one to give up does; its waker is for the caller to wake, outside the lock.
    pub(crate) fn time_out_next(&mut self) -> Option<Waiter> {
        let (_, slot) = self.deadlines.first_key_value()?;
        self.serve(*slot, Served::TimedOut)
    }

    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.list.first()
    }

    /// Serves the first; its waker is for the caller to wake, outside the lock.
    pub(crate) fn serve_first(&mut self, served: Served) -> Option<Waiter> {
        self.serve(self.list.first_slot()?, served)
    }

    /// The first one's waker, to be woken so that it looks for itself: it leaves another when it does.
    pub(crate) fn take_first_waker(&mut self) -> Option<Waker> {
        Some(std::mem::replace(&mut self.list.first_mut()?.waker, Waker::noop().clone()))
    }

    /// Serves those who want more than the burst, and were not promised it before it changed; says whether there are more of them than
    /// the batch has room for.
    ///
    /// O(those who wait).
    pub(crate) fn refuse_above(&mut self, burst: NonZeroU32, wake: &mut WakeBatch) -> bool {
        let mut next = self.list.first_slot();
        while let Some(slot) = next {
            next = self.list.after(slot);
            let refused =
                self.list.at(slot).filter(|waiter| waiter.count > burst && waiter.promised.is_none());
            let Some(count) = refused.map(|waiter| waiter.count) else { continue };
            if wake.is_full() {
                return true;
            }
            let refused = Served::Refused(InsufficientCapacity::new(count, burst));
            if let Some(waiter) = self.serve(slot, refused) {
                wake.push(waiter.waker);
            }
        }
        false
    }

    /// Promises all who have no promise yet their tokens, in their order.
    pub(crate) fn promise_all(&mut self, mut promise: impl FnMut(NonZeroU32) -> Reservation) {
        let unpromised =
            |line: &Self, slot: u32| line.list.at(slot).is_some_and(|waiter| waiter.promised.is_none());
        // From the end, as those with a promise come first.
        let mut earliest = self.list.last_slot().filter(|slot| unpromised(self, *slot));
        while let Some(before) = earliest.and_then(|slot| self.list.before(slot)) {
            if !unpromised(self, before) {
                break;
            }
            earliest = Some(before);
        }
        while let Some(slot) = earliest {
            if let Some(waiter) = self.list.at_mut(slot) {
                waiter.promised = Some(promise(waiter.count));
            }
            earliest = self.list.after(slot);
        }
        self.tokens = 0;
    }

    /// What came of waiting at `place`, if anything yet.
    pub(crate) fn served(&self, place: &Place) -> Option<Served> {
        self.list.served(place).copied()
    }

    /// Whether `place` waits for `waker`: then to wait again would change nothing.
    pub(crate) fn waits_for(&self, place: &Place, waker: &Waker) -> bool {
        self.list.at(place.slot()).is_some_and(|waiter| waiter.waker.will_wake(waker))
    }

    /// Waits at the same place with another waker; the old one is for the caller to drop.
    pub(crate) fn wait_with(&mut self, place: &Place, waker: Waker) -> Waker {
        match self.list.at_mut(place.slot()) {
            Some(waiter) => std::mem::replace(&mut waiter.waker, waker),
            None => waker,
        }
    }

    /// Gives up a place.
    pub(crate) fn leave(&mut self, place: Place) -> Left<Waiter, Served> {
        let left = self.list.leave(place);
        if let Left::Waiting(waiter) = &left {
            self.gone(waiter);
        }
        left
    }

    /// The first thread. O(those before it).
    pub(crate) fn first_thread(&self) -> Option<u32> {
        self.list.iter().find(|(_, waiter)| waiter.thread).map(|(slot, _)| slot)
    }

    /// The waiter in `slot`.
    pub(crate) fn waiter(&self, slot: u32) -> Option<&Waiter> {
        self.list.at(slot)
    }

    /// Walks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.list.check()?;
        let (mut threads, mut tokens, mut promises, mut deadlines) = (0, 0, true, BTreeMap::new());
        for (slot, waiter) in self.list.iter() {
            if waiter.promised.is_some() && !promises {
                return Err(format!("invariant 2: a promise behind none, in slot {slot}"));
            }
            promises = waiter.promised.is_some();
            threads += usize::from(waiter.thread);
            deadlines.extend(waiter.until.map(|until| (until, slot)));
            tokens += if promises { 0 } else { u64::from(waiter.count.get()) };
        }
        if (threads, tokens, &deadlines) != (self.threads, self.tokens, &self.deadlines) {
            return Err(format!("counted {threads} threads, {tokens} tokens, {deadlines:?}: {self:?}"));
        }
        Ok(())
    }

    fn serve(&mut self, slot: u32, served: Served) -> Option<Waiter> {
        let waiter = self.list.serve(slot, served)?;
        self.gone(&waiter);
        Some(waiter)
    }

    fn gone(&mut self, waiter: &Waiter) {
        if let Some(until) = waiter.until {
            self.deadlines.remove(&until);
        }
        self.threads -= usize::from(waiter.thread);
        if waiter.promised.is_none() {
            self.tokens -= u64::from(waiter.count.get());
        }
    }
}
