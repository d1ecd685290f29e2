//! SHELL. The limiter of a queue: the failures of all keys, under a separate lock.
//!
//! | what | guarded by |
//! |---|---|
//! | the policy and the state of the random number generator | `inner` |
//! | `tracked`, which is zero only if no key has failures | `inner` for writes; reads need no lock |
//!
//! `inner` is held while the policy runs. The policy calls `Hash`, `Eq` and `Clone` of keys, and a closure that takes the queue's lock to check
//! whether a key is in the queue. `inner` is never locked while the queue's lock is held. Apart from these calls, a policy is a pure function of its
//! arguments, and must not call the queue. Keys that the policy evicts and reservations are dropped after unlocking, even if the policy panics.
//!
//! The failures of a key are kept as long as the key is in the queue: before a policy evicts a key, it calls that closure (`in_queue`), and keeps the
//! key if the closure returns true. Two alternatives were rejected. The first is to notify the policy when a key enters or leaves the queue. That
//! would cost a lock and a hash each time, and if two threads remove and add a key concurrently, the two notifications could arrive in the wrong
//! order. The second is to store the failures in the queue's entry of the key. That does not work for every policy, because a policy may store
//! something other than a count, or combine several policies.

use std::any::TypeId;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_ratelimit::{OncePerBackoff, Policy};
use flyball_sync::Nanos;
use flyball_sync::locks::{AtomicUsize, Mutex, Ordering};
use flyball_sync::random::SplitMix64;

use crate::key::Key;

/// No limiter: a key that is retried is Ready again immediately, at the tail, and failures are not counted.
///
/// # Examples
/// ```
/// use flyball_workqueue::{Fifo, NoLimiter, Queue};
///
/// let queue: Queue<&str, Fifo, NoLimiter> = Queue::new();
/// queue.add("a")?;
/// queue.try_get()?.retry();
/// assert!(queue.has_ready()); // no backoff
/// assert_eq!(queue.num_requeues(&"a"), 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLimiter;

impl<K: ?Sized> Policy<K> for NoLimiter {
    type Reservation = ();

    const COUNTS_FAILURES: bool = false;

    fn record_failure(&mut self, _: &K, _: Nanos, _: u64) -> (Duration, ()) {
        (Duration::ZERO, ())
    }

    fn forget(&mut self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
    }

    fn cancel(&mut self, (): (), _: Nanos) -> bool {
        false
    }

    fn tracked_keys(&self) -> usize {
        0
    }
}

/// A limiter that a queue can use: any [`Policy`] that is `Send`. A blanket implementation covers all such policies.
///
/// # Examples
/// A function that builds a queue with any limiter:
/// ```
/// use flyball_ratelimit::{Exponential, FastSlow};
/// use flyball_workqueue::{Fifo, Queue, QueueLimiter};
/// use std::time::Duration;
///
/// fn bounded<L: QueueLimiter<u64>>(limiter: L) -> Queue<u64, Fifo, L> {
///     Queue::builder().limiter(limiter).capacity(10_000).build()
/// }
///
/// let (short, long) = (Duration::from_millis(5), Duration::from_secs(60));
/// bounded(Exponential::new(short..=long)).add(7)?;
/// bounded(FastSlow::new(short, long, 3)).add(7)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// A rate limiter for threads and tasks, such as `RateLimiter`, is not a `QueueLimiter`:
/// ```compile_fail,E0277
/// use flyball_ratelimit::{Quota, RateLimiter};
/// use flyball_workqueue::Queue;
/// use std::num::NonZeroU32;
///
/// let limiter = RateLimiter::new(Quota::per_second(NonZeroU32::MIN));
/// let queue = Queue::<&str>::builder().limiter(limiter).build(); // not `TokenBucket::new(..)`
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the limiter of a queue of `{K}`",
    note = "a limiter is a `Policy<{K}>` that is `Send + 'static`: `Exponential`, `FastSlow`, `TokenBucket`, or `MaxOf`, `Capped`, `RetryBudget` of them",
    note = "a rate limiter that threads and tasks wait for, such as `RateLimiter`, is not a `Policy`"
)]
pub trait QueueLimiter<K: ?Sized>: Policy<K> + Send + 'static {}

impl<K: ?Sized, L: Policy<K> + Send + 'static> QueueLimiter<K> for L {}

