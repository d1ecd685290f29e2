//! PURE. The keys of one priority: its line of Ready keys, the keys that were raised to it, and its waiting keys.

use std::collections::VecDeque;

use flyball_sync::Nanos;

use crate::state::deadlines::Deadlines;
use crate::state::slots::State;
use crate::state::slots::{List, Slab};

/// The keys of one priority.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) priority: i8,
    pub(super) line: List,
    /// The second positions of keys that were raised to this level while they were Ready, in the order of the raises. Some may be invalid, but not
    /// the first one.
    pub(super) raised: VecDeque<RaisedPosition>,
    /// The waiting keys of this priority.
    pub(super) waits: Deadlines,
    /// The number of Ready slots with this priority, whichever level's line contains them.
    pub(super) ready: usize,
}

/// The second position of a key that was raised while it was Ready.
#[derive(Clone, Copy, Debug)]
pub(super) struct RaisedPosition {
    pub(super) slot: u32,
    pub(super) sequence: u64,
    pub(super) since: Nanos,
}

/// The priorities and the position of a key.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Position {
    /// The number of the key's position in its line. Positions are numbered in the order in which they were taken.
    pub(super) sequence: u64,
    /// The time at which the key took its position.
    pub(super) since: Nanos,
    /// The key's second positions with a lower sequence number than this are invalid.
    pub(super) valid_from: u64,
    /// The priority of the level whose line or heap contains the key.
    pub(super) level: i8,
    /// The priority of the highest level at which the key has a position.
    pub(super) top: i8,
    /// The priority with which the key is queued, or, if it is leased, was handed out.
    pub(super) priority: i8,
    /// The key's own priority, with which it is retried or requeued.
    pub(super) own: i8,
    /// The highest priority with which the leased key was added again; `None` if it was not added again.
    pub(super) requested: Option<i8>,
}

/// The rank of a key at its level: its sequence number, the time at which it took its position, and its slot.
type Rank = (u64, Nanos, u32);

impl Level {
    pub(super) fn new(priority: i8) -> Self {
        Self {
            priority,
            line: List::default(),
            raised: VecDeque::new(),
            waits: Deadlines::default(),
            ready: 0,
        }
    }

    /// Moves the memory out of a level without keys.
    pub(super) fn take_memory(&mut self) -> Self {
        let priority = self.priority;
        std::mem::replace(self, Self::new(priority))
    }

    /// Returns whether the level has a Ready key.
    #[inline]
    pub(super) fn is_ready(&self, by: Nanos) -> bool {
        self.line.len() > 0 || !self.raised.is_empty() || self.waits.has_passed(by)
    }

    /// Returns the key that has been Ready at this level for the longest time.
    #[inline]
    pub(super) fn head(&self, positions: &[Position], now: Nanos, by: Nanos) -> Option<u32> {
        let line = self.line.front().map(|slot| rank(positions, slot));
        self.or_due(first(line, self.raised.front().map(RaisedPosition::rank)), now, by)
    }

    /// Like [`head`](Self::head), but ignores the keys that were raised to this level.
    pub(super) fn head_of_line(&self, positions: &[Position], now: Nanos, by: Nanos) -> Option<u32> {
        self.or_due(self.line.front().map(|slot| rank(positions, slot)), now, by)
    }

    #[inline]
    fn or_due(&self, first: Option<Rank>, now: Nanos, by: Nanos) -> Option<u32> {
        if self.waits.len() == 0 {
            return first.map(|(.., slot)| slot);
        }
        match (first, self.waits.first().filter(|(at, _)| *at <= by)) {
            (Some((_, since, slot)), Some((at, _))) if goes_before(since, at, now) => Some(slot),
            (_, Some((_, due))) => Some(due),
            (first, None) => first.map(|(.., slot)| slot),
        }
    }

