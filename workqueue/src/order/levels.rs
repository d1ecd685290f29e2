//! PURE. A line for each priority, and who comes next.
//!
//! # Invariants
//! 1. A slot is in the line of its place's level; `count` slots are in all lines. No two levels share a priority, and
//!    they stand from the highest to the lowest.
//! 2. Within a line, turns rise.
//! 3. A leased slot is marked exactly when it was added meanwhile.
//! 4. *Ageing.* Let a key be in a line with turn t. While it is, at most `ageing` · h keys with later turns leave lines,
//!    where h is the most levels above its own that were in use. Proof: the rank of the first of a line is its turn and
//!    `ageing` for each line in use above, and the lowest rank is next. If one with turn u > t leaves instead of the
//!    first of the key's line, whose turn is at most t, then u + `ageing` · i ≤ t + `ageing` · h with i ≥ 0: of such turns
//!    there are `ageing` · h. In the key's own line none leaves before it, by 2.
//!
//! A key that is raised takes a new turn in its new line, but only where its rank gets better: its turn grows by less than
//! `ageing` for each line in use that it leaves below or joins. So of keys with turns later than its first at most
//! `ageing` leave before it for each level above its first that was in use while it waited, at once or not. Rejected: to sort it in by its old turn, which costs a walk or a heap for each line.

use std::num::NonZeroU32;

use crate::entry::State;
use crate::list::List;
use crate::order::depths::LevelDepth;
use crate::order::sealed::Links;
use crate::slab::Slab;

/// Ready keys by priority.
#[derive(Debug)]
pub struct Levels {
    ageing: Option<NonZeroU32>,
    /// Those that were ever in use: at most 256.
    levels: Vec<Level>,
    /// By slot.
    places: Vec<Place>,
    count: usize,
    turn: u64,
}

#[derive(Debug)]
struct Level {
    priority: i8,
    line: List,
}

/// What is known of a key.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// When it took its place in its line, among all that did.
    turn: u64,
    /// Whose line it is in.
    level: i8,
    priority: i8,
    /// What it was added with while leased, if it was.
    wished: Option<i8>,
}

impl Levels {
    pub(crate) fn new(ageing: Option<NonZeroU32>) -> Self {
        Self { ageing, levels: Vec::new(), places: Vec::new(), count: 0, turn: 0 }
    }

    /// The priority of what is to come of a key, or else of its lease.
    pub(crate) fn priority(&self, slot: u32) -> i8 {
        let place = self.places[slot as usize];
        place.wished.unwrap_or(place.priority)
    }

    /// Whatever it was.
    pub(crate) fn set_priority<K>(&mut self, slab: &mut Slab<K>, slot: u32, priority: i8) {
        let place = &mut self.places[slot as usize];
        place.priority = priority;
        if place.wished.is_some() {
            place.wished = Some(priority);
        }
        self.move_to_its_line(slab, slot);
    }

    pub(crate) fn depths(&self) -> Vec<LevelDepth> {
        let depth = |level: &Level| LevelDepth { priority: level.priority, ready: level.line.len() };
        self.levels.iter().map(depth).filter(|depth| depth.ready > 0).collect()
    }

    /// A Ready slot goes to the end of the line of its priority, unless it is better off where it is.
    fn move_to_its_line<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let Place { turn, level, priority, .. } = self.places[slot as usize];
        if slab.get(slot).state != State::Ready || level == priority {
            return;
        }
        if let Some(ageing) = self.ageing.filter(|_| priority > level) {
            let rank = |turn, level| rank(turn, ageing, self.in_use_above(level));
            if rank(turn, level) <= rank(self.turn, priority) {
                return;
            }
        }
        self.unlink(slab, slot);
        self.push(slab, slot);
    }

    fn in_use_above(&self, priority: i8) -> usize {
        let above = self.levels.iter().take_while(|level| level.priority > priority);
        above.filter(|level| level.line.len() > 0).count()
    }

    /// The line of a priority, a new one if there was none.
    fn line(&mut self, priority: i8) -> &mut List {
        let at = self.levels.partition_point(|level| level.priority > priority);
        if self.levels.get(at).is_none_or(|level| level.priority != priority) {
            self.levels.insert(at, Level { priority, line: List::default() });
        }
        &mut self.levels[at].line
    }

    /// Of the first slots of the lines, from the highest, the one that comes next.
    #[inline]
    fn next(&self, heads: impl Iterator<Item = u32>) -> Option<u32> {
        let mut heads = heads.enumerate();
        let (_, highest) = heads.next()?;
        let Some(ageing) = self.ageing else { return Some(highest) };
        let turn = |slot: u32| self.places[slot as usize].turn;
        let mut best = (turn(highest), highest);
        for (above, head) in heads {
            let rank = rank(turn(head), ageing, above);
            // Equal ranks: the higher line.
            if rank < best.0 {
                best = (rank, head);
            }
        }
        Some(best.1)
    }
}

