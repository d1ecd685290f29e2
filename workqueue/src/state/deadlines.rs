//! PURE. The heap of waiting keys, earliest deadline first.

use std::collections::BTreeSet;

use flyball_sync::{Nanos, steps};

use crate::state::slots::Slab;
use crate::state::slots::{NIL, State};

/// The number of children of a node.
const ARITY: usize = Siblings::COUNT;
/// The lane of the root in family 0.
const ROOT: usize = ARITY - 1;
/// The number of passed deadlines that are counted in the heap each time. If there are more, they move to `passed`, and are counted once.
const FEW: usize = 8;

/// An 8-ary heap of deadlines. Each entry stores its position in the heap, so that a key can be removed from the middle
/// in O(log n).
///
/// The eight children of a position are stored together, in the eight lanes of a family (`Siblings`): the children of position p are family p + 1.
/// Family 0 contains only the root, in its last lane. This structure was chosen after measurements: `docs/decisions/0014-deadlines-structure.md`.
///
/// # Invariants
/// 1. Nodes are ordered by deadline, and nodes with equal deadlines by sequence number. In this order, no node is before its parent.
/// 2. The entry for the node at position p is `Waiting`, stores p in its first link, and has the same deadline as the node.
/// 3. Exactly the first `in_heap` positions are occupied; all other lanes are vacant. The last family has an occupied lane, unless it is family 0.
/// 4. The entry for a node in `passed` is `Waiting`, has `NIL` as its first link and the sequence number as its second, and has the same deadline as the
///    node. A `Waiting` entry is in the heap or in `passed`.
#[derive(Debug, Default)]
pub struct Deadlines {
    families: Vec<Siblings>,
    /// The number of nodes, in the heap and in `passed`.
    len: usize,
    in_heap: usize,
    /// Deadlines that have passed, while many have and tasks wait for them. They are here and not in the heap, because the nodes of a heap that are
    /// before a time can be counted only one by one.
    passed: BTreeSet<HeapNode>,
}

