//! PURE. A persistent hash trie: a set of items found by hash, cloned in O(1), changed in place while unshared.
//!
//! A hash array mapped trie (Bagwell, *Ideal Hash Trees*, 2001), kept canonical on removal as in CHAMP (Steindorfer
//! and Vinju, *Optimizing Hash-Array Mapped Tries for Fast and Lean Immutable JVM Collections*, 2015): 32-way
//! nodes with a bitmap and no empty slots, five bits of the hash a level, highest bits first. A clone shares all
//! nodes; a change copies the nodes on its path that are shared, and only these. Everything is O(log₃₂ n).
//!
//! Items bring their hash along, so growing hashes nothing, and equality is a closure of the caller. Cloning an item
//! must run no foreign code (here items are `Arc`s), so a panic can only come from that closure; it is called
//! before anything changes on its level, and a panic in it leaves the set as it was.
//!
//! # Invariants
//! 1. A node has as many slots as its bitmap has ones; slot *i* belongs to the *i*-th one.
//! 2. The bits of an item's hash, five a level from the top, are the path to it.
//! 3. A bucket holds at least two items, all with the same hash.
//! 4. No node but the root is empty or has a single slot that is not a branch: such a slot moves up.
//! 5. `len` counts the items.
//! 6. There is no root without items.
//!
//! Hence two sets with the same hashes have the same shape, however they came about.

use std::sync::Arc;

mod iter;

pub(crate) use iter::{Iter, Walk};

/// An item that carries its hash.
pub(crate) trait Hashed {
    /// The hash under which it is found; never changes.
    fn hash(&self) -> u64;
}

/// A persistent set of items found by hash; see the [module](self).
pub(crate) struct Trie<T> {
    root: Option<Arc<Node<T>>>,
    len: usize,
}

#[derive(Clone)]
struct Node<T> {
    bitmap: u32,
    slots: Vec<Slot<T>>,
}

#[derive(Clone)]
enum Slot<T> {
    Leaf(T),
    /// Items whose hashes are equal in all 64 bits.
    Bucket(Arc<Vec<T>>),
    Branch(Arc<Node<T>>),
}

