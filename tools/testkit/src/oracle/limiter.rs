//! The oracles of the limiters. They are slow and simple: they search lists linearly and compute with 128-bit integers.
//!
//! Times and waits are a `u64` in nanoseconds; the largest value means never.

use arbitrary::Arbitrary;

use crate::oracle::retry_budget::OracleRetryBudget;
use crate::random::Random;

/// One step of a random run of a limiter.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum LimiterOp {
    /// Records a failure of a key.
    When(Key),
    /// Forgets a key after a success.
    Forget(Key),
    /// Changes the quota of the token bucket or of the retry budget.
    SetQuota(OracleQuota),
    /// Advances the clock.
    Advance(Span),
    /// Sets the clock back.
    JumpBack(Span),
}

/// One step of a random run of a bucket.
#[derive(Arbitrary, Clone, Copy, Debug)]
pub enum BucketOp {
    /// Takes a token if one is available, or reserves one.
    Reserve,
    /// Takes a token if one is available.
    TryAcquire,
    /// Takes several tokens if they are available, or reserves them.
    ReserveMany(u8),
    /// Takes several tokens if they are available.
    TryAcquireMany(u8),
    /// Gives back one of the tokens that the run still holds.
    GiveBack(u8),
    /// Changes the rate and the burst.
    SetQuota(OracleQuota),
    /// Advances the clock.
    Advance(Span),
    /// Sets the clock back.
    JumpBack(Span),
}

/// One of four keys.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Key {
    A,
    B,
    C,
    D,
}

/// A duration, in one of several units.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Nanoseconds; such short durations reveal rounding errors.
    Nanos(u8),
    /// Microseconds.
    Micros(u16),
    /// Milliseconds, up to 50 days.
    Millis(u32),
    /// Infinite.
    Endless,
}

impl Span {
    /// The duration in nanoseconds.
    #[must_use]
    pub fn nanos(self) -> u64 {
        match self {
            Self::Nanos(n) => n.into(),
            Self::Micros(n) => u64::from(n) * 1_000,
            Self::Millis(n) => u64::from(n) * 1_000_000,
            Self::Endless => u64::MAX,
        }
    }

    /// The duration in nanoseconds, but at most 50 days.
    #[must_use]
    pub fn finite(self) -> u64 {
        self.nanos().min(u64::from(u32::MAX) * 1_000_000)
    }
}

/// The jitter of waits.
#[derive(Arbitrary, Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum OracleJitter {
    None,
    Full,
    Equal,
    Decorrelated,
}

/// A rate and a burst. Zero tokens and a burst of zero count as one.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
pub struct OracleQuota {
    tokens: u16,
    period: Span,
    burst: u8,
}

impl OracleQuota {
    /// Creates a quota of `tokens` tokens per `period_millis` milliseconds, with the given burst.
    #[must_use]
    pub fn new(tokens: u16, period_millis: u32, burst: u8) -> Self {
        Self { tokens, period: Span::Millis(period_millis), burst }
    }

    /// Creates a quota of `tokens` tokens per `period_nanos` nanoseconds, with the given burst.
    #[must_use]
    pub fn per_nanos(tokens: u16, period_nanos: u8, burst: u8) -> Self {
        Self { tokens, period: Span::Nanos(period_nanos), burst }
    }

    /// The number of tokens per period.
    #[must_use]
    pub fn tokens(self) -> u16 {
        self.tokens.max(1)
    }

    /// The period in nanoseconds, raised to at least one nanosecond per token, because at a higher rate, tokens could not be given back exactly.
    #[must_use]
    pub fn period(self) -> u64 {
        self.period.finite().max(u64::from(self.tokens()))
    }

    /// The number of tokens and the period, both divided by their greatest common divisor.
    #[must_use]
    pub fn in_lowest_terms(self) -> (u64, u64) {
        let (tokens, period) = (u64::from(self.tokens()), self.period());
        let common = greatest_divisor(period, tokens);
        (tokens / common, period / common)
    }

    /// The burst.
    #[must_use]
    pub fn burst(self) -> u8 {
        self.burst.max(1)
    }
}

