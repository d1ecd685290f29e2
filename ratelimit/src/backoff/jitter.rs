//! PURE. Spreads waits, so that keys which failed together do not come back together.

/// How a backoff spreads its waits. The cap holds with every kind.
///
/// Names and comparison: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// The wait as it is.
    #[default]
    None,
    /// Anything from no wait to the whole wait: the widest spread, half the wait on average.
    Full,
    /// Half the wait, and anything up to the other half.
    Equal,
    /// Anything from the base to three times the key's last wait, which takes the place of doubling: two keys that
    /// failed together differ more with each failure, and no wait is below the base.
    ///
    /// It grows more slowly than doubling, in the long run by a factor of 3/e (1.1) a failure, and unevenly: a wait may
    /// be the base at any time.
    Decorrelated,
}

impl Jitter {
    /// The wait after one of `last`; `random` is uniform over `u64`.
    pub(crate) fn wait(self, doubled: u64, last: u64, base: u64, cap: u64, random: u64) -> u64 {
        // Every kind is uniform over a range whose end, not whose outcome, the cap cuts off: decision 0011.
        let (least, most) = match self {
            Self::None => return doubled,
            Self::Full => (0, doubled),
            Self::Equal => (doubled / 2, doubled),
            Self::Decorrelated => (base, last.max(base).saturating_mul(3).min(cap)),
        };
        least + up_to(most - least, random)
    }
}

/// Uniform over `0..=most`: the random number as a fraction of 2^64 (Lemire 2019, without the rejection step; the bias
/// is below one part in 2^64 / `most`).
fn up_to(most: u64, random: u64) -> u64 {
    ((u128::from(random) * (u128::from(most) + 1)) >> u64::BITS) as u64
}
