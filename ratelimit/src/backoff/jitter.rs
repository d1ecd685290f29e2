//! PURE. Jitter, which spreads waits so that keys that failed together are not retried together.

/// The jitter of a backoff: how the backoff spreads its waits. No wait of any variant exceeds the cap.
///
/// Names and comparison: Marc Brooker, "Exponential Backoff and Jitter", AWS Architecture Blog, 2015.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Jitter {
    /// No jitter.
    #[default]
    None,
    /// A random wait between zero and the full wait: the widest spread, and half the full wait on average.
    Full,
    /// A random wait between half the wait and the full wait.
    Equal,
    /// A random wait between the base and three times the key's last wait; the waits are not doubled. Two keys that failed together diverge more with
    /// each failure, and no wait is below the base.
    ///
    /// The waits grow more slowly than by doubling, in the long run by a factor of 3/e (1.1) per failure, and unevenly:
    /// any wait may be as short as the base.
    Decorrelated,
}

impl Jitter {
    /// Returns the next wait. `doubled` is the wait without jitter, `last` the key's last wait; `random` is uniform over `u64`.
    pub(crate) fn wait(self, doubled: u64, last: u64, base: u64, cap: u64, random: u64) -> u64 {
        // Each variant draws uniformly from a range. The cap limits the end of the range, not the value that was drawn (decision 0011).
        let (least, most) = match self {
            Self::None => return doubled,
            Self::Full => (0, doubled),
            Self::Equal => (doubled / 2, doubled),
            Self::Decorrelated => (base, last.max(base).saturating_mul(3).min(cap)),
        };
        least + up_to(most - least, random)
    }
}

/// Returns a number that is uniform over `0..=most`: `random` / 2^64 · (`most` + 1), rounded down (Lemire 2019, without the
/// rejection step; the bias is below one part in 2^64 / `most`).
fn up_to(most: u64, random: u64) -> u64 {
    ((u128::from(random) * (u128::from(most) + 1)) >> u64::BITS) as u64
}