/// The configuration of the limiter that a random run tests.
#[derive(Arbitrary, Clone, Copy, Debug)]
#[allow(missing_docs)]
pub struct LimiterSetup {
    pub shape: Shape,
    pub seed: u64,
    pub base: Span,
    pub above_base: Span,
    pub immediate_first: bool,
    pub jitter: OracleJitter,
    pub fast: Span,
    pub slow: Span,
    pub fast_attempts: u8,
    pub quota: OracleQuota,
    pub cap: Span,
    pub rest: Span,
    pub few_keys: bool,
}

/// The combination of policies.
#[derive(Arbitrary, Clone, Copy, Debug)]
#[allow(missing_docs)]
pub enum Shape {
    Exponential,
    FastSlow,
    Bucket,
    /// The default limiter of controllers: the longer wait of an exponential backoff and a bucket.
    Default,
    /// The longest wait of the fast/slow policy, the exponential backoff and the bucket, up to a cap.
    Everything,
    /// The exponential backoff, with a retry budget: the budget limits how many waits end per unit of time.
    Paced,
}

impl LimiterSetup {
    /// The shortest wait of the exponential backoff.
    #[must_use]
    pub fn base(&self) -> u64 {
        self.base.nanos().max(1)
    }

    /// The longest wait of the exponential backoff.
    #[must_use]
    pub fn exponential_cap(&self) -> u64 {
        self.base().saturating_add(self.above_base.nanos())
    }

    /// The maximum number of keys that each policy stores.
    #[must_use]
    pub fn max_keys(&self) -> u32 {
        if self.few_keys { 2 } else { 1_000 }
    }

    /// Builds the limiter.
    #[must_use]
    pub fn oracle(&self) -> OracleLimiter<Key> {
        let exponential = || {
            let failures = OracleFailures::new(self.exponential_cap(), self.rest.nanos(), self.max_keys());
            OracleLimiter::Exponential {
                base: self.base(),
                cap: self.exponential_cap(),
                immediate_first: self.immediate_first,
                jitter: self.jitter,
                failures,
            }
        };
        let fast_slow = || {
            let (fast, slow) = (self.fast.nanos(), self.slow.nanos());
            let failures = OracleFailures::new(fast.max(slow), self.rest.nanos(), self.max_keys());
            OracleLimiter::FastSlow { fast, slow, fast_attempts: self.fast_attempts.into(), failures }
        };
        let bucket = || OracleLimiter::Bucket(OracleBucket::new(self.quota));
        let default = || OracleLimiter::MaxOf(Box::new(exponential()), Box::new(bucket()));
        match self.shape {
            Shape::Exponential => exponential(),
            Shape::FastSlow => fast_slow(),
            Shape::Bucket => bucket(),
            Shape::Default => default(),
            Shape::Everything => {
                let most = OracleLimiter::MaxOf(Box::new(fast_slow()), Box::new(default()));
                OracleLimiter::Capped(Box::new(most), self.cap.nanos())
            }
            Shape::Paced => OracleLimiter::Paced(Box::new(exponential()), OracleRetryBudget::new(self.quota)),
        }
    }
}

/// A limiter, as a tree of policies.
#[derive(Clone, Debug)]
#[allow(missing_docs)]
pub enum OracleLimiter<K> {
    Exponential {
        base: u64,
        cap: u64,
        immediate_first: bool,
        jitter: OracleJitter,
        failures: OracleFailures<K>,
    },
    FastSlow {
        fast: u64,
        slow: u64,
        fast_attempts: u32,
        failures: OracleFailures<K>,
    },
    Bucket(OracleBucket),
    MaxOf(Box<Self>, Box<Self>),
    Capped(Box<Self>, u64),
    Paced(Box<Self>, OracleRetryBudget),
}

