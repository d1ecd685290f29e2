//! PURE. How many at once: additive increase, multiplicative decrease.
//!
//! The rule is that of Chiu and Jain ("Analysis of the increase and decrease algorithms for congestion avoidance",
//! 1989), which TCP made known: of the linear rules, only this one leads those who share a server to equal shares.
//! What counts as congestion is a share of answers that failed, or a median latency above a bound.
//!
//! # Invariants
//! 1. 1 ≤ least ≤ limit ≤ most.
//! 2. An operation is admitted only while fewer than the limit are in flight. (A limit that has fallen may be
//!    below those in flight; they end by themselves.)
//! 3. The limit changes only at the end of a round, once, by one step: up by one, or down to seven tenths. A round
//!    counts only answers to operations that started in it: those that started before know nothing of its limit. It ends
//!    with as many answers as the limit, and no fewer than [`SHORTEST_ROUND`].
//! 4. So one bad answer changes nothing: it takes more than a tenth of a round that failed, or more than half that were slow.
//! 5. The limit rises only if it was reached in the round: what is not used cannot be judged.
//!
//! All is O(1) in time and memory: the median is not computed, only on which side of the bound it lies.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::{InvalidConcurrencyLimits, Nanos};

/// How many operations may be in flight at once, learnt from how they end.
///
/// As long as answers come in time, one more is tried in each round; when more than half of a round took longer than
/// the bound, or more than a tenth failed, the limit falls to seven tenths. A round is as many answers as the limit, at
/// least ten. So the number in flight hovers around what the server can do without queueing for longer than the
/// bound, several clients of one server come to equal shares, and one bad answer changes nothing.
///
/// Choose the bound by what is too slow for you: two or three times the latency at rest, or an objective. It is a
/// number of yours and not learnt, since who arrives under load cannot know what rest is like.
///
/// This is the rule alone; [`ConcurrencyLimiter`](crate::ConcurrencyLimiter) applies it, and is shared between threads and tasks.
///
/// # Examples
/// ```
/// use flyball_ratelimit::{AimdLimit, ConcurrencyLimiter, ManualClock};
/// use std::time::Duration;
///
/// let millis = Duration::from_millis;
/// let clock = ManualClock::new();
/// let limit = AimdLimit::new(1..=100, millis(200)).initial_limit(20);
/// let limiter = ConcurrencyLimiter::with_clock(limit, clock.clone());
/// let round = |latency| {
///     let permits: Vec<_> = (0..limiter.limit()).filter_map(|_| limiter.try_acquire()).collect();
///     clock.advance(latency);
///     permits.into_iter().for_each(|permit| permit.succeed());
///     limiter.limit()
/// };
/// assert_eq!(round(millis(50)), 21);
/// assert_eq!(round(millis(50)), 22);
/// assert_eq!(round(millis(500)), 15); // too slow: 22 · 7/10
/// ```
#[derive(Debug)]
pub struct AimdLimit {
    least: u32,
    most: u32,
    /// A latency above it is slow, in nanoseconds.
    bound: u64,
    limit: u32,
    in_flight: u32,
    round: Round,
}

#[derive(Debug, Default)]
struct Round {
    number: u64,
    answers: u32,
    failures: u32,
    slow: u32,
    /// The limit was reached by a start, or stood in the way of one.
    full: bool,
}

/// How an operation ended, as far as its server's load is concerned.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// It was answered; how fast is measured. An answer that says *no such object* is one, too.
    Success,
    /// It was refused, ran into a timeout, or was given up: what happens when a server has too much to do.
    Failure,
    /// It says nothing about the server, such as one that was never sent.
    Ignored,
}

/// An operation in flight; it is to be ended with [`AimdLimit::end`].
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "an operation that is never ended stays in flight"]
pub struct Started {
    at: Nanos,
    round: u64,
}

// === impl AimdLimit ===

impl AimdLimit {
    /// From `*limits.start()` to `*limits.end()` at once, so that half of all answers take no longer than `bound`.
    ///
    /// It starts with the least; see [`initial_limit`](Self::initial_limit).
    ///
    /// # Panics
    /// When the range starts at zero or is empty. [`try_new`](Self::try_new) is for values that come from outside.
    #[must_use]
    #[track_caller]
    pub fn new(limits: RangeInclusive<u32>, bound: Duration) -> Self {
        match Self::try_new(limits, bound) {
            Ok(adaptive) => adaptive,
            Err(invalid) => panic!("{invalid}"),
        }
    }

