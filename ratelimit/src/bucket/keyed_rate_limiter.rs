//! SHELL. A token bucket for each key.
//!
//! | what | guarded by |
//! |---|---|
//! | the buckets of the keys whose hash says so | one of `shards` |
//! | that all shards get the same quota, the latest | `changing`, taken before theirs |
//!
//! Of user code, `Eq` and `Clone` of a key run under a shard's lock, before anything is changed; `Hash`, `Drop` and the clock
//! outside it.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU32;

use crossbeam_utils::CachePadded;
use flyball_sync::locks::Mutex;
use foldhash::fast::RandomState;

use crate::bucket::keyed_shard::{Evicted, Shard};
use crate::{Clock, InsufficientCapacity, Monotonic, NotYet, Quota, Reservation, TryAcquireError};

/// Locks, unless fewer keys are allowed.
const SHARDS: usize = 64;

/// A token bucket for each key, as a limit per client.
///
/// The state of a key is one number, and a key whose bucket is full again needs none. Each new key checks two known ones and
/// evicts those that are full, so no call pauses, and no key has to be forgotten by hand. There are at most
/// [`max_keys`](Self::max_keys) keys. Where that many are not full, a new key replaces the fuller one of those
/// checked, which then starts full when it is used again: the one way in which a key can get more than its quota.
///
/// All keys have the same quota. Every operation on a key is O(1) under one of 64 locks. No call waits: [`NotYet::retry_after`]
/// is how long to wait, and is the same for all calls that are denied in a row. [`reserve`](Self::reserve) gives each caller a time
/// of its own. Waiting in FIFO order needs a [`RateLimiter`](crate::RateLimiter) with a timer for each key, which is
/// more state than a number; keep a map of those where the keys are few.
///
/// A key with reservations that are not due yet is not full. It is kept until they are, and is among the last to make room.
///
/// A new key is cloned. After the clock has jumped back, a key that was evicted as full in between is full again.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{KeyedRateLimiter, ManualClock, Quota};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let clients = KeyedRateLimiter::with_clock(Quota::per_second(NonZeroU32::MIN), clock.clone());
/// assert!(clients.try_acquire(&"ann").is_ok());
/// assert!(clients.try_acquire(&"bob").is_ok());
/// assert!(clients.try_acquire(&"ann").is_err());
/// clock.advance(Duration::from_secs(1));
/// assert!(clients.try_acquire(&"ann").is_ok());
/// ```
pub struct KeyedRateLimiter<K, C = Monotonic> {
    /// Two locks never share a cache line, nor a pair of them that is fetched together.
    shards: Shards<K>,
    changing: Mutex<()>,
    hasher: RandomState,
    clock: C,
}

type Shards<K> = Box<[CachePadded<Mutex<Shard<K>>>]>;

impl<K> KeyedRateLimiter<K> {
    /// Full buckets on the machine's clock.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        Self::with_clock(quota, Monotonic)
    }
}

impl<K, C> KeyedRateLimiter<K, C> {
    /// Full buckets on a clock of your choice.
    #[must_use]
    pub fn with_clock(quota: Quota, clock: C) -> Self {
        let shards = shards(quota, DEFAULT_MAX_KEYS);
        Self { shards, changing: Mutex::new(()), hasher: RandomState::default(), clock }
    }

    /// Holds at most so many keys, about a million if it is not said. It starts anew with that.
    ///
    /// Each of the up to 64 locks has an equal share of them.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{KeyedRateLimiter, Quota};
    /// use std::num::NonZeroU32;
    ///
    /// let clients = KeyedRateLimiter::new(Quota::per_hour(NonZeroU32::MIN)).max_keys(NonZeroU32::new(1_000).unwrap());
    /// for client in 0..100_000 {
    ///     let _ = clients.try_acquire(&client);
    /// }
    /// assert!(clients.tracked_keys() <= 1_000);
    /// ```
    #[must_use]
    pub fn max_keys(self, most: NonZeroU32) -> Self {
        let shards = shards(self.quota(), most.get() as usize);
        Self { shards, ..self }
    }

    /// The quota of every key.
    #[must_use]
    pub fn quota(&self) -> Quota {
        self.shards[0].lock().quota()
    }

    /// How many keys it holds.
    #[must_use]
    pub fn tracked_keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Walks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.shards.iter().try_for_each(|shard| shard.lock().check())
    }
}

impl<K, C: Clock> KeyedRateLimiter<K, C> {
    /// Changes rate and burst of every key from now on: as [`TokenBucket::set_quota`](crate::TokenBucket::set_quota) says
    /// for each, but that a full bucket is full under any quota, also one of a larger burst.
    ///
    /// O(keys), one lock after the other.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{KeyedRateLimiter, ManualClock, Quota};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let (slow, fast) = (Quota::per_minute(NonZeroU32::MIN), Quota::per_second(NonZeroU32::MIN));
    /// let clients = KeyedRateLimiter::with_clock(slow, ManualClock::new());
    /// clients.try_acquire(&"ann")?;
    /// clients.set_quota(fast);
    /// assert_eq!(clients.quota(), fast);
    /// assert_eq!(clients.try_acquire(&"ann").unwrap_err().retry_after(), Duration::from_secs(1));
    /// # Ok::<(), flyball_ratelimit::NotYet>(())
    /// ```
    pub fn set_quota(&self, quota: Quota) {
        let now = self.clock.now();
        // Declared first, so dropped last: no key is dropped under a lock.
        let mut evicted = Vec::new();
        let _one_at_a_time = self.changing.lock();
        for shard in &self.shards {
            evicted.append(&mut shard.lock().set_quota(quota, now));
        }
    }
}