impl<K: Copy + PartialEq> OracleLimiter<K> {
    /// Records a failure of the key and returns how long the key waits.
    ///
    /// # Panics
    /// Does not panic: a burst is at least one.
    pub fn failed(&mut self, key: K, now: u64, random: u64) -> u64 {
        match self {
            Self::Exponential { base, cap, immediate_first, jitter, failures } => {
                let (before, last) = failures.count(key, now);
                let wait = match (before, *immediate_first) {
                    (0, true) => 0,
                    (before, first) => {
                        let doublings = before - u32::from(first);
                        let wait = (u128::from(*base) << doublings.min(64)).min((*cap).into());
                        spread(wait, (*base).into(), last.into(), (*cap).into(), *jitter, random)
                    }
                };
                failures.waits(wait);
                wait
            }
            Self::FastSlow { fast, slow, fast_attempts, failures } => {
                if failures.count(key, now).0 < *fast_attempts { *fast } else { *slow }
            }
            Self::Bucket(bucket) => {
                let token = bucket.reserve(1, now).expect("a burst is one or more");
                bucket.due(token).saturating_sub(now)
            }
            Self::MaxOf(first, second) => {
                let mut random = Random::new(random);
                let first = first.failed(key, now, random.next());
                let second = second.failed(key, now, random.next());
                first.max(second)
            }
            Self::Capped(inner, cap) => inner.failed(key, now, random).min(*cap),
            Self::Paced(inner, pace) => {
                let wait = inner.failed(key, now, random);
                let due = pace.book(now.saturating_add(wait), now);
                wait.max(due.saturating_sub(now))
            }
        }
    }

    /// Forgets a key.
    pub fn forget(&mut self, key: K) {
        match self {
            Self::Exponential { failures, .. } | Self::FastSlow { failures, .. } => failures.forget(key),
            Self::Bucket(_) => {}
            Self::MaxOf(first, second) => {
                first.forget(key);
                second.forget(key);
            }
            Self::Capped(inner, _) | Self::Paced(inner, _) => inner.forget(key),
        }
    }

    /// The number of failures of a key that were counted and not forgotten.
    #[must_use]
    pub fn requeues(&self, key: K) -> u32 {
        match self {
            Self::Exponential { failures, .. } | Self::FastSlow { failures, .. } => failures.of(key),
            Self::Bucket(_) => 0,
            Self::MaxOf(first, second) => first.requeues(key).max(second.requeues(key)),
            Self::Capped(inner, _) | Self::Paced(inner, _) => inner.requeues(key),
        }
    }

    /// The number of keys whose failures are stored.
    #[must_use]
    pub fn tracked(&self) -> usize {
        match self {
            Self::Exponential { failures, .. } | Self::FastSlow { failures, .. } => failures.keys.len(),
            Self::Bucket(_) => 0,
            Self::MaxOf(first, second) => first.tracked().max(second.tracked()),
            Self::Capped(inner, _) | Self::Paced(inner, _) => inner.tracked(),
        }
    }

    /// Changes the quota of every bucket and retry budget in the tree.
    pub fn set_quota(&mut self, quota: OracleQuota, now: u64) {
        match self {
            Self::Exponential { .. } | Self::FastSlow { .. } => {}
            Self::Bucket(bucket) => bucket.set_quota(quota, now),
            Self::MaxOf(first, second) => {
                first.set_quota(quota, now);
                second.set_quota(quota, now);
            }
            Self::Capped(inner, _) => inner.set_quota(quota, now),
            Self::Paced(_, pace) => pace.set_quota(quota, now),
        }
    }

    /// Checks that no bucket or retry budget in the tree granted more tokens than its rate allows.
    ///
    /// # Errors
    /// The start and the end of a span of time in which too many tokens were granted.
    pub fn within_rate(&self) -> Result<(), (u64, u64)> {
        match self {
            Self::Exponential { .. } | Self::FastSlow { .. } => Ok(()),
            Self::Bucket(bucket) => bucket.within_rate(),
            Self::MaxOf(first, second) => first.within_rate().and_then(|()| second.within_rate()),
            Self::Capped(inner, _) => inner.within_rate(),
            Self::Paced(_, pace) => pace.within_rate(),
        }
    }
}

fn spread(wait: u128, base: u128, last: u128, cap: u128, jitter: OracleJitter, random: u64) -> u64 {
    // Maps the random number to a whole number from 0 to `most`. All results are equally likely, except for rounding.
    let up_to = |most: u128| u128::from(random) * (most + 1) / (1 << 64);
    let wait = match jitter {
        OracleJitter::None => wait,
        OracleJitter::Full => up_to(wait),
        OracleJitter::Equal => wait / 2 + up_to(wait - wait / 2),
        OracleJitter::Decorrelated => base + up_to((3 * last.max(base)).min(cap) - base),
    };
    u64::try_from(wait).expect("a wait is at most its cap")
}

/// The failures of each key, ordered by the time of the last failure. An entry contains the key, the number of its failures, and the time and the
/// wait of the last failure.
#[derive(Clone, Debug)]
pub struct OracleFailures<K> {
    keys: Vec<(K, u32, u64, u64)>,
    idle: u64,
    most: usize,
}

