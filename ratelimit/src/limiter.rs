//! SHELL. A backoff policy behind a lock, with a clock and randomness.
//!
//! | guarded by `state` | |
//! |---|---|
//! | `policy` | the state of the policy |
//! | `random` | one number is drawn for each failure, under the same lock, so that a run with a single thread is reproducible |
//! | `tracked`, for writes; reads need no lock | zero only if no key has stored state |
//!
//! | outside the lock | |
//! |---|---|
//! | reading the clock | before locking. So a failure with an earlier reading may be counted after one with a later reading; policies tolerate this |
//! | dropping keys | after unlocking, even if a panic unwinds, because `Drop` is user code |

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::Duration;

use flyball_sync::locks::{AtomicUsize, Mutex, Ordering};
use flyball_sync::panics::drop_each;
use flyball_sync::random::SplitMix64;
use flyball_sync::{Clock, Monotonic, Nanos};

use crate::policy::Policy;

/// A backoff limiter: a [`Policy`] that threads share, which decides how long a failed key waits.
///
/// All methods take `&self`. Under the lock, the limiter calls only its policy (which calls `Hash`, `Eq` and `Clone` of keys) and the closure of
/// [`update_policy`](Self::update_policy) or [`record_failure_with`](Self::record_failure_with). A panic in any of them leaves the limiter usable. Keys
/// that the policy evicts are dropped after unlocking.
///
/// While no key has failures, [`forget`](Self::forget), [`num_requeues`](Self::num_requeues) and [`is_empty`](Self::is_empty) cost one load, without a
/// lock.
///
/// # Memory ordering
/// That load synchronises no other memory. Without a lock or another synchronisation between them, `forget` in one thread may miss a failure that
/// another thread has just counted, as if `forget` had been called before the failure.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Exponential, Limiter};
/// use std::time::Duration;
///
/// let limiter = Limiter::new(Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1_000)));
/// assert_eq!(limiter.record_failure(&"a"), Duration::from_millis(5));
/// assert_eq!(limiter.record_failure(&"a"), Duration::from_millis(10));
/// limiter.forget(&"a"); // it succeeded
/// assert_eq!(limiter.num_requeues(&"a"), 0);
/// ```
pub struct Limiter<K, P, C = Monotonic> {
    state: Mutex<State<P>>,
    tracked: AtomicUsize,
    clock: C,
    /// The methods take keys, but the limiter owns none.
    keys: PhantomData<fn(&K)>,
}

struct State<P> {
    policy: P,
    random: SplitMix64,
}

// === impl Limiter ===

impl<K, P: Policy<K>> Limiter<K, P> {
    /// Creates a limiter on the machine's monotonic clock.
    #[must_use]
    pub fn new(policy: P) -> Self {
        Self::with_clock(policy, Monotonic)
    }
}

impl<K, P: Policy<K>> Limiter<K, P, ()> {
    /// Creates a limiter without a clock, for an owner that reads its own clock, such as a queue. The owner counts failures with
    /// [`record_failure_with`](Self::record_failure_with).
    #[must_use]
    pub fn without_clock(policy: P) -> Self {
        Self::on(policy, ())
    }
}

impl<K, P: Policy<K>, C: Clock> Limiter<K, P, C> {
    /// Creates a limiter on a clock of your choice, such as a [`ManualClock`](crate::ManualClock).
    #[must_use]
    pub fn with_clock(policy: P, clock: C) -> Self {
        Self::on(policy, clock)
    }

    /// Counts a failure of `key` and returns how long the key has to wait from now on. [`Duration::MAX`] means that the policy gives the key up;
    /// [forget](Self::forget) the key in that case.
    #[doc(alias = "When")]
    pub fn record_failure(&self, key: &K) -> Duration {
        let now = self.clock.now();
        self.record_failure_with(|policy, random| policy.record_failure(key, now, random, &mut |_| false))
            .wait
    }

    /// Changes the policy while it is in use, for example the quota of a nested bucket.
    ///
    /// `change` receives the policy and the time, and runs under the lock: it must be short, and must not use this
    /// limiter, which would deadlock. Waits that were already returned do not change.
    ///
    /// # Panics
    /// Panics if `change` panics. The policy is then as `change` left it, and the limiter continues with it.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Capped, Limiter, Quota, controller_default};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let limiter = Limiter::<&str, _>::new(Capped::new(controller_default(), Duration::from_secs(60)));
    /// let fifty = Quota::per_second(NonZeroU32::new(50).unwrap());
    /// limiter.update_policy(|capped, now| capped.get_mut().get_mut().1.set_quota(fifty, now));
    /// ```
    pub fn update_policy<R>(&self, change: impl FnOnce(&mut P, Nanos) -> R) -> R {
        let now = self.clock.now();
        self.change(true, |state| change(&mut state.policy, now))
    }
}

impl<K, P: Policy<K>, C> Limiter<K, P, C> {
    fn on(policy: P, clock: C) -> Self {
        // Each limiter has its own seed, so that processes that fail together do not retry together.
        let seed = RandomState::new().hash_one(0);
        let tracked = AtomicUsize::new(policy.tracked_keys());
        let state = Mutex::new(State { policy, random: SplitMix64::new(seed) });
        Self { state, tracked, clock, keys: PhantomData }
    }

