//! PURE. The operations of the state machine that exist only for certain orders.

use std::borrow::Borrow;

use flyball_sync::Nanos;

use super::QueueState;
use crate::state::order::fair::GroupLimits;
use crate::state::order::groups::Groups;
use crate::state::order::levels::Levels;
use crate::state::slots::State;
use crate::state::stats::GroupStats;

impl<K> QueueState<K, Levels> {
    pub(crate) fn priority<Q>(&self, key: &Q, hash: u32) -> Option<i8>
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        self.find(key, hash).map(|slot| self.order.priority(slot))
    }

    /// Sets the priority of a key. Returns whether the key is in the queue.
    pub(crate) fn set_priority<Q>(&mut self, key: &Q, hash: u32, priority: i8, now: Option<Nanos>) -> bool
    where
        K: Borrow<Q>,
        Q: Eq + ?Sized,
    {
        let now = self.observe(now);
        let Some(slot) = self.find(key, hash) else { return false };
        let (by, entry) = (self.due_by(now), self.slab.get(slot));
        let (state, at) = (entry.state, entry.at);
        if state == State::Waiting && at <= by && self.order.is_positioned_above(slot, priority) {
            // The key counts as Ready, because its deadline has passed. It moves to the end of the line of its new priority.
            self.meter_pending(slot, at, true);
            self.unlink(slot);
            self.order.assign(slot, priority);
            self.make_ready(slot, at);
            self.order.set_since(slot, now);
        } else {
            self.order.set_priority(&mut self.slab, slot, priority, now, by);
        }
        true
    }

    pub(crate) fn levels(&mut self, now: Option<Nanos>) -> Vec<(i8, usize)> {
        let now = now.unwrap_or(self.seen);
        self.order.depths(&self.slab, self.due_by(now))
    }
}

impl<K, G: Clone + Eq + Send + 'static> QueueState<K, Groups<G>> {
    pub(crate) fn groups(
        &mut self,
        now: Option<Nanos>,
        most: usize,
        groups: &mut Vec<GroupStats<G>>,
    ) -> GroupStats<usize> {
        self.gather_all(now);
        self.order.depths(most, groups)
    }

    pub(crate) fn start_refresh(&mut self, refresh: usize, names: &mut Vec<(u64, G)>) {
        self.order.start_refresh(refresh, names);
    }

    /// Sets the limits of groups. If the queue is closed, this has no effect, so that the queue stays closed.
    pub(crate) fn limit_groups(
        &mut self,
        limits: &[(u64, G, GroupLimits)],
        refresh: usize,
        now: Option<Nanos>,
    ) {
        let now = self.observe(now);
        if !self.is_closed_at(now) {
            self.order.limit(limits, refresh);
        }
    }
}
