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
//! Nodes that are not shared are changed in place: [`unshared`] copies a node only if it is shared. Nodes are shared only while a clone is held, for
//! example by a snapshot.

use std::sync::Arc;

mod bits;
mod hashes;
mod slab;
mod sorted;
mod vector;

pub(crate) use bits::Bits;
pub(crate) use hashes::Hashes;
pub(crate) use slab::Slab;
pub(crate) use sorted::{Numbers, Sorted};
pub(crate) use vector::{Items, Vector, Walk};

/// Returns the content of a node, to change it. If the node is shared, replaces it by a copy first.
///
/// A node has no weak references, so this takes half the instructions of `Arc::make_mut`, and like that one atomic read-modify-write operation:
/// `make_mut` also supports content that weak references keep alive.
#[inline]
pub(crate) fn unshared<T: Clone>(node: &mut Arc<T>) -> &mut T {
    // If the count is 1, no other thread can increment it. If it falls to 1 after this line, the node is copied needlessly. In either case, the copy
    // holds a reference to every item, so replacing the node does not drop an item.
    if Arc::strong_count(node) > 1 {
        *node = Arc::new(T::clone(node));
    }
    Arc::get_mut(node).expect("a node that is not shared has no weak reference")
}

#[cfg(test)]
mod tests;
