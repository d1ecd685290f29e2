//! PURE. Spreads periodic work over time by a hash of its key, so that objects that were listed together do not run together in every period.
//!
//! The hash does not depend on the process, as long as the version of Rust is the same: a key keeps its part of the period.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

/// The number of parts of a resync period. In each part, the objects of one slice are mapped.
pub(crate) const SLICES: u32 = 64;

/// Returns the slice of a key, which is below [`SLICES`].
pub(crate) fn slice_of(key: &impl Hash) -> u32 {
    part_of(key, SLICES)
}

/// Returns `delay`, made longer by up to `percent` percent. The extension is always the same for a key.
pub(crate) fn extended(delay: Duration, key: &impl Hash, percent: u32) -> Duration {
    let most = delay.as_nanos().saturating_mul(percent.into()) / 100;
    let most = u64::try_from(most).unwrap_or(u64::MAX);
    let extension = (u128::from(hash(key)) * u128::from(most)) >> 64;
    delay.saturating_add(Duration::from_nanos(u64::try_from(extension).unwrap_or(u64::MAX)))
}

fn part_of(key: &impl Hash, parts: u32) -> u32 {
    // The high bits of the product, which are uniform if the hash is.
    let part = (u128::from(hash(key)) * u128::from(parts)) >> 64;
    u32::try_from(part).unwrap_or_default()
}

fn hash(key: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn keys_are_spread_evenly_over_slices_and_delays() {
        let mut slices = [0_u32; SLICES as usize];
        let mut late = 0;
        for key in 0..6_400_u32 {
            slices[slice_of(&key) as usize] += 1;
            let delay = extended(100 * SECOND, &key, 10);
            assert!((100 * SECOND..110 * SECOND).contains(&delay));
            assert_eq!(delay, extended(100 * SECOND, &key, 10));
            late += u32::from(delay > 105 * SECOND);
        }
        assert!(slices.iter().all(|size| (50..=150).contains(size)), "{slices:?}");
        assert!((3_000..3_400).contains(&late), "{late}");
    }

    #[test]
    fn extreme_delays_do_not_overflow() {
        for delay in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert_eq!(extended(delay, &7, 0), delay);
            assert!(extended(delay, &7, u32::MAX) >= delay);
        }
    }
}
