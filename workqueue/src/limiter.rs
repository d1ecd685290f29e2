//! SHELL. The limiter of a queue: a [`flyball_ratelimit::Limiter`], which counts the failures of all keys under its own lock.
//!
//! The limiter's lock is held while the policy runs. The policy calls `Hash`, `Eq` and `Clone` of keys, and a closure that takes the queue's lock to
//! check whether a key is in the queue. The limiter's lock is never taken while the queue's lock is held. Apart from these calls, a policy is a pure
//! function of its arguments, and must not call the queue. Keys that the policy evicts are dropped after unlocking, even if the policy panics.
//!
//! The failures of a key are kept as long as the key is in the queue: before a policy evicts a key, it calls that closure (`in_queue`), and keeps the
//! key if the closure returns true. Two alternatives were rejected. The first is to notify the policy when a key enters or leaves the queue. That
//! would cost a lock and a hash each time, and if two threads remove and add a key concurrently, the two notifications could arrive in the wrong
//! order. The second is to store the failures in the queue's entry of the key. That does not work for every policy, because a policy may store
//! something other than a count, or combine several policies.

use std::any::TypeId;
use std::time::Duration;

use flyball_ratelimit::{Failure, OncePerBackoff, Policy};
use flyball_sync::Nanos;
use flyball_sync::panics::drop_each;

use crate::queue::Key;

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
    const COUNTS_FAILURES: bool = false;
    const LIMITS: bool = false;

    fn record_failure(&mut self, _: &K, _: Nanos, _: u64, _: &mut dyn FnMut(&K) -> bool) -> Failure {
        Failure { wait: Duration::ZERO, counted: false }
    }

    fn forget(&mut self, _: &K) {}

    fn num_requeues(&self, _: &K) -> u32 {
        0
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
pub(crate) enum AfterFailure {
    /// The backoff of the key ends at `until`. `counted` is false if the failure was not counted, because the previous backoff of the key was not
    /// over.
    Backoff { until: Nanos, counted: bool },
    /// The key is given up. Its failures are forgotten already; the caller must call the give-up hook.
    GaveUp { failures: u32 },
}

/// The failures of the keys of a queue, at most one per backoff. The queue passes the time.
pub(crate) type Limiter<K, L> = flyball_ratelimit::Limiter<K, OncePerBackoff<K, L>, ()>;

pub(crate) fn new<K: Key, L: Policy<K>>(policy: L, seed: u64) -> Limiter<K, L> {
    Limiter::without_clock(OncePerBackoff::new(policy)).seed(seed)
}

/// Returns whether there is a limiter. Without a limiter, a retry does not read the clock. Evaluated at compile time.
pub(crate) fn limits<L: 'static>() -> bool {
    TypeId::of::<L>() != TypeId::of::<NoLimiter>()
}

/// Counts a failure of `key`. At failure number `most`, or if the policy gives the key up, forgets the failures of the key and returns `GaveUp`. Both
/// happen under one lock; otherwise two concurrent failures of the key could both return `GaveUp`. A `most` of `u32::MAX` is no limit. A failure that is not counted does not return `GaveUp` because of `most`, even if the
/// key has `most` or more failures. The policy does not evict the failures of keys for which `in_queue` returns true.
pub(crate) fn count_failure<K: Key, L: Policy<K>>(
    limiter: &Limiter<K, L>,
    key: &K,
    now: Nanos,
    most: Option<u32>,
    mut in_queue: impl FnMut(&K) -> bool,
) -> AfterFailure {
    let most = most.filter(|most| *most < u32::MAX);
    let mut evicted = Vec::new();
    let after = limiter.record_failure_with(|policy, random| {
        let Failure { wait, counted } = policy.record_failure(key, now, random, &mut in_queue);
        let failures = if counted && most.is_some() { policy.num_requeues(key) } else { 0 };
        let by_policy = wait == Duration::MAX;
        // `failures` is always 0 for a policy that does not count failures.
        if by_policy || failures > 0 && most.is_some_and(|most| failures >= most) {
            let failures = if by_policy { policy.num_requeues(key) } else { failures };
            // The evicted keys are taken before the next call of the policy, because that call would drop them under the lock.
            policy.take_evicted(&mut evicted);
            policy.forget(key);
            return AfterFailure::GaveUp { failures };
        }
        AfterFailure::Backoff { until: now + wait, counted }
    });
    // After unlocking, and each by itself: two that panic would otherwise abort the process.
    drop_each(evicted.into_iter());
    after
}
