//! PURE. Persistent data structures: a clone shares all nodes, and a change copies the shared nodes on the path from the root to the changed place.
//!
//! | | holds | found by |
//! |---|---|---|
//! | [`Vector`] | items | number |
//! | [`Hashes`] | numbers | hash |
//! | [`Slab`] | items | a number that the slab assigns |
//! | [`Sorted`] | numbers | position; the caller determines the order |
//!
//! Only the items of a vector or a slab may contain reference counts. The leaves of the other structures hold plain numbers, so copying a shared leaf
//! only copies memory. The structures run no user code, except a function that the caller passes to a search. If this function panics, nothing is
//! changed.
//!
//! Nodes that are not shared are changed in place: [`NodeArc::make_mut`] copies a node only if it is shared. Nodes are shared only while a clone is
//! held, for example by a snapshot.

mod chunked;
mod hashes;
mod paged;
mod slab;
mod sorted;
mod vector;

pub(crate) use chunked::Chunked;
pub(crate) use hashes::Hashes;
pub(crate) use paged::Paged;
pub(crate) use slab::Slab;
pub(crate) use sorted::{Numbers, Sorted};
pub(crate) use vector::{Items, Vector, Walk};

/// A node. Unlike std's `Arc`, this one has no count of weak references, so a write finds out whether it may change a node in place by a plain load.
/// With std's, this takes an atomic read-modify-write operation for every node: for an addition to a store with two indexes, half of all (0042).
pub(crate) type NodeArc<T> = triomphe::Arc<T>;

/// The size of the reference count of a node.
const COUNT: usize = size_of::<usize>();

/// Prefetches: makes the CPU load the cache line in which a value begins, without waiting for it.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_index::prefetch_index(std::slice::from_ref(value), 0);
}

#[cfg(test)]
mod tests;
