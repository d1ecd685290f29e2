//! PURE. A FIFO list (line) for each group, and a ring of the groups that are served in weighted round robin.
//!
//! This is deficit round robin (Shreedhar and Varghese 1996) with packets of size one, so no group has a deficit left at the end of its turn.
//!
//! # Invariants
//! 1. Every slot that is not vacant belongs to one group, and is counted in the group's `keys`. A group is in the index exactly when it has keys, or
//!    `adders` that wait for room in it. The records of all other groups are in the free list.
//! 2. A group's line holds its Ready slots, and `leased` counts its leased slots. The number of Ready slots plus `leased` is at most `keys`.
//! 3. A group is in the ring exactly when it has Ready slots, is below its lease limit, and has a token of its rate. A group in the ring has 1 to
//!    `weight` hand-outs left in its turn. (A group may have more leases or keys than its limit allows, if the limit was lowered.)
//! 4. `count` is the number of slots in all lines. Of these slots, `available` can be handed out even if no lease ends and no token arrives, and
//!    `suspended` belong to suspended groups.
//! 5. *Turns.* A group that enters the ring waits for at most as many hand-outs as the sum of the weights of the groups before it: no group has more
//!    hand-outs left than its weight, and a group that enters later is placed at the end.
//! 6. *Room.* The limits of a group come from the last add of one of its keys, even if that add was refused, or from a later refresh. So the check
//!    whether a group has room, and the choice of the adders to wake, use the same limits.
//!
//! 7. *Rates.* See `rates.rs`. If the order has no rates, `rates` is `None`, and `allowed` is the limit of leases in every group. A group that is kept because its
//!    bucket is not full is in the index, too, although it has neither keys nor adders.
//!
//! When a group is removed, its name stays in its record. When another group reuses the record, the old name moves into the tag of the add that
//! created the new group, and is dropped with the tag outside every lock.

mod admission;
mod ready_queue;

use std::cmp::Reverse;
use std::mem::take;

use flyball_ratelimit::Quota;
use flyball_sync::Nanos;
use flyball_sync::panics::drop_each;
use flyball_sync::steps;
use hashbrown::HashTable;

use crate::state::deadlines::Deadlines;
use crate::state::order::fair::{GroupLimits, Limits};
use crate::state::order::rates::{Rates, Supply};
use crate::state::slots::{List, Slab};
use crate::state::slots::{NIL, State};
use crate::state::stats::GroupStats;

/// The line number of the adders that wait for room in the group with index 0. The line numbers of the other groups follow.
const FIRST_GROUP: u32 = 2;
/// The maximum number of kept groups that one operation frees. An operation removes one group at most, so two are enough to keep up.
const FREED_AT_ONCE: usize = 2;

/// Ready keys by group.
#[derive(Debug)]
pub struct Groups<G> {
    groups: Vec<Group<G>>,
    index: HashTable<u32>,
    /// The head of the free list: the records of removed groups, linked through `next`.
    free: u32,
    /// The first group of the ring.
    first: u32,
    last: u32,
    /// The index of each slot's group.
    of: Vec<u32>,
    count: usize,
    available: usize,
    suspended: usize,
    /// The number of the latest refresh of the limits.
    refresh: usize,
    waits: Deadlines,
    /// The groups with adders that may have got room since [`classes_with_room`](crate::state::order::sealed::ReadyQueue::classes_with_room) was called;
    /// each at most once.
    roomier: Vec<u32>,
    /// The number of adders in all groups.
    adders: usize,
    /// `None` if no group has a rate. In a box, because most orders have no rates.
    rates: Option<Box<Rates>>,
}

#[derive(Debug)]
struct Group<G> {
    name: G,
    hash: u64,
    line: List,
    leased: usize,
    keys: usize,
    /// The number of adders that wait for room.
    adders: usize,
    is_roomier: bool,
    limits: Limits,
    /// The number of leased keys up to which keys are handed out now: the limit of leases, or fewer if fewer tokens have arrived.
    allowed: usize,
    /// The number of hand-outs left in this turn; zero if the group is not in the ring.
    left: u32,
    before: u32,
    next: u32,
}

/// Drops each name by itself: two that panic would otherwise abort the process.
impl<G> Drop for Groups<G> {
    fn drop(&mut self) {
        drop_each(take(&mut self.groups).into_iter());
    }
}

