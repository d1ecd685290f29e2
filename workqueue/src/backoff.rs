//! PURE. Honest backoff: a key has at most one open backoff.
//!
//! A failure opens a backoff: n failures, until D. A key that runs before D because somebody added it, and fails
//! again, has not served its wait: n and D stay as they are. Only a failure at or after D counts again. So a storm of
//! events cannot drive the exponent up (kubernetes#136853).
//!
//! # Invariants
//! 1. `open[key]` is the end of the last counted wait of `key`, and is gone once the key is forgotten.
//! 2. What is not in `open` has no wait left: only waits that are over are swept away.

use std::hash::Hash;

use flyball_ratelimit::{Nanos, Policy};
use foldhash::fast::RandomState;
use hashbrown::HashMap;

/// A table smaller than this is not worth a sweep.
const SWEEP_FROM: usize = 64;

/// A policy, and the wait that each failing key is serving.
pub(crate) struct Backoff<K, L> {
    policy: L,
    open: HashMap<K, Nanos, RandomState>,
    sweep_at: usize,
}

impl<K: Clone + Eq + Hash, L: Policy<K>> Backoff<K, L> {
    pub(crate) fn new(policy: L) -> Self {
        Self { policy, open: HashMap::default(), sweep_at: SWEEP_FROM }
    }

    /// When `key`, which failed at `now`, may run again.
    pub(crate) fn failed(&mut self, key: &K, now: Nanos, random: u64) -> Nanos {
        if let Some(until) = self.open.get(key).filter(|until| now < **until) {
            return *until;
        }
        let (delay, _) = self.policy.failed(key, now, random);
        let until = now + delay;
        self.sweep(now);
        self.open.insert(key.clone(), until);
        until
    }

    pub(crate) fn forget(&mut self, key: &K) {
        self.open.remove(key);
        self.policy.forget(key);
    }

    pub(crate) fn requeues(&self, key: &K) -> u32 {
        self.policy.requeues(key)
    }

    /// Zero promises that `forget` would do nothing.
    pub(crate) fn tracked(&self) -> usize {
        self.open.len().max(self.policy.tracked())
    }

    /// Drops the waits that are over, each time the table has doubled: amortised O(1) per failure.
    fn sweep(&mut self, now: Nanos) {
        if self.open.len() >= self.sweep_at {
            self.open.retain(|_, until| now < *until);
            self.sweep_at = (self.open.len() * 2).max(SWEEP_FROM);
        }
    }
}