impl Deadlines {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Returns the earliest deadline and the slot that it belongs to.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Nanos, u32)> {
        if self.len == 0 {
            return None;
        }
        if self.in_heap < self.len {
            return self.first_of_both();
        }
        let root = self.get(0);
        Some((root.at, root.slot))
    }

    /// Returns whether a deadline is at or before `by`.
    #[inline]
    pub(crate) fn has_passed(&self, by: Nanos) -> bool {
        if self.in_heap < self.len {
            return self.has_passed_of_both(by);
        }
        self.len > 0 && self.get(0).at <= by
    }

    #[cold]
    #[inline(never)]
    fn has_passed_of_both(&self, by: Nanos) -> bool {
        self.first_of_both().is_some_and(|(at, _)| at <= by)
    }

    #[cold]
    #[inline(never)]
    fn first_of_both(&self) -> Option<(Nanos, u32)> {
        self.passed.first().copied().into_iter().chain(self.root()).min().map(|node| (node.at, node.slot))
    }

    fn root(&self) -> Option<HeapNode> {
        (self.in_heap > 0).then(|| self.get(0))
    }

    pub(crate) fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        let entry = slab.get_mut(slot);
        entry.at = at;
        entry.state = State::Waiting;
        self.len += 1;
        self.push_node(slab, HeapNode { at, sequence, slot });
    }

    #[inline]
    fn push_node<K>(&mut self, slab: &mut Slab<K>, node: HeapNode) {
        let position = self.in_heap;
        if place(position).0 == self.families.len() {
            self.families.push(Siblings::VACANT);
        }
        self.in_heap += 1;
        self.sift_up(slab, position, node);
    }

    /// Removes the node of `slot`. The caller must then set the state of the slot.
    pub(crate) fn remove<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let position = Self::position(slab, slot);
        self.len -= 1;
        if position == NIL as usize {
            return self.remove_passed(slab, slot);
        }
        self.remove_at(slab, position);
    }

    #[inline]
    fn remove_at<K>(&mut self, slab: &mut Slab<K>, position: usize) {
        let last = self.pop();
        if position < self.in_heap {
            self.sift(slab, position, last);
        }
    }

    /// Changes the deadline of `slot` and moves its node accordingly.
    pub(crate) fn set<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        let position = Self::position(slab, slot);
        if position == NIL as usize {
            self.remove_passed(slab, slot);
            self.len -= 1;
            self.push(slab, slot, at, sequence);
            return;
        }
        slab.get_mut(slot).at = at;
        self.sift(slab, position, HeapNode { at, sequence, slot });
    }

    pub(crate) fn sequence<K>(&self, slab: &Slab<K>, slot: u32) -> u32 {
        match Self::position(slab, slot) {
            position if position == NIL as usize => Self::passed_node(slab, slot).sequence,
            position => self.get(position).sequence,
        }
    }

    #[cold]
    #[inline(never)]
    fn remove_passed<K>(&mut self, slab: &Slab<K>, slot: u32) {
        self.passed.remove(&Self::passed_node(slab, slot));
    }

    /// Returns the node of a slot that is in `passed`.
    fn passed_node<K>(slab: &Slab<K>, slot: u32) -> HeapNode {
        let entry = slab.get(slot);
        HeapNode { at: entry.at, sequence: entry.links[1], slot }
    }

    #[inline]
    fn position<K>(slab: &Slab<K>, slot: u32) -> usize {
        slab.get(slot).links[0] as usize
    }

    /// Gives every node a new sequence number. The caller must ensure that the new numbers, which `sequence_of` returns for slots, do not change the
    /// order of the nodes.
    pub(crate) fn renumber<K>(&mut self, slab: &mut Slab<K>, sequence_of: impl Fn(u32) -> u32) {
        for family in &mut self.families {
            family.renumber(&sequence_of);
        }
        for node in std::mem::take(&mut self.passed) {
            let sequence = sequence_of(node.slot);
            slab.get_mut(node.slot).links[1] = sequence;
            self.passed.insert(HeapNode { sequence, ..node });
        }
    }

    /// Returns how many deadlines are at or before `now`, and the first one after it. Counts up to `most` and a few more; if there are more than `most`, the
    /// result is `None` instead of the first one after `now`.
    ///
    /// More than a few deadlines are counted by moving them from the heap to `passed`. They stay there, so each deadline is moved once, unless the clock
    /// jumps back. Each move takes O(log n) and decrements `moves`; returns `None` once that is 0, and the caller must then call this again.
    pub(crate) fn passed<K>(
        &mut self,
        slab: &mut Slab<K>,
        now: Nanos,
        most: usize,
        moves: &mut usize,
    ) -> Option<(usize, Option<Nanos>)> {
        if self.passed.is_empty() {
            let (few, mut found) = (most.min(FEW), (0, None));
            self.survey_below(0, now, few, &mut found);
            if found.0 <= few || few == most {
                return Some(found);
            }
        }
        while let Some(last) = self.passed.last().copied().filter(|last| last.at > now) {
            // The clock has jumped back.
            *moves = moves.checked_sub(1)?;
            self.passed.remove(&last);
            self.push_node(slab, last);
        }
        while self.passed.len() <= most {
            let Some(root) = self.root().filter(|root| root.at <= now) else {
                return Some((self.passed.len(), self.root().map(|root| root.at)));
            };
            *moves = moves.checked_sub(1)?;
            self.remove_at(slab, 0);
            slab.get_mut(root.slot).links = [NIL, root.sequence];
            self.passed.insert(root);
        }
        Some((self.passed.len(), None))
    }

    /// Adds the number of deadlines at or before `now` to `found.0`, but stops once `found.0` exceeds `most`. If it does not stop early, it also sets
    /// `found.1` to the first deadline after `now`, unless `found.1` is already earlier. O(count).
    pub(crate) fn survey(&self, now: Nanos, most: usize, found: &mut (usize, Option<Nanos>)) {
        for node in &self.passed {
            if found.0 > most {
                return;
            }
            if node.at > now {
                found.1 = found.1.into_iter().chain([node.at]).min();
                break;
            }
            found.0 += 1;
        }
        self.survey_below(0, now, most, found);
    }

    /// Returns the slots whose deadlines are at or before `now`, in no particular order, but stops once there are more than `most`. O(number of these
    /// slots).
    pub(crate) fn due(&self, now: Nanos, most: usize) -> Vec<u32> {
        let passed = self.passed.iter().take_while(|node| node.at <= now).map(|node| node.slot);
        let (mut due, mut next) = (passed.take(most.saturating_add(1)).collect::<Vec<_>>(), vec![0]);
        while let Some(position) = next.pop().filter(|_| due.len() <= most) {
            if position < self.in_heap && self.get(position).at <= now {
                due.push(self.get(position).slot);
                next.extend(position * ARITY + 1..=position * ARITY + ARITY);
            }
        }
        due
    }

    /// Returns all slots, earliest deadline first. O(n log n).
    pub(crate) fn slots(&self) -> Vec<u32> {
        let heap = self.families.iter().flat_map(Siblings::nodes);
        let mut nodes: Vec<HeapNode> = heap.chain(self.passed.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.into_iter().map(|node| node.slot).collect()
    }

    fn survey_below(&self, position: usize, now: Nanos, most: usize, found: &mut (usize, Option<Nanos>)) {
        if position >= self.in_heap || found.0 > most {
            return;
        }
        let at = self.get(position).at;
        if at > now {
            found.1 = found.1.into_iter().chain([at]).min();
            return;
        }
        found.0 += 1;
        for child in position * ARITY + 1..=position * ARITY + ARITY {
            self.survey_below(child, now, most, found);
        }
    }

    /// Puts `node` at `position`, and moves it up or down from there to its correct position.
    #[inline]
    fn sift<K>(&mut self, slab: &mut Slab<K>, position: usize, node: HeapNode) {
        if position > 0 && node < self.get((position - 1) / ARITY) {
            self.sift_up(slab, position, node);
        } else {
            self.sift_down(slab, position, node);
        }
    }

    fn sift_up<K>(&mut self, slab: &mut Slab<K>, mut position: usize, node: HeapNode) {
        while position > 0 {
            let parent = (position - 1) / ARITY;
            let above = self.get(parent);
            if above <= node {
                break;
            }
            self.put(slab, position, above);
            position = parent;
        }
        self.put(slab, position, node);
    }

    fn sift_down<K>(&mut self, slab: &mut Slab<K>, mut position: usize, node: HeapNode) {
        while let Some(children) = self.families.get(position + 1) {
            let (lane, least) = children.least();
            if node <= least {
                break;
            }
            self.put(slab, position, least);
            position = position * ARITY + 1 + lane;
        }
        self.put(slab, position, node);
    }

    fn pop(&mut self) -> HeapNode {
        self.in_heap -= 1;
        let (family, lane) = place(self.in_heap);
        let node = self.families[family].vacate(lane);
        if lane == 0 {
            self.families.pop();
        }
        node
    }

    #[inline]
    fn get(&self, position: usize) -> HeapNode {
        steps::count();
        let (family, lane) = place(position);
        self.families[family].get(lane)
    }

    #[inline]
    fn put<K>(&mut self, slab: &mut Slab<K>, position: usize, node: HeapNode) {
        let (family, lane) = place(position);
        self.families[family].set(lane, node);
        slab.get_mut(node.slot).links[0] = position as u32;
    }

    pub(crate) fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        let taken = self.families.iter().flat_map(Siblings::nodes).count();
        let families =
            if self.in_heap == 0 { self.families.len().min(1) } else { place(self.in_heap - 1).0 + 1 };
        if (taken, self.families.len()) != (self.in_heap, families) {
            return Err(format!(
                "deadlines 3: {taken} of {} in {} families",
                self.in_heap,
                self.families.len()
            ));
        }
        if self.len != self.in_heap + self.passed.len() {
            return Err(format!(
                "deadlines 4: {} in the heap and {} passed of {}",
                self.in_heap,
                self.passed.len(),
                self.len
            ));
        }
        for node in &self.passed {
            let entry = slab.get(node.slot);
            if (entry.state, entry.links[0], Self::passed_node(slab, node.slot))
                != (State::Waiting, NIL, *node)
            {
                return Err(format!(
                    "deadlines 4: slot {} is {entry_state:?}, not {node:?}",
                    node.slot,
                    entry_state = entry.state
                ));
            }
        }
        for position in 0..self.in_heap {
            let node = self.get(position);
            if position > 0 && self.get((position - 1) / ARITY) > node {
                return Err(format!("deadlines 1: position {position} is before its parent"));
            }
            let entry = slab.get(node.slot);
            if (entry.state, entry.links[0], entry.at) != (State::Waiting, position as u32, node.at) {
                return Err(format!(
                    "deadlines 2: slot {} is {:?} at {}, not at {position}",
                    node.slot, entry.state, entry.links[0]
                ));
            }
        }
        Ok(())
    }
}

