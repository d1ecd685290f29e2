//! PURE. A line for each group, and whose turn it is.
//!
//! Deficit round robin (Shreedhar and Varghese 1996) where every packet is of size one: no deficit is ever left over.
//!
//! # Invariants
//! 1. Every slot that is not vacant belongs to one group, which counts it in `keys`; a group is in the index exactly as
//!    long as it has keys. Groups without keys are in the free list.
//! 2. A group's line holds its Ready slots, `leased` counts its leased ones, and both together are at most its `keys`.
//! 3. A group is in the ring exactly when it has Ready slots and is below its cap; it has 1 to `weight` hand-outs left
//!    then. (A cap that shrank may be exceeded by leases that were there before.)
//! 4. `count` slots are in lines, and `available` of them could be handed out one after the other.
//! 5. *Turns.* From when a group comes into the ring, it waits for at most as many hand-outs as the weights of those
//!    before it add up to: each has at most that many left, and who comes later comes in behind it.
//!
//! A group's name stays in its record when the group is gone, until another takes its place: then the old name goes
//! out with the tag of the add that brought the new one, to die outside every lock.

use flyball_sync::Nanos;
use hashbrown::HashTable;

use crate::state::Transition;
use crate::state::deadlines::Deadlines;
use crate::state::entry::{NIL, State};
use crate::state::list::List;
use crate::state::order::depths::GroupStats;
use crate::state::order::sealed::Links;
use crate::state::slab::Slab;

/// What an add brings: the name of its group, and what is to hold for it.
#[derive(Debug)]
pub struct GroupTag<G> {
    /// `None` once it has become the name of a group.
    pub(super) group: Option<G>,
    pub(super) hash: u64,
    pub(super) weight: u32,
    pub(super) cap: u32,
}

/// Ready keys by group.
#[derive(Debug)]
pub struct Groups<G> {
    groups: Vec<Group<G>>,
    index: HashTable<u32>,
    /// Records without keys, through `next`.
    free: u32,
    /// The groups in turn, from the first to the last.
    first: u32,
    last: u32,
    /// The group of each slot.
    of: Vec<u32>,
    count: usize,
    available: usize,
    waits: Deadlines,
}

#[derive(Debug)]
struct Group<G> {
    name: G,
    hash: u64,
    line: List,
    leased: usize,
    keys: usize,
    weight: u32,
    cap: u32,
    /// Hand-outs left in this turn; zero: not in the ring.
    left: u32,
    before: u32,
    next: u32,
}

impl<G> Group<G> {
    /// How many of its keys could be handed out, if no lease ended.
    fn share(&self) -> usize {
        self.line.len().min((self.cap as usize).saturating_sub(self.leased))
    }

    fn counts<N>(&self, group: N) -> GroupStats<N> {
        GroupStats { group, total: self.keys, ready: self.line.len(), leased: self.leased }
    }
}

impl<G> Groups<G> {
    pub(crate) fn new() -> Self {
        Self {
            groups: Vec::new(),
            index: HashTable::new(),
            free: NIL,
            first: NIL,
            last: NIL,
            of: Vec::new(),
            count: 0,
            available: 0,
            waits: Deadlines::default(),
        }
    }

    /// The `most` deepest groups, and the sum of the others. O(groups).
    ///
    /// `groups` is the caller's, so that clones die outside every lock also when a later one panics.
    pub(crate) fn depths(&self, most: usize, groups: &mut Vec<GroupStats<G>>) -> GroupStats<usize>
    where
        G: Clone,
    {
        let mut used: Vec<_> = self.groups.iter().filter(|group| group.keys > 0).collect();
        used.sort_unstable_by_key(|group| std::cmp::Reverse((group.line.len(), group.keys)));
        let others = used.split_off(most.min(used.len()));
        groups.extend(used.into_iter().map(|group| group.counts(group.name.clone())));
        let mut sum = GroupStats { group: others.len(), total: 0, ready: 0, leased: 0 };
        for group in others {
            sum.total += group.keys;
            sum.ready += group.line.len();
            sum.leased += group.leased;
        }
        sum
    }

    #[inline]
    fn group(&mut self, slot: u32) -> (u32, &mut Group<G>) {
        let index = self.of[slot as usize];
        (index, &mut self.groups[index as usize])
    }

    /// Changes a group, and what follows from it: invariants 3 and 4.
    #[inline]
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Group<G>)) {
        let group = &mut self.groups[index as usize];
        self.available -= group.share();
        change(group);
        let (share, left, weight) = (group.share(), group.left, group.weight);
        self.available += share;
        match (share > 0, left > 0) {
            (true, false) => {
                self.groups[index as usize].left = weight;
                self.come_in(index);
            }
            (false, true) => {
                self.groups[index as usize].left = 0;
                self.go_out(index);
            }
            _ => {}
        }
    }

    fn come_in(&mut self, index: u32) {
        let last = self.last;
        let group = &mut self.groups[index as usize];
        (group.before, group.next) = (last, NIL);
        match last {
            NIL => self.first = index,
            last => self.groups[last as usize].next = index,
        }
        self.last = index;
    }

    fn go_out(&mut self, index: u32) {
        let Group { before, next, .. } = self.groups[index as usize];
        match before {
            NIL => self.first = next,
            before => self.groups[before as usize].next = next,
        }
        match next {
            NIL => self.last = before,
            next => self.groups[next as usize].before = before,
        }
    }

    /// The groups in turn, from the first. A broken ring ends early.
    fn in_turn(&self) -> impl Iterator<Item = u32> {
        let mut next = self.first;
        let mut left = self.groups.len();
        std::iter::from_fn(move || {
            let here = next;
            left = left.checked_sub(1)?;
            next = self.groups.get(here as usize)?.next;
            Some(here)
        })
    }
}