impl<T> Trie<T> {
    pub(crate) const fn new() -> Self {
        Self { root: None, len: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn iter(&self) -> Iter<'_, T> {
        Iter::new(self)
    }
}

impl<T: Hashed + Clone> Trie<T> {
    /// The item with this hash that `eq` accepts.
    pub(crate) fn get(&self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&T> {
        let mut node = self.root.as_deref()?;
        for depth in 0.. {
            match &node.slots[node.occupied(hash, depth)?] {
                Slot::Branch(child) => node = child,
                Slot::Leaf(item) => return (item.hash() == hash && eq(item)).then_some(item),
                Slot::Bucket(items) => {
                    // Invariant 3: the first one tells the hash of all.
                    let candidates = if items[0].hash() == hash { items.as_slice() } else { &[] };
                    return candidates.iter().find(|item| eq(item));
                }
            }
        }
        None
    }

    /// The item with this hash that `eq` accepts, to be changed in place; its hash must stay.
    pub(crate) fn get_mut(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&mut T> {
        let mut node = Arc::make_mut(self.root.as_mut()?);
        for depth in 0.. {
            let at = node.occupied(hash, depth)?;
            match &mut node.slots[at] {
                Slot::Branch(child) => node = Arc::make_mut(child),
                Slot::Leaf(item) => return (item.hash() == hash && eq(item)).then_some(item),
                Slot::Bucket(items) if items[0].hash() == hash => {
                    let at = items.iter().position(eq)?;
                    return Some(&mut Arc::make_mut(items)[at]);
                }
                Slot::Bucket(_) => return None,
            }
        }
        None
    }

    /// Puts an item in; gives back the one it replaces, the one with the same hash that `eq` accepts.
    pub(crate) fn insert(&mut self, item: T, eq: impl Fn(&T) -> bool) -> Option<T> {
        let Some(root) = &mut self.root else {
            self.root = Some(Arc::new(Node::with(0, Slot::Leaf(item.clone()), item.hash())));
            self.len = 1;
            return None;
        };
        let replaced = Arc::make_mut(root).insert(0, item, &eq);
        self.len += usize::from(replaced.is_none());
        replaced
    }

    /// Takes out the item with this hash that `eq` accepts.
    pub(crate) fn remove(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<T> {
        // Looked up first, so that a miss copies no shared node.
        self.get(hash, &eq)?;
        let root = Arc::make_mut(self.root.as_mut()?);
        let removed = root.remove(0, hash, &eq)?;
        self.len -= 1;
        if root.slots.is_empty() {
            self.root = None;
        }
        Some(removed)
    }

    /// Walks the invariants.
    pub(crate) fn check(&self) -> Result<(), String> {
        let counted = match &self.root {
            None => 0,
            Some(root) if root.slots.is_empty() => return Err("invariant 6: a root without items".into()),
            Some(root) => root.check(0, 0)?,
        };
        match counted == self.len {
            true => Ok(()),
            false => Err(format!("invariant 5: len is {}, but there are {counted} items", self.len)),
        }
    }
}

impl<T> Node<T> {
    /// The place of a hash that is there; `None` when its bit is not set.
    fn occupied(&self, hash: u64, depth: u32) -> Option<usize> {
        let bit = bit(hash, depth);
        (self.bitmap & bit != 0).then(|| self.place(bit))
    }

    /// How many slots lie before the one of this bit.
    fn place(&self, bit: u32) -> usize {
        (self.bitmap & (bit - 1)).count_ones() as usize
    }
}

impl<T: Hashed + Clone> Node<T> {
    /// A node with one slot, that of `hash`.
    fn with(depth: u32, slot: Slot<T>, hash: u64) -> Self {
        Self { bitmap: bit(hash, depth), slots: vec![slot] }
    }

    fn insert(&mut self, depth: u32, item: T, eq: &impl Fn(&T) -> bool) -> Option<T> {
        let hash = item.hash();
        let Some(at) = self.occupied(hash, depth) else {
            let bit = bit(hash, depth);
            self.slots.insert(self.place(bit), Slot::Leaf(item));
            self.bitmap |= bit;
            return None;
        };
        let slot = &mut self.slots[at];
        let other = match slot {
            Slot::Branch(child) => return Arc::make_mut(child).insert(depth + 1, item, eq),
            Slot::Leaf(there) if there.hash() == hash => {
                if eq(there) {
                    return Some(std::mem::replace(there, item));
                }
                *slot = Slot::Bucket(Arc::new(vec![there.clone(), item]));
                return None;
            }
            Slot::Bucket(items) if items[0].hash() == hash => {
                let known = items.iter().position(eq);
                let items = Arc::make_mut(items);
                if let Some(known) = known {
                    return Some(std::mem::replace(&mut items[known], item));
                }
                items.push(item);
                return None;
            }
            Slot::Leaf(there) => there.hash(),
            Slot::Bucket(items) => items[0].hash(),
        };
        // Two hashes that agree so far: both move one level down, where they may agree again. They differ in some
        // bit, so this ends at depth 12 at the latest.
        let mut child = Self::with(depth + 1, slot.clone(), other);
        child.insert(depth + 1, item, eq);
        *slot = Slot::Branch(Arc::new(child));
        None
    }

    fn remove(&mut self, depth: u32, hash: u64, eq: &impl Fn(&T) -> bool) -> Option<T> {
        let at = self.occupied(hash, depth)?;
        match &mut self.slots[at] {
            Slot::Branch(child) => {
                let child = Arc::make_mut(child);
                let removed = child.remove(depth + 1, hash, eq)?;
                // Invariant 4: what is left alone moves up.
                if let [Slot::Leaf(_) | Slot::Bucket(_)] = child.slots.as_slice() {
                    let alone = child.slots[0].clone();
                    self.slots[at] = alone;
                }
                Some(removed)
            }
            Slot::Bucket(items) => {
                let known = items.iter().position(eq)?;
                let items = Arc::make_mut(items);
                let removed = items.remove(known);
                if let [alone] = items.as_slice() {
                    self.slots[at] = Slot::Leaf(alone.clone());
                }
                Some(removed)
            }
            Slot::Leaf(item) => {
                let removed = (item.hash() == hash && eq(item)).then(|| item.clone())?;
                self.slots.remove(at);
                self.bitmap &= !bit(hash, depth);
                Some(removed)
            }
        }
    }

    /// Counts the items below, all of whose hashes begin with `prefix`.
    fn check(&self, depth: u32, prefix: u64) -> Result<usize, String> {
        if self.bitmap.count_ones() as usize != self.slots.len() {
            return Err(format!("invariant 1: bitmap {:032b} with {} slots", self.bitmap, self.slots.len()));
        }
        let alone = matches!(self.slots.as_slice(), [] | [Slot::Leaf(_) | Slot::Bucket(_)]);
        if depth > 0 && alone {
            return Err("invariant 4: an inner node with less than two slots and no branch".into());
        }
        let digits = (0..32_u64).filter(|digit| self.bitmap & (1 << digit) != 0);
        let mut count = 0;
        for (digit, slot) in digits.zip(&self.slots) {
            let path = prefix | if depth < 12 { digit << (59 - 5 * depth) } else { digit >> 1 };
            let fits = |item: &T| item.hash() & mask(depth) == path;
            count += match slot {
                Slot::Leaf(item) if fits(item) => 1,
                Slot::Bucket(items) if items.len() < 2 => return Err("invariant 3: a small bucket".into()),
                Slot::Bucket(items) if items.iter().any(|item| item.hash() != items[0].hash()) => {
                    return Err("invariant 3: a bucket of different hashes".into());
                }
                Slot::Bucket(items) if fits(&items[0]) => items.len(),
                Slot::Branch(child) => child.check(depth + 1, path)?,
                Slot::Leaf(_) | Slot::Bucket(_) => {
                    return Err("invariant 2: an item that its path does not lead to".into());
                }
            };
        }
        Ok(count)
    }
}

/// The digit of a hash at this depth, as a bit. The last level has four bits left of 64.
fn bit(hash: u64, depth: u32) -> u32 {
    1 << ((hash << (5 * depth)) >> 59)
}

/// The bits of a hash that lead to a slot at this depth.
fn mask(depth: u32) -> u64 {
    if depth < 12 { !(u64::MAX >> (5 * (depth + 1))) } else { u64::MAX }
}

/// O(1): all nodes are shared.
impl<T> Clone for Trie<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
