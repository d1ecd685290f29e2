//! PURE. The transitions that hand out keys and end leases.

use std::borrow::Borrow;

use flyball_sync::Nanos;

use super::{NEXT, Phase, QueueState};
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::{Flags, State};
use crate::state::types::{LeaseId, NextKey, Transition};
use crate::state::wait::Wait;

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Hands out the next key in the order: a Ready key, or a waiting key whose deadline has passed.
    ///
    /// The key is cloned first. If `Clone` panics, the key moves to the tail, as if its lease had begun and ended at once: if it stayed the first one, every
    /// call would panic, and no other key would be handed out.
    #[inline(always)]
    pub(crate) fn get(&mut self, now: Option<Nanos>) -> NextKey<K>
    where
        K: Clone,
    {
        let was_read = now.is_some();
        let now = self.observe(now);
        match self.next_slot(now) {
            Some(next) => self.hand_out(next, now),
            None => self.no_key(was_read),
        }
    }

    /// Hands out the key that [`next_slot`](Self::next_slot) returned. The caller must [observe](Self::observe) the time before it calls `next_slot`,
    /// because the next key depends on the time.
    #[inline(always)]
    pub(super) fn hand_out(&mut self, (slot, pick): (u32, O::Pick), now: Nanos) -> NextKey<K>
    where
        K: Clone,
    {
        let entry = self.slab.get(slot);
        let (state, generation) = (entry.state, entry.generation);
        let panicked = MovesToTail { state: self, slot, pick, now };
        let key = panicked.state.slab.get(slot).key.clone();
        std::mem::forget(panicked);
        let Some(key) = key else { unreachable!("invariant 1: a linked slot holds a key") };
        self.take(slot, pick, state, now);
        NextKey::Key(LeaseId { slot, generation }, key)
    }

    /// Leases a slot that is Ready, or waits and is due.
    #[inline(always)]
    fn take(&mut self, slot: u32, pick: O::Pick, state: State, now: Nanos) {
        let (phase, horizon) = (self.phase, self.horizon);
        self.order.on_hand_out(pick, || phase.due_by(now, horizon));
        match state {
            State::Ready => self.order.unlink(&mut self.slab, slot),
            _ => self.unlink(slot),
        }
        self.lease(slot, now);
    }

    /// Returns the slot to hand out next, and why the order picked it; `None` if no key can be handed out, or the queue is paused or stopped.
    #[inline]
    pub(super) fn next_slot(&self, now: Nanos) -> Option<(u32, O::Pick)> {
        if self.paused || self.phase == Phase::Stopped {
            return None;
        }
        self.order.next(&self.slab, now, || self.due_by(now))
    }

    /// Returns why there is no key, at the time that was just observed. `was_read` is whether that time was read from the clock just now; otherwise no due
    /// key is gathered.
    #[cold]
    pub(super) fn no_key(&mut self, was_read: bool) -> NextKey<K> {
        if O::GATHERS && was_read && self.has_due(Some(self.seen)) {
            return NextKey::GatherMore;
        }
        self.pass_horizon();
        match (self.is_closed_at(self.seen), self.next_deadline()) {
            (true, _) => NextKey::Closed,
            (false, Some(at)) => NextKey::Wait(at),
            (false, None) => NextKey::Empty,
        }
    }

    /// Ends a lease. If the key leaves the queue, returns the key, so that the caller can drop it outside every lock.
    ///
    /// If the lease has ended before, this call has no effect.
    #[inline]
    #[must_use = "must be dropped after unlocking"]
    pub(crate) fn end(&mut self, id: LeaseId, transition: Transition, now: Option<Nanos>) -> Option<K> {
        let now = self.observe(now);
        let LeaseId { slot, generation } = id;
        let entry = self.slab.get(slot);
        let state = entry.state;
        if entry.generation != generation || !state.is_leased() {
            return None;
        }
        self.unlink_lease(slot);
        self.order.end(slot, transition);
        if self.phase == Phase::Stopped || (state, transition) == (State::Leased, Transition::Leave) {
            return self.remove(slot);
        }
        self.apply_transition(slot, state, transition, now);
        None
    }

    /// Applies the transition to a key that stays after its lease has ended. This is a separate function, so that the common case, in which the key
    /// leaves the queue, does not become slower.
    #[inline(never)]
    fn apply_transition(&mut self, slot: u32, state: State, transition: Transition, now: Nanos) {
        let transition = self.served(transition, now);
        match state {
            State::LeasedDirty => {
                self.dirty -= 1;
                self.end_dirty(slot, transition, now);
            }
            State::LeasedWaiting => {
                let postponed = self.postponed_of(slot);
                self.forget_wait(slot);
                match transition {
                    _ if postponed.wait.at <= self.due_by(now) => {
                        self.meter_pending(slot, postponed.wait.at, true);
                        self.end_dirty(slot, transition, now);
                    }
                    Transition::Ready if !self.holds(postponed.wait) => self.make_ready(slot, now),
                    Transition::Ready | Transition::NotBegun | Transition::Leave => {
                        self.wait_with_sequence(slot, postponed.wait, postponed.sequence)
                    }
                    Transition::Wait(wait) => match postponed.wait.after_lease(wait, self.options.strict) {
                        wait if wait.at == postponed.wait.at => {
                            self.wait_with_sequence(slot, wait, postponed.sequence)
                        }
                        wait => self.wait(slot, wait),
                    },
                }
            }
            _ => match transition {
                Transition::Wait(wait) => self.wait(slot, wait),
                Transition::Ready | Transition::NotBegun => self.make_ready(slot, now),
                Transition::Leave => unreachable!("`end` removes a key that is neither dirty nor waiting"),
            },
        }
    }

    /// Makes a dirty key Ready at the end of its lease, whatever the transition is. Exception: with strict backoff, a key whose lease has failed
    /// waits for its backoff.
    fn end_dirty(&mut self, slot: u32, transition: Transition, now: Nanos) {
        match transition {
            Transition::Wait(wait) if self.options.strict && wait.backoff => {
                self.meter_withdrawn(slot);
                self.wait(slot, wait);
            }
            _ => self.make_ready(slot, now),
        }
    }

    /// Returns the transition that takes effect, which depends on the phase of the queue. A delay of zero makes the key Ready. After shutdown, a key
    /// that is retried or requeued gets a deadline after the horizon, so that the key becomes a leftover and does not keep the queue open. While a
    /// drain still serves delayed keys, deadlines up to the horizon are not changed.
    fn served(&mut self, transition: Transition, now: Nanos) -> Transition {
        let wait = match transition {
            Transition::Leave => return transition,
            Transition::Wait(wait) => wait,
            Transition::Ready | Transition::NotBegun => Wait::fixed(now),
        };
        let served = match self.phase {
            Phase::Open => true,
            Phase::DrainingDelays => now < self.horizon && wait.at <= self.horizon,
            Phase::ShutDown | Phase::Stopped => false,
        };
        if served && matches!(transition, Transition::Wait(_)) {
            self.meter_delay();
        }
        match served {
            true if wait.at <= now => Transition::Ready,
            true => transition,
            false => Transition::Wait(Wait { at: wait.at.max(now).max(self.horizon + NEXT), ..wait }),
        }
    }

    /// Detaches a lease from its guard. From now on, the lease is identified by its key.
    pub(crate) fn detach(&mut self, id: LeaseId) {
        let entry = self.slab.get_mut(id.slot);
        if entry.generation == id.generation && entry.state.is_leased() {
            entry.flags.set(Flags::DETACHED, true);
        }
    }

    /// Returns the detached lease of a key, which the caller must end under the same lock. Returns `None` if the key has no detached lease.
    pub(crate) fn take_detached<Q>(&mut self, key: &Q, hash: u32) -> Option<LeaseId>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let slot = self.find(key, hash)?;
        let entry = self.slab.get(slot);
        let (state, generation) = (entry.state, entry.generation);
        if !state.is_leased() || !entry.flags.has(Flags::DETACHED) {
            return None;
        }
        self.slab.get_mut(slot).flags.set(Flags::DETACHED, false);
        Some(LeaseId { slot, generation })
    }
}

/// Moves a key to the tail of its order when it is dropped, because `Clone` of the key has panicked.
struct MovesToTail<'a, K, O: ReadyQueue> {
    state: &'a mut QueueState<K, O>,
    slot: u32,
    pick: O::Pick,
    now: Nanos,
}

impl<K, O: ReadyQueue> Drop for MovesToTail<'_, K, O> {
    #[cold]
    fn drop(&mut self) {
        let Self { slot, pick, now, .. } = *self;
        let state = &mut *self.state;
        let entry = state.slab.get(slot);
        let (was, at) = (entry.state, entry.at);
        state.meter_still_pending(slot, at, was == State::Waiting);
        state.take(slot, pick, was, now);
        state.unlink_lease(slot);
        state.order.end(slot, Transition::NotBegun);
        state.make_ready(slot, now);
    }
}