    /// Draws new random numbers, from `seed`, so that a run is reproducible. Only
    /// jitter uses them.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Jitter, Limiter};
    /// use std::time::Duration;
    ///
    /// let waits = |seed| {
    ///     let backoff = Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60)).jitter(Jitter::Full);
    ///     let limiter = Limiter::new(backoff).seed(seed);
    ///     let waits = ["a", "b", "a"].map(|key| limiter.record_failure(&key));
    ///     assert_eq!(limiter.tracked_keys(), 2);
    ///     waits
    /// };
    /// assert_eq!(waits(7), waits(7));
    /// ```
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        let State { policy, .. } = self.state.into_inner();
        Self { state: Mutex::new(State { policy, random: SplitMix64::new(seed) }), ..self }
    }

    /// Counts a failure in one step of your own: `work` receives the policy and a random number for
    /// [`Policy::record_failure`]. With it, you pass the time and the keys in use, and can give up on a key at its n-th failure.
    ///
    /// `work` runs under the lock, so no other thread counts or forgets a failure in between. It must be short, and must not use this limiter, which
    /// would deadlock. If it calls two operations of the policy, the second may drop the keys that the first has evicted; to drop them after unlocking,
    /// call [`Policy::take_evicted`] in between.
    ///
    /// # Panics
    /// Panics if `work` panics. The policy is then as `work` left it, and the limiter continues with it.
    ///
    /// # Examples
    /// Gives up on a key at its third failure:
    /// ```
    /// use flyball_ratelimit::{Exponential, Limiter, Nanos, Policy};
    /// use std::time::Duration;
    ///
    /// let limiter = Limiter::without_clock(Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60)));
    /// let fail = |key: &str, now| {
    ///     let mut evicted = Vec::new(); // dropped after unlocking
    ///     limiter.record_failure_with(|policy, random| {
    ///         let failure = policy.record_failure(&key.to_owned(), now, random, &mut |_| false);
    ///         if policy.num_requeues(&key.to_owned()) < 3 {
    ///             return Some(failure.wait);
    ///         }
    ///         policy.take_evicted(&mut evicted);
    ///         policy.forget(&key.to_owned());
    ///         None
    ///     })
    /// };
    /// let waits = [0, 1, 3].map(|at| fail("a", Nanos::ZERO + Duration::from_secs(at)).map(|wait| wait.as_secs()));
    /// assert_eq!(waits, [Some(1), Some(2), None]);
    /// assert_eq!(limiter.tracked_keys(), 0);
    /// ```
    pub fn record_failure_with<R>(&self, work: impl FnOnce(&mut P, u64) -> R) -> R {
        self.change(false, |state| {
            let random = state.random.next();
            work(&mut state.policy, random)
        })
    }

    /// Forgets the failures of `key`. Has no effect for an unknown key.
    pub fn forget(&self, key: &K) {
        if !self.is_empty() {
            self.change(true, |state| state.policy.forget(key));
        }
    }

    /// The number of failures counted for `key` and not forgotten; 0 for an unknown key.
    pub fn num_requeues(&self, key: &K) -> u32 {
        if self.is_empty() { 0 } else { self.state.lock().policy.num_requeues(key) }
    }

    /// The number of keys with stored state.
    pub fn tracked_keys(&self) -> usize {
        self.state.lock().policy.tracked_keys()
    }

    /// Returns true only if no key has stored state, so that [`forget`](Self::forget) has no effect; it may return false even so. One load, without a
    /// lock.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{Exponential, Limiter};
    /// use std::time::Duration;
    ///
    /// let limiter = Limiter::new(Exponential::new(Duration::from_secs(1)..=Duration::from_secs(60)));
    /// limiter.record_failure(&"a");
    /// assert!(!limiter.is_empty());
    /// limiter.forget(&"a");
    /// assert!(limiter.is_empty());
    /// ```
    #[must_use]
    #[inline]
    pub fn is_empty(&self) -> bool {
        // Ordering: Relaxed. The value is written under the lock, so a reader that knows of a failure, because it is ordered after it, finds the value
        // of that failure or a later one.
        self.tracked.load(Ordering::Relaxed) == 0
    }

    /// Runs `work` on the policy, and returns its result after unlocking. Takes the keys that the policy has evicted, and drops them after unlocking,
    /// even if `work` panics; otherwise the next operation would drop them under the lock. Without `recount`, `tracked` stays above zero, which saves the
    /// count after a failure.
    fn change<R>(&self, recount: bool, work: impl FnOnce(&mut State<P>) -> R) -> R {
        // Declared before the guard, so that both are dropped after it, even if `take_evicted` panics.
        let result;
        let mut evicted = Vec::new();
        let mut state = self.state.lock();
        // Ordering: Relaxed, see `is_empty`. Not zero while `work` runs, nor if it panics, because the policy may have counted a failure by then.
        self.tracked.store(1, Ordering::Relaxed);
        result = catch_unwind(AssertUnwindSafe(|| work(&mut state)));
        state.policy.take_evicted(&mut evicted);
        if recount && result.is_ok() {
            // Ordering: Relaxed, see `is_empty`.
            self.tracked.store(state.policy.tracked_keys(), Ordering::Relaxed);
        }
        drop(state);
        // Each by itself: two that panic would otherwise abort the process.
        drop_each(evicted.into_iter());
        result.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

impl<K, P: Policy<K>, C> fmt::Debug for Limiter<K, P, C> {
    /// Prints only a number: the `Debug` of the policy, which may be user code, and the writer would run under the lock.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tracked = self.tracked_keys();
        f.debug_struct("Limiter").field("tracked", &tracked).finish_non_exhaustive()
    }
}
