//! PURE. Hashes of 32 bits, the size of an entry's hash field.

/// Reduces a 64-bit hash to 32 bits that depend on all 64.
#[inline]
pub(crate) fn fold(hash: u64) -> u32 {
    (hash ^ (hash >> 32)) as u32
}

/// Spreads a hash for the hash table, which takes the bucket from the low bits and a tag from the high bits. The factor is odd, so the multiplication
/// permutes the low bits. This is Fibonacci hashing (Knuth 1973, 6.4).
#[inline]
pub(crate) fn spread(hash: u32) -> u64 {
    u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
