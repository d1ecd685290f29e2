//! PURE. The waiters for tokens, in FIFO order.
//!
//! # Invariants
//! 1. Waiters with a promise, which is a reservation of their tokens, come first. `tokens` is the number of tokens that waiters without a promise
//!    need.
//!    `promised_tokens` is the number of those that were promised, and `dues` counts the waiters that were promised each due time.
//! 2. `deadlines` maps the deadline of each waiter with a time limit to its slot; waiters with equal deadlines are in order of arrival.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::num::NonZeroU32;
use std::task::Waker;

use flyball_sync::Nanos;
use flyball_sync::steps;
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
    promised_tokens: u64,
    dues: BTreeMap<Nanos, usize>,
    /// The next waiter that [`refuse_above`](Self::refuse_above) examines.
    refusing: Option<u32>,
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
        Self {
            list: WaitList::new(),
            tokens: 0,
            promised_tokens: 0,
            dues: BTreeMap::new(),
            refusing: None,
            deadlines: BTreeMap::new(),
            joined: 0,
        }
    }

    pub(crate) const fn waiting(&self) -> usize {
        self.list.waiting()
    }

    /// The number of tokens that waiters without a promise need.
    pub(crate) const fn tokens(&self) -> u64 {
        self.tokens
    }

    /// The latest due time that was promised to a waiter.
    pub(crate) fn promised_until(&self) -> Nanos {
        self.dues.last_key_value().map_or(Nanos::ZERO, |(due, _)| *due)
    }

    /// The number of tokens that were promised to waiters.
    pub(crate) const fn promised_tokens(&self) -> u64 {
        self.promised_tokens
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

    /// Lets [`refuse_above`](Self::refuse_above) examine all present waiters.
    pub(crate) fn start_refusing(&mut self) {
        self.refusing = self.list.first_slot();
    }

    /// Refuses the waiters that request more tokens than the burst and have no promise from before the burst changed. Stops when the batch is full, and
    /// returns whether there may be more such waiters; the next call goes on there.
    ///
    /// All calls together are O(waiters).
    pub(crate) fn refuse_above(&mut self, burst: NonZeroU32, wake: &mut WakeBatch) -> bool {
        while let Some(slot) = self.refusing {
            steps::count();
            let refused =
                self.list.at(slot).filter(|waiter| waiter.count > burst && waiter.promised.is_none());
            let Some(count) = refused.map(|waiter| waiter.count) else {
                self.refusing = self.list.after(slot);
                continue;
            };
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
                let promised = promise(waiter.count);
                *self.dues.entry(promised.due()).or_default() += 1;
                self.promised_tokens += u64::from(promised.count().get());
                waiter.promised = Some(promised);
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
        self.pass(place.slot());
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
        let (mut promised_tokens, mut dues) = (0, BTreeMap::new());
        for (slot, waiter) in self.list.iter() {
            if waiter.promised.is_some() && !promises {
                return Err(format!(
                    "invariant 1: the waiter in slot {slot} has a promise, but the waiter before it has none"
                ));
            }
            promises = waiter.promised.is_some();
            deadlines.extend(waiter.until.map(|until| (until, slot)));
            tokens += if promises { 0 } else { u64::from(waiter.count.get()) };
            if let Some(promised) = &waiter.promised {
                *dues.entry(promised.due()).or_insert(0_usize) += 1;
                promised_tokens += u64::from(promised.count().get());
            }
        }
        if (tokens, &deadlines) != (self.tokens, &self.deadlines) {
            return Err(format!("counted {tokens} tokens, {deadlines:?}: {self:?}"));
        }
        if (promised_tokens, &dues) != (self.promised_tokens, &self.dues) {
            return Err(format!(
                "invariant 1: counted {promised_tokens} promised tokens, {dues:?}: {self:?}"
            ));
        }
        if self.refusing.is_some_and(|slot| self.list.at(slot).is_none()) {
            return Err(format!("no waiter in slot {:?}", self.refusing));
        }
        Ok(())
    }

    fn serve(&mut self, slot: u32, served: Served) -> Option<Waiter> {
        self.pass(slot);
        let waiter = self.list.serve(slot, served)?;
        self.removed(&waiter);
        Some(waiter)
    }

    /// Called before the waiter in `slot` is removed.
    fn pass(&mut self, slot: u32) {
        if self.refusing == Some(slot) {
            self.refusing = self.list.after(slot);
        }
    }

    fn removed(&mut self, waiter: &Waiter) {
        if let Some(until) = waiter.until {
            self.deadlines.remove(&until);
        }
        let Some(promised) = &waiter.promised else {
            self.tokens -= u64::from(waiter.count.get());
            return;
        };
        self.promised_tokens -= u64::from(promised.count().get());
        if let Entry::Occupied(mut due) = self.dues.entry(promised.due()) {
            match due.get() {
                ..=1 => _ = due.remove(),
                more => *due.get_mut() = more - 1,
            }
        }
    }
}
