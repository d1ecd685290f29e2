//! PURE. Records how long keys were queued, in a histogram with a relative resolution of one eighth. The size of the histogram does not depend on the
//! length of the run.

use crate::report::Latency;

/// The number of buckets per power of two.
const PARTS: u64 = 8;

#[derive(Debug)]
pub(super) struct Waits {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

impl Default for Waits {
    fn default() -> Self {
        Self { counts: vec![0; bucket(u64::MAX) + 1], count: 0, max: 0 }
    }
}

impl Waits {
    /// Adds a wait in nanoseconds.
    pub(super) fn add(&mut self, nanos: u64) {
        self.counts[bucket(nanos)] += 1;
        self.count += 1;
        self.max = self.max.max(nanos);
    }

    pub(super) fn count(&self) -> u64 {
        self.count
    }

    /// Returns quantiles of the waits. A returned quantile is never below the exact value, and at most one eighth above it.
    pub(super) fn latency(&self) -> Latency {
        let micros = |percent: u64| self.quantile(percent) as f64 / 1e3;
        Latency { p50: micros(50), p99: micros(99), max: micros(100) }
    }

    fn quantile(&self, percent: u64) -> u64 {
        let rank = (self.count * percent).div_ceil(100);
        let mut seen = 0;
        let reached = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        reached.map_or(0, |bucket| longest(bucket).min(self.max))
    }
}

fn bucket(nanos: u64) -> usize {
    let shift = (nanos / PARTS).checked_ilog2().unwrap_or(0);
    (u64::from(shift) * PARTS + (nanos >> shift)) as usize
}

/// Returns the longest wait that is counted in this bucket.
fn longest(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let shift = (bucket / PARTS).saturating_sub(1);
    let first = bucket - shift * PARTS;
    (u128::from(first + 1) << shift).saturating_sub(1).min(u64::MAX.into()) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_wait_is_in_a_bucket_that_ends_at_most_an_eighth_later() {
        let powers = (0..64).map(|power| 1_u64 << power);
        for nanos in powers.flat_map(|power| [power - 1, power, power + power / 3]).chain([u64::MAX]) {
            let longest = longest(bucket(nanos));
            assert!(longest >= nanos && longest - nanos <= nanos / 8, "{nanos} {longest}");
            assert!(bucket(longest) == bucket(nanos));
            assert!(longest == u64::MAX || bucket(longest + 1) == bucket(nanos) + 1);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_waits() {
        let mut waits = Waits::default();
        assert_eq!(waits.latency(), Latency { p50: 0.0, p99: 0.0, max: 0.0 });
        (1..=100).for_each(|wait| waits.add(wait * 1000));
        let Latency { p50, p99, max } = waits.latency();
        assert!((50.0..=56.25).contains(&p50) && (99.0..=100.0).contains(&p99), "{p50} {p99}");
        assert_eq!((max, waits.count()), (100.0, 100));
    }
}
