//! PURE. The order of keys with priorities: a FIFO list (line) for each priority.
//!
//! # Priorities of a key
//! A key has its *own* priority, and a priority that it is *queued with*, which an add may raise for one hand-out. While the key is leased, adds set
//! a *requested* priority:
//!
//! | | own | queued with | requested |
//! |---|---|---|---|
//! | add of an absent key at p | p | p | – |
//! | add of a Ready or waiting key at p | = | the higher of the two | – |
//! | add of a leased key at p | = | = | p, or the higher of the two |
//! | `set_priority` to p | p | p | p, where there is one |
//! | lease ends with [`Transition::Leave`] | the requested one, if the key was added meanwhile; else the key leaves | the same | – |
//! | lease ends with [`Transition::Wait`] or [`Transition::Ready`] | = | the higher of own and requested | – |
//! | lease ends with [`Transition::NotBegun`] | = | the higher of queued with and requested | – |
//! | `cancel` of a leased key | = | = | – |
//!
//! So a raise lasts for one hand-out: unless the transition is `NotBegun`, the end of a lease discards the priority that the key was queued with.
//!
//! # Positions of a key
//! A key that becomes Ready is appended to the line of its priority. A key that is raised while it is Ready keeps that position, and gets a second
//! one at the end of the higher level: it is handed out as soon as one of its two positions is next. So **no add and no raise ever postpones a key**.
//! When a key is lowered, it keeps the position that it got when it became Ready, unless this position is at a level above the new priority. In that
//! case the key moves to the end of the line of its new priority.
//!
//! Rejected: to move a raised key to the end of the higher level. If the line there is long, the key may be served earlier at its old position,
//! because its old level may be owed a hand-out ([`Credits`]). Which of the two positions is served earlier depends on future adds.
//!
//! # Invariants
//! 1. A Ready slot is in the line of its position's level, and a waiting slot is in the heap of that level. `count` is the number of slots in all
//!    lines. No two levels have the same priority; the levels are sorted from the highest to the lowest.
//! 2. Sequence numbers ascend within each line, and within the second positions of each level. If a level has second positions, the first of them is
//!    valid.
//! 3. A slot has a `requested` priority exactly when it is leased and its key was added again during the lease.
//! 4. The `top` of a Ready or waiting slot equals the slot's priority. At the level of that priority, the slot is in the line or the heap, or has a
//!    valid second position. Only slots that are Ready, or whose deadline has passed, have valid second positions.
//! 5. A level's `ready` is the number of slots, in the lines of all levels, that are queued with the priority of this level.
//! 6. `due` holds exactly the waiting slots that have a valid second position, ordered by deadline.

use std::collections::BTreeSet;
use std::num::NonZeroU32;

use flyball_sync::Nanos;

use crate::state::deadlines::Deadlines;
use crate::state::order::credits::Credits;
use crate::state::order::level::{Level, Position, RaisedPosition};
use crate::state::order::sealed::{Admission, ReadyQueue};
use crate::state::slots::Slab;
use crate::state::slots::State;
use crate::state::types::Transition;

/// The Ready keys by priority, and the waiting keys.
#[derive(Debug)]
pub struct Levels {
    /// The levels that were ever in use: at most 256.
    levels: Vec<Level>,
    credits: Credits,
    /// The position of each slot.
    positions: Vec<Position>,
    /// The keys that were raised after their deadline had passed, and have not been handed out. If the clock jumps back, or a thread passes an older
    /// time, some of these keys are no longer due.
    due: BTreeSet<(Nanos, u32)>,
    count: usize,
    sequence: u64,
}

impl Levels {
    pub(crate) fn new(share: Option<NonZeroU32>) -> Self {
        let (levels, positions, due) = (Vec::new(), Vec::new(), BTreeSet::new());
        Self { levels, credits: Credits::new(share), positions, due, count: 0, sequence: 0 }
    }

    /// Returns the priority of the next run of a key. For a leased key that was not added again, this is the priority of its lease.
    pub(crate) fn priority(&self, slot: u32) -> i8 {
        let position = self.positions[slot as usize];
        position.requested.unwrap_or(position.priority)
    }

    /// Returns whether a Ready key has its position at a level above `priority`. If so, the key must leave that position when it is lowered to
    /// `priority`.
    pub(crate) fn is_positioned_above(&self, slot: u32, priority: i8) -> bool {
        self.positions[slot as usize].level > priority
    }

