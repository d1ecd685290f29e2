//! The oracle of a limiter with a bucket per key: a list of buckets, limited to one bucket or unlimited.

use arbitrary::Arbitrary;

use crate::oracle::limiter::{Key, OracleBucket, OracleQuota, Span};

/// One step of a random run of a limiter with a bucket per key.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum KeyedOp {
    /// Takes a token of a key if one is available.
    TryAcquire(Key),
    /// Takes several tokens if they are available.
    TryAcquireMany(Key, u8),
    /// Takes a token of a key now or reserves one.
    Reserve(Key),
    /// Takes several tokens now or reserves them.
    ReserveMany(Key, u8),
    /// Cancels one of the reservations still held.
    Cancel(u8),
    /// Reads the number of available tokens.
    Available(Key),
    /// Changes rate and burst of every key.
    SetQuota(OracleQuota),
    /// Advances the clock.
    Advance(Span),
}

/// Buckets by key; a key that is not in the list has a full bucket.
#[derive(Clone, Debug)]
pub struct OracleKeyedRateLimiter {
    quota: OracleQuota,
    only_one: bool,
    buckets: Vec<Bucket>,
    /// The number of changes of the quota and of evictions of buckets that were not full. Each of them invalidates all earlier reservations: they
    /// cannot be cancelled.
    changes: u64,
    made: u64,
}

#[derive(Clone, Debug)]
struct Bucket {
    key: Key,
    tokens: OracleBucket,
    /// A unique number: if a key is used again after its bucket was removed, its new bucket has a new number.
    id: u64,
}

/// A reservation that can be cancelled.
#[derive(Clone, Copy, Debug)]
pub struct OracleReservation {
    bucket: u64,
    token: usize,
    changes: u64,
}

impl OracleKeyedRateLimiter {
    /// Creates full buckets. With `only_one`, at most one bucket that is not full is kept.
    #[must_use]
    pub fn new(quota: OracleQuota, only_one: bool) -> Self {
        Self { quota, only_one, buckets: Vec::new(), changes: 0, made: 0 }
    }

    /// Takes this many tokens if they are available.
    ///
    /// # Errors
    /// The time at which the tokens will be available; `None` for more tokens than the burst.
    pub fn try_acquire(&mut self, key: Key, count: u32, now: u64) -> Result<(), Option<u64>> {
        let mut bucket = self.bucket(key);
        bucket.try_acquire(count, now)?;
        self.put(key, bucket, now);
        Ok(())
    }

    /// Takes this many tokens, or reserves them if they are not available yet. Returns the reservation and the time at which the tokens are due.
    ///
    /// # Errors
    /// The burst, if it is smaller than the number of tokens.
    pub fn reserve(&mut self, key: Key, count: u32, now: u64) -> Result<(OracleReservation, u64), u32> {
        let mut bucket = self.bucket(key);
        let token = bucket.reserve(count, now)?;
        let due = bucket.due(token);
        let bucket = self.put(key, bucket, now);
        Ok((OracleReservation { bucket, token, changes: self.changes }, due))
    }

    /// Cancels a reservation, if it is still valid and its bucket allows it. Returns whether it was cancelled.
    pub fn cancel(&mut self, reservation: OracleReservation, now: u64) -> bool {
        let OracleReservation { bucket, token, changes } = reservation;
        let bucket = self.buckets.iter_mut().find(|other| other.id == bucket);
        changes == self.changes && bucket.is_some_and(|bucket| bucket.tokens.give_back(token, now))
    }

    /// The number of available tokens of a key.
    #[must_use]
    pub fn available(&self, key: Key, now: u64) -> u32 {
        self.bucket(key).available(now)
    }

    /// Changes the quota of every key. A full bucket stays full, even if the new burst is larger.
    pub fn set_quota(&mut self, quota: OracleQuota, now: u64) {
        let (old, new) = (self.quota, quota);
        if (old.tokens(), old.period(), old.burst()) == (new.tokens(), new.period(), new.burst()) {
            return;
        }
        self.buckets.retain(|bucket| !is_full(&bucket.tokens, old, now));
        self.buckets.iter_mut().for_each(|bucket| bucket.tokens.set_quota(new, now));
        self.quota = new;
        self.changes += 1;
    }

    /// Checks that no stored bucket has granted more than burst + rate × time tokens in any span of time.
    ///
    /// # Errors
    /// The due times of the first and the last token of such a span.
    pub fn within_rate(&self) -> Result<(), (u64, u64)> {
        self.buckets.iter().try_for_each(|bucket| bucket.tokens.within_rate())
    }

    fn bucket(&self, key: Key) -> OracleBucket {
        let known = self.buckets.iter().find(|bucket| bucket.key == key);
        known.map_or_else(|| OracleBucket::new(self.quota), |bucket| bucket.tokens.clone())
    }

    /// Stores the bucket of a key from which tokens were taken; with `only_one`, it replaces the bucket of any other key. Returns the number of the
    /// bucket.
    fn put(&mut self, key: Key, tokens: OracleBucket, now: u64) -> u64 {
        if let Some(known) = self.buckets.iter_mut().find(|bucket| bucket.key == key) {
            known.tokens = tokens;
            return known.id;
        }
        if self.only_one {
            let evicted = self.buckets.pop().is_some_and(|other| !is_full(&other.tokens, self.quota, now));
            self.changes += u64::from(evicted);
        }
        self.made += 1;
        self.buckets.push(Bucket { key, tokens, id: self.made });
        self.made
    }
}

fn is_full(bucket: &OracleBucket, quota: OracleQuota, now: u64) -> bool {
    bucket.clone().try_acquire(quota.burst().into(), now).is_ok()
}
