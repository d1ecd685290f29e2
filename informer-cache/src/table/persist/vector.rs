//! PURE. A persistent sparse vector: a map from numbers to items, which is a tree of three levels.
//!
//! It is a radix tree of fixed depth (Bagwell and Rompf, *RRB-Trees*, 2011, without relaxation). The root has as many branches as needed, a branch
//! has 64 leaves, and a leaf has 32 items. A lookup is three loads without a comparison. If nodes are shared, a change copies one leaf, which
//! increments up to 32 reference counts, and one branch, which increments up to 64. The root is a part of the vector, so a clone copies the root and
//! increments one reference count for every 2048 items. A vector behind an `Arc` is cloned in O(1). Most of the cost of a change comes from checking
//! whether each node is shared. So there is no further node between the vector and its branches.
//!
//! The measurements that led to these sizes are in decision 0024.
//!
//! # Invariants
//! 1. `len` is the number of items in the vector. `used` is the number of items below a branch, or in a leaf.
//! 2. There is no empty leaf or branch, and the last slot of the root is not empty.

use std::array;
use std::slice;
use std::vec;

use super::{COUNT, NodeArc, prefetch};

/// The maximum number of items in a leaf.
const LEAF: usize = 32;
/// The maximum number of leaves in a branch.
const BRANCH: usize = 64;

/// The maximum number of items below a branch.
pub(super) const PER_BRANCH: usize = LEAF * BRANCH;

/// A persistent sparse vector; see the [module](self). `T::clone` must not run user code.
pub(crate) struct Vector<T> {
    root: Vec<Option<NodeArc<Branch<T>>>>,
    len: usize,
}

#[derive(Clone)]
struct Branch<T> {
    leaves: [Option<NodeArc<Leaf<T>>>; BRANCH],
    used: usize,
}

#[derive(Clone)]
struct Leaf<T> {
    items: [Option<T>; LEAF],
    used: usize,
}

/// The location of an item: the index of its branch, of its leaf within the branch, and of the item within the leaf.
struct Place {
    branch: usize,
    leaf: usize,
    item: usize,
}

impl Place {
    #[inline]
    fn of(number: u32) -> Self {
        let number = number as usize;
        Self { branch: number / PER_BRANCH, leaf: number / LEAF % BRANCH, item: number % LEAF }
    }
}

impl<T> Vector<T> {
    pub(crate) fn new() -> Self {
        Self { root: Vec::new(), len: 0 }
    }

    /// Returns the number of items.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    #[inline]
    pub(crate) fn get(&self, number: u32) -> Option<&T> {
        let place = Place::of(number);
        self.leaf(&place)?.items[place.item].as_ref()
    }

    #[inline]
    fn leaf(&self, place: &Place) -> Option<&NodeArc<Leaf<T>>> {
        self.root.get(place.branch)?.as_ref()?.leaves[place.leaf].as_ref()
    }

    /// Returns the highest number that has an item, plus one; 0 if there is none. O(1), because the last branch is not empty.
    pub(super) fn end(&self) -> u32 {
        let Some(Some(last)) = self.root.last() else { return 0 };
        let leaf = last.leaves.iter().rposition(Option::is_some).unwrap_or(0);
        let items = last.leaves[leaf].as_ref().map_or(&[][..], |leaf| &leaf.items);
        let item = items.iter().rposition(Option::is_some).unwrap_or(0);
        ((self.root.len() - 1) * PER_BRANCH + leaf * LEAF + item + 1) as u32
    }

    /// Returns the number of items below a branch.
    pub(super) fn used(&self, branch: usize) -> usize {
        self.root.get(branch).and_then(Option::as_ref).map_or(0, |branch| branch.used)
    }

    /// Returns the lowest number of a branch that has no item. The branch must not be full. O(1).
    pub(super) fn lowest_free(&self, branch: usize) -> u32 {
        let mut place = branch * PER_BRANCH;
        if let Some(branch) = self.root.get(branch).and_then(Option::as_ref) {
            let is_open = |leaf: &Option<NodeArc<Leaf<T>>>| leaf.as_ref().is_none_or(|leaf| leaf.used < LEAF);
            let leaf = branch.leaves.iter().position(is_open).unwrap_or(0);
            let items = branch.leaves[leaf].as_ref().map_or(&[][..], |leaf| &leaf.items);
            place += leaf * LEAF + items.iter().position(Option::is_none).unwrap_or(0);
        }
        place as u32
    }