impl<K: Copy + PartialEq> OracleFailures<K> {
    /// Creates an empty list, for a limiter whose longest wait is `longest`. The list keeps at most `most` keys, each for `longest` + `rest` after
    /// its last failure.
    #[must_use]
    pub fn new(longest: u64, rest: u64, most: u32) -> Self {
        Self { keys: Vec::new(), idle: longest.saturating_add(rest), most: most as usize }
    }

    /// Counts a failure of the key. Returns the number of its earlier failures, and the wait after the last of them.
    fn count(&mut self, key: K, now: u64) -> (u32, u64) {
        let expired = |&(_, _, at, _): &(K, u32, u64, u64)| now.saturating_sub(at) > self.idle;
        let before = match self.keys.iter().find(|entry| entry.0 == key) {
            Some(entry) if !expired(entry) => (entry.1, entry.3),
            _ => (0, 0),
        };
        self.keys.retain(|entry| entry.0 != key);
        // Removes at most two expired keys, those that failed the longest time ago.
        for _ in 0..2 {
            if self.keys.first().is_some_and(expired) {
                self.keys.remove(0);
            }
        }
        if self.keys.len() == self.most {
            self.keys.remove(0);
        }
        self.keys.push((key, before.0.saturating_add(1), now, 0));
        before
    }

    /// Stores `wait` as the wait after the failure that was counted last.
    fn waits(&mut self, wait: u64) {
        if let Some(entry) = self.keys.last_mut() {
            entry.3 = wait;
        }
    }

    fn of(&self, key: K) -> u32 {
        self.keys.iter().find(|entry| entry.0 == key).map_or(0, |entry| entry.1)
    }

    fn forget(&mut self, key: K) {
        self.keys.retain(|entry| entry.0 != key);
    }
}

/// The oracle of a token bucket: a list of all tokens ever taken.
///
/// The rule: consider a moment at which a token was taken, and all tokens taken since then. The first `burst` of these tokens are due at that moment,
/// and the others fall due one by one, at the rate of the quota. In this way, each moment gives a due time for the newest token. The latest of these
/// times is the actual due time.
#[derive(Clone, Debug)]
pub struct OracleBucket {
    quota: OracleQuota,
    /// The time of each grant, and the number of its tokens, counted in parts of a token. If the quota in lowest terms is `tokens` per `period`
    /// nanoseconds, a token consists of `period` parts, and the bucket gains `tokens` parts per nanosecond.
    taken: Vec<(u64, u128)>,
    grants: Vec<Grant>,
}

#[derive(Clone, Copy, Debug)]
struct Grant {
    due: u64,
    count: u32,
    entry: usize,
    returned: bool,
    /// Whether the quota has changed since this grant.
    closed: bool,
}

impl OracleBucket {
    /// Creates a full bucket.
    #[must_use]
    pub fn new(quota: OracleQuota) -> Self {
        Self { quota, taken: Vec::new(), grants: Vec::new() }
    }

    /// Takes `count` tokens, or reserves them if they are not available yet. Returns the index of the grant.
    ///
    /// # Errors
    /// The burst, if `count` is larger than the burst.
    pub fn reserve(&mut self, count: u32, now: u64) -> Result<usize, u32> {
        let burst = u32::from(self.quota.burst());
        if count > burst {
            return Err(burst);
        }
        self.taken.push((now, u128::from(count) * self.token()));
        let due = self.allowed().max(now);
        let entry = self.taken.len() - 1;
        self.grants.push(Grant { due, count, entry, returned: false, closed: false });
        Ok(self.grants.len() - 1)
    }

    /// Takes `count` tokens if they are available.
    ///
    /// # Errors
    /// The time at which the tokens will be available; `None` if `count` is larger than the burst.
    pub fn try_acquire(&mut self, count: u32, now: u64) -> Result<(), Option<u64>> {
        let token = self.reserve(count, now).map_err(|_| None)?;
        let due = self.due(token);
        if due > now {
            self.taken.pop();
            self.grants.pop();
            return Err(Some(due));
        }
        Ok(())
    }

    /// The time at which the tokens of a grant are due.
    #[must_use]
    pub fn due(&self, token: usize) -> u64 {
        self.grants[token].due
    }

