//! PURE. The heap of waiting keys, earliest deadline first.

mod node;

use flyball_sync::Nanos;

use crate::state::deadlines::node::{HeapNode, Siblings};
use crate::state::entry::State;
use crate::state::slab::Slab;

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
#[derive(Debug, Default)]
pub struct Deadlines {
    families: Vec<Siblings>,
    len: usize,
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
        self.sift_up(slab, position, HeapNode { at, sequence, slot });
    }

    /// Removes the node of `slot`. The caller must then set the state of the slot.
    pub(crate) fn remove<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let position = Self::position(slab, slot);
        let last = self.pop();
        if position < self.len {
            self.sift(slab, position, last);
        }
    }

    /// Changes the deadline of `slot` and moves its node accordingly.
    pub(crate) fn set<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, sequence: u32) {
        slab.get_mut(slot).at = at;
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