    /// Prefetches an item.
    #[inline]
    pub(crate) fn prefetch(&self, number: u32) {
        let place = Place::of(number);
        if let Some(leaf) = self.leaf(&place) {
            prefetch(&leaf.items[place.item]);
        }
    }

    /// Prefetches what a change of an item reads: the reference count of its leaf, and the item.
    #[inline]
    pub(crate) fn prefetch_to_change(&self, number: u32) {
        let place = Place::of(number);
        if let Some(leaf) = self.leaf(&place) {
            prefetch(&**leaf);
            prefetch(&leaf.items[place.item]);
        }
    }

    /// Returns an iterator over the items with their numbers, in ascending order.
    pub(crate) fn iter(&self) -> Items<'_, T> {
        Items { root: &self.root, leaves: [].iter(), items: [].iter(), next: 0, left: self.len }
    }

    /// Returns an iterator over the items with at least this number, with their numbers, in ascending order.
    pub(crate) fn iter_from(&self, number: u32) -> impl Iterator<Item = (u32, &T)> {
        let Place { branch, leaf, item } = Place::of(number);
        let mut items = Items { next: (branch * PER_BRANCH) as u32, ..self.iter() };
        items.root = self.root.get(branch..).unwrap_or_default();
        if let Some((first, rest)) = items.root.split_first() {
            items.root = rest;
            items.next = number;
            match first {
                Some(first) => {
                    items.leaves = first.leaves[leaf + 1..].iter();
                    match &first.leaves[leaf] {
                        Some(leaf) => items.items = leaf.items[item..].iter(),
                        None => items.next = ((number as usize / LEAF + 1) * LEAF) as u32,
                    }
                }
                None => items.next = ((branch + 1) * PER_BRANCH) as u32,
            }
        }
        // The number of items that are left is unknown, so the iterator does not report a length.
        std::iter::from_fn(move || items.next())
    }

    /// Returns the numbers of all items in those leaves that the two vectors do not share, each with its old item (in `before`) and its new item (in
    /// `self`). The items may be equal. Shared nodes are skipped.
    pub(crate) fn differing<'a>(
        &'a self,
        before: Option<&'a Self>,
    ) -> impl Iterator<Item = (u32, Option<&'a T>, Option<&'a T>)> {
        let (old, new) = (before.map_or(&[][..], |before| &before.root), &self.root[..]);
        let branches = (0..old.len().max(new.len())).flat_map(move |at| {
            let branch = |root: &'a [Option<NodeArc<Branch<T>>>]| root.get(at).and_then(Option::as_ref);
            let (old, new) = (branch(old), branch(new));
            let leaves = if is_same(old, new) { 0 } else { BRANCH };
            (0..leaves).map(move |leaf| {
                let under =
                    |branch: Option<&'a NodeArc<Branch<T>>>| branch.and_then(|it| it.leaves[leaf].as_ref());
                ((at * BRANCH + leaf) * LEAF, under(old), under(new))
            })
        });
        branches.filter(|(_, old, new)| !is_same(*old, *new)).flat_map(|(first, old, new)| {
            (0..LEAF).filter_map(move |at| {
                let item = |leaf: Option<&'a NodeArc<Leaf<T>>>| leaf.and_then(|leaf| leaf.items[at].as_ref());
                let (old, new) = (item(old), item(new));
                (old.is_some() || new.is_some()).then_some(((first + at) as u32, old, new))
            })
        })
    }

    /// Drops the last items, up to about `most` of them. For nodes that another vector shares, only references are dropped. Returns how much of
    /// `most` is left; 0 if the vector may not be empty yet. If a destructor panics, the next call continues. Afterwards, `len` is wrong.
    pub(crate) fn free(&mut self, mut most: usize) -> usize {
        while most > 0 {
            let Some(last) = self.root.last_mut() else { return most };
            let leaf = last.as_mut().and_then(NodeArc::get_mut).and_then(|branch| {
                let at = branch.leaves.iter().rposition(Option::is_some)?;
                branch.leaves[at].take()
            });
            match leaf {
                Some(leaf) => {
                    most = most.saturating_sub(LEAF);
                    drop(leaf);
                }
                None => {
                    most -= 1;
                    self.root.pop();
                }
            }
        }
        0
    }

    /// Returns the memory of the vector in bytes, without the memory to which its items point.
    pub(crate) fn bytes(&self) -> usize {
        let branches = self.root.iter().flatten();
        let below = branches.map(|branch| {
            let leaves = branch.leaves.iter().flatten().count();
            COUNT + size_of::<Branch<T>>() + leaves * (COUNT + size_of::<Leaf<T>>())
        });
        self.root.capacity() * size_of::<usize>() + below.sum::<usize>()
    }
}

