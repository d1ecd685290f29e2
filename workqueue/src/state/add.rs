//! PURE. Adds, delayed adds, and the operations that postpone or cancel them.

use std::borrow::Borrow;

use flyball_sync::Nanos;

use super::{Phase, QueueState};
use crate::error::AddErrorKind;
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::{Flags, State};
use crate::state::types::{Added, NewKey};
use crate::state::wait::{DelayRequest, Wait};

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Makes the key Ready or, if it is leased, dirty.
    ///
    /// The key is moved out of `new` only if it was absent from the queue.
    #[inline(always)]
    pub(crate) fn add(
        &mut self,
        new: &mut NewKey<K, O::Tag>,
        now: Option<Nanos>,
    ) -> Result<Added, AddErrorKind>
    where
        K: Eq,
    {
        if self.phase != Phase::Open {
            return Err(AddErrorKind::ShutDown);
        }
        let now = self.observe(now);
        match new.key.as_ref().and_then(|key| self.find(key, new.hash)) {
            Some(slot) => Ok(self.add_again(slot, &new.tag, now)),
            None => {
                let slot = self.admit(new)?;
                self.make_ready(slot, now);
                Ok(Added::New)
            }
        }
    }

    /// Like [`add`](Self::add), but by reference: `new` has no key yet, and receives a clone if the key is absent.
    #[inline]
    pub(crate) fn add_ref(
        &mut self,
        key: &K,
        new: &mut NewKey<K, O::Tag>,
        now: Option<Nanos>,
    ) -> Result<Added, AddErrorKind>
    where
        K: Clone + Eq,
    {
        if self.phase != Phase::Open {
            return Err(AddErrorKind::ShutDown);
        }
        let now = self.observe(now);
        match self.find(key, new.hash) {
            Some(slot) => Ok(self.add_again(slot, &new.tag, now)),
            None => {
                if self.slab.live() < self.options.capacity {
                    // The key is cloned before `has_room` stores the limits of its group, so that a panic in `clone` changes nothing. If the group is
                    // full, the clone is dropped with `new`.
                    new.key = Some(key.clone());
                }
                self.has_room(&mut new.tag)?;
                let slot = self.take_in(new);
                self.make_ready(slot, now);
                Ok(Added::New)
            }
        }
    }

    // `inline(always)`, because with `inline` the compiler considers the function too large to inline it. Without inlining, the add of a duplicate
    // takes 223 instructions instead of 199.
    #[inline(always)]
    fn add_again(&mut self, slot: u32, tag: &O::Tag, now: Nanos) -> Added {
        let state = self.slab.get(slot).state;
        self.order.merge(slot, state, tag);
        match state {
            State::Waiting | State::LeasedWaiting => {
                let wait = self.wait_of(slot);
                if wait.at <= now || self.holds(wait) {
                    self.order.reposition(&mut self.slab, slot, now, now);
                    return Added::Merged;
                }
                self.end_wait(slot, now)
            }
            State::Leased => self.make_dirty(slot, now),
            State::Ready => {
                self.order.reposition(&mut self.slab, slot, now, now);
                Added::Merged
            }
            State::LeasedDirty => Added::Merged,
            State::Vacant => unreachable!("invariant 1: a vacant slot is not in the key table"),
        }
    }

    /// Makes the key wait as requested. If it waits already, `request` determines how the two waits combine. Otherwise like [`add`](Self::add).
    pub(crate) fn add_after_with(
        &mut self,
        new: &mut NewKey<K, O::Tag>,
        request: DelayRequest,
        now: Nanos,
    ) -> Result<Added, AddErrorKind>
    where
        K: Eq,
    {
        if self.phase != Phase::Open {
            return Err(AddErrorKind::ShutDown);
        }
        self.observe(Some(now));
        let added = self.add_requested(new, request, now)?;
        self.meter_delay();
        Ok(added)
    }

    fn add_requested(
        &mut self,
        new: &mut NewKey<K, O::Tag>,
        request: DelayRequest,
        now: Nanos,
    ) -> Result<Added, AddErrorKind>
    where
        K: Eq,
    {
        let Some(slot) = new.key.as_ref().and_then(|key| self.find(key, new.hash)) else {
            let slot = self.admit(new)?;
            match request.alone() {
                wait if wait.at > now => self.wait(slot, wait),
                _ => self.make_ready(slot, now),
            }
            return Ok(Added::New);
        };
        let state = self.slab.get(slot).state;
        self.order.merge(slot, state, &new.tag);
        if self.options.strict && state.is_leased() && self.is_pending(slot, now) {
            if let DelayRequest::Backoff(until) = request {
                self.hold_dirty(slot, state, until, now);
                return Ok(Added::Merged);
            }
        }
        Ok(match state {
            State::Leased => {
                let wait = request.alone();
                if wait.at <= now {
                    return Ok(self.make_dirty(slot, now));
                }
                self.postpone_lease(slot, wait);
                Added::Dirty
            }
            State::Waiting | State::LeasedWaiting => {
                let old = self.wait_of(slot);
                let new = old.after(request, self.options.strict);
                if old.at > now && new.at <= now {
                    return Ok(self.end_wait(slot, now));
                }
                if old.at > now && new != old {
                    self.set_wait(slot, new);
                }
                self.order.reposition(&mut self.slab, slot, now, now);
                Added::Merged
            }
            _ => {
                self.order.reposition(&mut self.slab, slot, now, now);
                Added::Merged
            }
        })
    }

    /// Makes a leased key that is dirty wait for a strict backoff, as the end of its lease would do after a failure.
    fn hold_dirty(&mut self, slot: u32, state: State, until: Nanos, now: Nanos) {
        if until <= now {
            return;
        }
        self.meter_withdrawn(slot);
        self.dirty -= usize::from(state == State::LeasedDirty);
        self.postpone_lease(slot, Wait::backoff(until));
    }

    /// Postpones the pending run of the key, so that it is not Ready before `at`. Returns whether the key had a pending run.
    pub(crate) fn postpone<Q>(&mut self, key: &Q, hash: u32, at: Nanos, now: Nanos) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        if self.phase != Phase::Open {
            return false;
        }
        self.observe(Some(now));
        let Some(slot) = self.find(key, hash) else { return false };
        let state = self.slab.get(slot).state;
        if state == State::Leased || at <= now {
            return state != State::Leased;
        }
        match state {
            State::Ready => {
                self.meter_withdrawn(slot);
                self.unlink(slot);
                self.wait(slot, Wait::fixed(at));
            }
            State::LeasedDirty => {
                self.meter_withdrawn(slot);
                self.dirty -= 1;
                self.postpone_lease(slot, Wait::fixed(at));
            }
            _ => {
                let old = self.wait_of(slot);
                if old.at <= now {
                    self.meter_withdrawn(slot);
                }
                let backoff = old.backoff && old.at > now;
                self.set_wait(slot, Wait { at: old.at.max(at), limit: None, backoff });
            }
        }
        true
    }

    /// Cancels the pending run of the key. If the key is leased, the lease continues. Returns whether there was a run to cancel, and the key if it
    /// has left the queue.
    #[must_use = "must be dropped after unlocking"]
    pub(crate) fn cancel<Q>(&mut self, key: &Q, hash: u32, now: Option<Nanos>) -> (bool, Option<K>)
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.observe(now);
        let Some(slot) = self.find(key, hash) else { return (false, None) };
        if now.is_some_and(|now| self.is_pending(slot, now)) {
            self.meter_withdrawn(slot);
        }
        match self.slab.get(slot).state {
            State::Ready | State::Waiting => {
                self.unlink(slot);
                return (true, self.remove(slot));
            }
            State::LeasedDirty => self.dirty -= 1,
            State::LeasedWaiting => self.forget_wait(slot),
            State::Leased | State::Vacant => return (false, None),
        }
        self.slab.get_mut(slot).state = State::Leased;
        self.order.unmark(slot);
        (true, None)
    }

    /// If there is room, takes the key out of `new` and inserts it into a new slot. The key must be absent from the queue.
    #[inline]
    fn admit(&mut self, new: &mut NewKey<K, O::Tag>) -> Result<u32, AddErrorKind> {
        self.has_room(&mut new.tag)?;
        Ok(self.take_in(new))
    }

    #[inline]
    fn take_in(&mut self, new: &mut NewKey<K, O::Tag>) -> u32 {
        let class = self.order.class(&mut new.tag);
        let Some(key) = new.key.take() else { unreachable!("the caller passes a key") };
        self.insert(key, new.hash, class)
    }

    /// Checks whether the queue and the key's class have room for an absent key. The class is checked even if the queue is full, because this check
    /// also stores the limits from the tag, and determines in which line the adder waits.
    #[inline]
    fn has_room(&mut self, tag: &mut O::Tag) -> Result<(), AddErrorKind> {
        let in_class = self.order.has_room(tag);
        if in_class && self.slab.live() < self.options.capacity { Ok(()) } else { Err(AddErrorKind::Full) }
    }

    /// Returns whether an add of the key would have to wait for room. Observes the time first, because it stores the limits from the tag: a rate that
    /// changes at an earlier time would lose the tokens that have arrived since then.
    #[cold]
    pub(crate) fn is_full_for(&mut self, new: &mut NewKey<K, O::Tag>, now: Option<Nanos>) -> bool
    where
        K: Eq,
    {
        self.observe(now);
        let is_absent = new.key.as_ref().is_some_and(|key| self.find(key, new.hash).is_none());
        self.is_open() && is_absent && self.has_room(&mut new.tag).is_err()
    }

    #[inline]
    pub(crate) fn is_stale(&self, tag: &O::Tag) -> bool {
        self.order.is_stale(tag)
    }

    /// Returns the line in which an adder waits for room after its add was refused with `Full`.
    #[inline]
    pub(crate) fn adder_line(&self, tag: &O::Tag) -> u32 {
        self.order.adder_line(tag)
    }

    pub(crate) fn join_line(&mut self, line: u32) {
        self.order.join_line(line);
    }

    pub(crate) fn leave_line(&mut self, line: u32) {
        self.order.leave_line(line);
    }

    /// Calls `each` with the lines of the classes that may have got room since the last call.
    pub(crate) fn classes_with_room(&mut self, each: impl FnMut(u32)) {
        self.order.classes_with_room(each);
    }

    /// Returns whether there is a class for this line.
    pub(crate) fn has_line(&self, line: u32) -> bool {
        self.order.has_line(line)
    }

    /// Returns the number of keys that the class of this line has room for. The capacity of the queue is not considered.
    pub(crate) fn room_of(&self, line: u32) -> usize {
        self.order.room(line)
    }

    /// Returns whether this wait is a strict backoff, which adds must not shorten.
    pub(super) fn holds(&self, wait: Wait) -> bool {
        self.options.strict && wait.backoff
    }

    #[inline]
    fn make_dirty(&mut self, slot: u32, now: Nanos) -> Added {
        self.meter_pending(slot, now, false);
        self.slab.get_mut(slot).state = State::LeasedDirty;
        self.dirty += 1;
        Added::Dirty
    }

    /// Ends the wait of a slot early, because its key was added again. The key becomes Ready or, if it is leased, dirty.
    fn end_wait(&mut self, slot: u32, now: Nanos) -> Added {
        if self.slab.get(slot).state == State::LeasedWaiting {
            self.forget_wait(slot);
            return self.make_dirty(slot, now);
        }
        self.unlink(slot);
        self.make_ready(slot, now);
        Added::Promoted
    }

    /// Returns the wait of a slot that is `Waiting` or `LeasedWaiting`.
    pub(super) fn wait_of(&self, slot: u32) -> Wait {
        let entry = self.slab.get(slot);
        match entry.state {
            State::LeasedWaiting => self.postponed_of(slot).wait,
            _ => {
                let limit = entry.flags.has(Flags::LIMITED).then(|| self.limits.get(slot)).flatten();
                Wait { at: entry.at, limit, backoff: entry.flags.has(Flags::BACKOFF) }
            }
        }
    }
}
