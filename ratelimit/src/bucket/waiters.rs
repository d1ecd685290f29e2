//! PURE. The waiters for tokens, in FIFO order.
//!
//! # Invariants
//! 1. Waiters with a promise, which is a reservation of their tokens, come first. `tokens` is the number of tokens that waiters without a promise
//!    need.
//! 2. `deadlines` maps the deadline of each waiter with a time limit to its slot; waiters with equal deadlines are in order of arrival.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::task::Waker;

use flyball_sync::Nanos;
use flyball_sync::waiting::{Place, Released, WaitList, WakeBatch};

use crate::bucket::reservation::Reservation;
use crate::error::InsufficientCapacity;

/// The deadline of a waiter, and the number of waiters with a deadline that joined before it.
type Deadline = (Nanos, u64);

/// The waiters in FIFO order.
#[derive(Debug)]
pub(crate) struct WaitQueue {
    list: WaitList<Waiter, Served>,
    tokens: u64,
    deadlines: BTreeMap<Deadline, u32>,
    /// The number of waiters with a deadline that have joined so far.
    joined: u64,
}

#[derive(Debug)]
pub(crate) struct Waiter {
    pub(crate) count: NonZeroU32,
    pub(crate) waker: Waker,
    pub(crate) promised: Option<Reservation>,
    /// The deadline, if there is a time limit.
    until: Option<Deadline>,
}

/// The result of waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Served {
    /// The waiter has its tokens. `round` is the round of [`UnclaimedGrants`](crate::bucket::unclaimed::UnclaimedGrants) in which
    /// they were granted, if they can still be given back.
    Granted { count: NonZeroU32, round: Option<u64> },
    /// The quota was changed, and its burst is now smaller than the request.
    Refused(InsufficientCapacity),
    /// The deadline passed first.
    TimedOut,
}

impl WaitQueue {
    pub(crate) const fn new() -> Self {
        Self { list: WaitList::new(), tokens: 0, deadlines: BTreeMap::new(), joined: 0 }
    }

    pub(crate) const fn waiting(&self) -> usize {
        self.list.waiting()
    }

    /// The number of tokens that waiters without a promise need.
    pub(crate) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The latest due time that was promised to a waiter. O(waiters with a promise).
    pub(crate) fn promised_until(&self) -> Nanos {
        let promised = self.list.iter().map_while(|(_, waiter)| waiter.promised.as_ref());
        promised.map(Reservation::due).max().unwrap_or(Nanos::ZERO)
    }

    /// The number of tokens that were promised to waiters. O(waiters with a promise).
    pub(crate) fn promised_tokens(&self) -> u64 {
        let promised = self.list.iter().map_while(|(_, waiter)| waiter.promised.as_ref());
        promised.map(|promised| u64::from(promised.count().get())).sum()
    }

    /// Appends a waiter.
    pub(crate) fn join(&mut self, count: NonZeroU32, waker: Waker, until: Option<Nanos>) -> Place {
        self.tokens += u64::from(count.get());
        let until = until.map(|until| (until, self.joined));
        let place = self.list.join(Waiter { count, waker, promised: None, until });
        self.deadlines.extend(until.map(|until| (until, place.slot())));
        self.joined += u64::from(until.is_some());
        place
    }

