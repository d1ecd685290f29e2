//! PURE. A persistent list of numbers in an order that the caller defines. It is a B⁺-tree that is indexed by position.
//!
//! Each branch stores how many numbers are below each of its nodes, so a lookup can find a number by its position. A search uses a comparison that
//! the caller provides. The store uses this type for the rows that have an index value, in ascending order, and for the groups of an ordered index,
//! in the order of their values. An insertion or a removal takes a position and compares nothing, so a comparison that panics or is inconsistent
//! cannot leave a half-changed tree.
//!
//! Leaves hold plain numbers, so copying a shared leaf only copies memory. Every lookup, search and change is O(log n).
//!
//! # Invariants
//! 1. All leaves have the same depth. The root has at least two nodes if it is a branch, and is an empty leaf if the list is empty.
//! 2. Every node except the root and the last one of each level is at least a quarter full. No node exceeds its capacity.
//! 3. `lens` and `firsts` of a branch agree with its nodes.

use std::cmp::Ordering;

use super::{COUNT, NodeArc, prefetch};

mod numbers;

pub(crate) use numbers::Numbers;

/// The maximum number of numbers in a leaf.
const LEAF: usize = 128;
/// The maximum number of nodes in a branch.
const BRANCH: usize = 64;

/// A list of numbers in order; see the [module](self).
#[derive(Clone)]
pub(crate) struct Sorted {
    root: NodeArc<Node>,
}

#[derive(Clone)]
enum Node {
    Leaf(Vec<u32>),
    Branch(Branch),
}

#[derive(Clone)]
struct Branch {
    nodes: Vec<NodeArc<Node>>,
    /// For each of the nodes, `lens` is how many numbers are below it, and `firsts` is the first of these numbers.
    lens: Vec<u32>,
    firsts: Vec<u32>,
}

impl Sorted {
    pub(crate) fn new() -> Self {
        Self { root: NodeArc::new(Node::Leaf(Vec::new())) }
    }

    pub(crate) fn of(numbers: &[u32]) -> Self {
        debug_assert!(numbers.len() <= LEAF, "more numbers than a leaf holds");
        Self { root: NodeArc::new(Node::Leaf(numbers.to_vec())) }
    }

    pub(crate) fn len(&self) -> usize {
        self.root.len()
    }

    /// Returns the number at a position.
    pub(crate) fn get(&self, mut at: usize) -> Option<u32> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(numbers) => return numbers.get(at).copied(),
                Node::Branch(branch) => {
                    if at >= node.len() {
                        return None;
                    }
                    let (child, rest) = branch.child(at);
                    (node, at) = (&branch.nodes[child], rest);
                }
            }
        }
    }

    /// Returns how many numbers satisfy `before`. All numbers that satisfy `before` must precede, in the list, those that do not.
    pub(crate) fn partition_point(&self, mut before: impl FnMut(u32) -> bool) -> usize {
        let (mut node, mut passed) = (&*self.root, 0);
        loop {
            match node {
                Node::Leaf(numbers) => return passed + numbers.partition_point(|number| before(*number)),
                Node::Branch(branch) => {
                    let child = branch.firsts.partition_point(|first| before(*first)).saturating_sub(1);
                    passed += branch.passed(child);
                    node = &branch.nodes[child];
                }
            }
        }
    }

    /// Returns `Ok` with the position of the number for which `compare` returns `Equal`. If there is none, returns `Err` with the position at which
    /// such a number would be inserted.
    pub(crate) fn search(&self, mut compare: impl FnMut(u32) -> Ordering) -> Result<usize, usize> {
        let at = self.partition_point(|number| compare(number) == Ordering::Less);
        match self.get(at) {
            Some(number) if compare(number) == Ordering::Equal => Ok(at),
            _ => Err(at),
        }
    }

    /// Inserts a number at the position `at`, before the number that is there now. If `at` is beyond the end, inserts the number at the end.
    pub(crate) fn insert_at(&mut self, at: usize, number: u32) {
        let at = at.min(self.len());
        if let Some(right) = NodeArc::make_mut(&mut self.root).insert(at, number, true) {
            let left = std::mem::replace(&mut self.root, NodeArc::new(Node::Leaf(Vec::new())));
            self.root = NodeArc::new(Node::Branch(Branch::of(vec![left, NodeArc::new(right)])));
        }
    }

    /// Removes the number at a position.
    pub(crate) fn remove_at(&mut self, at: usize) -> Option<u32> {
        if at >= self.len() {
            return None;
        }
        let removed = NodeArc::make_mut(&mut self.root).remove(at);
        while let Node::Branch(branch) = &*self.root {
            let [alone] = branch.nodes.as_slice() else { break };
            self.root = alone.clone();
        }
        Some(removed)
    }

    /// Prefetches the root.
    #[inline]
    pub(crate) fn prefetch(&self) {
        prefetch(&*self.root);
    }

    /// Prefetches what an insertion at the end reads after the root.
    #[inline]
    pub(crate) fn prefetch_last(&self) {
        match &*self.root {
            Node::Leaf(numbers) => numbers.last().into_iter().for_each(prefetch),
            Node::Branch(branch) => branch.nodes.last().into_iter().for_each(|node| prefetch(&**node)),
        }
    }

    /// Inserts a number into an ascending list, unless the list contains it already. Returns whether the number was inserted.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        // Rows are usually assigned in ascending order, so a number is usually inserted at the end of the list, and no search is needed.
        let at = match self.last() {
            Some(last) if last >= number => match self.search(|other| other.cmp(&number)) {
                Ok(_) => return false,
                Err(at) => at,
            },
            _ if NodeArc::make_mut(&mut self.root).push(number) => return true,
            _ => self.len(),
        };
        self.insert_at(at, number);
        true
    }

    /// Removes a number from an ascending list. Returns whether the list contained the number.
    pub(crate) fn remove(&mut self, number: u32) -> bool {
        let found = self.search(|other| other.cmp(&number));
        found.is_ok_and(|at| self.remove_at(at).is_some())
    }

    pub(crate) fn last(&self) -> Option<u32> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Leaf(numbers) => return numbers.last().copied(),
                Node::Branch(branch) => node = branch.nodes.last()?,
            }
        }
    }

    /// Returns an iterator over the numbers in order.
    pub(crate) fn iter(&self) -> Numbers<'_> {
        Numbers::new(&self.root)
    }

    /// Returns the memory of the list in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.root.bytes()
    }

    /// Checks the invariants. Does not check the order of the numbers; the caller must do that.
    pub(crate) fn check(&self) -> Result<(), String> {
        self.root.check(true, true).map(drop)
    }
}