    /// Sets the priority of a key in any state. A waiting key whose deadline has passed must not be [positioned above](Self::is_positioned_above)
    /// `priority`.
    pub(crate) fn set_priority<K>(
        &mut self,
        slab: &mut Slab<K>,
        slot: u32,
        priority: i8,
        now: Nanos,
        by: Nanos,
    ) {
        let old = self.positions[slot as usize].priority;
        let in_line = slab.get(slot).state == State::Ready;
        if priority < old && in_line && self.is_positioned_above(slot, priority) {
            self.unlink(slab, slot);
            self.assign(slot, priority);
            self.join(slab, slot, now);
            return;
        }
        self.change(slot, in_line, priority);
        self.assign(slot, priority);
        if priority < old {
            self.forget_due(slab, slot);
            self.invalidate(slot);
        }
        self.reposition(slab, slot, now, by);
    }

    /// Sets the priorities of a key, and does not change its positions.
    pub(crate) fn assign(&mut self, slot: u32, priority: i8) {
        let position = &mut self.positions[slot as usize];
        (position.own, position.priority) = (priority, priority);
        position.requested = position.requested.map(|_| priority);
    }

    /// Sets the time at which a key took its position. Called for a key that has just become Ready.
    pub(crate) fn set_since(&mut self, slot: u32, now: Nanos) {
        self.positions[slot as usize].since = now;
    }

    /// Returns the number of Ready keys of each level. O(levels + deadlines that have passed).
    pub(crate) fn depths<K>(&self, slab: &Slab<K>, by: Nanos) -> Vec<(i8, usize)> {
        let mut depths: Vec<_> = self.levels.iter().map(|level| (level.priority, level.ready)).collect();
        for due in self.levels.iter().flat_map(|level| level.waits.due(by, usize::MAX)) {
            debug_assert_eq!(slab.get(due).state, State::Waiting, "deadlines 2");
            depths[self.index(self.positions[due as usize].priority)].1 += 1;
        }
        depths.retain(|(_, ready)| *ready > 0);
        depths
    }

    /// Returns the index of the level of a priority, or the index at which to insert it.
    #[inline]
    fn index(&self, priority: i8) -> usize {
        self.levels.partition_point(|level| level.priority > priority)
    }

    /// Returns the level of a priority, creating it if necessary.
    #[inline]
    fn level(&mut self, priority: i8) -> &mut Level {
        let at = self.index(priority);
        if self.levels.get(at).is_none_or(|level| level.priority != priority) {
            self.levels.insert(at, Level::new(priority));
            self.credits.insert(at);
        }
        &mut self.levels[at]
    }

    #[inline]
    fn next_sequence(&mut self) -> u64 {
        self.sequence += 1;
        self.sequence
    }

    /// Appends a slot to the line of its priority.
    #[inline]
    fn join<K>(&mut self, slab: &mut Slab<K>, slot: u32, since: Nanos) {
        let sequence = self.next_sequence();
        let position = &mut self.positions[slot as usize];
        let priority = position.priority;
        (position.sequence, position.since, position.level, position.top) =
            (sequence, since, priority, priority);
        self.count += 1;
        let level = self.level(priority);
        level.ready += 1;
        level.line.push(slab, slot);
    }

    /// Changes the priority that a slot is queued with.
    fn change(&mut self, slot: u32, in_line: bool, priority: i8) {
        let old = std::mem::replace(&mut self.positions[slot as usize].priority, priority);
        if in_line {
            self.level(old).ready -= 1;
            self.level(priority).ready += 1;
        }
    }

    /// If a waiting slot has second positions, removes the slot from `due`. Called before these positions become invalid.
    #[inline]
    fn forget_due<K>(&mut self, slab: &Slab<K>, slot: u32) {
        let Position { level, top, .. } = self.positions[slot as usize];
        if top > level {
            self.due.remove(&(slab.get(slot).at, slot));
        }
    }

    /// Invalidates the second positions of a slot.
    #[inline]
    fn invalidate(&mut self, slot: u32) {
        let sequence = self.next_sequence();
        let position = &mut self.positions[slot as usize];
        let (level, top) = (position.level, std::mem::replace(&mut position.top, position.level));
        position.valid_from = sequence;
        if top > level {
            for between in self.levels.iter_mut().filter(|own| own.priority > level && own.priority <= top) {
                between.clean(&self.positions);
            }
        }
    }
}