/// Who has the lowest comes next.
#[inline]
fn rank(turn: u64, ageing: NonZeroU32, above: usize) -> u64 {
    turn + u64::from(ageing.get()) * above as u64
}

impl Links for Levels {
    const GATHERS: bool = true;

    type Tag = i8;
    type Class = i8;

    #[inline]
    fn count(&self) -> usize {
        self.count
    }

    #[inline]
    fn front(&self) -> Option<u32> {
        self.next(self.heads())
    }

    #[inline]
    fn heads(&self) -> impl Iterator<Item = u32> {
        self.levels.iter().filter_map(|level| level.line.front())
    }

    fn class(&mut self, priority: &mut i8) -> i8 {
        *priority
    }

    fn admit(&mut self, slot: u32, priority: i8) {
        let index = slot as usize;
        if index >= self.places.len() {
            self.places.resize(index + 1, Place::default());
        }
        self.places[index] = Place { priority, ..Place::default() };
    }

    fn merge<K>(&mut self, slab: &mut Slab<K>, slot: u32, leased: bool, priority: &i8) {
        let place = &mut self.places[slot as usize];
        if leased {
            place.wished = Some(place.wished.map_or(*priority, |wished| wished.max(*priority)));
        } else if *priority > place.priority {
            place.priority = *priority;
            self.move_to_its_line(slab, slot);
        }
    }

    #[inline]
    fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let place = &mut self.places[slot as usize];
        place.level = place.priority;
        place.turn = self.turn;
        let priority = place.priority;
        self.turn += 1;
        self.count += 1;
        self.line(priority).push(slab, slot);
    }

    #[inline]
    fn unlink<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let level = self.places[slot as usize].level;
        self.count -= 1;
        self.line(level).unlink(slab, slot);
    }

    fn end(&mut self, slot: u32, comes_back: bool) {
        let place = &mut self.places[slot as usize];
        if let Some(wished) = place.wished.take() {
            place.priority = if comes_back { place.priority.max(wished) } else { wished };
        }
    }

    fn unmark(&mut self, slot: u32) {
        self.places[slot as usize].wished = None;
    }

    fn slots<K>(&self, slab: &Slab<K>) -> Vec<u32> {
        let mut lines: Vec<_> = self.levels.iter().map(|level| level.line.iter(slab).peekable()).collect();
        let mut slots = Vec::with_capacity(self.count);
        while let Some(next) = self.next(lines.iter_mut().filter_map(|line| line.peek().copied())) {
            slots.push(next);
            lines.iter_mut().for_each(|line| {
                line.next_if_eq(&next);
            });
        }
        slots
    }

    fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        if self.levels.windows(2).any(|pair| pair[0].priority <= pair[1].priority) {
            return Err("levels 1: they are not sorted".into());
        }
        for Level { priority, line } in &self.levels {
            line.check(slab)?;
            let mut before = None;
            for slot in line.iter(slab) {
                let place = self.places[slot as usize];
                if place.level != *priority {
                    return Err(format!("levels 1: slot {slot} of {} is in line {priority}", place.level));
                }
                if before.is_some_and(|before| before >= place.turn) || place.turn >= self.turn {
                    return Err(format!("levels 2: slot {slot} has turn {}", place.turn));
                }
                before = Some(place.turn);
            }
        }
        if self.levels.iter().map(|level| level.line.len()).sum::<usize>() != self.count {
            return Err(format!("levels 1: not {} in all lines", self.count));
        }
        for (slot, entry) in slab.iter() {
            let marked = matches!(entry.state, State::LeasedDirty | State::LeasedWaiting);
            if self.places[slot as usize].wished.is_some() != marked {
                return Err(format!("levels 3: slot {slot} is {:?}", entry.state));
            }
        }
        Ok(())
    }
}
