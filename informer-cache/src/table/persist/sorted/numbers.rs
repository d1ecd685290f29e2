//! PURE. An iterator over the numbers of a [`Sorted`](super::Sorted).

use super::{Node, NodeArc};

/// An iterator over the numbers of a list in order; made by [`Sorted::iter`].
#[derive(Clone)]
pub(crate) struct Numbers<'a> {
    /// For every branch on the path from the root to the current leaf, the nodes that remain.
    path: Vec<std::slice::Iter<'a, NodeArc<Node>>>,
    leaf: std::slice::Iter<'a, u32>,
    left: usize,
}

impl<'a> Numbers<'a> {
    pub(super) fn new(root: &'a Node) -> Self {
        let mut numbers = Self { path: Vec::new(), leaf: [].iter(), left: root.len() };
        numbers.descend(root);
        numbers
    }

    fn descend(&mut self, mut node: &'a Node) {
        loop {
            match node {
                Node::Leaf(numbers) => {
                    self.leaf = numbers.iter();
                    return;
                }
                Node::Branch(branch) => {
                    let mut nodes = branch.nodes.iter();
                    let Some(first) = nodes.next() else { return };
                    self.path.push(nodes);
                    node = first;
                }
            }
        }
    }
}

impl Iterator for Numbers<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        loop {
            if let Some(number) = self.leaf.next() {
                self.left -= 1;
                return Some(*number);
            }
            match self.path.last_mut()?.next() {
                Some(node) => self.descend(node),
                None => drop(self.path.pop()),
            }
        }
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }

    /// Iterates over the slices of the leaves, which takes fewer instructions per number than `next`. So if the caller loads an item for each number,
    /// more of these loads overlap.
    #[inline]
    fn fold<B, F: FnMut(B, u32) -> B>(self, init: B, mut f: F) -> B {
        let mut folded = self.leaf.copied().fold(init, &mut f);
        for nodes in self.path.into_iter().rev() {
            folded = nodes.fold(folded, |folded, node| node.fold(folded, &mut f));
        }
        folded
    }
}

impl ExactSizeIterator for Numbers<'_> {}
