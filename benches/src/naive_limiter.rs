//! A naive port of client-go's limiters. Like client-go's, the limiters use floats and one map under a mutex, and read the clock while they hold a
//! lock.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "the naive port uses what std has")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A backoff of `base * 2^n` after n earlier failures of the key, up to a cap. The failures of a key stay counted until `forget`.
#[derive(Debug)]
pub struct NaiveExponential {
    base: Duration,
    cap: Duration,
    failures: Mutex<HashMap<Arc<str>, u32>>,
}

impl NaiveExponential {
    /// Builds a limiter without failures.
    #[must_use]
    pub fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, failures: Mutex::default() }
    }

    /// Counts a failure and returns the delay.
    ///
    /// # Panics
    /// Panics if another thread has panicked while it held the lock.
    pub fn when(&self, key: &Arc<str>) -> Duration {
        let mut failures = self.failures.lock().unwrap();
        let count = failures.entry(key.clone()).or_insert(0);
        let backoff = self.base.as_nanos() as f64 * 2_f64.powi(i32::try_from(*count).unwrap_or(i32::MAX));
        *count += 1;
        if backoff > self.cap.as_nanos() as f64 { self.cap } else { Duration::from_nanos(backoff as u64) }
    }

    /// Forgets a key.
    ///
    /// # Panics
    /// Panics if another thread has panicked while it held the lock.
    pub fn forget(&self, key: &Arc<str>) {
        self.failures.lock().unwrap().remove(key);
    }
}

/// A token bucket: a number of tokens, and the time at which this number was computed.
#[derive(Debug)]
pub struct NaiveBucket {
    rate: f64,
    burst: f64,
    tokens: f64,
    last: f64,
}

impl NaiveBucket {
    /// Builds a full bucket.
    #[must_use]
    pub fn new(rate: f64, burst: f64) -> Self {
        Self { rate, burst, tokens: burst, last: 0.0 }
    }

    /// Takes a token, and returns the number of seconds until this token is available.
    pub fn reserve(&mut self, now: f64) -> f64 {
        self.tokens = (self.tokens + (now - self.last) * self.rate).min(self.burst) - 1.0;
        self.last = now;
        (-self.tokens / self.rate).max(0.0)
    }

    /// Takes a token if one is available.
    pub fn try_acquire(&mut self, now: f64) -> bool {
        let tokens = (self.tokens + (now - self.last) * self.rate).min(self.burst);
        if tokens < 1.0 {
            return false;
        }
        (self.tokens, self.last) = (tokens - 1.0, now);
        true
    }
}

/// client-go's default limiter. Its delay is the longer of two: the backoff of the key, from 5 ms to 1000 s, and the wait for a token of a bucket
/// with 10 tokens per second and a burst of 100.
#[derive(Debug)]
pub struct NaiveDefault {
    exponential: NaiveExponential,
    bucket: Mutex<NaiveBucket>,
    start: Instant,
}

impl NaiveDefault {
    /// Builds a limiter without failures and with a full bucket.
    #[must_use]
    pub fn new() -> Self {
        let exponential = NaiveExponential::new(Duration::from_millis(5), Duration::from_secs(1_000));
        Self { exponential, bucket: Mutex::new(NaiveBucket::new(10.0, 100.0)), start: Instant::now() }
    }

    /// Counts a failure and returns the delay.
    ///
    /// # Panics
    /// Panics if another thread has panicked while it held the lock.
    pub fn when(&self, key: &Arc<str>) -> Duration {
        let backoff = self.exponential.when(key);
        let wait = self.bucket.lock().unwrap().reserve(self.start.elapsed().as_secs_f64());
        backoff.max(Duration::from_secs_f64(wait))
    }
}

impl Default for NaiveDefault {
    fn default() -> Self {
        Self::new()
    }
}
