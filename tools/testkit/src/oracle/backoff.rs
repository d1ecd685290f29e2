//! The oracle of a backoff policy that counts at most one failure per wait: while a key waits after a failure, its further failures are not counted.

use std::time::Duration;

use crate::oracle::limiter::{OracleBucket, OracleQuota};
use crate::queue_answers::{Time, later};
use crate::queue_setup::LimiterChange;

/// An exponential backoff: `base` · 2ⁿ after n earlier failures, but at most `cap`.
#[derive(Clone, Copy, Debug)]
pub struct OracleExponential {
    /// The delay after the first failure.
    pub base: Duration,
    /// The longest delay.
    pub cap: Duration,
}

impl OracleExponential {
    /// The delay of a failure that follows this many failures.
    #[must_use]
    pub fn delay(self, failures_before: u32) -> Duration {
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

/// The backoff of a key: the number of its failures, and the time until which its further failures are not counted.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    failures: u32,
    until: Time,
}

/// The backoffs of all keys. The backoff of a key is kept until it is forgotten.
#[derive(Clone, Debug)]
pub struct OracleBackoffs<K> {
    limiter: Option<OracleExponential>,
    bucket: Option<OracleBucket>,
    open: Vec<(K, Backoff)>,
}

impl<K: Copy + PartialEq> OracleBackoffs<K> {
    /// Creates an oracle in which no key has failed yet.
    #[must_use]
    pub fn new(limiter: Option<OracleExponential>, bucket: Option<OracleQuota>) -> Self {
        Self { limiter, bucket: bucket.map(OracleBucket::new), open: Vec::new() }
    }

    /// Records a failure of a key. The failure is not counted if the wait after the previous failure of the key has not ended. Returns `None` without
    /// a limiter.
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

    /// Sets the number of failures of a key, if it is larger than the present one. Without a limiter, nothing is counted.
    pub fn restore(&mut self, key: K, failures: u32) {
        if self.limiter.is_none() {
            return;
        }
        match self.open.iter_mut().find(|(of, _)| *of == key) {
            Some((_, backoff)) => backoff.failures = backoff.failures.max(failures),
            None => self.open.push((key, Backoff { failures, until: 0 })),
        }
    }

    /// Changes the limiter, if there is one. A new backoff has counted no failures, but the waits that have begun last as long as before.
    pub fn change(&mut self, change: LimiterChange, now: Time) {
        if let (Some(limiter), Some(backoff)) = (&mut self.limiter, change.backoff) {
            *limiter = backoff;
            self.open.iter_mut().for_each(|(_, backoff)| backoff.failures = 0);
        }
        if let (Some(bucket), Some(quota)) = (&mut self.bucket, change.quota) {
            bucket.set_quota(quota, now);
        }
    }

    /// The number of failures of a key that were counted and not forgotten.
    #[must_use]
    pub fn failures(&self, key: K) -> u32 {
        self.open.iter().find(|(of, _)| *of == key).map_or(0, |(_, backoff)| backoff.failures)
    }

    /// Forgets the backoff of a key, with its failures.
    pub fn forget(&mut self, key: K) {
        self.open.retain(|(of, _)| *of != key);
    }
}
