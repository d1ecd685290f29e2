//! PURE. The heap of waiting keys, earliest deadline first.

use flyball_sync::{Nanos, steps};

use crate::state::slots::Slab;
use crate::state::slots::{NIL, State};

/// The number of children of a node.
const ARITY: usize = Siblings::COUNT;
/// The lane of the root in family 0.
const ROOT: usize = ARITY - 1;

/// An 8-ary heap of deadlines. Each entry stores its position in the heap, so that a key can be removed from the middle
/// in O(log n).
///
/// The eight children of a position are stored together, in the eight lanes of a family (`Siblings`): the children of position p are family p + 1.
/// Family 0 contains only the root, in its last lane. This structure was chosen after measurements: `docs/decisions/0014-deadlines-structure.md`.
///
/// # Invariants
/// 1. Nodes are ordered by deadline, and nodes with equal deadlines by sequence number. In this order, no node is before its parent.
/// 2. The entry for the node at position p is `Waiting`, stores p in its first link, and has the same deadline as the node.
/// 3. Exactly the first `len` positions are occupied; all other lanes are vacant. The last family has an occupied lane, unless it is family 0.
/// 4. `passed` agrees with the deadlines in the heap.
#[derive(Debug, Default)]
pub struct Deadlines {
    families: Vec<Siblings>,
    len: usize,
    passed: Passed,
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
        let root = self.get(0);
        Some((root.at, root.slot))
    }

    pub(crate) fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        let entry = slab.get_mut(slot);
        entry.at = at;
        entry.state = State::Waiting;
        let position = self.len;
        if place(position).0 == self.families.len() {
            self.families.push(Siblings::VACANT);
        }
        self.len += 1;
        self.passed.added(at);
        self.sift_up(slab, position, HeapNode { at, sequence, slot });
    }

    /// Removes the node of `slot`. The caller must then set the state of the slot.
    pub(crate) fn remove<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let position = Self::position(slab, slot);
        self.passed.removed(slab.get(slot).at);
        let last = self.pop();
        if position < self.len {
            self.sift(slab, position, last);
        }
    }

    /// Changes the deadline of `slot` and moves its node accordingly.
    pub(crate) fn set<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        let old = std::mem::replace(&mut slab.get_mut(slot).at, at);
        self.passed.removed(old);
        self.passed.added(at);
        self.sift(slab, Self::position(slab, slot), HeapNode { at, sequence, slot });
    }

    pub(crate) fn sequence<K>(&self, slab: &Slab<K>, slot: u32) -> u32 {
        self.get(Self::position(slab, slot)).sequence
    }

    #[inline]
    fn position<K>(slab: &Slab<K>, slot: u32) -> usize {
        slab.get(slot).links[0] as usize
    }

    /// Gives every node a new sequence number. The caller must ensure that the new numbers, which `sequence_of` returns for slots, do not change the
    /// order of the nodes.
    pub(crate) fn renumber(&mut self, sequence_of: impl Fn(u32) -> u32) {
        for family in &mut self.families {
            family.renumber(&sequence_of);
        }
    }

    /// Returns how many deadlines are at or before `now`, and the first one after it. Counts up to `most` and a few more; if there are more than `most`, the
    /// result is `None` instead of the first one after `now`.
    ///
    /// The result is kept up to date while deadlines are set and removed. So the deadlines are counted again, in O(the result), only once another one has
    /// passed, half of those that were counted are gone, the first one after `now` was removed, or `now` is earlier than before.
    pub(crate) fn passed(&mut self, now: Nanos, most: usize) -> (usize, Option<Nanos>) {
        if let Some(known) = self.passed.at(now, most) {
            return known;
        }
        let twice = most.saturating_mul(2);
        let mut found = (0, None);
        self.survey(now, twice, &mut found);
        self.passed = Passed::counted(now, found, found.0 <= twice);
        found
    }

    /// Adds the number of deadlines at or before `now` to `found.0`, but stops once `found.0` exceeds `most`. If it does not stop early, it also sets
    /// `found.1` to the first deadline after `now`, unless `found.1` is already earlier. O(count).
    pub(crate) fn survey(&self, now: Nanos, most: usize, found: &mut (usize, Option<Nanos>)) {
        self.survey_below(0, now, most, found);
    }

    /// Returns the slots whose deadlines are at or before `now`, in no particular order. O(number of these slots).
    pub(crate) fn due(&self, now: Nanos) -> Vec<u32> {
        let (mut due, mut next) = (Vec::new(), vec![0]);
        while let Some(position) = next.pop() {
            if position < self.len && self.get(position).at <= now {
                due.push(self.get(position).slot);
                next.extend(position * ARITY + 1..=position * ARITY + ARITY);
            }
        }
        due
    }

    /// Returns all slots, earliest deadline first. O(n log n).
    pub(crate) fn slots(&self) -> Vec<u32> {
        let mut nodes: Vec<HeapNode> = self.families.iter().flat_map(Siblings::nodes).collect();
        nodes.sort_unstable();
        nodes.into_iter().map(|node| node.slot).collect()
    }

    fn survey_below(&self, position: usize, now: Nanos, most: usize, found: &mut (usize, Option<Nanos>)) {
        if position >= self.len || found.0 > most {
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
        self.len -= 1;
        let (family, lane) = place(self.len);
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
        let families = if self.len == 0 { self.families.len().min(1) } else { place(self.len - 1).0 + 1 };
        if (taken, self.families.len()) != (self.len, families) {
            return Err(format!("deadlines 3: {taken} of {} in {} families", self.len, self.families.len()));
        }
        self.passed.check(self.families.iter().flat_map(Siblings::nodes).map(|node| node.at))?;
        for position in 0..self.len {
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

/// The result of the last count.
///
/// # Invariants
/// 1. At least `count` deadlines are at or before `by`. If all were counted, exactly `count` are, and `next` is the first deadline after `by`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Passed {
    by: Nanos,
    count: usize,
    next: Option<Nanos>,
    /// Whether all deadlines up to `by` were counted, and `next` is known.
    all: bool,
}

impl Passed {
    pub(super) fn counted(by: Nanos, (count, next): (usize, Option<Nanos>), all: bool) -> Self {
        Self { by, count, next, all }
    }

    /// Returns how many deadlines are at or before `now`, and the first one after it, unless they must be counted again. If there are more than `most`,
    /// the first one may be missing.
    #[inline]
    pub(super) fn at(&mut self, now: Nanos, most: usize) -> Option<(usize, Option<Nanos>)> {
        if now < self.by {
            return None; // the clock jumped back
        }
        if self.all && self.next.is_none_or(|next| next > now) {
            self.by = now;
            return Some((self.count, self.next));
        }
        (self.count > most).then_some((self.count, None))
    }

    #[cfg(test)]
    pub(super) fn by(&self) -> Nanos {
        self.by
    }

    #[inline]
    pub(super) fn added(&mut self, at: Nanos) {
        if at <= self.by {
            self.count += 1;
        } else if self.all {
            self.next = self.next.into_iter().chain([at]).min();
        }
    }

    #[inline]
    pub(super) fn removed(&mut self, at: Nanos) {
        if at <= self.by {
            // Not all may have been counted.
            self.count = self.count.saturating_sub(1);
        } else if self.next == Some(at) {
            self.all = false;
        }
    }

    pub(super) fn check(&self, deadlines: impl Iterator<Item = Nanos>) -> Result<(), String> {
        let (passed, later): (Vec<_>, Vec<_>) = deadlines.partition(|at| *at <= self.by);
        let next = later.into_iter().min();
        if passed.len() < self.count || (self.all && (passed.len(), next) != (self.count, self.next)) {
            return Err(format!("passed 1: {} deadlines and then {next:?}, but {self:?}", passed.len()));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Many tasks wait for many keys that become due at once: only the first operation counts them, however many tasks wait.
    #[test]
    fn passed_deadlines_are_counted_once() {
        for most in [usize::MAX, 700] {
            let (mut slab, mut heap) = (Slab::new(), Deadlines::default());
            let at = |slot: u32| Nanos::new(if slot < 1_000 { 5 } else { 50 });
            for key in 0..1_010 {
                let slot = slab.insert(key, 0);
                heap.push(&mut slab, slot, at(slot), slot);
            }
            assert_eq!(heap.passed(Nanos::new(5), most), (1_000, Some(Nanos::new(50))));
            for left in (0..1_000).rev() {
                let slot = heap.first().unwrap().1;
                heap.remove(&mut slab, slot);
                slab.remove(slot);
                let now = Nanos::new(6 + u64::from(slot) % 20);
                let known = heap.passed.at(now.max(heap.passed.by()), most);
                assert_eq!(known, Some((left, Some(Nanos::new(50)))));
                heap.check(&slab).unwrap();
            }
        }
    }

    /// If more have passed than the caller asks for, some more are counted, so that half of them can be removed before they are counted again.
    #[test]
    fn passed_deadlines_beyond_the_limit_are_not_counted() {
        let (mut slab, mut heap) = (Slab::new(), Deadlines::default());
        for key in 0..10_000 {
            let slot = slab.insert(key, 0);
            heap.push(&mut slab, slot, Nanos::new(5), slot);
        }
        let mut counts = 0;
        for _ in 0..9_000 {
            counts += usize::from(heap.passed.at(Nanos::new(9), 100).is_none());
            let (passed, next) = heap.passed(Nanos::new(9), 100);
            assert!(passed > 100 && next.is_none(), "{passed} {next:?}");
            let slot = heap.first().unwrap().1;
            heap.remove(&mut slab, slot);
            slab.remove(slot);
        }
        assert!((80..=91).contains(&counts), "{counts}");
    }
}