impl<K: Hash + Eq + Clone, C: Clock> KeyedRateLimiter<K, C> {
    /// Takes a token of `key` if one is there now.
    ///
    /// # Errors
    /// [`NotYet`] with the time of its next token when all are taken; nothing is reserved then.
    #[inline]
    pub fn try_acquire(&self, key: &K) -> Result<(), NotYet> {
        match self.try_acquire_many(key, NonZeroU32::MIN) {
            Ok(()) => Ok(()),
            Err(TryAcquireError::NotYet(error)) => Err(error),
            Err(TryAcquireError::InsufficientCapacity(_)) => unreachable!("a burst is one or more"),
        }
    }

    /// Takes `count` tokens of `key` if all of them are there now; else none.
    ///
    /// # Errors
    /// [`TryAcquireError::NotYet`] with the time at which they will be there; [`TryAcquireError::InsufficientCapacity`] for more than the burst. Nothing is
    /// reserved then.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{KeyedRateLimiter, ManualClock, Quota};
    /// use std::num::NonZeroU32;
    ///
    /// let (three, five) = (NonZeroU32::new(3).unwrap(), NonZeroU32::new(5).unwrap());
    /// let clients = KeyedRateLimiter::with_clock(Quota::per_second(five), ManualClock::new());
    /// assert!(clients.try_acquire_many(&"ann", three).is_ok());
    /// assert!(clients.try_acquire_many(&"ann", three).is_err()); // two are there: none is taken
    /// assert_eq!(clients.available_tokens(&"ann"), 2);
    /// assert_eq!(clients.available_tokens(&"bob"), 5);
    /// ```
    #[inline]
    pub fn try_acquire_many(&self, key: &K, count: NonZeroU32) -> Result<(), TryAcquireError> {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        // Declared first, so dropped last: no key is dropped under the lock.
        let mut evicted: Evicted<K> = [const { None }; 3];
        self.shard(hash).lock().try_acquire(hash, key, count, now, &mut evicted)
    }

    /// Takes the next token of `key` that is not reserved, at once or ahead of time: what is denied and comes back N times comes
    /// back at N times.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{KeyedRateLimiter, ManualClock, Quota};
    /// use std::num::NonZeroU32;
    /// use std::time::Duration;
    ///
    /// let clock = ManualClock::new();
    /// let tenants = KeyedRateLimiter::with_clock(Quota::per_second(NonZeroU32::MIN), clock.clone());
    /// let reservations = [(); 3].map(|()| tenants.reserve(&"ann"));
    /// let delays = reservations.each_ref().map(|reservation| reservation.delay(clock.now()).as_secs());
    /// assert_eq!(delays, [0, 1, 2]);
    /// let [_, _, last] = reservations;
    /// assert!(tenants.cancel(&"ann", last));
    /// assert_eq!(tenants.reserve(&"ann").delay(clock.now()), Duration::from_secs(2));
    /// # use flyball_ratelimit::Clock;
    /// ```
    pub fn reserve(&self, key: &K) -> Reservation {
        match self.reserve_many(key, NonZeroU32::MIN) {
            Ok(reservation) => reservation,
            Err(_) => unreachable!("a burst is one or more"),
        }
    }

    /// Takes the next `count` tokens of `key` that are not reserved, all of them due when the last one is.
    ///
    /// # Errors
    /// [`InsufficientCapacity`] for more than the burst: nothing is reserved then.
    pub fn reserve_many(&self, key: &K, count: NonZeroU32) -> Result<Reservation, InsufficientCapacity> {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        // Declared first, so dropped last: no key is dropped under the lock.
        let mut evicted: Evicted<K> = [const { None }; 3];
        self.shard(hash).lock().reserve(hash, key, count, now, &mut evicted)
    }

    /// Gives back tokens of `key` that were not used, and says whether that made a difference.
    ///
    /// It does where [`TokenBucket::cancel`](crate::TokenBucket::cancel) of a bucket of its own would: before they are due, as long as
    /// none of the key is reserved for a later time, and the quota has not been changed. And it makes none once any key has had to make
    /// room for another under the same lock, because there were [`max_keys`](Self::max_keys) that were not full: a key's state is
    /// one number, which does not record whether the key was evicted and added again since. The tokens then count as used, so a reservation
    /// that is cancelled late, or after its key was evicted, never lets more through. Only a clock that has jumped back may, as there.
    pub fn cancel(&self, key: &K, reservation: Reservation) -> bool {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().cancel(hash, key, &reservation, now)
    }

    /// How many tokens of `key` could be taken at once.
    #[must_use]
    pub fn available_tokens(&self, key: &K) -> u32 {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().available(hash, key, now)
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // Bits that the tables make no use of, unless they are huge: those take the lowest and the highest ones.
        let shard = (hash >> 40) as usize & (self.shards.len() - 1);
        &self.shards[shard]
    }
}

impl<K, C> fmt::Debug for KeyedRateLimiter<K, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quota, tracked) = (self.quota(), self.tracked_keys());
        f.debug_struct("KeyedRateLimiter")
            .field("quota", &quota)
            .field("tracked", &tracked)
            .finish_non_exhaustive()
    }
}

const DEFAULT_MAX_KEYS: usize = 1 << 20;

/// A power of two of them, all of the same size.
fn shards<K>(quota: Quota, most: usize) -> Shards<K> {
    // At most `most`, which is at least one.
    let shards = SHARDS.min(1 << most.ilog2());
    (0..shards).map(|_| CachePadded::new(Mutex::new(Shard::new(quota, most / shards)))).collect()
}
