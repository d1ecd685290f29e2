//! Honest backoff, slowly: one open backoff per key.

use std::time::Duration;

use crate::oracle::limiter::{OracleBucket, OracleQuota};
use crate::queue_answers::{Time, later};

/// base · 2ⁿ, capped.
#[derive(Clone, Copy, Debug)]
pub struct OracleExponential {
    /// The delay of the first failure.
    pub base: Duration,
    /// No delay is longer.
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

/// What became of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failed {
    /// When to come back.
    pub until: Time,
    /// Not the same failure as before.
    pub counted: bool,
}

/// The one open backoff of a key: failures so far, and until when failing again counts as the same failure.
#[derive(Clone, Copy, Debug)]
struct Backoff {
    failures: u32,
    until: Time,
}

/// The open backoffs of all keys; they are kept until forgotten.
#[derive(Clone, Debug)]
pub struct OracleBackoffs<K> {
    limiter: Option<OracleExponential>,
    bucket: Option<OracleBucket>,
    open: Vec<(K, Backoff)>,
}

impl<K: Copy + PartialEq> OracleBackoffs<K> {
    /// None open.
    #[must_use]
    pub fn new(limiter: Option<OracleExponential>, bucket: Option<OracleQuota>) -> Self {
        Self { limiter, bucket: bucket.map(OracleBucket::new), open: Vec::new() }
    }

    /// A failure: one that comes before the open backoff is over is the same failure. Nothing without a limiter.
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

    /// Failures counted and not forgotten.
    #[must_use]
    pub fn failures(&self, key: K) -> u32 {
        self.open.iter().find(|(of, _)| *of == key).map_or(0, |(_, backoff)| backoff.failures)
    }

    /// Forgets the failures of a key, and its open backoff with them.
    pub fn forget(&mut self, key: K) {
        self.open.retain(|(of, _)| *of != key);
    }
}
