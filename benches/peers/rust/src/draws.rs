//! Random numbers: the same in the Rust and the Go program.

/// splitmix64, reduced by multiplication.
pub struct Draws(pub u64);

impl Draws {
    /// A number below `below`.
    #[inline]
    pub fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        let x = x ^ x >> 31;
        ((x >> 32).wrapping_mul(below as u64) >> 32) as usize
    }

    /// Returns `count` random numbers below `below`.
    pub fn choices(seed: u64, count: usize, below: usize) -> Vec<u32> {
        let mut draws = Self(seed);
        (0..count).map(|_| draws.next(below) as u32).collect()
    }
}
