//! PURE. The ready queue of `Fair`: how each transition of a key changes the key's group.

use std::mem::take;

use flyball_sync::Nanos;

use super::Groups;
use crate::state::deadlines::Deadlines;
use crate::state::order::fair::GroupTag;
use crate::state::order::sealed::ReadyQueue;
use crate::state::slots::State;
use crate::state::slots::{KEPT, Slab};
use crate::state::types::Transition;

impl<G: Eq + Send + 'static> ReadyQueue for Groups<G> {
    const GATHERS: bool = true;
    const RAISES: bool = false;

    type Pick = ();

    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn available(&self) -> usize {
        self.available
    }

    #[inline]
    fn suspended(&self) -> usize {
        self.suspended
    }

    #[inline]
    fn has_rates(&self) -> bool {
        self.rates.is_some()
    }

    #[inline]
    fn pass_time(&mut self, now: Nanos, most: &mut usize) {
        if self.rates.as_mut().is_some_and(|rates| rates.pass_time(now)) {
            self.grant_tokens(most);
        }
    }

    #[inline]
    fn tokens(&self, now: Nanos, most: usize) -> (usize, Option<Nanos>) {
        self.tokens_up_to(now, most)
    }

    fn is_suspended(&self, slot: u32) -> bool {
        self.groups[self.of[slot as usize] as usize].limits.is_suspended()
    }

    fn is_held_back(&self, slot: u32, now: Nanos) -> bool {
        self.holds_back(self.of[slot as usize], now)
    }

    #[inline]
    fn next<K>(&self, _: &Slab<K>, _: Nanos, _: impl FnOnce() -> Nanos) -> Option<(u32, ())> {
        let slot = self.groups.get(self.first as usize)?.line.front()?;
        Some((slot, ()))
    }

    fn heads(&self, _: Nanos, _: Nanos) -> impl Iterator<Item = u32> {
        self.index.iter().filter_map(|index| self.groups[*index as usize].line.front())
    }

    fn heaps(&self) -> impl Iterator<Item = &Deadlines> {
        std::iter::once(&self.waits)
    }

    fn heaps_mut(&mut self) -> impl Iterator<Item = &mut Deadlines> {
        std::iter::once(&mut self.waits)
    }

    #[inline]
    fn wait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        self.waits.push(slab, slot, at, sequence);
    }

    #[inline]
    fn unwait<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.waits.remove(slab, slot);
    }

    #[inline]
    fn rewait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        self.waits.set(slab, slot, at, sequence);
    }

    #[inline]
    fn merge(&mut self, slot: u32, _: State, tag: &GroupTag<G>) {
        self.set_limits(self.of[slot as usize], &tag.limits);
    }

    #[inline]
    fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.count += 1;
        self.change(self.of[slot as usize], |group| group.line.push(slab, slot));
    }

    #[inline]
    fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.count -= 1;
        self.change(self.of[slot as usize], |group| group.line.unlink(slab, slot));
    }

    /// Counts the lease, takes a token, and moves the group to the end of the ring if this was the last hand-out of its turn.
    #[inline]
    fn begin(&mut self, slot: u32) {
        let index = self.of[slot as usize];
        if let Some(rates) = &mut self.rates {
            rates.take(index);
        }
        self.change(index, |group| group.leased += 1);
        let group = &mut self.groups[index as usize];
        if group.left > 1 {
            group.left -= 1;
        } else if group.left == 1 {
            group.left = group.limits.weight;
            self.leave_ring(index);
            self.enter_ring(index);
        }
    }

    #[inline]
    fn end(&mut self, slot: u32, _: Transition) {
        self.change(self.of[slot as usize], |group| group.leased -= 1);
    }

    fn is_oversized(&self) -> bool {
        // Adders refer to their groups by index. Their groups cannot be moved, so this must not try again at each lease that ends.
        self.rates.is_some() && self.adders == 0 && self.groups.len() > KEPT.max(self.index.len() * 4)
    }

    fn take_memory(&mut self) -> Self {
        let mut old = Self::new(false);
        (old.of, old.waits) = (take(&mut self.of), take(&mut self.waits));
        self.move_kept(&mut old);
        old
    }

    fn linked<K>(&self, slab: &Slab<K>) -> Vec<u32> {
        self.groups.iter().flat_map(|group| group.line.iter(slab)).collect()
    }

    /// Returns the slots that can be handed out even if no lease ends and no token arrives, in the order of hand-out, and then the other
    /// Ready slots. The caller has gathered the due slots before.
    fn slots<K>(&self, slab: &Slab<K>, _: Nanos, _: Nanos) -> Vec<u32> {
        let mut slots = Vec::with_capacity(self.count);
        let mut lines: Vec<_> = self.groups.iter().map(|group| group.line.iter(slab)).collect();
        let mut ring: std::collections::VecDeque<_> = self
            .ring()
            .map(|index| {
                let group = &self.groups[index as usize];
                (index, group.left, group.share())
            })
            .collect();
        while let Some((index, left, share)) = ring.pop_front() {
            let line = &mut lines[index as usize];
            let turn = (left as usize).min(share);
            slots.extend(line.by_ref().take(turn));
            if turn < share {
                ring.push_back((index, self.groups[index as usize].limits.weight, share - turn));
            }
        }
        lines.into_iter().for_each(|line| slots.extend(line));
        slots
    }

    fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        self.waits.check(slab)?;
        self.check_groups(slab)
    }
}
