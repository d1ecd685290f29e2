//! The operations that every store has, so that each workload is written once.

use crate::store::pods::Pod;

/// The write side of a store; there is one writer.
pub(crate) trait Writes {
    type Reader: Reads;

    /// The argument is the number of indexes. 1: namespace; 2: namespace, node; 4: namespace, node, labels, uid.
    fn new(indexes: usize) -> Self;
    fn reader(&self) -> Self::Reader;
    fn put(&mut self, pod: Pod);
}

/// A store that accepts complete lists.
pub(crate) trait Replaces: Writes {
    /// A list in the form that this store expects.
    type List;

    fn listed(pods: Vec<Pod>, version: u64) -> Self::List;
    /// Replaces the content with the list, and drops the returned value.
    fn replace(&mut self, list: Self::List);
}

/// The read side of a store; any number of threads share it.
pub(crate) trait Reads: Clone + Send + Sync {
    /// The key type of a lookup.
    type Key: Sync;

    fn key(pod: &Pod) -> Self::Key;
    /// Returns the version of the object.
    fn get(&self, key: &Self::Key) -> Option<u64>;
}

/// A store that supports more than lookups by key.
pub(crate) trait Lists: Reads {
    /// All objects at one point in time.
    type View;

    fn view(&self) -> Self::View;
    fn walk<'a>(view: &'a Self::View, each: impl FnMut(&'a Pod));
    /// Calls `each` for all objects of a node.
    fn by_node(&self, node: &str, each: impl FnMut(&Pod));
}

/// Reads every object, and returns the sum of their versions.
pub(crate) fn read<R: Lists>(view: &R::View) -> u64 {
    let mut sum = 0;
    R::walk(view, |pod| sum += pod.version);
    sum
}

pub(crate) fn filled<C: Writes>(indexes: usize, pods: &[Pod]) -> C {
    let mut cache = C::new(indexes);
    pods.iter().for_each(|pod| cache.put(pod.clone()));
    cache
}
