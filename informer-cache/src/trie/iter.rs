//! PURE. Two ways through a trie, both in the order of hashes: borrowing it, and owning what is still ahead.

use std::slice;
use std::sync::Arc;

use super::{Node, Slot, Trie};

/// Borrows the items of a [`Trie`]; made by [`Trie::iter`].
pub(crate) struct Iter<'a, T> {
    /// The rest of every node on the path.
    path: Vec<slice::Iter<'a, Slot<T>>>,
    bucket: slice::Iter<'a, T>,
    left: usize,
}

impl<'a, T> Iter<'a, T> {
    pub(super) fn new(trie: &'a Trie<T>) -> Self {
        let path = trie.root.iter().map(|root| root.slots.iter()).collect();
        Self { path, bucket: [].iter(), left: trie.len }
    }

    /// Without items.
    pub(crate) fn empty() -> Self {
        Self { path: Vec::new(), bucket: [].iter(), left: 0 }
    }
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.bucket.next() {
                self.left -= 1;
                return Some(item);
            }
            match self.path.last_mut()?.next() {
                None => drop(self.path.pop()),
                Some(Slot::Branch(child)) => self.path.push(child.slots.iter()),
                Some(Slot::Bucket(items)) => self.bucket = items.iter(),
                Some(Slot::Leaf(item)) => {
                    self.left -= 1;
                    return Some(item);
                }
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T> ExactSizeIterator for Iter<'_, T> {}

impl<T> Clone for Iter<'_, T> {
    fn clone(&self) -> Self {
        Self { path: self.path.clone(), bucket: self.bucket.clone(), left: self.left }
    }
}

/// Walks a trie of which it keeps what is still ahead, and no more.
pub(crate) struct Walk<T> {
    /// A node and the slot of it that comes next, for every node on the path.
    path: Vec<(Arc<Node<T>>, usize)>,
    /// Where in the bucket the walk stands, when it stands at one.
    in_bucket: usize,
    left: usize,
}

impl<T: Clone> Walk<T> {
    pub(crate) fn new(trie: &Trie<T>) -> Self {
        let path = trie.root.iter().map(|root| (root.clone(), 0)).collect();
        let mut walk = Self { path, in_bucket: 0, left: trie.len };
        walk.descend();
        walk
    }

    /// How many items are ahead.
    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// The item the walk stands at; `None` at the end.
    pub(crate) fn item(&self) -> Option<&T> {
        let (node, at) = self.path.last()?;
        match &node.slots[*at] {
            Slot::Leaf(item) => Some(item),
            Slot::Bucket(items) => Some(&items[self.in_bucket]),
            Slot::Branch(_) => None,
        }
    }

    /// Goes on to the next item; gives back the nodes left behind, which may be the last to hold their items.
    pub(crate) fn advance(&mut self) -> impl Sized + use<T> {
        let mut behind = Vec::new();
        self.left = self.left.saturating_sub(1);
        while let Some((node, at)) = self.path.last_mut() {
            match &node.slots[*at] {
                Slot::Bucket(items) if self.in_bucket + 1 < items.len() => {
                    self.in_bucket += 1;
                    break;
                }
                _ => self.in_bucket = 0,
            }
            *at += 1;
            if *at < node.slots.len() {
                self.descend();
                break;
            }
            behind.extend(self.path.pop());
        }
        behind
    }

    /// Down to the first item of the slot the walk stands at.
    fn descend(&mut self) {
        while let Some((node, at)) = self.path.last() {
            let Slot::Branch(child) = &node.slots[*at] else { break };
            let child = child.clone();
            self.path.push((child, 0));
        }
    }
}
