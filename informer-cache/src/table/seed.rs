//! PURE. The hasher of one store.

use std::hash::BuildHasher;

use foldhash::quality::{FixedState, FoldHasher, RandomState};

/// The seed of the hash function for keys and index values. It never changes during the lifetime of a store, because the store keeps hashes that were
/// computed with it.
///
/// The hash function is the quality variant of foldhash. The hash index needs good low and high bits: it uses low bits of a hash to choose a page,
/// and higher bits to order the entries in the page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seed(u64);

impl Seed {
    pub(crate) const fn fixed(seed: u64) -> Self {
        Self(seed)
    }

    /// Creates a random seed, so that an attacker cannot choose keys whose hashes collide.
    pub(crate) fn random() -> Self {
        Self(RandomState::default().hash_one(0))
    }
}

impl BuildHasher for Seed {
    type Hasher = FoldHasher<'static>;

    fn build_hasher(&self) -> Self::Hasher {
        FixedState::with_seed(self.0).build_hasher()
    }
}
