//! PURE. The nodes of the heap of deadlines, and how siblings are stored.

use flyball_sync::Nanos;

use crate::state::entry::NIL;

/// One deadline in the heap. The order of nodes is that of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct HeapNode {
    pub(crate) at: Nanos,
    /// Equal deadlines keep the order in which they were set.
    pub(crate) turn: u32,
    pub(crate) slot: u32,
}

impl HeapNode {
    /// After every other node: no slot is `NIL`.
    const VACANT: Self = Self { at: Nanos::MAX, turn: u32::MAX, slot: NIL };
}

/// Eight nodes, field by field: finding the least one reads a cache line of deadlines, the rest only where they tie.
#[derive(Clone, Debug)]
pub(crate) struct Siblings {
    at: [Nanos; Self::COUNT],
    turn: [u32; Self::COUNT],
    slot: [u32; Self::COUNT],
}

impl Siblings {
    pub(crate) const COUNT: usize = 8;

    pub(crate) const VACANT: Self = Self {
        at: [HeapNode::VACANT.at; Self::COUNT],
        turn: [HeapNode::VACANT.turn; Self::COUNT],
        slot: [HeapNode::VACANT.slot; Self::COUNT],
    };

    #[inline]
    pub(crate) fn get(&self, lane: usize) -> HeapNode {
        HeapNode { at: self.at[lane], turn: self.turn[lane], slot: self.slot[lane] }
    }

    #[inline]
    pub(crate) fn set(&mut self, lane: usize, node: HeapNode) {
        self.at[lane] = node.at;
        self.turn[lane] = node.turn;
        self.slot[lane] = node.slot;
    }

    #[inline]
    pub(crate) fn vacate(&mut self, lane: usize) -> HeapNode {
        let node = self.get(lane);
        self.set(lane, HeapNode::VACANT);
        node
    }

    /// The least node and its lane. No two nodes share deadline and turn; a vacant lane loses, as it is behind the taken.
    ///
    /// A knockout of pairs that carry their deadline compiles to conditional moves: which sibling is least cannot be
    /// predicted, so a branch here is taken wrongly once a level.
    #[inline]
    pub(crate) fn least(&self) -> (usize, HeapNode) {
        let lane = |lane: usize| (lane, self.at[lane]);
        let left = earlier(earlier(lane(0), lane(1)), earlier(lane(2), lane(3)));
        let right = earlier(earlier(lane(4), lane(5)), earlier(lane(6), lane(7)));
        let (mut least, at) = earlier(left, right);
        if self.at.iter().map(|other| u32::from(*other == at)).sum::<u32>() > 1 {
            for other in 0..Self::COUNT {
                if self.at[other] == at && self.turn[other] < self.turn[least] {
                    least = other;
                }
            }
        }
        (least, self.get(least))
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = HeapNode> {
        (0..Self::COUNT).map(|lane| self.get(lane)).filter(|node| node.slot != NIL)
    }

    pub(crate) fn renumber(&mut self, turn_of: impl Fn(u32) -> u32) {
        for (turn, slot) in self.turn.iter_mut().zip(self.slot) {
            if slot != NIL {
                *turn = turn_of(slot);
            }
        }
    }
}

#[inline]
fn earlier(one: (usize, Nanos), other: (usize, Nanos)) -> (usize, Nanos) {
    if other.1 < one.1 { other } else { one }
}
