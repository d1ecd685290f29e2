//! PURE. The ready queue of `Fair`: how each transition of a key changes the key's group.

use std::mem::take;

use flyball_sync::Nanos;

use super::{FIRST_GROUP, Group, Groups};
use crate::state::deadlines::Deadlines;
use crate::state::entry::{NIL, State};
use crate::state::order::fair::{GroupLimits, GroupTag};
use crate::state::order::sealed::ReadyQueue;
use crate::state::order::{ANY_ROOM, NO_ROOM};
use crate::state::slots::List;
use crate::state::slots::Slab;
use crate::state::types::Transition;

impl<G: Eq + Send + 'static> ReadyQueue for Groups<G> {
    const GATHERS: bool = true;
    const RAISES: bool = false;

    type Tag = GroupTag<G>;
    type Class = u32;
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
        if self.rates.is_some() {
            self.grant_tokens(now, most);
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
        self.groups.iter().filter_map(|group| group.line.front())
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
    fn is_stale(&self, tag: &GroupTag<G>) -> bool {
        tag.refresh < self.refresh
    }

    fn has_room(&mut self, tag: &mut GroupTag<G>) -> bool {
        let found = tag.group.as_ref().and_then(|name| self.find(tag.hash, name));
        tag.found = found.unwrap_or(NIL);
        match found {
            Some(index) => {
                self.set_limits(index, &tag.limits);
                self.groups[index as usize].room() > 0
            }
            None => tag.limits.limits.capacity > 0,
        }
    }

    fn adder_line(&self, tag: &GroupTag<G>) -> u32 {
        match tag.found {
            NIL if tag.limits.limits.capacity > 0 => ANY_ROOM,
            NIL => NO_ROOM,
            index => FIRST_GROUP + index,
        }
    }

    fn join_line(&mut self, line: u32) {
        if let Some(index) = line.checked_sub(FIRST_GROUP) {
            self.groups[index as usize].adders += 1;
        }
    }

    fn leave_line(&mut self, line: u32) {
        if let Some(index) = line.checked_sub(FIRST_GROUP) {
            self.groups[index as usize].adders -= 1;
            self.release(index);
        }
    }

    fn classes_with_room(&mut self, mut each: impl FnMut(u32)) {
        for index in self.roomier.drain(..) {
            self.groups[index as usize].is_roomier = false;
            each(FIRST_GROUP + index);
        }
    }

    fn room(&self, line: u32) -> usize {
        match line {
            ANY_ROOM => usize::MAX,
            NO_ROOM => 0,
            line => self.groups[(line - FIRST_GROUP) as usize].room(),
        }
    }

    #[inline]
    fn merge(&mut self, slot: u32, _: State, tag: &GroupTag<G>) {
        self.set_limits(self.of[slot as usize], &tag.limits);
    }

    fn class(&mut self, tag: &mut GroupTag<G>) -> u32 {
        if tag.found != NIL {
            return tag.found;
        }
        let GroupTag { group: name, hash, limits: GroupLimits { limits, rate }, .. } = tag;
        let Some(new) = name.take() else { unreachable!("`class` is called once for each tag") };
        let index = match self.groups.get_mut(self.free as usize) {
            Some(group) => {
                *name = Some(std::mem::replace(&mut group.name, new));
                let index = self.free;
                self.free = group.next;
                (group.hash, group.limits, group.allowed) = (*hash, *limits, limits.max_leased as usize);
                index
            }
            None => {
                self.groups.push(Group {
                    name: new,
                    hash: *hash,
                    line: List::default(),
                    leased: 0,
                    keys: 0,
                    adders: 0,
                    is_roomier: false,
                    limits: *limits,
                    allowed: limits.max_leased as usize,
                    left: 0,
                    before: NIL,
                    next: NIL,
                });
                self.groups.len() as u32 - 1
            }
        };
        if self.rates.is_some() {
            self.insert_rate(index, *rate);
        }
        let groups = &self.groups;
        self.index.insert_unique(*hash, index, |other| groups[*other as usize].hash);
        index
    }

    fn admit(&mut self, slot: u32, group: u32) {
        let index = slot as usize;
        if index >= self.of.len() {
            self.of.resize(index + 1, NIL);
        }
        self.of[index] = group;
        self.groups[group as usize].keys += 1;
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

    fn vacate(&mut self, slot: u32) {
        let index = self.of[slot as usize];
        self.groups[index as usize].keys -= 1;
        self.note_room(index);
        self.release(index);
    }

    fn take_memory(&mut self) -> Self {
        let mut old = Self::new(false);
        (old.of, old.waits) = (take(&mut self.of), take(&mut self.waits));
        // A group that is kept, or has adders, is left.
        if self.index.is_empty() {
            (old.groups, old.index) = (take(&mut self.groups), take(&mut self.index));
            (old.roomier, self.free) = (take(&mut self.roomier), NIL);
            old.rates = self.rates.as_mut().map(|rates| Box::new(rates.take_memory()));
        }
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