    /// From `*limits.start()` to `*limits.end()` at once, so that half of all answers take no longer than `bound`.
    ///
    /// # Errors
    /// [`InvalidConcurrencyLimits`] with the range when it starts at zero or is empty.
    ///
    /// # Examples
    /// ```
    /// use flyball_ratelimit::{AimdLimit, InvalidConcurrencyLimits};
    /// use std::time::Duration;
    ///
    /// fn from_settings(most: u32) -> Result<AimdLimit, InvalidConcurrencyLimits> {
    ///     AimdLimit::try_new(1..=most, Duration::from_millis(200))
    /// }
    ///
    /// assert!(from_settings(64).is_ok());
    /// assert!(from_settings(0).is_err());
    /// ```
    pub fn try_new(limits: RangeInclusive<u32>, bound: Duration) -> Result<Self, InvalidConcurrencyLimits> {
        let (least, most) = (*limits.start(), *limits.end());
        if least == 0 || least > most {
            return Err(InvalidConcurrencyLimits::new(limits));
        }
        let bound = Nanos::from_duration(bound).get();
        Ok(Self { least, most, bound, limit: least, in_flight: 0, round: Round::default() })
    }

    /// The limit to start with, or the nearest within the range: what a server is known to bear is not learnt anew.
    #[must_use]
    pub fn initial_limit(self, limit: u32) -> Self {
        Self { limit: limit.clamp(self.least, self.most), ..self }
    }

    /// An operation starts at `now`, if fewer than the limit are in flight.
    #[doc(hidden)]
    pub fn start(&mut self, now: Nanos) -> Option<Started> {
        self.admit().then(|| self.started(now))
    }

    /// An operation has ended at `now`; the limit may have changed then. Only of a success it matters when.
    #[doc(hidden)]
    pub fn end(&mut self, operation: Started, outcome: Outcome, now: Nanos) {
        self.leave();
        // Invariant 3: what started under an older limit says nothing about this one.
        if outcome == Outcome::Ignored || operation.round != self.round.number {
            return;
        }
        self.round.answers += 1;
        match outcome {
            Outcome::Failure => self.round.failures += 1,
            _ if Nanos::from_duration(now.since(operation.at)).get() > self.bound => self.round.slow += 1,
            _ => {}
        }
        if self.round.answers >= self.limit.max(SHORTEST_ROUND) {
            self.judge();
        }
    }

    /// How many may be in flight.
    #[doc(hidden)]
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// How many are in flight; more than the limit when that has just fallen.
    #[doc(hidden)]
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Walks the invariants.
    #[doc(hidden)]
    pub fn check(&self) -> Result<(), String> {
        let Self { least, limit, most, .. } = *self;
        if least == 0 || least > limit || limit > most {
            return Err(format!("invariant 1: {least} <= {limit} <= {most}"));
        }
        let Round { answers, failures, slow, .. } = self.round;
        if answers >= limit.max(SHORTEST_ROUND) || u64::from(failures) + u64::from(slow) > answers.into() {
            return Err(format!("invariant 3: {failures} failures, {slow} slow of {answers}, limit {limit}"));
        }
        Ok(())
    }

    /// Takes a place; the operation may start later.
    pub(crate) fn admit(&mut self) -> bool {
        // Invariants 2 and 5.
        let free = self.in_flight < self.limit;
        self.in_flight += u32::from(free);
        self.round.full |= self.in_flight >= self.limit;
        free
    }

    /// What was admitted starts.
    pub(crate) fn started(&self, now: Nanos) -> Started {
        Started { at: now, round: self.round.number }
    }

    /// What was admitted is over.
    pub(crate) fn leave(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn judge(&mut self) {
        let Round { number, answers, failures, slow, full } = self.round;
        let share = |count: u32, of: u64| u64::from(count) * of > u64::from(answers);
        // Invariants 3 and 4.
        if share(failures, TOLERATED_FAILURES) || share(slow, 2) {
            let lower = u64::from(self.limit) * 7 / 10;
            self.limit = (lower as u32).max(self.least);
        } else if full {
            self.limit = self.limit.saturating_add(1).min(self.most);
        }
        self.round = Round { number: number + 1, ..Round::default() };
    }
}

/// Answers by which a limit is judged, however low it is: a single bad one stays below every threshold.
const SHORTEST_ROUND: u32 = 10;

/// One in so many may fail.
const TOLERATED_FAILURES: u64 = 10;
