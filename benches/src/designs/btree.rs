//! Design 3: copy-on-write B-trees, one ordered by key, and one per index ordered by value and key.
//!
//! Kubernetes' API server keeps its watch cache in a copy-on-write B-tree. Cilium's statedb keeps its tables in
//! persistent radix trees, in which an index is an ordered map whose keys consist of the value and the primary key. Here, nodes store up to 64 items;
//! a write copies the nodes on its path that a snapshot shares. Ranges and prefixes need no extra structure; every
//! search compares strings.
//!
//! Not implemented: merging nodes that have lost items. A node is removed only when it is empty.

use std::cmp::Ordering;
use std::slice;
use std::sync::Arc;

use super::{Entry, INDEXES, Pod};

/// One stored object.
#[derive(Debug)]
pub struct Record {
    pod: Arc<Pod>,
    values: [Arc<str>; INDEXES],
}

/// The store.
#[derive(Clone, Debug, Default)]
pub struct Design {
    records: Tree<Arc<Record>, 64>,
    indexes: [Tree<Arc<Record>, 64>; INDEXES],
}

impl Record {
    fn by_key(&self, key: &str) -> Ordering {
        (*self.pod.key).cmp(key)
    }

    fn by_value(&self, index: usize, value: &str, key: &str) -> Ordering {
        (*self.values[index]).cmp(value).then_with(|| self.by_key(key))
    }
}

impl super::Design for Design {
    type Old = Arc<Record>;

    fn upsert(&mut self, Entry { pod, .. }: Entry) -> Option<Arc<Record>> {
        let values = pod.values.clone();
        let new = Arc::new(Record { pod, values });
        let key = &*new.pod.key;
        let old = self.records.insert(new.clone(), &|record| record.by_key(key));
        for (index, records) in self.indexes.iter_mut().enumerate() {
            let value = &new.values[index];
            if let Some(old) = old.as_ref().filter(|old| old.values[index] != *value) {
                records.remove(&|record| record.by_value(index, &old.values[index], key));
            }
            records.insert(new.clone(), &|record| record.by_value(index, value, key));
        }
        old
    }

    fn remove(&mut self, _: u64, key: &str) -> Option<Arc<Record>> {
        let old = self.records.remove(&|record| record.by_key(key))?;
        for (index, records) in self.indexes.iter_mut().enumerate() {
            records.remove(&|record| record.by_value(index, &old.values[index], key));
        }
        Some(old)
    }

    fn get(&self, _: u64, key: &str) -> Option<&Arc<Pod>> {
        self.records.get(&|record| record.by_key(key)).map(|record| &record.pod)
    }

    fn by_index<'a>(&'a self, index: usize, value: &str) -> impl Iterator<Item = &'a Arc<Pod>> {
        let from = self.indexes[index].from(&|record| record.by_value(index, value, ""));
        let value =
            from.clone().next().map(|record| &record.values[index]).filter(|found| ***found == *value);
        // Equal values often share one allocation.
        let same = move |record: &&Arc<Record>| {
            value.is_some_and(|value| {
                Arc::ptr_eq(value, &record.values[index]) || *value == record.values[index]
            })
        };
        from.take_while(same).map(|record| &record.pod)
    }

    fn iter(&self) -> impl Iterator<Item = &Arc<Pod>> {
        self.records.iter().map(|record| &record.pod)
    }
}

/// An ordered set with up to `MOST` items per node. The order is a closure that compares an item with the one that is searched for.
#[derive(Clone, Debug)]
pub(super) struct Tree<T, const MOST: usize> {
    root: Arc<Node<T>>,
}

#[derive(Clone, Debug)]
enum Node<T> {
    Leaf(Vec<T>),
    /// Children, each with a separator. A separator is less than or equal to all items of its child, and greater than all items of the children
    /// before it.
    Inner(Vec<(T, Arc<Node<T>>)>),
}

/// The result of an insertion for the parent node: the new right sibling, if the node was split.
type Split<T> = Option<(T, Arc<Node<T>>)>;

