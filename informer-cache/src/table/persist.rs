//! PURE. Persistent structures: a clone shares all nodes, a change copies those that are shared on its path.
//!
//! | | holds | found by |
//! |---|---|---|
//! | [`Vector`] | items | number |
//! | [`Hashes`] | numbers | hash |
//! | [`Slab`] | items | a number of their own |
//! | [`Sorted`] | numbers | position, in any order the caller keeps |
//!
//! Only a vector holds anything that is worth a count; the other two hold plain numbers, so to copy a shared page of them
//! is to copy memory. None of them runs foreign code, but what the caller passes to a search: a panic there has changed
//! nothing.
//!
//! *Change in place while unshared* is `Arc::make_mut` at every node; sharing is a snapshot's doing.

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