impl Admission for Levels {
    type Tag = i8;
    type Class = i8;

    fn class(&mut self, priority: &mut i8) -> i8 {
        *priority
    }

    fn admit(&mut self, slot: u32, priority: i8) {
        let index = slot as usize;
        if index >= self.positions.len() {
            self.positions.resize(index + 1, Position::default());
        }
        // A new `valid_from` invalidates the second positions of the key that had this slot before.
        let valid_from = self.next_sequence();
        self.positions[index] = Position { priority, own: priority, valid_from, ..Position::default() };
    }
}

impl ReadyQueue for Levels {
    const GATHERS: bool = false;
    const RAISES: bool = true;

    /// The index of the level that is served.
    type Pick = usize;

    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn next<K>(&self, _: &Slab<K>, now: Nanos, by: impl FnOnce() -> Nanos) -> Option<(u32, usize)> {
        let by = by();
        let level = self.credits.next(|level| self.levels[level].is_ready(by))?;
        let slot = self.levels[level].head(&self.positions, now, by)?;
        Some((slot, level))
    }

    #[inline]
    fn on_hand_out(&mut self, level: usize, by: impl FnOnce() -> Nanos) {
        let by = by();
        self.credits.on_hand_out(level, |level| self.levels[level].is_ready(by));
    }

    fn heads(&self, now: Nanos, by: Nanos) -> impl Iterator<Item = u32> {
        self.levels.iter().filter_map(move |level| level.head_of_line(&self.positions, now, by))
    }

    #[inline]
    fn heaps(&self) -> impl Iterator<Item = &Deadlines> {
        self.levels.iter().map(|level| &level.waits)
    }

    fn heaps_mut(&mut self) -> impl Iterator<Item = &mut Deadlines> {
        self.levels.iter_mut().map(|level| &mut level.waits)
    }

