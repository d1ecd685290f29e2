//! The oracle of a backoff policy with one open wait per key: failures before the end of that wait are not counted.

use std::time::Duration;

use crate::oracle::limiter::{OracleBucket, OracleQuota};
use crate::queue_answers::{Time, later};

/// An exponential backoff: base · 2ⁿ, at most `cap`.
#[derive(Clone, Copy, Debug)]
pub struct OracleExponential {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub cap: Duration,
}

impl OracleExponential {
    fn delay(self, failures_before: u32) -> Duration {
        let mut delay = self.base;
        for _ in 0..failures_before {
            delay = delay.saturating_mul(2);
            if delay > self.cap {
                break;
            }
        }
        delay.min(self.cap)
    }
}

/// The result of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// The time of the retry.
    pub until: Time,
    /// Whether the failure was counted.
    pub counted: bool,
}

/// The open backoff of a key: the number of failures, and the time until which another failure is not counted.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    failures: u32,
    until: Time,
}

/// The open backoffs of all keys, which are kept until they are forgotten.
#[derive(Clone, Debug)]
pub struct OracleBackoffs<K> {
    limiter: Option<OracleExponential>,
    bucket: Option<OracleBucket>,
    open: Vec<(K, Backoff)>,
}

impl<K: Copy + PartialEq> OracleBackoffs<K> {
    /// Creates the oracle without open backoffs.
    #[must_use]
    pub fn new(limiter: Option<OracleExponential>, bucket: Option<OracleQuota>) -> Self {
        Self { limiter, bucket: bucket.map(OracleBucket::new), open: Vec::new() }
    }

    /// Records a failure. A failure before the end of the open backoff is not counted. Returns `None` without a limiter.
    pub fn fail(&mut self, key: K, now: Time) -> Option<Failed> {
        let limiter = self.limiter?;
        let open = self.open.iter().find(|(of, _)| *of == key).map(|(_, backoff)| *backoff);
        if let Some(open) = open.filter(|open| now < open.until) {
            return Some(Failed { until: open.until, counted: false });
        }
        let before = open.map_or(0, |open| open.failures);
        let token = self.bucket.as_mut().map_or(now, |bucket| match bucket.reserve(1, now) {
            Ok(token) => bucket.due(token),
            Err(burst) => unreachable!("a burst is one or more, not {burst}"),
        });
        let until = later(now, limiter.delay(before)).max(token);
        self.forget(key);
        self.open.push((key, Backoff { failures: before.saturating_add(1), until }));
        Some(Failed { until, counted: true })
    }

    /// The number of failures of a key that were counted and not forgotten.
    #[must_use]
    pub fn failures(&self, key: K) -> u32 {
        self.open.iter().find(|(of, _)| *of == key).map_or(0, |(_, backoff)| backoff.failures)
    }

    /// Forgets the failures and the open backoff of a key.
    pub fn forget(&mut self, key: K) {
        self.open.retain(|(of, _)| *of != key);
    }
}