/// Returns whether both are the same node, or both are absent.
fn is_same<T>(a: Option<&NodeArc<T>>, b: Option<&NodeArc<T>>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => NodeArc::ptr_eq(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}

impl<T: Clone> Vector<T> {
    /// Stores an item under a number. Returns the item that it replaces.
    pub(crate) fn set(&mut self, number: u32, item: T) -> Option<T> {
        let place = Place::of(number);
        if self.root.len() <= place.branch {
            self.root.resize(place.branch + 1, None);
        }
        let branch = NodeArc::make_mut(self.root[place.branch].get_or_insert_with(Default::default));
        let leaf = NodeArc::make_mut(branch.leaves[place.leaf].get_or_insert_with(Default::default));
        let replaced = leaf.items[place.item].replace(item);
        if replaced.is_none() {
            leaf.used += 1;
            branch.used += 1;
            self.len += 1;
        }
        replaced
    }

    /// Returns a mutable reference to the item under a number.
    #[inline]
    pub(crate) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        // This lookup comes first, so that no node is copied if there is no item.
        self.get(number)?;
        let place = Place::of(number);
        let branch = NodeArc::make_mut(self.root[place.branch].as_mut()?);
        NodeArc::make_mut(branch.leaves[place.leaf].as_mut()?).items[place.item].as_mut()
    }

    /// Removes an item.
    pub(crate) fn remove(&mut self, number: u32) -> Option<T> {
        self.get(number)?;
        let place = Place::of(number);
        let branch = NodeArc::make_mut(self.root[place.branch].as_mut()?);
        let leaf = NodeArc::make_mut(branch.leaves[place.leaf].as_mut()?);
        let removed = leaf.items[place.item].take()?;
        leaf.used -= 1;
        branch.used -= 1;
        self.len -= 1;
        if leaf.used == 0 {
            branch.leaves[place.leaf] = None;
        }
        if branch.used == 0 {
            self.root[place.branch] = None;
            while let Some(None) = self.root.last() {
                self.root.pop();
            }
        }
        Some(removed)
    }

    /// Checks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        let mut len = 0;
        for branch in self.root.iter().flatten() {
            let mut used = 0;
            for leaf in branch.leaves.iter().flatten() {
                let items = leaf.items.iter().flatten().count();
                if items != leaf.used || items == 0 {
                    return Err(format!("vector invariant 1 or 2: {items} items in a leaf of {}", leaf.used));
                }
                used += items;
            }
            if used != branch.used || used == 0 {
                return Err(format!("vector invariant 1 or 2: {used} items in a branch of {}", branch.used));
            }
            len += used;
        }
        if matches!(self.root.last(), Some(None)) {
            return Err("vector invariant 2: the root ends with an empty place".into());
        }
        match len == self.len {
            true => Ok(()),
            false => Err(format!("vector invariant 1: len is {}, but there are {len} items", self.len)),
        }
    }
}

/// The clone shares all branches. Takes O(length of the root), which is the highest number / 2048.
impl<T> Clone for Vector<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<T> Default for Branch<T> {
    fn default() -> Self {
        Self { leaves: array::from_fn(|_| None), used: 0 }
    }
}

