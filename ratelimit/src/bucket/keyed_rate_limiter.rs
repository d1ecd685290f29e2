//! SHELL. A token bucket for each key.
//!
//! | what | guarded by |
//! |---|---|
//! | the buckets of the keys, by hash | one of `shards` |
//! | the order of quota changes, which is the same for all shards | `changing`, locked before the shards' locks |
//!
//! `Eq` and `Clone` of a key run under a shard's lock, before anything is changed. All other user code (`Hash`, `Drop`, the clock)
//! runs outside the lock.

use std::fmt;
use std::hash::{BuildHasher, Hash};
use std::num::NonZeroU32;

use crossbeam_utils::CachePadded;
use flyball_sync::locks::Mutex;
use flyball_sync::panics::drop_each;
use flyball_sync::{Clock, Monotonic};
use foldhash::fast::RandomState;

use crate::bucket::keyed_shard::{Evicted, Shard};
use crate::bucket::quota::Quota;
use crate::bucket::reservation::Reservation;
use crate::error::{InsufficientCapacity, NotYet, TryAcquireError};

/// The number of locks; there are fewer if [`max_keys`](KeyedRateLimiter::max_keys) is small.
const SHARDS: usize = 64;
/// The minimum number of keys per lock. Keys are spread over the locks by hash, so with few keys per lock, there would be no room under one lock while
/// most of the room under others is unused.
const KEYS_PER_SHARD: usize = 128;

/// A token bucket for each key, for example to limit each client.
///
/// The state of a key is one number, and a key whose bucket is full again needs no state. Adding a key checks two
/// stored keys and evicts those whose bucket is full, so no call pauses for a sweep, and you need not remove keys.
///
/// All keys have the same quota. Every operation on a key is O(1) under one of up to 64 locks. No call waits: a denied call
/// returns the time to wait, [`NotYet::retry_after`], and all successive denied calls return the same due time, as long as the key has a bucket of its
/// own. [`reserve`](Self::reserve) gives each caller its own time. If callers have to wait in FIFO order, each key needs a
/// [`RateLimiter`](crate::RateLimiter) with a timer, which takes more memory than one number; if there are few keys, use a
/// map of `RateLimiter`s.
///
/// # More keys than fit
/// At most [`max_keys`](Self::max_keys) keys are stored. **A key never gets more tokens than its quota allows, however many keys there are**: for each
/// key, any span of `d` nanoseconds contains at most `burst` + rate × `d` tokens that are granted and not given back, between two changes of the quota.
/// There is one exception: the state of a full bucket is dropped, so if the clock then jumps back to a time at which the bucket was not full, the key
/// starts with a full bucket.
///
/// A key may get fewer tokens. If there is no room for a new key, up to ten stored keys are checked. If none of their buckets is full, the key with the
/// fullest bucket among these and the new key is not stored. All keys of one lock that are not stored count as having taken as many tokens as the key
/// among them that has taken the most. So a flood of keys with one token each costs other keys few tokens of their burst. But if all keys together
/// request more than about `max_keys` × rate for a long time, keys that are not stored are often denied; the keys that have taken the most
/// keep their own buckets. None of this happens while at most half of `max_keys` keys are stored.
///
/// The bucket of a key with reservations that are not due yet is not full. So the key is kept until its reservations are due, and is among the last
/// keys to be evicted. A new key is cloned.
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
    /// Aligned so that two locks share neither a cache line nor a pair of lines that is prefetched together.
    shards: Shards<K>,
    changing: Mutex<()>,
    hasher: RandomState,
    clock: C,
}

type Shards<K> = Box<[CachePadded<Mutex<Shard<K>>>]>;

impl<K> KeyedRateLimiter<K> {
    /// Creates a limiter with full buckets on the machine's clock.
    #[must_use]
    pub fn new(quota: Quota) -> Self {
        Self::with_clock(quota, Monotonic)
    }
}

impl<K, C> KeyedRateLimiter<K, C> {
    /// Creates a limiter with full buckets on a clock of your choice.
    #[must_use]
    pub fn with_clock(quota: Quota, clock: C) -> Self {
        let shards = shards(quota, DEFAULT_MAX_KEYS);
        Self { shards, changing: Mutex::new(()), hasher: RandomState::default(), clock }
    }

    /// Sets the maximum number of stored keys, about a million by default. Removes all keys stored so far.
    ///
    /// The limit is divided equally among the locks, and keys are assigned to locks by hash. The number of locks is a power of two, up to 64, with at
    /// least 128 keys per lock; below 256 keys, there is one lock, and every key has its own bucket until `most` keys are stored. With several locks,
    /// the limit of one lock may be reached earlier; the probability that this happens while at most half of `most` keys are stored is below 10⁻⁸.
    ///
    /// If there are more keys, they [get at most their quota](Self#more-keys-than-fit), but may get less.
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

    /// The number of keys with stored state.
    #[must_use]
    pub fn tracked_keys(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().len()).sum()
    }

    /// Checks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        self.shards.iter().try_for_each(|shard| shard.lock().check())
    }
}

