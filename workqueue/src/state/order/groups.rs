//! PURE. A line for each group, and whose turn it is.
//!
//! Deficit round robin (Shreedhar and Varghese 1996) where every packet is of size one: no deficit is ever left over.
//!
//! # Invariants
//! 1. Every slot that is not vacant belongs to one group, which counts it in `keys`; a group is in the index exactly as
//!    long as it has keys, or `adders` that wait for room in it. The others are in the free list.
//! 2. A group's line holds its Ready slots, `leased` counts its leased ones, and both together are at most its `keys`.
//! 3. A group is in the ring exactly when it has Ready slots and is below its limit of leases; it has 1 to `weight` hand-outs left
//!    then. (A limit that shrank may be exceeded by leases, or keys, that were there before.)
//! 4. `count` slots are in lines, `available` of them could be handed out one after the other, and `suspended` of them are of
//!    groups of which nothing is handed out.
//! 5. *Turns.* From when a group comes into the ring, it waits for at most as many hand-outs as the weights of those
//!    before it add up to: each has at most that many left, and who comes later comes in behind it.
//!
//! 6. *Room.* The limits of a group are those that the last add for it brought, refused or not, or those it was given since: so
//!    who finds no room in a group, and who is to be woken for room there, is decided by the same number.
//!
//! A group's name stays in its record when the group is gone, until another takes its place: then the old name goes
//! out with the tag of the add that brought the new one, to die outside every lock.

mod check;

use flyball_sync::Nanos;
use hashbrown::HashTable;

use crate::state::Transition;
use crate::state::deadlines::Deadlines;
use crate::state::entry::{NIL, State};
use crate::state::list::List;
use crate::state::order::depths::GroupStats;
use crate::state::order::limits::{GroupTag, Limits};
use crate::state::order::sealed::Links;
use crate::state::order::{ANY_ROOM, NO_ROOM};
use crate::state::slab::Slab;

/// Lines of adders from this one on are of groups.
const FIRST_GROUP: u32 = 2;

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
    suspended: usize,
    /// So often limits were asked again.
    asked: usize,
    waits: Deadlines,
}

#[derive(Debug)]
struct Group<G> {
    name: G,
    hash: u64,
    line: List,
    leased: usize,
    keys: usize,
    /// Who waits for room.
    adders: usize,
    limits: Limits,
    /// Hand-outs left in this turn; zero: not in the ring.
    left: u32,
    before: u32,
    next: u32,
}

impl<G> Group<G> {
    /// How many of its keys could be handed out, if no lease ended.
    fn share(&self) -> usize {
        self.line.len().min((self.limits.max_leased as usize).saturating_sub(self.leased))
    }

    fn suspended(&self) -> usize {
        if self.limits.is_suspended() { self.line.len() } else { 0 }
    }

    fn room(&self) -> usize {
        self.limits.capacity.saturating_sub(self.keys)
    }

    fn is_used(&self) -> bool {
        self.keys + self.adders > 0
    }

    fn counts<N>(&self, group: N) -> GroupStats<N> {
        GroupStats {
            group,
            total: self.keys,
            ready: self.line.len(),
            leased: self.leased,
            suspended: self.suspended(),
            capacity_left: (self.limits.capacity < usize::MAX).then(|| self.room()),
        }
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
            suspended: 0,
            asked: 0,
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
        others.into_iter().map(|group| group.counts(1)).reduce(GroupStats::and).unwrap_or_default()
    }

    /// Counts a call to ask for all limits again: what was asked before is stale. The names of all groups go to `names`, the
    /// caller's, as in [`depths`](Self::depths).
    pub(crate) fn ask_again(&mut self, asked: usize, names: &mut Vec<(u64, G)>)
    where
        G: Clone,
    {
        let used = self.groups.iter().filter(|group| group.is_used());
        names.extend(used.map(|group| (group.hash, group.name.clone())));
        self.asked = self.asked.max(asked);
    }

