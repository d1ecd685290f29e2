//! Design 1: hash array mapped tries. `informer-cache` used this design before the design in `rows`. Nodes have 32
//! slots with a bitmap and use five bits of the hash per level (Bagwell, *Ideal Hash Trees*, 2001). A record is in
//! the trie of all records and, for each of its index values, also in the trie of that value. The code is a copy of
//! the code in `informer-cache`, without its checks. A removal does not restore the canonical shape of the trie.

use std::slice;
use std::sync::Arc;

use super::grouped::{Family, Grouped, Hashed, Set};

/// The store.
pub type Design = Grouped<Tries>;

/// Sets that are tries.
#[derive(Clone, Debug, Default)]
pub struct Tries;

impl Family for Tries {
    type Of<T: Hashed> = Trie<T>;
}

/// A set of items found by hash.
#[derive(Debug)]
pub struct Trie<T> {
    root: Option<Arc<Node<T>>>,
    len: usize,
}

#[derive(Clone, Debug)]
struct Node<T> {
    bitmap: u32,
    slots: Vec<Slot<T>>,
}

#[derive(Clone, Debug)]
enum Slot<T> {
    Leaf(T),
    /// Items whose hashes are equal in all 64 bits.
    Bucket(Arc<Vec<T>>),
    Branch(Arc<Node<T>>),
}

impl<T: Hashed> Set<T> for Trie<T> {
    fn get(&self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&T> {
        let mut node = self.root.as_deref()?;
        for depth in 0.. {
            match &node.slots[node.occupied(hash, depth)?] {
                Slot::Branch(child) => node = child,
                Slot::Leaf(item) => return (item.hash() == hash && eq(item)).then_some(item),
                Slot::Bucket(items) => return items.iter().find(|item| item.hash() == hash && eq(item)),
            }
        }
        None
    }

    fn get_mut(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<&mut T> {
        let mut node = Arc::make_mut(self.root.as_mut()?);
        for depth in 0.. {
            let at = node.occupied(hash, depth)?;
            match &mut node.slots[at] {
                Slot::Branch(child) => node = Arc::make_mut(child),
                Slot::Leaf(item) => return (item.hash() == hash && eq(item)).then_some(item),
                Slot::Bucket(items) => {
                    return Arc::make_mut(items).iter_mut().find(|item| item.hash() == hash && eq(item));
                }
            }
        }
        None
    }

    fn insert(&mut self, item: T, eq: impl Fn(&T) -> bool) -> Option<T> {
        let Some(root) = &mut self.root else {
            let hash = item.hash();
            self.root = Some(Arc::new(Node::with(0, Slot::Leaf(item), hash)));
            self.len = 1;
            return None;
        };
        let replaced = Arc::make_mut(root).insert(0, item, &eq);
        self.len += usize::from(replaced.is_none());
        replaced
    }

    fn remove(&mut self, hash: u64, eq: impl Fn(&T) -> bool) -> Option<T> {
        self.get(hash, &eq)?;
        let removed = Arc::make_mut(self.root.as_mut()?).remove(0, hash, &eq)?;
        self.len -= 1;
        Some(removed)
    }

    fn iter<'a>(&'a self) -> impl Iterator<Item = &'a T>
    where
        T: 'a,
    {
        let path = self.root.iter().map(|root| root.slots.iter()).collect();
        Iter { path, bucket: [].iter() }
    }

    fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl<T> Node<T> {
    fn occupied(&self, hash: u64, depth: u32) -> Option<usize> {
        let bit = bit(hash, depth);
        (self.bitmap & bit != 0).then(|| self.place(bit))
    }

    fn place(&self, bit: u32) -> usize {
        (self.bitmap & (bit - 1)).count_ones() as usize
    }
}

impl<T: Hashed> Node<T> {
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
                let items = Arc::make_mut(items);
                if let Some(known) = items.iter_mut().find(|item| eq(item)) {
                    return Some(std::mem::replace(known, item));
                }
                items.push(item);
                return None;
            }
            Slot::Leaf(there) => there.hash(),
            Slot::Bucket(items) => items[0].hash(),
        };
        let mut child = Self::with(depth + 1, slot.clone(), other);
        child.insert(depth + 1, item, eq);
        *slot = Slot::Branch(Arc::new(child));
        None
    }

    fn remove(&mut self, depth: u32, hash: u64, eq: &impl Fn(&T) -> bool) -> Option<T> {
        let at = self.occupied(hash, depth)?;
        let (removed, empty) = match &mut self.slots[at] {
            Slot::Branch(child) => {
                let child = Arc::make_mut(child);
                (child.remove(depth + 1, hash, eq)?, child.slots.is_empty())
            }
            Slot::Bucket(items) => {
                let items = Arc::make_mut(items);
                let known = items.iter().position(eq)?;
                (items.remove(known), items.is_empty())
            }
            Slot::Leaf(item) => (item.clone(), true),
        };
        if empty {
            self.slots.remove(at);
            self.bitmap &= !bit(hash, depth);
        }
        Some(removed)
    }
}

/// The bitmap bit of the slot that the hash selects at this depth, with five of its bits.
fn bit(hash: u64, depth: u32) -> u32 {
    1 << ((hash << (5 * depth)) >> 59)
}

struct Iter<'a, T> {
    /// The slots that are still to be visited, of each node on the path from the root.
    path: Vec<slice::Iter<'a, Slot<T>>>,
    bucket: slice::Iter<'a, T>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.bucket.next() {
                return Some(item);
            }
            match self.path.last_mut()?.next() {
                None => drop(self.path.pop()),
                Some(Slot::Branch(child)) => self.path.push(child.slots.iter()),
                Some(Slot::Bucket(items)) => self.bucket = items.iter(),
                Some(Slot::Leaf(item)) => return Some(item),
            }
        }
    }
}

/// A clone takes O(1) time, because it shares all nodes.
impl<T> Clone for Trie<T> {
    fn clone(&self) -> Self {
        Self { root: self.root.clone(), len: self.len }
    }
}

impl<T> Default for Trie<T> {
    fn default() -> Self {
        Self { root: None, len: 0 }
    }
}