impl<G: Eq + Send + 'static> Links for Groups<G> {
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
    fn wait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, turn: u32) {
        self.waits.push(slab, slot, at, turn);
    }

    #[inline]
    fn unwait<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.waits.remove(slab, slot);
    }

    #[inline]
    fn rewait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, turn: u32) {
        self.waits.set(slab, slot, at, turn);
    }

    /// `Eq` may panic, and then nothing has changed.
    fn class(&mut self, tag: &mut GroupTag<G>) -> u32 {
        let GroupTag { group: name, hash, weight, cap } = tag;
        let groups = &self.groups;
        let is_it = |index: &u32| {
            let group = &groups[*index as usize];
            group.hash == *hash && Some(&group.name) == name.as_ref()
        };
        if let Some(&index) = self.index.find(*hash, is_it) {
            self.change(index, |group| {
                (group.weight, group.cap) = (*weight, *cap);
                group.left = group.left.min(*weight);
            });
            return index;
        }
        let Some(new) = name.take() else { unreachable!("an add brings its group once") };
        let index = match self.groups.get_mut(self.free as usize) {
            Some(group) => {
                *name = Some(std::mem::replace(&mut group.name, new));
                let index = self.free;
                self.free = group.next;
                (group.hash, group.weight, group.cap) = (*hash, *weight, *cap);
                index
            }
            None => {
                self.groups.push(Group {
                    name: new,
                    hash: *hash,
                    line: List::default(),
                    leased: 0,
                    keys: 0,
                    weight: *weight,
                    cap: *cap,
                    left: 0,
                    before: NIL,
                    next: NIL,
                });
                self.groups.len() as u32 - 1
            }
        };
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

    /// Its last hand-out in this turn sends a group to the end of the ring.
    #[inline]
    fn begin(&mut self, slot: u32) {
        let index = self.of[slot as usize];
        self.change(index, |group| group.leased += 1);
        let group = &mut self.groups[index as usize];
        if group.left > 1 {
            group.left -= 1;
        } else if group.left == 1 {
            group.left = group.weight;
            self.go_out(index);
            self.come_in(index);
        }
    }

    #[inline]
    fn end(&mut self, slot: u32, _: Transition) {
        self.change(self.of[slot as usize], |group| group.leased -= 1);
    }

    fn vacate(&mut self, slot: u32) {
        let free = self.free;
        let (index, group) = self.group(slot);
        group.keys -= 1;
        if group.keys > 0 {
            return;
        }
        group.next = free;
        let hash = group.hash;
        self.free = index;
        if let Ok(found) = self.index.find_entry(hash, |&other| other == index) {
            found.remove();
        }
    }

    fn linked<K>(&self, slab: &Slab<K>) -> Vec<u32> {
        self.groups.iter().flat_map(|group| group.line.iter(slab)).collect()
    }

    /// As if no lease ended meanwhile; what no turn reaches then comes last. What is due was gathered before.
    fn slots<K>(&self, slab: &Slab<K>, _: Nanos, _: Nanos) -> Vec<u32> {
        let mut slots = Vec::with_capacity(self.count);
        let mut lines: Vec<_> = self.groups.iter().map(|group| group.line.iter(slab)).collect();
        let mut ring: std::collections::VecDeque<_> = self
            .in_turn()
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
                ring.push_back((index, self.groups[index as usize].weight, share - turn));
            }
        }
        lines.into_iter().for_each(|line| slots.extend(line));
        slots
    }

    fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        self.waits.check(slab)?;
        let in_ring: Vec<u32> = self.in_turn().collect();
        let (mut count, mut available, mut used) = (0, 0, 0);
        for (index, group) in (0..).zip(&self.groups) {
            group.line.check(slab)?;
            let mine = |slot: &u32| self.of[*slot as usize] == index;
            if !group.line.iter(slab).all(|slot| mine(&slot)) {
                return Err(format!("groups 2: a stranger in line {index}"));
            }
            let keys = slab.iter().filter(|(slot, _)| mine(slot)).count();
            let leased = slab.iter().filter(|(slot, entry)| mine(slot) && entry.state.is_leased()).count();
            if (keys, leased) != (group.keys, group.leased) {
                return Err(format!("groups 1, 2: {keys} keys, {leased} leased in group {index}"));
            }
            if self.index.find(group.hash, |&other| other == index).is_some() != (keys > 0) {
                return Err(format!("groups 1: group {index} of {keys} keys"));
            }
            if (group.share() > 0) != in_ring.contains(&index) || (group.left > 0) != (group.share() > 0) {
                return Err(format!("groups 3: group {index} has {} left", group.left));
            }
            count += group.line.len();
            available += group.share();
            used += usize::from(keys > 0);
        }
        let ready = slab.iter().filter(|(_, entry)| entry.state == State::Ready).count();
        if (count, available) != (self.count, self.available) || ready != count {
            return Err(format!("groups 4: {count} in lines, {available} available, {ready} ready"));
        }
        let mut free = 0;
        let mut next = self.free;
        while let Some(group) = self.groups.get(next as usize).filter(|_| free <= self.groups.len()) {
            free += 1;
            next = group.next;
        }
        if used != self.index.len() || used + free != self.groups.len() {
            return Err(format!("groups 1: {used} used and {free} free of {}", self.groups.len()));
        }
        Ok(())
    }
}
