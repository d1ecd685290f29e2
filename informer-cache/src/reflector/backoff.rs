//! PURE. A backoff that grows with consecutive failures.

use std::time::Duration;

use flyball_sync::Nanos;

use crate::ReflectorBackoff;

/// Counts consecutive failures, and computes the wait after each of them.
///
/// A reflector has one source, so it needs no backoff per key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Backoff {
    config: ReflectorBackoff,
    failures: u32,
    /// The time at which the last wait ended. (client-go stores the start of the wait instead. As a result, client-go resets the backoff after every
    /// wait that is longer than `reset_after`.)
    rested: Nanos,
}

impl Backoff {
    pub(crate) fn new(config: ReflectorBackoff) -> Self {
        Self { config, failures: 0, rested: Nanos::ZERO }
    }

    /// Counts a failure at `now`. Returns how long to wait; this is at least `least`.
    pub(crate) fn failed(&mut self, least: Duration, now: Nanos, random: u64) -> Duration {
        let ReflectorBackoff { initial, factor, max: cap, jitter_percent, reset_after } = self.config;
        if now.since(self.rested) >= reset_after {
            self.failures = 0;
        }
        let grown = factor.checked_pow(self.failures).and_then(|growth| initial.checked_mul(growth));
        let base = grown.map_or(cap, |grown| grown.min(cap));
        let wait = base.saturating_add(jitter(base, jitter_percent, random)).max(least);
        self.failures = self.failures.saturating_add(1);
        self.rested = now + wait;
        wait
    }

    pub(crate) fn failures(&self) -> u32 {
        self.failures
    }
}

/// Returns a random duration, uniformly distributed between 0 and `percent` percent of `base`.
fn jitter(base: Duration, percent: u32, random: u64) -> Duration {
    // Uses only 32 random bits, so that the products below fit in 128 bits for any duration.
    let share = u128::from(random >> 32);
    let range = base.as_nanos().saturating_mul(u128::from(percent)) / 100;
    let nanos = (range >> 32) * share + (((range & 0xFFFF_FFFF) * share) >> 32);
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// Returns a random duration, uniformly distributed in [`least`, 2·`least`].
pub(crate) fn spread(least: Duration, random: u64) -> Duration {
    least.saturating_add(jitter(least, 100, random))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MILLI: Duration = Duration::from_millis(1);

    #[test]
    fn grows_to_max_and_resets_after_reset_after() {
        let mut backoff = Backoff::new(ReflectorBackoff::default());
        let mut now = Nanos::ZERO;
        let mut waits = Vec::new();
        for _ in 0..8 {
            let wait = backoff.failed(Duration::ZERO, now, 0);
            waits.push(wait.as_millis());
            now = now + wait;
        }
        assert_eq!(waits, [800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        now = now + Duration::from_secs(120);
        assert_eq!(backoff.failed(Duration::ZERO, now, 0), 800 * MILLI);
        // 1 ms less than `reset_after` has passed, so the failure count is kept.
        now = now + 800 * MILLI + Duration::from_secs(120).saturating_sub(MILLI);
        assert_eq!(backoff.failed(Duration::ZERO, now, 0), 1600 * MILLI);
    }

    #[test]
    fn jitter_adds_up_to_its_percentage_and_nothing_overflows() {
        let mut backoff = Backoff::new(ReflectorBackoff::default());
        let wait = backoff.failed(Duration::ZERO, Nanos::ZERO, u64::MAX);
        assert!(wait > 1599 * MILLI && wait <= 1600 * MILLI, "{wait:?}");
        assert_eq!(backoff.failed(Duration::from_secs(99), Nanos::ZERO, 0), Duration::from_secs(99));
        let huge = ReflectorBackoff {
            initial: Duration::MAX,
            max: Duration::MAX,
            factor: u32::MAX,
            jitter_percent: u32::MAX,
            reset_after: Duration::MAX,
        };
        let mut backoff = Backoff::new(huge);
        for _ in 0..40 {
            assert_eq!(backoff.failed(Duration::ZERO, Nanos::MAX, u64::MAX), Duration::MAX);
        }
        assert_eq!(spread(MILLI, 0), MILLI);
        assert!(spread(MILLI, u64::MAX) <= 2 * MILLI);
    }
}