/// Returns the family and the lane of a position.
#[inline]
fn place(position: usize) -> (usize, usize) {
    ((position + ROOT) / ARITY, (position + ROOT) % ARITY)
}

/// A deadline in the heap. Nodes are ordered by deadline, then sequence number, then slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeapNode {
    pub(crate) at: Nanos,
    /// Orders nodes with equal deadlines by the time at which the deadlines were set.
    pub(crate) sequence: u32,
    pub(crate) slot: u32,
}

impl HeapNode {
    /// The content of a vacant lane. It sorts after every node, because no slot is `NIL`.
    const VACANT: Self = Self { at: Nanos::MAX, sequence: u32::MAX, slot: NIL };
}

/// Eight nodes as a struct of arrays. To find the least node, one cache line of deadlines is read; the other fields are read only if deadlines are
/// equal.
#[derive(Clone, Debug)]
pub(crate) struct Siblings {
    at: [Nanos; Self::COUNT],
    sequence: [u32; Self::COUNT],
    slot: [u32; Self::COUNT],
}

impl Siblings {
    pub(crate) const COUNT: usize = 8;

    pub(crate) const VACANT: Self = Self {
        at: [HeapNode::VACANT.at; Self::COUNT],
        sequence: [HeapNode::VACANT.sequence; Self::COUNT],
        slot: [HeapNode::VACANT.slot; Self::COUNT],
    };