    /// The earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<Nanos> {
        self.deadlines.first_key_value().map(|((until, _), _)| *until)
    }

    /// Times out the waiter with the earliest deadline and returns it. The caller must call the waiter's waker outside the lock.
    pub(crate) fn time_out_next(&mut self) -> Option<Waiter> {
        let (_, slot) = self.deadlines.first_key_value()?;
        self.serve(*slot, Served::TimedOut)
    }

    pub(crate) fn first(&self) -> Option<&Waiter> {
        self.list.first()
    }

    /// Serves the first waiter and returns it. The caller must call the waiter's waker outside the lock.
    pub(crate) fn serve_first(&mut self, served: Served) -> Option<Waiter> {
        self.serve(self.list.first_slot()?, served)
    }

    /// Takes the waker of the first waiter. The caller wakes the waiter, which is then polled and stores a new waker.
    pub(crate) fn take_first_waker(&mut self) -> Option<Waker> {
        Some(std::mem::replace(&mut self.list.first_mut()?.waker, Waker::noop().clone()))
    }

    /// Moves the wakers of the waiters in the slots from `slot` on into the batch, as [`take_first_waker`](Self::take_first_waker) does. Returns the slot with
    /// which to continue after unlocking. O([`WakeBatch::CAPACITY`]).
    pub(crate) fn take_wakers(&mut self, slot: u32, batch: &mut WakeBatch) -> Option<u32> {
        let most = u32::try_from(WakeBatch::CAPACITY).unwrap_or(u32::MAX);
        let end = self.list.slots().min(slot.saturating_add(most));
        for slot in slot..end {
            if let Some(waiter) = self.list.at_mut(slot) {
                batch.push(std::mem::replace(&mut waiter.waker, Waker::noop().clone()));
            }
        }
        (end < self.list.slots()).then_some(end)
    }

    /// Refuses the waiters that request more tokens than the burst and have no promise from before the burst changed. Returns whether there are more
    /// such waiters than fit into the batch.
    ///
    /// O(waiters).
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

    /// Promises the tokens of all waiters without a promise, in FIFO order.
    pub(crate) fn promise_all(&mut self, mut promise: impl FnMut(NonZeroU32) -> Reservation) {
        let unpromised =
            |line: &Self, slot: u32| line.list.at(slot).is_some_and(|waiter| waiter.promised.is_none());
        // Waiters with a promise come first, so the search for the first waiter without one starts at the end.
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

    /// The result of the wait at `place`, if there is one yet.
    pub(crate) fn served(&self, place: &Place) -> Option<Served> {
        self.list.served(place).copied()
    }

    /// Returns whether the waiter at `place` stores a waker for the same task as `waker`, so that replacing it would change nothing.
    pub(crate) fn waits_for(&self, place: &Place, waker: &Waker) -> bool {
        self.list.at(place.slot()).is_some_and(|waiter| waiter.waker.will_wake(waker))
    }

    /// Replaces the waker at a place and returns the old waker, which the caller must drop.
    pub(crate) fn wait_with(&mut self, place: &Place, waker: Waker) -> Waker {
        match self.list.at_mut(place.slot()) {
            Some(waiter) => std::mem::replace(&mut waiter.waker, waker),
            None => waker,
        }
    }

    /// Removes a waiter.
    pub(crate) fn leave(&mut self, place: Place) -> Released<Waiter, Served> {
        let left = self.list.leave(place);
        if let Released::Waiting(waiter) = &left {
            self.removed(waiter);
        }
        left
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.list.check()?;
        let (mut tokens, mut promises, mut deadlines) = (0, true, BTreeMap::new());
        for (slot, waiter) in self.list.iter() {
            if waiter.promised.is_some() && !promises {
                return Err(format!(
                    "invariant 1: the waiter in slot {slot} has a promise, but the waiter before it has none"
                ));
            }
            promises = waiter.promised.is_some();
            deadlines.extend(waiter.until.map(|until| (until, slot)));
            tokens += if promises { 0 } else { u64::from(waiter.count.get()) };
        }
        if (tokens, &deadlines) != (self.tokens, &self.deadlines) {
            return Err(format!("counted {tokens} tokens, {deadlines:?}: {self:?}"));
        }
        Ok(())
    }

    fn serve(&mut self, slot: u32, served: Served) -> Option<Waiter> {
        let waiter = self.list.serve(slot, served)?;
        self.removed(&waiter);
        Some(waiter)
    }

    fn removed(&mut self, waiter: &Waiter) {
        if let Some(until) = waiter.until {
            self.deadlines.remove(&until);
        }
        if waiter.promised.is_none() {
            self.tokens -= u64::from(waiter.count.get());
        }
    }
}