    /// Gives the tokens of a grant back to the bucket, if their due time has not passed, no tokens that are due later were taken, and the quota has
    /// not changed since the grant. Returns whether they were given back.
    pub fn give_back(&mut self, token: usize, now: u64) -> bool {
        let Grant { due, entry, returned, closed, .. } = self.grants[token];
        if returned || closed || due < now || due < self.allowed() || due == u64::MAX {
            return false;
        }
        self.grants[token].returned = true;
        self.taken[entry].1 = 0;
        true
    }

    /// Changes the quota. The bucket keeps its available tokens, but at most as many as the new burst.
    pub fn set_quota(&mut self, quota: OracleQuota, now: u64) {
        let (old, old_token) = (self.quota, self.token());
        if (old.tokens(), old.period(), old.burst()) == (quota.tokens(), quota.period(), quota.burst()) {
            return;
        }
        let missing = self.full().saturating_sub(u128::from(now) * self.rate());
        let (whole, rest) = (missing / old_token, missing % old_token);
        self.quota = quota;
        // First computes how many tokens are missing relative to the old burst (a fraction of a token is rounded up), and then how many are missing
        // relative to the new burst.
        let missing =
            whole.saturating_mul(self.token()).saturating_add((rest * self.token()).div_ceil(old_token));
        let missing = missing.saturating_add(u128::from(quota.burst()) * self.token());
        let missing = missing.saturating_sub(u128::from(old.burst()) * self.token()).min(self.never());
        self.taken = vec![(now, missing)];
        for grant in &mut self.grants {
            grant.closed = true;
        }
    }

    /// The number of available tokens.
    #[must_use]
    pub fn available(&self, now: u64) -> u32 {
        let mut bucket = self.clone();
        (0..).take_while(|_| bucket.try_acquire(1, now).is_ok()).count() as u32
    }

    /// Checks that the bucket granted at most burst + rate × time tokens in every span of time. Counts only the tokens that were taken under the
    /// current quota and were not given back.
    ///
    /// # Errors
    /// If the bucket granted more tokens in a span of time, returns the due times of the first and the last of these tokens.
    pub fn within_rate(&self) -> Result<(), (u64, u64)> {
        let mut due: Vec<(u64, u32)> =
            self.grants.iter().filter(|g| !g.returned && !g.closed).map(|g| (g.due, g.count)).collect();
        due.sort_unstable();
        for (i, &(first, _)) in due.iter().enumerate() {
            let mut tokens = 0;
            for &(last, count) in &due[i..] {
                tokens += u64::from(count);
                let above_burst = tokens.saturating_sub(self.quota.burst().into());
                // The span includes both ends.
                let span = u128::from(last - first) + 1;
                if last < u64::MAX && u128::from(above_burst) * self.token() > span * self.rate() {
                    return Err((first, last));
                }
            }
        }
        Ok(())
    }

    /// The earliest time at which the quota allows the token that was taken last.
    fn allowed(&self) -> u64 {
        let burst = u128::from(self.quota.burst()) * self.token();
        let parts = self.full().saturating_sub(burst);
        u64::try_from(parts.div_ceil(self.rate())).unwrap_or(u64::MAX)
    }

    /// The time at which the bucket is full again, given as the number of parts that the bucket gains from time 0 until then.
    fn full(&self) -> u128 {
        let mut since = 0;
        let mut full = 0;
        for (at, parts) in self.taken.iter().rev() {
            since += parts;
            full = full.max(u128::from(*at) * self.rate() + since);
        }
        full.min(self.never())
    }

    /// The value of `full` if a token is never due; `full` is never larger than this.
    fn never(&self) -> u128 {
        u128::from(u64::MAX) * self.rate() + u128::from(self.quota.burst()) * self.token()
    }

    /// The number of parts of a token.
    fn token(&self) -> u128 {
        self.quota.in_lowest_terms().1.into()
    }

    /// The number of parts that the bucket gains in a nanosecond.
    fn rate(&self) -> u128 {
        self.quota.in_lowest_terms().0.into()
    }
}

/// The greatest common divisor, by Euclid's algorithm.
fn greatest_divisor(of: u64, and: u64) -> u64 {
    if and == 0 { of } else { greatest_divisor(and, of % and) }
}
