//! PURE. A small seedable random number generator.

/// splitmix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): one addition and one
/// mixing step per number. Any seed is suitable, and the period is 2^64. Use it for jitter and seeds, not for secrets.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates a generator from a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number, uniform over `u64`.
    #[inline]
    pub const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        mix(self.0)
    }

    /// Returns the next number below `bound`. Lower numbers are slightly more likely: the relative difference is about `bound` / 2^64.
    ///
    /// # Panics
    /// Panics if `bound` is zero.
    #[inline]
    pub const fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

/// The mixing step of splitmix64, which is a permutation: every bit of the result depends on every bit of `z`.
#[must_use]
#[inline]
pub const fn mix(z: u64) -> u64 {
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}