impl<K, C: Clock> KeyedRateLimiter<K, C> {
    /// Changes rate and burst of every key from now on, like [`TokenBucket::set_quota`](crate::TokenBucket::set_quota)
    /// for each key, except that a full bucket stays full under any quota, even with a larger burst.
    ///
    /// Takes O(keys) time, and locks the shards one after the other.
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
        let mut evicted = Vec::new();
        let one_at_a_time = self.changing.lock();
        for shard in &self.shards {
            evicted.append(&mut shard.lock().set_quota(quota, now));
        }
        drop(one_at_a_time);
        // Outside the locks, and each by itself: two that panic would otherwise abort the process.
        drop_each(evicted.into_iter());
    }
}

impl<K: Hash + Eq + Clone, C: Clock> KeyedRateLimiter<K, C> {
    /// Takes a token of `key` if one is available now.
    ///
    /// # Errors
    /// Returns [`NotYet`] with the time of the next token if all are taken; nothing is reserved in that case.
    #[inline]
    pub fn try_acquire(&self, key: &K) -> Result<(), NotYet> {
        match self.try_acquire_many(key, NonZeroU32::MIN) {
            Ok(()) => Ok(()),
            Err(TryAcquireError::NotYet(error)) => Err(error),
            Err(TryAcquireError::InsufficientCapacity(_)) => unreachable!("a burst is one or more"),
        }
    }

    /// Takes `count` tokens of `key` if all of them are available now; otherwise takes none.
    ///
    /// # Errors
    /// Returns [`TryAcquireError::NotYet`] with the time at which the tokens will be available, or
    /// [`TryAcquireError::InsufficientCapacity`] for more tokens than the burst. Nothing is reserved in either case.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{KeyedRateLimiter, ManualClock, Quota};
    /// use std::num::NonZeroU32;
    ///
    /// let (three, five) = (NonZeroU32::new(3).unwrap(), NonZeroU32::new(5).unwrap());
    /// let clients = KeyedRateLimiter::with_clock(Quota::per_second(five), ManualClock::new());
    /// assert!(clients.try_acquire_many(&"ann", three).is_ok());
    /// assert!(clients.try_acquire_many(&"ann", three).is_err()); // only two are available: none is taken
    /// assert_eq!(clients.available_tokens(&"ann"), 2);
    /// assert_eq!(clients.available_tokens(&"bob"), 5);
    /// ```
    #[inline]
    pub fn try_acquire_many(&self, key: &K, count: NonZeroU32) -> Result<(), TryAcquireError> {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        // `evicted` is declared first and so dropped last, so that no key is dropped under the lock.
        let mut evicted = Evicted::new();
        self.shard(hash).lock().try_acquire(hash, key, count, now, &mut evicted)
    }

    /// Takes the next token of `key` that is not reserved, which may be due later: N denied requests that reserve
    /// tokens get N different retry times.
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

    /// Takes the next `count` tokens of `key` that are not reserved. All of them are due at the due time of the last one.
    ///
    /// # Errors
    /// Returns [`InsufficientCapacity`] for more tokens than the burst; nothing is reserved in that case.
    pub fn reserve_many(&self, key: &K, count: NonZeroU32) -> Result<Reservation, InsufficientCapacity> {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        // `evicted` is declared first and so dropped last, so that no key is dropped under the lock.
        let mut evicted = Evicted::new();
        self.shard(hash).lock().reserve(hash, key, count, now, &mut evicted)
    }

    /// Gives back tokens of `key` that were not used, and returns whether this had an effect.
    ///
    /// As with [`TokenBucket::cancel`](crate::TokenBucket::cancel), this has an effect only until the due time of the tokens has passed, and only if
    /// no tokens of the key are reserved for a later time and the quota has not been changed since. In addition, this has no effect if the key is not
    /// stored for [lack of room](Self#more-keys-than-fit). The tokens then count as used, so a reservation that is cancelled late, or after its key
    /// was evicted, never lets a key exceed its quota. The only exception is a clock that has jumped back, as with `TokenBucket::cancel`.
    pub fn cancel(&self, key: &K, reservation: Reservation) -> bool {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().cancel(hash, key, &reservation, now)
    }

    /// The number of tokens of `key` that could be taken now. For a key that is not stored, fewer than the burst if there was
    /// [no room](Self#more-keys-than-fit) for a key.
    #[must_use]
    pub fn available_tokens(&self, key: &K) -> u32 {
        let now = self.clock.now();
        let hash = self.hasher.hash_one(key);
        self.shard(hash).lock().available(hash, key, now)
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Mutex<Shard<K>> {
        // The hash tables use the lowest and the highest bits. Only a huge hash table also uses these middle bits.
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

/// Creates the shards, which all have the same size. Their number is a power of two.
fn shards<K>(quota: Quota, most: usize) -> Shards<K> {
    let shards = SHARDS.min(1 << (most / KEYS_PER_SHARD).max(1).ilog2());
    (0..shards).map(|_| CachePadded::new(Mutex::new(Shard::new(quota, most / shards)))).collect()
}