impl Node {
    fn len(&self) -> usize {
        match self {
            Self::Leaf(numbers) => numbers.len(),
            Self::Branch(branch) => branch.passed(branch.lens.len()),
        }
    }

    fn first(&self) -> u32 {
        match self {
            Self::Leaf(numbers) => numbers.first().copied().unwrap_or(0),
            Self::Branch(branch) => branch.firsts.first().copied().unwrap_or(0),
        }
    }

    fn fold<B>(&self, init: B, f: &mut impl FnMut(B, u32) -> B) -> B {
        match self {
            Self::Leaf(numbers) => numbers.iter().copied().fold(init, f),
            Self::Branch(branch) => branch.nodes.iter().fold(init, |folded, node| node.fold(folded, f)),
        }
    }

    /// Returns the number of items in the node, and its capacity.
    fn filling(&self) -> (usize, usize) {
        match self {
            Self::Leaf(numbers) => (numbers.len(), LEAF),
            Self::Branch(branch) => (branch.nodes.len(), BRANCH),
        }
    }

    /// Appends a number to the last leaf below this node, unless that leaf is full. Returns whether the number was appended.
    fn push(&mut self, number: u32) -> bool {
        match self {
            Self::Leaf(numbers) => {
                let has_room = numbers.len() < LEAF;
                if has_room {
                    numbers.push(number);
                }
                has_room
            }
            Self::Branch(branch) => match (branch.nodes.last_mut(), branch.lens.last_mut()) {
                (Some(node), Some(len)) => {
                    let pushed = NodeArc::make_mut(node).push(number);
                    *len += u32::from(pushed);
                    pushed
                }
                _ => false,
            },
        }
    }

    /// Inserts a number. If the node is full, splits it, and returns the new node, which belongs to the right of this node.
    /// `last` is true if this node is the last one of its level.
    fn insert(&mut self, at: usize, number: u32, last: bool) -> Option<Self> {
        match self {
            Self::Leaf(numbers) if numbers.len() < LEAF => {
                numbers.insert(at, number);
                None
            }
            // An insertion at the end of the list starts a new leaf, so that the leaves of a list that grows at its end stay full.
            Self::Leaf(_) if last && at == LEAF => Some(Self::Leaf(vec![number])),
            Self::Leaf(numbers) => {
                let mut right = numbers.split_off(LEAF / 2);
                match at.checked_sub(LEAF / 2) {
                    Some(at) => right.insert(at, number),
                    None => numbers.insert(at, number),
                }
                Some(Self::Leaf(right))
            }
            Self::Branch(branch) => {
                let (child, at) = branch.child_for(at);
                let last = last && child + 1 == branch.nodes.len();
                let right = NodeArc::make_mut(&mut branch.nodes[child]).insert(at, number, last);
                branch.refresh(child);
                branch.put(child + 1, NodeArc::new(right?));
                let half = if last { BRANCH } else { BRANCH / 2 };
                (branch.nodes.len() > BRANCH).then(|| Self::Branch(branch.split_off(half)))
            }
        }
    }

    fn remove(&mut self, at: usize) -> u32 {
        match self {
            Self::Leaf(numbers) => numbers.remove(at),
            Self::Branch(branch) => {
                let (child, at) = branch.child(at);
                let removed = NodeArc::make_mut(&mut branch.nodes[child]).remove(at);
                branch.refresh(child);
                branch.refill(child);
                removed
            }
        }
    }

