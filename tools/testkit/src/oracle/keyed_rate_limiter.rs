//! The oracle of a rate limiter with one bucket per key. It stores a list of buckets, whose length is unlimited.

use arbitrary::Arbitrary;

use crate::oracle::limiter::{Key, OracleBucket, OracleQuota, Span};

/// One step of a random run of a keyed rate limiter.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum KeyedOp {
    /// Takes a token of a key if one is available.
    TryAcquire(Key),
    /// Takes several tokens if they are available.
    TryAcquireMany(Key, u8),
    /// Takes a token of a key if one is available, or reserves one.
    Reserve(Key),
    /// Takes several tokens if they are available, or reserves them.
    ReserveMany(Key, u8),
    /// Cancels one of the reservations that the run still holds.
    Cancel(u8),
    /// Reads the number of available tokens.
    Available(Key),
    /// Changes the rate and the burst of every key.
    SetQuota(OracleQuota),
    /// Advances the clock.
    Advance(Span),
}

/// Buckets by key; a key that is not in the list has a full bucket.
#[derive(Clone, Debug)]
pub struct OracleKeyedRateLimiter {
    quota: OracleQuota,
    buckets: Vec<Bucket>,
    /// The number of quota changes. After a change, the earlier reservations cannot be cancelled any more.
    changes: u64,
    made: u64,
}

#[derive(Clone, Debug)]
struct Bucket {
    key: Key,
    tokens: OracleBucket,
    /// A unique number. If the bucket of a key was removed and the key is used again, the new bucket gets a new number.
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
    /// Creates full buckets.
    #[must_use]
    pub fn new(quota: OracleQuota) -> Self {
        Self { quota, buckets: Vec::new(), changes: 0, made: 0 }
    }

    /// Takes `count` tokens if they are available.
    ///
    /// # Errors
    /// The time at which the tokens will be available; `None` if `count` is larger than the burst.
    pub fn try_acquire(&mut self, key: Key, count: u32, now: u64) -> Result<(), Option<u64>> {
        let mut bucket = self.bucket(key);
        bucket.try_acquire(count, now)?;
        self.put(key, bucket);
        Ok(())
    }

    /// Takes `count` tokens, or reserves them if they are not available yet. Returns the reservation and the time at which the tokens are due.
    ///
    /// # Errors
    /// The burst, if `count` is larger than the burst.
    pub fn reserve(&mut self, key: Key, count: u32, now: u64) -> Result<(OracleReservation, u64), u32> {
        let mut bucket = self.bucket(key);
        let token = bucket.reserve(count, now)?;
        let due = bucket.due(token);
        let bucket = self.put(key, bucket);
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

    /// Checks every stored bucket: in every span of time, it must have granted at most burst + rate × time tokens.
    ///
    /// # Errors
    /// If a bucket granted more tokens in a span of time, returns the due times of the first and the last of these tokens.
    pub fn within_rate(&self) -> Result<(), (u64, u64)> {
        self.buckets.iter().try_for_each(|bucket| bucket.tokens.within_rate())
    }

    fn bucket(&self, key: Key) -> OracleBucket {
        let known = self.buckets.iter().find(|bucket| bucket.key == key);
        known.map_or_else(|| OracleBucket::new(self.quota), |bucket| bucket.tokens.clone())
    }

    /// Stores the bucket of a key from which tokens were taken. Returns the number of the bucket.
    fn put(&mut self, key: Key, tokens: OracleBucket) -> u64 {
        if let Some(known) = self.buckets.iter_mut().find(|bucket| bucket.key == key) {
            known.tokens = tokens;
            return known.id;
        }
        self.made += 1;
        self.buckets.push(Bucket { key, tokens, id: self.made });
        self.made
    }
}

fn is_full(bucket: &OracleBucket, quota: OracleQuota, now: u64) -> bool {
    bucket.clone().try_acquire(quota.burst().into(), now).is_ok()
}
