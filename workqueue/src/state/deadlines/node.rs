//! PURE. The nodes of the heap of deadlines, and the layout of sibling nodes in memory.

use flyball_sync::Nanos;

use crate::state::entry::NIL;

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