    /// Gives groups their limits, if they are still there. `Eq` may panic, and then nothing has changed.
    pub(crate) fn limit(&mut self, limits: &[(u64, G, Limits)], asked: usize)
    where
        G: Eq,
    {
        // Another call has asked after this one, and brings what is newer.
        if asked < self.asked {
            return;
        }
        let find = |(hash, name, limits): &(u64, G, Limits)| Some((self.find(*hash, name)?, *limits));
        let found: Vec<_> = limits.iter().filter_map(find).collect();
        found.into_iter().for_each(|(index, limits)| self.bring(index, limits));
    }

    fn find(&self, hash: u64, name: &G) -> Option<u32>
    where
        G: Eq,
    {
        let is_it = |index: &u32| {
            let group = &self.groups[*index as usize];
            group.hash == hash && group.name == *name
        };
        self.index.find(hash, is_it).copied()
    }

    #[inline]
    fn bring(&mut self, index: u32, limits: Limits) {
        if self.groups[index as usize].limits != limits {
            self.change(index, |group| {
                group.limits = limits;
                group.left = group.left.min(limits.weight);
            });
        }
    }

    /// Frees the record of a group that is not used any more.
    fn release(&mut self, index: u32) {
        let free = self.free;
        let group = &mut self.groups[index as usize];
        if group.is_used() {
            return;
        }
        group.next = free;
        let hash = group.hash;
        self.free = index;
        if let Ok(found) = self.index.find_entry(hash, |&other| other == index) {
            found.remove();
        }
    }

    /// Changes a group, and what follows from it: invariants 3 and 4.
    #[inline]
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Group<G>)) {
        let group = &mut self.groups[index as usize];
        self.available -= group.share();
        self.suspended -= group.suspended();
        change(group);
        let (share, left, weight) = (group.share(), group.left, group.limits.weight);
        self.available += share;
        self.suspended += group.suspended();
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
    fn suspended(&self) -> usize {
        self.suspended
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

    #[inline]
    fn is_stale(&self, tag: &GroupTag<G>) -> bool {
        tag.asked < self.asked
    }

    fn has_room(&mut self, tag: &mut GroupTag<G>) -> bool {
        let found = tag.group.as_ref().and_then(|name| self.find(tag.hash, name));
        tag.found = found.unwrap_or(NIL);
        match found {
            Some(index) => {
                self.bring(index, tag.limits);
                self.groups[index as usize].room() > 0
            }
            None => tag.limits.capacity > 0,
        }
    }

    fn adder_line(&self, tag: &GroupTag<G>) -> u32 {
        match tag.found {
            NIL if tag.limits.capacity > 0 => ANY_ROOM,
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

    fn room(&self, line: u32) -> usize {
        match line {
            ANY_ROOM => usize::MAX,
            NO_ROOM => 0,
            line => self.groups[(line - FIRST_GROUP) as usize].room(),
        }
    }

    #[inline]
    fn merge(&mut self, slot: u32, _: State, tag: &GroupTag<G>) {
        self.bring(self.of[slot as usize], tag.limits);
    }

    fn class(&mut self, tag: &mut GroupTag<G>) -> u32 {
        if tag.found != NIL {
            return tag.found;
        }
        let GroupTag { group: name, hash, limits, .. } = tag;
        let Some(new) = name.take() else { unreachable!("an add brings its group once") };
        let index = match self.groups.get_mut(self.free as usize) {
            Some(group) => {
                *name = Some(std::mem::replace(&mut group.name, new));
                let index = self.free;
                self.free = group.next;
                (group.hash, group.limits) = (*hash, *limits);
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
                    limits: *limits,
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
            group.left = group.limits.weight;
            self.go_out(index);
            self.come_in(index);
        }
    }

    #[inline]
    fn end(&mut self, slot: u32, _: Transition) {
        self.change(self.of[slot as usize], |group| group.leased -= 1);
    }

    fn vacate(&mut self, slot: u32) {
        let index = self.of[slot as usize];
        self.groups[index as usize].keys -= 1;
        self.release(index);
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
