//! PURE. Conversions between the 32-bit hashes that entries store and 64-bit hashes.

/// Reduces a 64-bit hash to 32 bits, which depend on all of the 64 bits.
#[inline]
pub(crate) fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// Spreads a 32-bit hash over 64 bits for the hash table, which takes the bucket from the low bits and a tag from the high bits. The factor is odd,
/// so the low 32 bits of the products of different hashes are different. This is Fibonacci hashing (Knuth 1973, 6.4).
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
