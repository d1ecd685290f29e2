//! PURE. A persistent list of numbers in an order of the caller's: a B⁺-tree by position.
//!
//! Nodes know how many numbers are below them, so a number is found by its position, or by a search whose comparison the
//! caller brings; the same list holds the rows of an index value (ascending) and the values of an ordered index
//! (by the values themselves). Changes name a position, so that they compare nothing: a comparison that panics, or contradicts
//! itself, cannot leave a half-changed tree.
//!
//! Leaves hold plain numbers: to copy a shared one is to copy memory. Everything is O(log n).
//!
//! # Invariants
//! 1. All leaves are equally deep; a branch holds at least two nodes, the root of an empty list is an empty leaf.
//! 2. No node but the root is less than a quarter full, but the last one on each level; none is more than full.
//! 3. A branch's `lens` and `firsts` are those of its nodes.

use std::cmp::Ordering;
use std::sync::Arc;

use super::vector::ARC;

mod numbers;

pub(crate) use numbers::Numbers;

/// Numbers of a leaf.
const LEAF: usize = 128;
/// Nodes of a branch.
const BRANCH: usize = 64;

/// Numbers in order; see the [module](self).
#[derive(Clone)]
pub(crate) struct Sorted {
    root: Arc<Node>,
}

#[derive(Clone)]
enum Node {
    Leaf(Vec<u32>),
    Branch(Branch),
}

#[derive(Clone)]
struct Branch {
    nodes: Vec<Arc<Node>>,
    /// How many numbers are below each node, and the first of them.
    lens: Vec<u32>,
    firsts: Vec<u32>,
}

impl Sorted {
    pub(crate) fn new() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())) }
    }

    pub(crate) fn of(numbers: &[u32]) -> Self {
        debug_assert!(numbers.len() <= LEAF, "a leaf");
        Self { root: Arc::new(Node::Leaf(numbers.to_vec())) }
    }

    pub(crate) fn len(&self) -> usize {
        self.root.len()
    }

    /// The number at a position.
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

    /// How many numbers at the head of the list fulfil `before`, which no number does after one that does not.
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

    /// The position of what `compare` calls equal, or else where it belongs.
    pub(crate) fn search(&self, mut compare: impl FnMut(u32) -> Ordering) -> Result<usize, usize> {
        let at = self.partition_point(|number| compare(number) == Ordering::Less);
        match self.get(at) {
            Some(number) if compare(number) == Ordering::Equal => Ok(at),
            _ => Err(at),
        }
    }

    /// Puts a number in at a position, before what is there; at the end for one beyond it.
    pub(crate) fn insert_at(&mut self, at: usize, number: u32) {
        let at = at.min(self.len());
        if let Some(right) = Arc::make_mut(&mut self.root).insert(at, number, true) {
            let left = std::mem::replace(&mut self.root, Arc::new(Node::Leaf(Vec::new())));
            self.root = Arc::new(Node::Branch(Branch::of(vec![left, Arc::new(right)])));
        }
    }

    /// Takes out the number at a position.
    pub(crate) fn remove_at(&mut self, at: usize) -> Option<u32> {
        if at >= self.len() {
            return None;
        }
        let removed = Arc::make_mut(&mut self.root).remove(at);
        while let Node::Branch(branch) = &*self.root {
            let [alone] = branch.nodes.as_slice() else { break };
            self.root = alone.clone();
        }
        Some(removed)
    }

    /// Puts a number into an ascending list, unless it is there.
    pub(crate) fn insert(&mut self, number: u32) -> bool {
        // Rows are mostly given out ascending, so this is the way of a list that grows.
        let at = match self.last() {
            Some(last) if last >= number => match self.search(|other| other.cmp(&number)) {
                Ok(_) => return false,
                Err(at) => at,
            },
            _ => self.len(),
        };
        self.insert_at(at, number);
        true
    }

    /// Takes a number out of an ascending list.
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

    /// The numbers in order.
    pub(crate) fn iter(&self) -> Numbers<'_> {
        Numbers::new(&self.root)
    }

    /// The memory it takes, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.root.bytes()
    }

    /// Walks the invariants; the order is the caller's to check.
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

    /// How full the node is, and how full it may be.
    fn filling(&self) -> (usize, usize) {
        match self {
            Self::Leaf(numbers) => (numbers.len(), LEAF),
            Self::Branch(branch) => (branch.nodes.len(), BRANCH),
        }
    }

    /// Puts a number in; what is too much comes back as the node to the right of this one. `last` is the last node of its level.
    fn insert(&mut self, at: usize, number: u32, last: bool) -> Option<Self> {
        match self {
            Self::Leaf(numbers) if numbers.len() < LEAF => {
                numbers.insert(at, number);
                None
            }
            // A list that grows at its end leaves full leaves behind.
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
                let right = Arc::make_mut(&mut branch.nodes[child]).insert(at, number, last);
                branch.refresh(child);
                branch.put(child + 1, Arc::new(right?));
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
                let removed = Arc::make_mut(&mut branch.nodes[child]).remove(at);
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
        ARC + size_of::<Self>() + inside
    }

    /// The depth of the node.
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
                return Err("sorted invariant 3: a node that its branch knows wrongly".into());
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
    fn of(nodes: Vec<Arc<Node>>) -> Self {
        let lens = nodes.iter().map(|node| node.len() as u32).collect();
        let firsts = nodes.iter().map(|node| node.first()).collect();
        Self { nodes, lens, firsts }
    }

    /// How many numbers are below the nodes before this one.
    fn passed(&self, child: usize) -> usize {
        self.lens[..child].iter().map(|len| *len as usize).sum()
    }

    /// The node with the number at a position, and its position there; of a position at the end, the last node.
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

    /// As [`child`](Self::child), but between two nodes the left one, so that a list grows at the end of a leaf.
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

    fn put(&mut self, child: usize, node: Arc<Node>) {
        self.lens.insert(child, node.len() as u32);
        self.firsts.insert(child, node.first());
        self.nodes.insert(child, node);
    }

    fn take(&mut self, child: usize) -> Arc<Node> {
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

    /// Joins a node that has become too small with its neighbour, or shares with it what it has.
    fn refill(&mut self, child: usize) {
        let (filled, full) = self.nodes[child].filling();
        if filled == 0 {
            // The last node of its level alone may come to this; then its branch is the next to go.
            self.take(child);
            return;
        }
        if filled >= full / 4 || self.nodes.len() == 1 {
            return;
        }
        let left = child.min(self.nodes.len() - 2);
        let right = Arc::unwrap_or_clone(self.take(left + 1));
        let rest = match (Arc::make_mut(&mut self.nodes[left]), right) {
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
            self.put(left + 1, Arc::new(rest));
        }
    }
}