impl<T: Clone, const MOST: usize> Tree<T, MOST> {
    pub(super) fn get(&self, order: &impl Fn(&T) -> Ordering) -> Option<&T> {
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) => node = &children[child(children, order)].1,
                Node::Leaf(items) => return items.binary_search_by(order).ok().map(|at| &items[at]),
            }
        }
    }

    pub(super) fn insert(&mut self, item: T, order: &impl Fn(&T) -> Ordering) -> Option<T> {
        let (replaced, split) = insert::<T, MOST>(Arc::make_mut(&mut self.root), item, order);
        if let Some(right) = split {
            let left = (right.0.clone(), self.root.clone());
            self.root = Arc::new(Node::Inner(vec![left, right]));
        }
        replaced
    }

    /// The item must be in the set, because a search that does not find it would still copy nodes.
    pub(super) fn remove(&mut self, order: &impl Fn(&T) -> Ordering) -> Option<T> {
        remove(Arc::make_mut(&mut self.root), order)
    }

    pub(super) fn is_empty(&self) -> bool {
        match &*self.root {
            Node::Leaf(items) => items.is_empty(),
            Node::Inner(children) => children.is_empty(),
        }
    }

    pub(super) fn iter(&self) -> Iter<'_, T> {
        self.from(&|_| Ordering::Greater)
    }

    /// Starts at the first item that is not less than the one that is searched for.
    pub(super) fn from(&self, order: &impl Fn(&T) -> Ordering) -> Iter<'_, T> {
        let mut path = Vec::new();
        let mut node = &*self.root;
        loop {
            match node {
                Node::Inner(children) if children.is_empty() => return Iter { path, leaf: [].iter() },
                Node::Inner(children) => {
                    let at = child(children, order);
                    path.push(children[at + 1..].iter());
                    node = &children[at].1;
                }
                Node::Leaf(items) => {
                    let at = items.partition_point(|item| order(item).is_lt());
                    return Iter { path, leaf: items[at..].iter() };
                }
            }
        }
    }
}

/// The position of the child to which an item belongs. The separator of the first child is ignored.
fn child<T>(children: &[(T, Arc<Node<T>>)], order: &impl Fn(&T) -> Ordering) -> usize {
    children[1..].partition_point(|(first, _)| order(first).is_le())
}

fn insert<T: Clone, const MOST: usize>(
    node: &mut Node<T>,
    item: T,
    order: &impl Fn(&T) -> Ordering,
) -> (Option<T>, Split<T>) {
    match node {
        Node::Leaf(items) => {
            let at = match items.binary_search_by(order) {
                Ok(at) => return (Some(std::mem::replace(&mut items[at], item)), None),
                Err(at) => at,
            };
            items.insert(at, item);
            let split = (items.len() > MOST).then(|| {
                let right = items.split_off(MOST / 2);
                (right[0].clone(), Arc::new(Node::Leaf(right)))
            });
            (None, split)
        }
        Node::Inner(children) if children.is_empty() => {
            *node = Node::Leaf(vec![item]);
            (None, None)
        }
        Node::Inner(children) => {
            let at = child(children, order);
            // If the old item is also a separator, the new item replaces it there, too; otherwise the separator would keep the old item alive.
            if order(&children[at].0).is_eq() {
                children[at].0 = item.clone();
            }
            let (replaced, split) = insert::<T, MOST>(Arc::make_mut(&mut children[at].1), item, order);
            if let Some(right) = split {
                children.insert(at + 1, right);
            }
            let split = (children.len() > MOST).then(|| {
                let right = children.split_off(MOST / 2);
                (right[0].0.clone(), Arc::new(Node::Inner(right)))
            });
            (replaced, split)
        }
    }
}

fn remove<T: Clone>(node: &mut Node<T>, order: &impl Fn(&T) -> Ordering) -> Option<T> {
    match node {
        Node::Leaf(items) => items.binary_search_by(order).ok().map(|at| items.remove(at)),
        Node::Inner(children) if children.is_empty() => None,
        Node::Inner(children) => {
            let at = child(children, order);
            let below = Arc::make_mut(&mut children[at].1);
            let removed = remove(below, order)?;
            let empty = match below {
                Node::Leaf(items) => items.is_empty(),
                Node::Inner(children) => children.is_empty(),
            };
            if empty {
                children.remove(at);
            }
            Some(removed)
        }
    }
}

/// Items in order.
#[derive(Clone)]
pub(super) struct Iter<'a, T> {
    /// The remaining children of every node on the path.
    path: Vec<slice::Iter<'a, (T, Arc<Node<T>>)>>,
    leaf: slice::Iter<'a, T>,
}

impl<'a, T> Iterator for Iter<'a, T> {
    type Item = &'a T;

    fn next(&mut self) -> Option<&'a T> {
        loop {
            if let Some(item) = self.leaf.next() {
                return Some(item);
            }
            match self.path.last_mut()?.next() {
                None => drop(self.path.pop()),
                Some((_, node)) => match &**node {
                    Node::Inner(children) => self.path.push(children.iter()),
                    Node::Leaf(items) => self.leaf = items.iter(),
                },
            }
        }
    }
}

impl<T, const MOST: usize> Default for Tree<T, MOST> {
    fn default() -> Self {
        Self { root: Arc::new(Node::Leaf(Vec::new())) }
    }
}
