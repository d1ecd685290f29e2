//! PURE. A token bucket in exact integers.
//!
//! Virtual scheduling, one of the two forms of the generic cell rate algorithm (ITU-T Recommendation I.371): instead
//! of a level and the time it was taken, the bucket is **one number**, the time at which it would be full again. Time
//! is counted in *parts*, as many to a nanosecond as tokens to a period; a token then costs as many parts as the
//! period has nanoseconds, and nothing is ever rounded but the answer, up.
//!
//! # Invariants
//! 1. `full_at` never lies beyond `horizon`, the fullest debt whose last token is due at [`Nanos::MAX`] (never).
//!    That is below 2^97, so no sum here can wrap.
//! 2. Between two changes of the quota, of any tokens granted and not given back, at most `burst` + rate × (b − a) are
//!    due in the nanoseconds a ≤ t < b. Proof: a reservation moves `full_at` up by one token and never below *now*, so
//!    the k-th token after one due at a has `full_at` at least a + k tokens − burst, and is due no earlier than that.
//! 3. A token is due no earlier than it is reserved, and no later than needed for 2.
//! 4. What is given back can have been waited for by nobody: see [`TokenBucket::give_back`].
//!
//! Rejected: a level and a time (x/time/rate, in floating point) is two numbers to keep in step, and drifts.

use std::time::Duration;

use crate::{Nanos, NotYet, Policy, Quota};

/// A token bucket: a steady rate, and a burst after a rest.
///
/// It starts full. Tokens may be reserved ahead of time: a debt that grows by one token's time with each, without a
/// bound, so that those who reserve are served in the order of their calls. As a [`Policy`] it is one budget shared by
/// all keys, and counts nothing per key.
///
/// The rate is exact: of the tokens granted and not given back, no span of `d` nanoseconds ever holds more than
/// `burst` + rate × `d`. A clock that jumps back makes tokens late by the jump, and never early.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{Nanos, Quota, TokenBucket};
/// use std::num::NonZeroU32;
/// use std::time::Duration;
///
/// let mut bucket = TokenBucket::new(Quota::per_second(NonZeroU32::new(2).unwrap()));
/// let now = Nanos::ZERO;
/// assert_eq!(bucket.reserve(now).due(), now);
/// assert_eq!(bucket.reserve(now).due(), now);
/// let third = bucket.reserve(now);
/// assert_eq!(third.due(), now + Duration::from_millis(500));
/// assert!(bucket.give_back(third, now)); // nobody has reserved after it
/// assert_eq!(bucket.try_acquire(now).unwrap_err().due(), now + Duration::from_millis(500));
/// ```
#[derive(Debug)]
pub struct TokenBucket {
    quota: Quota,
    /// When the bucket would be full if nothing more was taken, in parts.
    full_at: u128,
    /// How often the quota has changed; a token remembers under which it was reserved.
    change: u64,
}

/// A token taken from a [`TokenBucket`], to be used when it is due. Dropping it uses it.
#[derive(Debug)]
#[must_use = "a token is taken: wait until it is due, or give it back"]
pub struct Token {
    due: Nanos,
    change: u64,
}

impl Token {
    /// When it may be used.
    #[must_use]
    pub const fn due(&self) -> Nanos {
        self.due
    }
}

// === impl TokenBucket ===

impl TokenBucket {
    /// A full bucket.
    #[must_use]
    pub const fn new(quota: Quota) -> Self {
        Self { quota, full_at: 0, change: 0 }
    }

    /// Takes the next token that nobody has reserved, at once or ahead of time.
    pub fn reserve(&mut self, now: Nanos) -> Token {
        self.full_at = self.after_one(now);
        Token { due: self.due(self.full_at, now), change: self.change }
    }

    /// Takes a token if one is there now.
    ///
    /// # Errors
    /// [`NotYet`] with the time of the next token when all are taken; nothing is reserved then.
    pub fn try_acquire(&mut self, now: Nanos) -> Result<(), NotYet> {
        let full_at = self.after_one(now);
        let due = self.due(full_at, now);
        if due > now {
            return Err(NotYet::new(due));
        }
        self.full_at = full_at;
        Ok(())
    }

