//! What every store does, so that each workload is written once.

use crate::store::pods::Pod;

/// The side of a store that its one writer has.
pub(crate) trait Writes {
    type Reader: Reads;

    /// With none, one, two or four indexes: by namespace; by node, too; by labels and uid, too.
    fn new(indexes: usize) -> Self;
    fn reader(&self) -> Self::Reader;
    fn put(&mut self, pod: Pod);
}

/// Of a store that takes complete lists.
pub(crate) trait Replaces: Writes {
    /// A list, as this store wants it.
    type List;

    fn listed(pods: Vec<Pod>, version: u64) -> Self::List;
    /// Makes a list the content, and drops what that returns.
    fn replace(&mut self, list: Self::List);
}

/// The side of a store that any number of threads have.
pub(crate) trait Reads: Clone + Send + Sync {
    /// How it wants to be asked.
    type Key: Sync;

    fn key(pod: &Pod) -> Self::Key;
    /// The version of the object.
    fn get(&self, key: &Self::Key) -> Option<u64>;
}

/// Of a store that can do more than find a key.
pub(crate) trait Lists: Reads {
    /// All objects at one instant.
    type View;

    fn view(&self) -> Self::View;
    fn walk<'a>(view: &'a Self::View, each: impl FnMut(&'a Pod));
    /// The objects of a node, each looked at.
    fn by_node(&self, node: &str, each: impl FnMut(&Pod));
}

/// The sum of all versions: every object is looked at.
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
