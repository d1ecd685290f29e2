//! PURE. Hashes of 32 bits, which is what an entry has room for.

/// Of the 64 bits of a hash, 32 that depend on all of them.
#[inline]
pub(crate) fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// What the table wants: it takes the bucket from the low bits, which stay a permutation, and a tag from the high ones.
/// Fibonacci hashing (Knuth 1973, 6.4).
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
