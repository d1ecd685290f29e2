//! SHELL. The failures of all keys, under a lock of their own.
//!
//! | what | guarded by |
//! |---|---|
//! | the backoff and the state of the generator | `inner`; held while the policy, and `Hash`, `Eq`, `Clone` of keys, run; never together with the queue's lock |
//! | `tracked` | written under `inner`; read without it, as a hint |

use std::any::TypeId;
use std::hash::Hash;
use std::time::Duration;

use flyball_ratelimit::{Nanos, Policy};

use crate::backoff::Backoff;
use crate::sync::{AtomicUsize, Mutex, Ordering};

/// No limiter: a retry is Ready again at once, at the tail, and failures are not counted.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLimit;

impl<K: ?Sized> Policy<K> for NoLimit {
    type Taken = ();

    fn failed(&mut self, _: &K, _: Nanos, _: u64) -> (Duration, ()) {
        (Duration::ZERO, ())
    }

    fn forget(&mut self, _: &K) {}

    fn requeues(&self, _: &K) -> u32 {
        0
    }

    fn give_back(&mut self, (): (), _: Nanos) {}

    fn tracked(&self) -> usize {
        0
    }
}

pub(crate) struct Limiter<K, L> {
    inner: Mutex<Inner<K, L>>,
    tracked: AtomicUsize,
}

struct Inner<K, L> {
    backoff: Backoff<K, L>,
    random: u64,
}

impl<K: Clone + Eq + Hash, L: Policy<K> + 'static> Limiter<K, L> {
    pub(crate) fn new(policy: L, seed: u64) -> Self {
        let inner = Inner { backoff: Backoff::new(policy), random: seed };
        Self { inner: Mutex::new(inner), tracked: AtomicUsize::new(0) }
    }

    /// Whether failures are counted at all; if not, a retry needs no clock. Folded at compile time.
    pub(crate) fn limits() -> bool {
        TypeId::of::<L>() != TypeId::of::<NoLimit>()
    }

    /// When `key`, which failed at `now`, may run again.
    pub(crate) fn failed(&self, key: &K, now: Nanos) -> Nanos {
        let mut inner = self.inner.lock();
        let random = inner.next_random();
        let until = inner.backoff.failed(key, now, random);
        // Ordering: Relaxed. `forget` of this key comes after the end of the lease that failed, and leases of one key
        // follow one another through the queue's lock.
        self.tracked.store(inner.backoff.tracked(), Ordering::Relaxed);
        until
    }

    pub(crate) fn forget(&self, key: &K) {
        // A queue where nothing fails pays one load for each success, not a lock and a hash.
        // Ordering: Relaxed, see `failed`.
        if self.tracked.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut inner = self.inner.lock();
        inner.backoff.forget(key);
        // Ordering: Relaxed, see `failed`.
        self.tracked.store(inner.backoff.tracked(), Ordering::Relaxed);
    }

    pub(crate) fn requeues(&self, key: &K) -> u32 {
        self.inner.lock().backoff.requeues(key)
    }
}

impl<K, L> Inner<K, L> {
    /// splitmix64 (Steele, Lea and Flood 2014): one addition and a mix, and every seed is a good one.
    fn next_random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.random ^ (self.random >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}