/// What happens to a key after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The backoff of the key ends at `until`. `counted` is false if the failure was not counted, because the previous backoff of the key was not
    /// over.
    Backoff { until: Nanos, counted: bool },
    /// The key is given up. Its failures are forgotten already; the caller must call the give-up hook.
    Last { failures: u32 },
}

pub(crate) struct Limiter<K, L> {
    inner: Mutex<Inner<K, L>>,
    tracked: AtomicUsize,
}

struct Inner<K, L> {
    policy: OncePerBackoff<K, L>,
    random: SplitMix64,
}

/// User values that are dropped after unlocking: the keys that the policy has evicted, and the reservation of a failure, which the queue never cancels.
struct Dropped<K, R> {
    evicted: Vec<K>,
    reservation: Option<R>,
}

impl<K: Key, L: Policy<K> + 'static> Limiter<K, L> {
    pub(crate) fn new(policy: L, seed: u64) -> Self {
        let inner = Inner { policy: OncePerBackoff::new(policy), random: SplitMix64::new(seed) };
        Self { inner: Mutex::new(inner), tracked: AtomicUsize::new(0) }
    }

    /// Returns whether there is a limiter. Without a limiter, a retry does not read the clock. Evaluated at compile time.
    pub(crate) fn limits() -> bool {
        TypeId::of::<L>() != TypeId::of::<NoLimiter>()
    }

    /// Counts a failure of `key`. At failure number `most`, forgets the failures of the key and returns `Failure::Last`. Both happen under one lock;
    /// otherwise two concurrent failures of the key could both return `Last`. A failure that is not counted never returns `Last`, even if the key has
    /// `most` or more failures. The policy does not evict the failures of keys for which `in_queue` returns true.
    pub(crate) fn failed(
        &self,
        key: &K,
        now: Nanos,
        most: Option<u32>,
        mut in_queue: impl FnMut(&K) -> bool,
    ) -> Failure {
        self.change(|inner, tracked, dropped| {
            let random = inner.random.next();
            // Ordering: Relaxed. `forget` is called for this key only after the failed lease has ended. The queue's lock orders the leases of one
            // key, so `forget` sees the value that is stored here. The value is stored before the policy runs, because the policy may count a failure
            // and then panic.
            tracked.store(1, Ordering::Relaxed);
            let (delay, reservation) = inner.policy.record_failure_keeping(key, now, random, &mut in_queue);
            dropped.reservation = reservation;
            let counted = Self::limits() && dropped.reservation.is_some();
            let failures = if counted && most.is_some() { inner.policy.num_requeues(key) } else { 0 };
            // `failures` is always 0 for a policy that does not count failures.
            if failures > 0 && most.is_some_and(|most| failures >= most) {
                // The evicted keys are taken before the next call of the policy, because that call would drop them under the lock.
                inner.policy.take_evicted(&mut dropped.evicted);
                inner.policy.forget(key);
                return Failure::Last { failures };
            }
            Failure::Backoff { until: now + delay, counted }
        })
    }

    pub(crate) fn forget(&self, key: &K) {
        if self.is_empty() {
            return;
        }
        self.change(|inner, tracked, _| {
            inner.policy.forget(key);
            // Ordering: Relaxed, see `failed`.
            tracked.store(inner.policy.tracked_keys(), Ordering::Relaxed);
        });
    }

    /// Runs `work` on the policy, then drops the keys that the policy has evicted, and the reservation. This happens outside the lock, and even if
    /// `work` panics; otherwise the next operation would drop these keys under the lock.
    fn change<R>(
        &self,
        work: impl FnOnce(&mut Inner<K, L>, &AtomicUsize, &mut Dropped<K, L::Reservation>) -> R,
    ) -> R {
        // Declared before the guard, so that both are dropped after it, even if `take_evicted` panics.
        let result;
        let mut dropped = Dropped { evicted: Vec::new(), reservation: None };
        let mut inner = self.inner.lock();
        result = catch_unwind(AssertUnwindSafe(|| work(&mut inner, &self.tracked, &mut dropped)));
        inner.policy.take_evicted(&mut dropped.evicted);
        drop(inner);
        drop(dropped);
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }

    pub(crate) fn requeues(&self, key: &K) -> u32 {
        if self.is_empty() { 0 } else { self.inner.lock().policy.num_requeues(key) }
    }

    /// Returns true only if no key has failures. In that case a success costs one load instead of a lock and a hash.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        // Ordering: Relaxed, see `failed`.
        self.tracked.load(Ordering::Relaxed) == 0
    }
}
