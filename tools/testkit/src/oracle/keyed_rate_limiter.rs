//! A bucket for each key as a list of such buckets, of which one or any number are kept.

use arbitrary::Arbitrary;

use crate::oracle::limiter::{Key, OracleBucket, OracleQuota, Span};

/// One step of a random run of a limiter with a bucket for each key.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum KeyedOp {
    /// Takes a token of a key if one is there.
    TryAcquire(Key),
    /// Takes some at once if they are there.
    TryAcquireMany(Key, u8),
    /// Takes a token of a key, at once or ahead of time.
    Reserve(Key),
    /// Takes some at once, at once or ahead of time.
    ReserveMany(Key, u8),
    /// Gives back one of the reservations still held.
    Cancel(u8),
    /// Asks how many could be taken at once.
    Available(Key),
    /// Changes rate and burst of every key.
    SetQuota(OracleQuota),
    /// Time passes.
    Advance(Span),
}

/// Buckets by key; a key without one has a full one.
#[derive(Clone, Debug)]
pub struct OracleKeyedRateLimiter {
    quota: OracleQuota,
    only_one: bool,
    buckets: Vec<Bucket>,
    /// Nothing reserved before the last change can be given back.
    changes: u64,
    made: u64,
}

#[derive(Clone, Debug)]
struct Bucket {
    key: Key,
    tokens: OracleBucket,
    /// No two are alike: a key that has gone and comes again has another one.
    id: u64,
}

/// A reservation, to be given back.
#[derive(Clone, Copy, Debug)]
pub struct OracleReservation {
    bucket: u64,
    token: usize,
    changes: u64,
}

impl OracleKeyedRateLimiter {
    /// Full buckets; `only_one` of them is kept that is not full.
    #[must_use]
    pub fn new(quota: OracleQuota, only_one: bool) -> Self {
        Self { quota, only_one, buckets: Vec::new(), changes: 0, made: 0 }
    }

    /// Takes so many tokens if they are there; else says when.
    ///
    /// # Errors
    /// When they will be; `None` if never, for more than the burst.
    pub fn try_acquire(&mut self, key: Key, count: u32, now: u64) -> Result<(), Option<u64>> {
        let mut bucket = self.bucket(key);
        bucket.try_acquire(count, now)?;
        self.put(key, bucket, now);
        Ok(())
    }

    /// Takes so many tokens; says which, and when they are due.
    ///
    /// # Errors
    /// The burst, if that is fewer.
    pub fn reserve(&mut self, key: Key, count: u32, now: u64) -> Result<(OracleReservation, u64), u32> {
        let mut bucket = self.bucket(key);
        let token = bucket.reserve(count, now)?;
        let due = bucket.due(token);
        let bucket = self.put(key, bucket, now);
        Ok((OracleReservation { bucket, token, changes: self.changes }, due))
    }

    /// Gives a reservation back, if its bucket does and nothing has changed since; says whether it did.
    pub fn cancel(&mut self, reservation: OracleReservation, now: u64) -> bool {
        let OracleReservation { bucket, token, changes } = reservation;
        let bucket = self.buckets.iter_mut().find(|other| other.id == bucket);
        changes == self.changes && bucket.is_some_and(|bucket| bucket.tokens.give_back(token, now))
    }

    /// How many tokens of a key could be taken at once.
    #[must_use]
    pub fn available(&self, key: Key, now: u64) -> u32 {
        self.bucket(key).available(now)
    }

    /// Changes the quota of every key; full is full, also of a larger burst.
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

    /// Does any span hold more than burst + rate × time, in any bucket that is kept?
    ///
    /// # Errors
    /// The first and the last token of such a span.
    pub fn within_rate(&self) -> Result<(), (u64, u64)> {
        self.buckets.iter().try_for_each(|bucket| bucket.tokens.within_rate())
    }

    fn bucket(&self, key: Key) -> OracleBucket {
        let known = self.buckets.iter().find(|bucket| bucket.key == key);
        known.map_or_else(|| OracleBucket::new(self.quota), |bucket| bucket.tokens.clone())
    }

    /// A bucket of which tokens were taken; it may take the place of another. Says which it is.
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
