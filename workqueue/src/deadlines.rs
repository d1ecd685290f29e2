//! PURE. Keys that wait, earliest deadline first.

use flyball_ratelimit::Nanos;

use crate::entry::State;
use crate::slab::Slab;

/// Children of a node. Four halves the depth of a binary heap and keeps siblings in one cache line.
const ARITY: usize = 4;

/// A 4-ary heap of deadlines whose entries know their position, so that a key leaves the middle in O(log n).
///
/// # Invariants
/// 1. No node is before its parent, in the order of deadline, then turn.
/// 2. The entry of the node at position p is `Waiting`, has p as its first link, and the node's deadline.
#[derive(Debug, Default)]
pub(crate) struct Deadlines {
    nodes: Vec<Node>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Node {
    at: Nanos,
    /// Equal deadlines keep the order in which they were set.
    turn: u32,
    slot: u32,
}

impl Deadlines {
    pub(crate) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// The earliest deadline and its slot.
    #[inline]
    pub(crate) fn first(&self) -> Option<(Nanos, u32)> {
        self.nodes.first().map(|node| (node.at, node.slot))
    }

    pub(crate) fn push<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, turn: u32) {
        let position = self.nodes.len();
        let entry = slab.get_mut(slot);
        entry.at = at;
        entry.state = State::Waiting;
        self.nodes.push(Node { at, turn, slot });
        self.sift_up(slab, position);
    }

    /// Takes the node of `slot` out; the state of the slot is then for the caller to set.
    pub(crate) fn remove<K>(&mut self, slab: &mut Slab<K>, slot: u32) {
        let position = Self::position(slab, slot);
        self.nodes.swap_remove(position);
        if position < self.nodes.len() {
            self.sift_down(slab, position);
            self.sift_up(slab, position);
        }
    }

    /// Moves the node of `slot` to another deadline.
    pub(crate) fn set<K>(&mut self, slab: &mut Slab<K>, slot: u32, at: Nanos, turn: u32) {
        let position = Self::position(slab, slot);
        slab.get_mut(slot).at = at;
        self.nodes[position] = Node { at, turn, slot };
        self.sift_down(slab, position);
        self.sift_up(slab, Self::position(slab, slot));
    }

    pub(crate) fn turn<K>(&self, slab: &Slab<K>, slot: u32) -> u32 {
        self.nodes[Self::position(slab, slot)].turn
    }

    #[inline]
    fn position<K>(slab: &Slab<K>, slot: u32) -> usize {
        slab.get(slot).links[0] as usize
    }

    /// Gives every node a new turn; `turn_of` must keep their order.
    pub(crate) fn renumber(&mut self, turn_of: impl Fn(u32) -> u32) {
        for node in &mut self.nodes {
            node.turn = turn_of(node.slot);
        }
    }

    /// How many deadlines are at or before `now`. O(that many).
    pub(crate) fn count_due(&self, now: Nanos) -> usize {
        self.count_due_below(0, now)
    }

    /// Every slot, earliest first. O(n log n).
    pub(crate) fn slots(&self) -> Vec<u32> {
        let mut nodes = self.nodes.clone();
        nodes.sort_unstable();
        nodes.into_iter().map(|node| node.slot).collect()
    }

    fn count_due_below(&self, position: usize, now: Nanos) -> usize {
        match self.nodes.get(position) {
            Some(node) if node.at <= now => {
                let children = position * ARITY + 1..=position * ARITY + ARITY;
                1 + children.map(|child| self.count_due_below(child, now)).sum::<usize>()
            }
            _ => 0,
        }
    }

    fn sift_up<K>(&mut self, slab: &mut Slab<K>, mut position: usize) {
        let node = self.nodes[position];
        while position > 0 {
            let parent = (position - 1) / ARITY;
            if self.nodes[parent] <= node {
                break;
            }
            self.put(slab, position, self.nodes[parent]);
            position = parent;
        }
        self.put(slab, position, node);
    }

    fn sift_down<K>(&mut self, slab: &mut Slab<K>, mut position: usize) {
        let node = self.nodes[position];
        loop {
            let first = position * ARITY + 1;
            let last = (first + ARITY).min(self.nodes.len());
            let Some(least) = (first..last).min_by_key(|&child| self.nodes[child]) else { break };
            if node <= self.nodes[least] {
                break;
            }
            self.put(slab, position, self.nodes[least]);
            position = least;
        }
        self.put(slab, position, node);
    }

    #[inline]
    fn put<K>(&mut self, slab: &mut Slab<K>, position: usize, node: Node) {
        self.nodes[position] = node;
        slab.get_mut(node.slot).links[0] = position as u32;
    }

    pub(crate) fn check<K>(&self, slab: &Slab<K>) -> Result<(), String> {
        for (position, node) in self.nodes.iter().enumerate() {
            if position > 0 && self.nodes[(position - 1) / ARITY] > *node {
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
