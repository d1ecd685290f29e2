//! PURE. Spreads waits, so that keys which failed together do not come back together.

/// How a backoff spreads its waits. Jitter only shortens a wait, so the cap holds with every kind.
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
}

impl Jitter {
    /// Spreads a wait; `random` is uniform over `u64`.
    pub(crate) fn spread(self, wait: u64, random: u64) -> u64 {
        match self {
            Self::None => wait,
            Self::Full => up_to(wait, random),
            Self::Equal => wait / 2 + up_to(wait - wait / 2, random),
        }
    }
}

/// Uniform over `0..=most`: the random number as a fraction of 2^64 (Lemire 2019, without the rejection step; the bias
/// is below one part in 2^64 / `most`).
fn up_to(most: u64, random: u64) -> u64 {
    ((u128::from(random) * (u128::from(most) + 1)) >> u64::BITS) as u64
}