impl<T> Default for Leaf<T> {
    fn default() -> Self {
        Self { items: array::from_fn(|_| None), used: 0 }
    }
}

/// An iterator over the items of a [`Vector`] with their numbers; made by [`Vector::iter`].
pub(crate) struct Items<'a, T> {
    /// The remaining branches.
    root: &'a [Option<NodeArc<Branch<T>>>],
    /// The remaining leaves of the current branch, and the remaining items of the current leaf.
    leaves: slice::Iter<'a, Option<NodeArc<Leaf<T>>>>,
    items: slice::Iter<'a, Option<T>>,
    /// The number that belongs to the next slot of `items`. The slot may be empty.
    next: u32,
    left: usize,
}

impl<'a, T> Iterator for Items<'a, T> {
    type Item = (u32, &'a T);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        loop {
            for item in self.items.by_ref() {
                let number = self.next;
                self.next = self.next.wrapping_add(1);
                if let Some(item) = item {
                    self.left -= 1;
                    return Some((number, item));
                }
            }
            match self.leaves.next() {
                Some(Some(leaf)) => self.items = leaf.items.iter(),
                Some(None) => self.next = self.next.wrapping_add(LEAF as u32),
                None => {
                    let (branch, rest) = self.root.split_first()?;
                    self.root = rest;
                    match branch {
                        Some(branch) => self.leaves = branch.leaves.iter(),
                        None => self.next = self.next.wrapping_add(PER_BRANCH as u32),
                    }
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Items<'_, T> {}

impl<T> Clone for Items<'_, T> {
    fn clone(&self) -> Self {
        Self {
            root: self.root,
            leaves: self.leaves.clone(),
            items: self.items.clone(),
            next: self.next,
            left: self.left,
        }
    }
}

/// An iteration over a vector that keeps only the remaining items alive: it releases each branch after the last item of that branch.
pub(crate) struct Walk<T> {
    /// The branches after the current one, and the current branch.
    root: vec::IntoIter<Option<NodeArc<Branch<T>>>>,
    branch: Option<NodeArc<Branch<T>>>,
    /// The position in the current branch.
    leaf: usize,
    item: usize,
    left: usize,
}

impl<T> Walk<T> {
    /// Creates a walk that starts at the first item.
    pub(crate) fn new(vector: &Vector<T>) -> Self {
        let root = vector.root.clone().into_iter();
        let mut walk = Self { root, branch: None, leaf: BRANCH, item: LEAF, left: vector.len };
        drop(walk.enter());
        walk
    }

    /// Returns how many items remain.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// Returns the current item; `None` at the end.
    pub(crate) fn item(&self) -> Option<&T> {
        self.branch.as_deref()?.leaves.get(self.leaf)?.as_deref()?.items.get(self.item)?.as_ref()
    }

    /// Moves to the next item. If it is in a different branch, returns the previous branch, which may hold the last references to its items.
    pub(crate) fn advance(&mut self) -> impl Sized + use<T> {
        self.left = self.left.saturating_sub(1);
        self.item += 1;
        if self.settle() {
            return None;
        }
        self.enter()
    }

    /// Moves to the first item of the next branch. Returns the previous branch.
    fn enter(&mut self) -> Option<NodeArc<Branch<T>>> {
        let behind = self.branch.take();
        // Vector invariant 2: every branch has an item.
        self.branch = self.root.by_ref().flatten().next();
        (self.leaf, self.item) = (0, 0);
        self.settle();
        behind
    }

    /// Moves to the first item at or after the current position in the current branch. Returns whether there is such an item.
    fn settle(&mut self) -> bool {
        let Some(branch) = self.branch.as_deref() else { return false };
        while let Some(leaf) = branch.leaves.get(self.leaf) {
            let ahead = leaf.as_deref().map_or(&[][..], |leaf| &leaf.items[self.item.min(LEAF)..]);
            if let Some(found) = ahead.iter().position(Option::is_some) {
                self.item += found;
                return true;
            }
            self.leaf += 1;
            self.item = 0;
        }
        false
    }
}