impl<G> Group<G> {
    /// Returns how many keys of the group can be handed out even if no lease ends and no token arrives.
    fn share(&self) -> usize {
        self.line.len().min(self.allowed.saturating_sub(self.leased))
    }

    /// Returns how many keys of the group could be handed out even if no lease ends, if the group had no rate.
    fn wanted(&self) -> usize {
        self.line.len().min((self.limits.max_leased as usize).saturating_sub(self.leased))
    }

    /// Returns `allowed` for a number of tokens.
    fn allowed_by(&self, tokens: u32) -> usize {
        self.leased.saturating_add(tokens as usize).min(self.limits.max_leased as usize)
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
            lease_limited: if self.limits.is_suspended() { 0 } else { self.line.len() - self.wanted() },
            rate_limited: self.wanted() - self.share(),
            capacity_left: (self.limits.capacity < usize::MAX).then(|| self.room()),
        }
    }
}

impl<G> Groups<G> {
    /// Creates the order without groups. Without `rated`, no group has a rate.
    pub(crate) fn new(rated: bool) -> Self {
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
            refresh: 0,
            waits: Deadlines::default(),
            roomier: Vec::new(),
            adders: 0,
            rates: rated.then(Box::default),
        }
    }

    /// Appends the statistics of the groups with the most Ready keys to `groups`, at most `most` of them, and returns the sum of the other groups'
    /// statistics. O(groups · log groups).
    ///
    /// The caller passes `groups` in, so that the cloned names are dropped outside every lock, even if a later clone panics.
    pub(crate) fn depths(&self, most: usize, groups: &mut Vec<GroupStats<G>>) -> GroupStats<usize>
    where
        G: Clone,
    {
        let indexed = self.index.iter().map(|index| (*index, &self.groups[*index as usize]));
        let mut used: Vec<_> =
            indexed.inspect(|_| steps::count()).filter(|(_, group)| group.keys > 0).collect();
        // The index orders equal groups, because the order in the hash table differs from run to run.
        used.sort_unstable_by_key(|(index, group)| (Reverse((group.line.len(), group.keys)), *index));
        let others = used.split_off(most.min(used.len()));
        groups.extend(used.into_iter().map(|(_, group)| group.counts(group.name.clone())));
        others.into_iter().map(|(_, group)| group.counts(1)).reduce(GroupStats::and).unwrap_or_default()
    }

    /// Stores the number of a refresh: all limits that were computed before it are now stale. Appends the names of all groups to `names`, which the
    /// caller passes in for the same reason as in [`depths`](Self::depths).
    pub(crate) fn start_refresh(&mut self, refresh: usize, names: &mut Vec<(u64, G)>)
    where
        G: Clone,
    {
        let indexed =
            self.index.iter().inspect(|_| steps::count()).map(|index| &self.groups[*index as usize]);
        names.extend(indexed.map(|group| (group.hash, group.name.clone())));
        self.refresh = self.refresh.max(refresh);
    }

    /// Sets the limits of groups that still exist. If an `Eq` panics, no limit is changed.
    pub(crate) fn limit(&mut self, limits: &[(u64, G, GroupLimits)], refresh: usize)
    where
        G: Eq,
    {
        // A later refresh has started, and will set newer limits.
        if refresh < self.refresh {
            return;
        }
        let mut found = Vec::with_capacity(limits.len());
        for (hash, name, limits) in limits {
            found.extend(self.find(*hash, name).map(|index| (index, limits)));
        }
        found.into_iter().for_each(|(index, limits)| self.set_limits(index, limits));
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
    fn set_limits(&mut self, index: u32, new: &GroupLimits) {
        if self.rates.is_some() {
            self.set_rate(index, new.rate);
        }
        let limits = new.limits;
        if self.groups[index as usize].limits != limits {
            self.change(index, |group| {
                group.limits = limits;
                group.allowed = limits.max_leased as usize;
                group.left = group.left.min(limits.weight);
            });
            self.note_room(index);
        }
    }

    fn group_of(&self, line: u32) -> Option<&Group<G>> {
        self.groups.get(line.checked_sub(FIRST_GROUP)? as usize)
    }

    /// Called when a group may have got room.
    #[inline]
    fn note_room(&mut self, index: u32) {
        let group = &mut self.groups[index as usize];
        if group.adders > 0 && !group.is_roomier {
            group.is_roomier = true;
            self.roomier.push(index);
        }
    }

    /// Creates the bucket of a new group.
    #[inline(never)]
    fn insert_rate(&mut self, index: u32, rate: Option<Quota>) {
        if let Some(rates) = &mut self.rates {
            rates.insert(index, rate);
            let tokens = rates.supply(index, 0);
            let group = &mut self.groups[index as usize];
            group.allowed = group.allowed_by(tokens);
        }
    }

    #[inline(never)]
    fn set_rate(&mut self, index: u32, rate: Option<Quota>) {
        if let Some(rates) = self.rates.as_mut().filter(|rates| rates.rate(index) != rate) {
            rates.set_rate(index, rate);
            self.change(index, |_| ());
        }
    }

    /// Gives groups the tokens that have arrived, in the order of their arrival. Stops after `most` groups if a key can be handed out; the
    /// other groups get their tokens in a later operation. Then frees the records of some groups whose buckets are full again.
    #[inline(never)]
    fn grant_tokens(&mut self, most: &mut usize) {
        while let Some(index) = self.rates.as_ref().and_then(|rates| rates.first_due()) {
            if *most == 0 && self.available > 0 {
                return;
            }
            *most = most.saturating_sub(1);
            self.change(index, |_| ());
        }
        for _ in 0..FREED_AT_ONCE {
            let Some(index) = self.rates.as_mut().and_then(|rates| rates.pop_kept()) else { return };
            self.release(index);
        }
    }

    /// Returns how many keys can be handed out at `now` in addition to the [`available`](Self::available) ones, because their tokens arrive up to then;
    /// and when the next token arrives after `now`. Examines at most `most` + 1 groups whose tokens have arrived. If there are more, the second result
    /// may be wrong.
    fn tokens_up_to(&self, now: Nanos, most: usize) -> (usize, Option<Nanos>) {
        let Some(rates) = &self.rates else { return (0, None) };
        let now = rates.latest(now);
        let (mut keys, mut next) = (0, None);
        for (examined, (at, index)) in rates.lacking().enumerate() {
            if at > now || examined > most {
                next = next.into_iter().chain([at]).min();
                break;
            }
            let group = &self.groups[index as usize];
            let Supply { tokens, next_token } = rates.supply_at(index, group.wanted(), now);
            keys += group.wanted().min(tokens as usize) - group.share();
            next = next.into_iter().chain(next_token).min();
        }
        (keys, next)
    }

    /// Moves the records of all former groups to `old`, if they are most of the records and no group has a key or an adder. Only groups that are kept because
    /// their buckets are not full are left, under new indexes. O(kept groups · log).
    fn move_kept(&mut self, old: &mut Self) {
        if self.adders > 0 {
            return;
        }
        let mut kept: Vec<u32> = self.index.iter().copied().inspect(|_| steps::count()).collect();
        let is_used = |index: &u32| self.groups[*index as usize].is_used();
        if kept.len() * 4 > self.groups.len() || kept.iter().any(is_used) {
            return;
        }
        let mut rates = self.rates.take();
        (old.groups, old.index, old.roomier) =
            (take(&mut self.groups), take(&mut self.index), take(&mut self.roomier));
        old.rates = rates.as_mut().map(|rates| Box::new(rates.take_memory()));
        self.free = NIL;
        // From the last one on, so that the record that fills the gap is that of a former group.
        kept.sort_unstable();
        for from in kept.into_iter().rev() {
            let mut group = old.groups.swap_remove(from as usize);
            group.is_roomier = false;
            let (index, hash) = (self.groups.len() as u32, group.hash);
            if let (Some(rates), Some(old)) = (&mut rates, &mut old.rates) {
                rates.adopt(index, old, from);
            }
            self.groups.push(group);
            let groups = &self.groups;
            self.index.insert_unique(hash, index, |other| groups[*other as usize].hash);
        }
        self.rates = rates;
    }

    /// Returns whether a group can hand out no key at `now`, even if it has one.
    fn holds_back(&self, index: u32, now: Nanos) -> bool {
        let group = &self.groups[index as usize];
        let allowed = self.rates.as_ref().map_or(group.allowed, |rates| {
            // A due key that was not gathered yet is not in the line, so `wanted` may be 0.
            group.allowed_by(rates.supply_at(index, group.wanted().max(1), rates.latest(now)).tokens)
        });
        group.leased >= allowed
    }

    fn is_kept(&self, index: u32) -> bool {
        self.rates.as_ref().is_some_and(|rates| rates.is_kept(index))
    }

    /// Frees the record of a group, unless the group has keys or adders, or is kept because its bucket is not full.
    #[inline]
    fn release(&mut self, index: u32) {
        if !self.groups[index as usize].is_used()
            && !self.rates.as_mut().is_some_and(|rates| rates.keep(index))
        {
            self.free(index);
        }
    }

    fn free(&mut self, index: u32) {
        let free = self.free;
        let group = &mut self.groups[index as usize];
        group.next = free;
        let hash = group.hash;
        self.free = index;
        if let Ok(found) = self.index.find_entry(hash, |&other| other == index) {
            found.remove();
        }
    }

    /// Changes a group, and restores invariants 3 and 4.
    #[inline]
    fn change(&mut self, index: u32, change: impl FnOnce(&mut Group<G>)) {
        let group = &mut self.groups[index as usize];
        self.available -= group.share();
        self.suspended -= group.suspended();
        change(group);
        if let Some(rates) = &mut self.rates {
            group.allowed = group.allowed_by(rates.supply(index, group.wanted()));
        }
        let (share, left, weight) = (group.share(), group.left, group.limits.weight);
        self.available += share;
        self.suspended += group.suspended();
        match (share > 0, left > 0) {
            (true, false) => {
                self.groups[index as usize].left = weight;
                self.enter_ring(index);
            }
            (false, true) => {
                self.groups[index as usize].left = 0;
                self.leave_ring(index);
            }
            _ => {}
        }
    }

    fn enter_ring(&mut self, index: u32) {
        let last = self.last;
        let group = &mut self.groups[index as usize];
        (group.before, group.next) = (last, NIL);
        match last {
            NIL => self.first = index,
            last => self.groups[last as usize].next = index,
        }
        self.last = index;
    }

    fn leave_ring(&mut self, index: u32) {
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

    /// Returns the groups of the ring in the order in which they are served. If the ring is corrupt, the iteration ends early.
    fn ring(&self) -> impl Iterator<Item = u32> {
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

impl<G> Groups<G> {
    pub(super) fn check_groups<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        let in_ring: Vec<u32> = self.ring().collect();
        let (mut count, mut available, mut suspended, mut used) = (0, 0, 0, 0);
        for (index, group) in (0..).zip(&self.groups) {
            group.line.check(slab)?;
            let mine = |slot: &u32| self.of[*slot as usize] == index;
            if !group.line.iter(slab).all(|slot| mine(&slot)) {
                return Err(format!("groups 2: a slot of another group is in line {index}"));
            }
            let keys = slab.iter().filter(|(slot, _)| mine(slot)).count();
            let leased = slab.iter().filter(|(slot, entry)| mine(slot) && entry.state.is_leased()).count();
            if (keys, leased) != (group.keys, group.leased) {
                return Err(format!("groups 1, 2: {keys} keys, {leased} leased in group {index}"));
            }
            let is_indexed = group.is_used() || self.is_kept(index);
            if self.index.find(group.hash, |&other| other == index).is_some() != is_indexed {
                return Err(format!("groups 1: group {index} of {keys} keys"));
            }
            match &self.rates {
                Some(rates) if is_indexed => {
                    rates.check(index, group.wanted(), group.allowed.saturating_sub(group.leased))?
                }
                None if group.allowed != group.limits.max_leased as usize => {
                    return Err(format!("groups 7: group {index} is limited without a rate"));
                }
                _ => {}
            }
            if (group.share() > 0) != in_ring.contains(&index) || (group.left > 0) != (group.share() > 0) {
                return Err(format!("groups 3: group {index} has {} left", group.left));
            }
            count += group.line.len();
            available += group.share();
            suspended += group.suspended();
            used += usize::from(is_indexed);
        }
        self.rates.as_ref().map_or(Ok(()), |rates| rates.check_counts())?;
        let ready = slab.iter().filter(|(_, entry)| entry.state == State::Ready).count();
        if (count, available, suspended) != (self.count, self.available, self.suspended) || ready != count {
            return Err(format!(
                "groups 4: {count} in lines, {available} available, {suspended} suspended, {ready} ready"
            ));
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