    fn bytes(&self) -> usize {
        let inside = match self {
            Self::Leaf(numbers) => numbers.capacity() * size_of::<u32>(),
            Self::Branch(branch) => {
                let below = branch.nodes.iter().map(|node| node.bytes()).sum::<usize>();
                let words = branch.lens.capacity() + branch.firsts.capacity();
                below + branch.nodes.capacity() * size_of::<usize>() + words * size_of::<u32>()
            }
        };
        COUNT + size_of::<Self>() + inside
    }

    /// Checks the node. Returns its depth.
    fn check(&self, root: bool, last: bool) -> Result<usize, String> {
        let (filled, full) = self.filling();
        if filled > full || (!root && (filled == 0 || (!last && filled < full / 4))) {
            return Err(format!("sorted invariant 2: {filled} of {full} in a node"));
        }
        let Self::Branch(branch) = self else { return Ok(0) };
        if branch.nodes.len() < 2 && root || branch.nodes.is_empty() {
            return Err("sorted invariant 1: a branch of one node".into());
        }
        let mut depths = Vec::new();
        for (at, node) in branch.nodes.iter().enumerate() {
            if branch.lens[at] as usize != node.len() || branch.firsts[at] != node.first() {
                return Err("sorted invariant 3: a branch stores a wrong length or first number".into());
            }
            depths.push(node.check(false, last && at + 1 == branch.nodes.len())?);
        }
        match depths.iter().all(|depth| *depth == depths[0]) {
            true => Ok(depths[0] + 1),
            false => Err("sorted invariant 1: leaves of different depth".into()),
        }
    }
}

impl Branch {
    fn of(nodes: Vec<NodeArc<Node>>) -> Self {
        let lens = nodes.iter().map(|node| node.len() as u32).collect();
        let firsts = nodes.iter().map(|node| node.first()).collect();
        Self { nodes, lens, firsts }
    }

    /// Returns how many numbers are below the nodes before the node with the index `child`.
    fn passed(&self, child: usize) -> usize {
        self.lens[..child].iter().map(|len| *len as usize).sum()
    }

    /// Returns the index of the child that contains the position `at`, and the position within that child. If `at` is the end of the list, returns
    /// the last child.
    fn child(&self, mut at: usize) -> (usize, usize) {
        for (child, len) in self.lens.iter().enumerate() {
            match at.checked_sub(*len as usize) {
                Some(rest) => at = rest,
                None => return (child, at),
            }
        }
        let last = self.lens.len() - 1;
        (last, at + self.lens[last] as usize)
    }

    /// Like [`child`](Self::child), but for an insertion: if `at` is between two children, returns the left one, so that the number is appended to a
    /// leaf.
    fn child_for(&self, at: usize) -> (usize, usize) {
        match self.child(at) {
            (child, 0) if child > 0 => (child - 1, self.lens[child - 1] as usize),
            found => found,
        }
    }

    fn refresh(&mut self, child: usize) {
        self.lens[child] = self.nodes[child].len() as u32;
        self.firsts[child] = self.nodes[child].first();
    }

    fn put(&mut self, child: usize, node: NodeArc<Node>) {
        self.lens.insert(child, node.len() as u32);
        self.firsts.insert(child, node.first());
        self.nodes.insert(child, node);
    }

    fn take(&mut self, child: usize) -> NodeArc<Node> {
        self.lens.remove(child);
        self.firsts.remove(child);
        self.nodes.remove(child)
    }

    fn split_off(&mut self, at: usize) -> Self {
        Self {
            nodes: self.nodes.split_off(at),
            lens: self.lens.split_off(at),
            firsts: self.firsts.split_off(at),
        }
    }

    fn append(&mut self, mut other: Self) {
        self.nodes.append(&mut other.nodes);
        self.lens.append(&mut other.lens);
        self.firsts.append(&mut other.firsts);
    }

    /// If a child has become too small, merges it with its neighbour, or moves items from the neighbour into it. Removes an empty child.
    fn refill(&mut self, child: usize) {
        let (filled, full) = self.nodes[child].filling();
        if filled == 0 {
            // Only the last node of a level can become empty. Now this branch may be too small, too; its parent checks that next.
            self.take(child);
            return;
        }
        if filled >= full / 4 || self.nodes.len() == 1 {
            return;
        }
        let left = child.min(self.nodes.len() - 2);
        let right = NodeArc::unwrap_or_clone(self.take(left + 1));
        let rest = match (NodeArc::make_mut(&mut self.nodes[left]), right) {
            (Node::Leaf(numbers), Node::Leaf(mut more)) => {
                numbers.append(&mut more);
                (numbers.len() > LEAF).then(|| Node::Leaf(numbers.split_off(numbers.len() / 2)))
            }
            (Node::Branch(branch), Node::Branch(more)) => {
                branch.append(more);
                let half = branch.nodes.len() / 2;
                (branch.nodes.len() > BRANCH).then(|| Node::Branch(branch.split_off(half)))
            }
            _ => unreachable!("invariant 1: neighbours are equally deep"),
        };
        self.refresh(left);
        if let Some(rest) = rest {
            self.put(left + 1, NodeArc::new(rest));
        }
    }
}