    #[inline]
    pub(crate) fn get(&self, lane: usize) -> HeapNode {
        HeapNode { at: self.at[lane], sequence: self.sequence[lane], slot: self.slot[lane] }
    }

    #[inline]
    pub(crate) fn set(&mut self, lane: usize, node: HeapNode) {
        self.at[lane] = node.at;
        self.sequence[lane] = node.sequence;
        self.slot[lane] = node.slot;
    }

    #[inline]
    pub(crate) fn vacate(&mut self, lane: usize) -> HeapNode {
        let node = self.get(lane);
        self.set(lane, HeapNode::VACANT);
        node
    }

    /// Returns the least node and its lane. No two nodes have both the same deadline and the same sequence number, and a vacant lane sorts after all
    /// nodes.
    ///
    /// The deadlines are compared pairwise, as in a tournament, and each winner is passed on with its deadline; this compiles to conditional moves.
    /// Branches would be mispredicted about once per level of the heap, because each sibling is equally likely to be the least.
    #[inline]
    pub(crate) fn least(&self) -> (usize, HeapNode) {
        let lane = |lane: usize| (lane, self.at[lane]);
        let left = earlier(earlier(lane(0), lane(1)), earlier(lane(2), lane(3)));
        let right = earlier(earlier(lane(4), lane(5)), earlier(lane(6), lane(7)));
        let (mut least, at) = earlier(left, right);
        if self.at.iter().map(|other| u32::from(*other == at)).sum::<u32>() > 1 {
            for other in 0..Self::COUNT {
                if self.at[other] == at && self.sequence[other] < self.sequence[least] {
                    least = other;
                }
            }
        }
        (least, self.get(least))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = HeapNode> {
        (0..Self::COUNT).map(|lane| self.get(lane)).filter(|node| node.slot != NIL)
    }

    pub(crate) fn renumber(&mut self, sequence_of: impl Fn(u32) -> u32) {
        for (sequence, slot) in self.sequence.iter_mut().zip(self.slot) {
            if slot != NIL {
                *sequence = sequence_of(slot);
            }
        }
    }
}

#[inline]
fn earlier(one: (usize, Nanos), other: (usize, Nanos)) -> (usize, Nanos) {
    if other.1 < one.1 { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heap_of(keys: u32) -> (Slab<u32>, Deadlines) {
        let (mut slab, mut heap) = (Slab::new(), Deadlines::default());
        for key in 0..keys {
            let slot = slab.insert(key, 0);
            heap.push(&mut slab, slot, Nanos::new(u64::from(key)), slot);
        }
        (slab, heap)
    }

    /// Counts in pieces, and returns the result and the number of pieces.
    fn count(
        heap: &mut Deadlines,
        slab: &mut Slab<u32>,
        now: u64,
        most: usize,
    ) -> (usize, Option<Nanos>, u32) {
        for pieces in 1.. {
            steps::begin();
            let found = heap.passed(slab, Nanos::new(now), most, &mut 64);
            heap.check(slab).unwrap();
            if let Some((count, next)) = found {
                return (count, next, pieces);
            }
        }
        unreachable!()
    }

    /// Deadlines pass one after the other while tasks wait for them and no key is taken: each operation counts only those that have passed since the
    /// last one, in pieces.
    #[test]
    fn each_passed_deadline_is_counted_once() {
        let (mut slab, mut heap) = heap_of(10_000);
        let next = |at| Some(Nanos::new(at));
        assert_eq!(count(&mut heap, &mut slab, 4_999, usize::MAX), (5_000, next(5_000), 79));
        for now in 5_000..5_050 {
            steps::take();
            let found = heap.passed(&mut slab, Nanos::new(now), usize::MAX, &mut 64);
            assert!(steps::take() < 64, "counted again");
            assert_eq!(found, Some((now as usize + 1, next(now + 1))));
        }
        // Keys are taken, and deadlines are set again.
        for slot in 0..100 {
            assert_eq!(heap.first(), Some((Nanos::new(slot.into()), slot)));
            heap.remove(&mut slab, slot);
            slab.remove(slot);
        }
        heap.set(&mut slab, 200, Nanos::new(20_000), 0);
        assert_eq!(count(&mut heap, &mut slab, 5_050, usize::MAX), (4_950, next(5_051), 1));
        assert_eq!(
            (heap.len(), heap.slots().len(), heap.due(Nanos::new(5_050), 5_000).len()),
            (9_900, 9_900, 4_950)
        );
    }

    /// If more have passed than the caller needs, the others stay in the heap.
    #[test]
    fn passed_deadlines_beyond_the_limit_are_not_counted() {
        let (mut slab, mut heap) = heap_of(10_000);
        assert_eq!(count(&mut heap, &mut slab, 9_000, 100), (101, None, 2));
        assert_eq!(heap.due(Nanos::new(9_000), 9).len(), 10);
        let mut found = (0, None);
        heap.survey(Nanos::new(9_000), usize::MAX, &mut found);
        assert_eq!(found, (9_001, Some(Nanos::new(9_001))));
    }

    /// After the clock has jumped back, those that have not passed at the new time are not counted.
    #[test]
    fn a_clock_that_jumps_back_moves_deadlines_back() {
        let (mut slab, mut heap) = heap_of(1_000);
        assert_eq!(count(&mut heap, &mut slab, 499, usize::MAX).0, 500);
        assert_eq!(count(&mut heap, &mut slab, 99, usize::MAX), (100, Some(Nanos::new(100)), 7));
        assert_eq!(count(&mut heap, &mut slab, 499, usize::MAX), (500, Some(Nanos::new(500)), 7));
    }
}
