//! PURE. Persistent structures: a clone shares all nodes, and a change copies the shared nodes on its path.
//!
//! | | holds | found by |
//! |---|---|---|
//! | [`Vector`] | items | number |
//! | [`Hashes`] | numbers | hash |
//! | [`Slab`] | items | a number that the slab assigns |
//! | [`Sorted`] | numbers | position, in an order that the caller maintains |
//!
//! Only the items of a vector or a slab may have reference counts. The leaves of the other structures hold plain numbers, so copying a shared leaf
//! only copies memory. None of them runs user code, except a function that the caller passes to a search; a panic of this function changes nothing.
//!
//! Nodes that are not shared are changed in place, by `Arc::make_mut` at every node. Nodes are shared only while a clone is held, for example by a
//! snapshot.

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

#[cfg(test)]
mod tests;