    fn wait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        let position = &mut self.positions[slot as usize];
        let priority = position.priority;
        (position.level, position.top) = (priority, priority);
        self.level(priority).waits.push(slab, slot, at, sequence);
    }

    fn unwait<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.forget_due(slab, slot);
        self.level(self.positions[slot as usize].level).waits.remove(slab, slot);
        self.invalidate(slot);
    }

    fn rewait<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        let Position { level, priority, .. } = self.positions[slot as usize];
        if level == priority {
            self.level(level).waits.set(slab, slot, at, sequence);
        } else {
            self.unwait(slab, slot);
            self.wait(slab, slot, at, sequence);
        }
    }

    fn merge(&mut self, slot: u32, state: State, priority: &i8) {
        let position = &mut self.positions[slot as usize];
        if state.is_leased() {
            position.requested =
                Some(position.requested.map_or(*priority, |requested| requested.max(*priority)));
        } else if *priority > position.priority {
            self.change(slot, state == State::Ready, *priority);
        }
    }

    fn reposition<K>(&mut self, slab: &mut Slab<K>, slot: u32, now: Nanos, by: Nanos) {
        let Position { level, top, priority, .. } = self.positions[slot as usize];
        if priority == top {
            return;
        }
        let entry = slab.get(slot);
        let at = entry.at;
        match entry.state {
            State::Waiting if at > by => {
                let sequence = self.level(level).waits.sequence(slab, slot);
                self.rewait(slab, slot, at, sequence);
            }
            state @ (State::Waiting | State::Ready) => {
                if state == State::Waiting {
                    self.due.insert((at, slot));
                }
                let sequence = self.next_sequence();
                self.positions[slot as usize].top = priority;
                self.level(priority);
                let index = self.index(priority);
                self.levels[index].raise(RaisedPosition { slot, sequence, since: now }, &self.positions);
            }
            _ => {}
        }
    }

    fn clock_jumped_back<K>(&mut self, slab: &mut Slab<K>, by: Nanos) {
        while let Some(&(at, slot)) = self.due.last().filter(|(at, _)| *at > by) {
            let sequence = self.level(self.positions[slot as usize].level).waits.sequence(slab, slot);
            self.unwait(slab, slot);
            self.wait(slab, slot, at, sequence);
        }
    }

    #[inline]
    fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        self.join(slab, slot, slab.get(slot).at);
    }

    #[inline]
    fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let Position { level, priority, .. } = self.positions[slot as usize];
        self.count -= 1;
        self.level(priority).ready -= 1;
        self.level(level).line.unlink(slab, slot);
        self.invalidate(slot);
    }

    fn end(&mut self, slot: u32, transition: Transition) {
        let position = &mut self.positions[slot as usize];
        let requested = position.requested.take();
        position.priority = match transition {
            Transition::Leave => requested.unwrap_or(position.own),
            Transition::Wait(_) | Transition::Ready => requested.unwrap_or(position.own).max(position.own),
            Transition::NotBegun => requested.unwrap_or(position.priority).max(position.priority),
        };
        if transition == Transition::Leave {
            position.own = position.priority;
        }
    }

    fn unmark(&mut self, slot: u32) {
        self.positions[slot as usize].requested = None;
    }

    fn take_memory(&mut self) -> Self {
        let mut old = Self::new(None);
        old.positions = std::mem::take(&mut self.positions);
        old.levels = self.levels.iter_mut().map(Level::take_memory).collect();
        old
    }

    fn linked<K>(&self, slab: &Slab<K>) -> Vec<u32> {
        self.levels.iter().flat_map(|level| level.line.iter(slab)).collect()
    }

    fn slots<K>(&self, slab: &Slab<K>, now: Nanos, by: Nanos) -> Vec<u32> {
        let mut lines: Vec<_> =
            self.levels.iter().map(|level| level.slots(slab, &self.positions, by, now)).collect();
        let mut credits = self.credits.clone();
        let mut taken = vec![false; self.positions.len()];
        let mut slots = Vec::with_capacity(self.count);
        loop {
            for line in &mut lines {
                while line.front().is_some_and(|slot| taken[*slot as usize]) {
                    line.pop_front();
                }
            }
            let Some(level) = credits.next(|level| !lines[level].is_empty()) else { return slots };
            credits.on_hand_out(level, |level| !lines[level].is_empty());
            if let Some(slot) = lines[level].pop_front() {
                taken[slot as usize] = true;
                slots.push(slot);
            }
        }
    }

    fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        if self.levels.windows(2).any(|pair| pair[0].priority <= pair[1].priority) {
            return Err("levels 1: the levels are not sorted".into());
        }
        self.credits.check(self.levels.len())?;
        for level in &self.levels {
            level.check(slab, &self.positions, self.sequence)?;
            let queued = |slot: &u32| self.positions[*slot as usize].priority == level.priority;
            if self.linked(slab).iter().filter(|slot| queued(slot)).count() != level.ready {
                return Err(format!("levels 5: {} is the wrong count at {}", level.ready, level.priority));
            }
        }
        if self.linked(slab).len() != self.count {
            return Err(format!("levels 1: {} is the wrong count of all lines", self.count));
        }
        let mut raised_due = 0;
        for (slot, entry) in slab.iter() {
            let position = self.positions[slot as usize];
            let dirty = matches!(entry.state, State::LeasedDirty | State::LeasedWaiting);
            if position.requested.is_some() != dirty {
                return Err(format!("levels 3: slot {slot} is {:?}", entry.state));
            }
            let second = |at: i8| {
                let own = |raised: &&RaisedPosition| raised.slot == slot && raised.is_valid(&self.positions);
                self.levels.get(self.index(at)).map_or(0, |level| level.raised.iter().filter(own).count())
            };
            let at_top = if position.top == position.level { 0 } else { 1 };
            let queued = matches!(entry.state, State::Ready | State::Waiting);
            if queued && (position.top != position.priority || second(position.top) != at_top) {
                return Err(format!("levels 4: slot {slot} is at {} and {}", position.level, position.top));
            }
            let due = entry.state == State::Waiting && position.top > position.level;
            if self.due.contains(&(entry.at, slot)) != due {
                return Err(format!("levels 6: slot {slot} is {:?} at {:?}", entry.state, entry.at));
            }
            raised_due += usize::from(due);
        }
        if raised_due != self.due.len() {
            return Err(format!("levels 6: {raised_due} were due and raised, not {}", self.due.len()));
        }
        Ok(())
    }
}
