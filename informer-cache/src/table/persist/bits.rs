//! PURE. A set of numbers below a bound, with one bit for each number. It is not a persistent structure, because it is used only during one relist.

/// A set of numbers.
#[derive(Clone)]
pub(crate) struct Bits(Vec<u64>);

impl Bits {
    /// Creates an empty set for numbers below `end`.
    pub(crate) fn new(end: u32) -> Self {
        Self(vec![0; (end as usize).div_ceil(64)])
    }

    pub(crate) fn has(&self, number: u32) -> bool {
        self.0.get(number as usize / 64).is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Inserts a number, which must be below the bound.
    pub(crate) fn set(&mut self, number: u32) {
        self.0[number as usize / 64] |= 1 << (number % 64);
    }

    /// Removes a number.
    pub(crate) fn clear(&mut self, number: u32) {
        if let Some(word) = self.0.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }
}