    /// Returns all Ready keys of the level, including those raised to it, in the order of hand-out.
    ///
    /// If the clock has jumped back, the deadline of a raised key may be after `by`, although it had passed when the key was raised. Such a key is
    /// not Ready, and is left out.
    pub(super) fn slots<K>(
        &self,
        slab: &Slab<K>,
        positions: &[Position],
        by: Nanos,
        now: Nanos,
    ) -> VecDeque<u32> {
        let mut line = self.line.iter(slab).map(|slot| rank(positions, slot)).peekable();
        let at = |slot: &u32| slab.get(*slot).at;
        let is_ready = |slot: &u32| slab.get(*slot).state == State::Ready || at(slot) <= by;
        let mut raised = self
            .raised
            .iter()
            .filter(|raised| raised.is_valid(positions) && is_ready(&raised.slot))
            .map(RaisedPosition::rank)
            .peekable();
        let mut due = self.waits.slots().into_iter().take_while(|slot| at(slot) <= by).peekable();
        let mut slots = VecDeque::new();
        while let Some(next) = first(line.peek().copied(), raised.peek().copied()) {
            while let Some(slot) = due.next_if(|slot| !goes_before(next.1, at(slot), now)) {
                slots.push_back(slot);
            }
            slots.push_back(next.2);
            let _ = line.next_if_eq(&next).or_else(|| raised.next());
        }
        slots.extend(due);
        slots
    }

    /// Appends a second position. If most second positions are invalid, removes the invalid ones first.
    pub(super) fn raise(&mut self, raised: RaisedPosition, positions: &[Position]) {
        if self.raised.len() > 2 * positions.len() {
            self.raised.retain(|raised| raised.is_valid(positions));
        }
        self.raised.push_back(raised);
    }

    pub(super) fn check<K>(
        &self,
        slab: &Slab<K>,
        positions: &[Position],
        sequence: u64,
    ) -> Result<(), String> {
        let Self { priority, line, raised, waits, .. } = self;
        line.check(slab)?;
        waits.check(slab)?;
        let belongs = |slot: &u32| positions[*slot as usize].level == *priority;
        if !line.iter(slab).chain(waits.slots()).all(|slot| belongs(&slot)) {
            return Err(format!("levels 1: a key of another level is at {priority}"));
        }
        let sequences: Vec<_> = line.iter(slab).map(|slot| positions[slot as usize].sequence).collect();
        let second: Vec<_> = raised.iter().map(|raised| raised.sequence).collect();
        if [sequences, second]
            .iter()
            .any(|sequences| !sequences.is_sorted() || sequences.last() > Some(&sequence))
        {
            return Err(format!("levels 2: sequences at {priority}"));
        }
        if raised.front().is_some_and(|raised| !raised.is_valid(positions)) {
            return Err(format!("levels 2: the first raised position at {priority} is not valid"));
        }
        let queued = |slot| matches!(slab.get(slot).state, State::Ready | State::Waiting);
        match raised.iter().find(|raised| raised.is_valid(positions) && !queued(raised.slot)) {
            Some(raised) => Err(format!("levels 4: slot {} is not queued", raised.slot)),
            None => Ok(()),
        }
    }

    /// Removes invalid second positions from the front, so that the first one is valid.
    pub(super) fn clean(&mut self, positions: &[Position]) {
        while self.raised.front().is_some_and(|raised| !raised.is_valid(positions)) {
            self.raised.pop_front();
        }
    }
}

impl RaisedPosition {
    #[inline]
    pub(super) fn is_valid(&self, positions: &[Position]) -> bool {
        self.sequence >= positions[self.slot as usize].valid_from
    }

    #[inline]
    fn rank(&self) -> Rank {
        (self.sequence, self.since, self.slot)
    }
}

#[inline]
fn rank(positions: &[Position], slot: u32) -> Rank {
    let Position { sequence, since, .. } = positions[slot as usize];
    (sequence, since, slot)
}

#[inline]
fn first(one: Option<Rank>, other: Option<Rank>) -> Option<Rank> {
    match (one, other) {
        (Some(one), Some(other)) => Some(one.min(other)),
        (one, other) => one.or(other),
    }
}

/// Returns whether a key that has been in line since `since` is handed out before a key whose deadline `at` has passed. If both times are equal, the
/// key with the deadline goes first, because its deadline was set earlier. A key whose `since` is in the future, because the clock has jumped back,
/// goes first; otherwise keys with deadlines would starve it until that time.
#[inline]
pub(crate) fn goes_before(since: Nanos, at: Nanos, now: Nanos) -> bool {
    since < at || since > now
}