    /// Gives back a token that was not used, and says whether that made a difference.
    ///
    /// It does not when the token's time has passed, when another is reserved for a later time (that one keeps its
    /// place, and the gap before it can be used by nobody), when it is due at [`Nanos::MAX`], which is never, or when
    /// the quota has been changed since. Else all is as if it had never been reserved. Golang's x/time/rate
    /// has the same rule. The token must be one of this bucket. Due times are whole nanoseconds: at rates above one token a
    /// nanosecond, a token given back within the nanosecond it is due in may let one more through in that nanosecond.
    pub fn give_back(&mut self, token: Token, now: Nanos) -> bool {
        // Invariant 4: with no later due time, this token and the last one could change places without anybody
        // noticing, so the last one can go.
        let last = self.due(self.full_at, now);
        let usable = token.due >= now && token.due >= last && token.due < Nanos::MAX;
        if !usable || token.change != self.change {
            return false;
        }
        self.full_at = self.full_at.saturating_sub(self.token());
        true
    }

    /// Changes rate and burst from `now` on.
    ///
    /// What is available stays available, up to the new burst; a larger burst fills up at the new rate. Debts stay
    /// debts of as many tokens, to be paid at the new rate. Tokens reserved before keep their times.
    pub fn set_quota(&mut self, quota: Quota, now: Nanos) {
        if quota == self.quota {
            return;
        }
        let missing = self.full_at.saturating_sub(self.parts(now));
        // The same number of tokens in new parts, rounded up, so that no fraction of a token is won.
        let (old, new) = (self.token(), u128::from(quota.period_nanos()));
        let missing = (missing / old).saturating_mul(new).saturating_add((missing % old * new).div_ceil(old));
        let kept_burst = u128::from(self.quota.max_burst().get()) * new;
        self.quota = quota;
        self.change += 1;
        let missing = missing.saturating_add(self.capacity()).saturating_sub(kept_burst);
        self.full_at = self.parts(now).saturating_add(missing).min(self.horizon());
    }

    /// The quota in force.
    #[must_use]
    pub const fn quota(&self) -> Quota {
        self.quota
    }

    /// How many tokens could be taken at once.
    #[must_use]
    pub fn available(&self, now: Nanos) -> u32 {
        let missing = self.full_at.saturating_sub(self.parts(now));
        let parts = self.capacity().saturating_sub(missing);
        // At most `burst` tokens fit into the capacity.
        (parts / self.token()) as u32
    }

    /// Walks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        if self.full_at > self.horizon() {
            return Err(format!("invariant 1: full at {}, beyond {}", self.full_at, self.horizon()));
        }
        Ok(())
    }

    /// When the bucket would be full after one more token.
    fn after_one(&self, now: Nanos) -> u128 {
        // Invariants 2 and 3: time does not fill it above the burst. Invariant 1: a debt ends at the horizon.
        (self.full_at.max(self.parts(now)) + self.token()).min(self.horizon())
    }

    /// When the last token of a debt is due: one burst before the bucket is full, rounded up to a whole nanosecond.
    fn due(&self, full_at: u128, now: Nanos) -> Nanos {
        let after_now = full_at.saturating_sub(self.parts(now) + self.capacity());
        if after_now == 0 {
            return now;
        }
        let wait = after_now.div_ceil(u128::from(self.quota.tokens().get()));
        // The horizon keeps the sum within 64 bits: invariant 1.
        now + Duration::from_nanos(wait as u64)
    }

    fn parts(&self, now: Nanos) -> u128 {
        u128::from(now.get()) * u128::from(self.quota.tokens().get())
    }

    fn token(&self) -> u128 {
        u128::from(self.quota.period_nanos())
    }

    fn capacity(&self) -> u128 {
        self.token() * u128::from(self.quota.max_burst().get())
    }

    fn horizon(&self) -> u128 {
        self.parts(Nanos::MAX) + self.capacity()
    }
}

/// One budget for all keys: a key waits for the next free token.
impl<K: ?Sized> Policy<K> for TokenBucket {
    type Taken = Token;

    fn failed(&mut self, _: &K, now: Nanos, _: u64) -> (Duration, Token) {
        let token = self.reserve(now);
        (token.due.since(now), token)
    }

    fn forget(&mut self, _: &K) {}

    fn requeues(&self, _: &K) -> u32 {
        0
    }

    fn give_back(&mut self, taken: Token, now: Nanos) {
        TokenBucket::give_back(self, taken, now);
    }

    fn tracked(&self) -> usize {
        0
    }
}
