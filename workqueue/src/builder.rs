//! SHELL. Making a queue; what cannot work together cannot be written down.

use std::fmt;
use std::hash::{BuildHasher, Hasher};
use std::marker::PhantomData;

use flyball_ratelimit::{Clock, Policy, Timer};

use crate::limiter::NoLimit;
use crate::order::{Fifo, Order};
use crate::queue::Queue;
use crate::shared::{Key, Shared};
use crate::time::{Blocking, NoDelay, Time, Timed};

/// Makes a [`Queue`]: what it knows of time, and how failures are limited.
///
/// # Examples
/// ```
/// use flyball_ratelimit::Exponential;
/// use flyball_workqueue::Queue;
/// use std::time::Duration;
///
/// // For threads: delays and backoff, no runtime.
/// let backoff = Exponential::new(Duration::from_millis(5)..=Duration::from_secs(1000));
/// let queue = Queue::builder().limiter(backoff).build();
/// queue.add_after("a", Duration::from_secs(30))?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a builder does nothing until `build`"]
pub struct Builder<K, O = Fifo, L = NoLimit, T = NoDelay> {
    limiter: L,
    time: T,
    seed: u64,
    types: PhantomData<fn() -> (K, O)>,
}

impl<K: Key> Builder<K> {
    pub(crate) fn new() -> Self {
        // The keys of std's hash maps are the one source of randomness that needs no dependency.
        let seed = std::collections::hash_map::RandomState::new().build_hasher().finish();
        Self { limiter: NoLimit, time: NoDelay, seed, types: PhantomData }
    }
}

impl<K: Key, O: Order, L: Policy<K> + Send + 'static, T: Time> Builder<K, O, L, T> {
    /// Delays on the machine's monotonic clock, for blocking getters; no runtime. Replaces a clock or timer given before.
    pub fn delays(self) -> Builder<K, O, L, Blocking> {
        self.with_time(Blocking::default())
    }

    /// Delays on this clock, for blocking getters; no runtime.
    pub fn clock<C: Clock>(self, clock: C) -> Builder<K, O, L, Blocking<C>> {
        self.with_time(Blocking(clock))
    }

    /// Delays on this timer's clock, for async and blocking getters.
    ///
    /// The timer becomes the queue's own: it is armed only while somebody waits for a deadline.
    pub fn timer<W: Timer>(self, timer: W) -> Builder<K, O, L, Timed<W>> {
        self.with_time(Timed(timer))
    }

    /// How long a failed key waits. Implies [`delays`](Self::delays) unless a clock or a timer is given.
    pub fn limiter<P: Policy<K> + Send + 'static>(self, policy: P) -> Builder<K, O, P, T::WithDelays> {
        Builder { limiter: policy, time: self.time.with_delays(), seed: self.seed, types: PhantomData }
    }

    /// Fixes the randomness that the limiter's jitter gets, so that a run replays.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// The queue.
    pub fn build(self) -> Queue<K, O, L, T> {
        Queue { shared: Shared::new(self.limiter, self.time, self.seed) }
    }

    fn with_time<U: Time>(self, time: U) -> Builder<K, O, L, U> {
        Builder { limiter: self.limiter, time, seed: self.seed, types: PhantomData }
    }
}

impl<K, O, L, T> fmt::Debug for Builder<K, O, L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder").field("seed", &self.seed).finish_non_exhaustive()
    }
}
