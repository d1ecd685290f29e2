//! PURE. The rule of the concurrency limit: additive increase, multiplicative decrease (AIMD).
//!
//! The rule is from Chiu and Jain ("Analysis of the increase and decrease algorithms for congestion avoidance",
//! 1989); TCP uses it, too. Among the linear rules, only AIMD makes the clients of a server converge to equal shares. A
//! round counts as congested if its share of failed answers, or its median latency, is above a bound.
//!
//! # Invariants
//! 1. 1 ≤ least ≤ limit ≤ most.
//! 2. An operation is admitted only while fewer operations than the limit are in flight. (After the limit has fallen, more operations
//!    than the limit may be in flight until they end.)
//! 3. The limit changes at most once per round, at its end: it rises by one, or falls to seven tenths of its value (within its range). A round counts
//!    only answers to operations that started in that round, because earlier operations may have run under a different limit. A round ends after
//!    max(limit, [`SHORTEST_ROUND`]) counted answers.
//! 4. The limit falls only if more than a tenth of a round's answers failed, or more than half of them were slow. So a single bad answer changes
//!    nothing.
//! 5. The limit rises only if it was reached in the round; otherwise the round does not show whether a higher limit is
//!    possible.
//!
//! Every operation is O(1) in time and memory, because the median is not computed: the number of slow answers shows whether the median is above the
//! bound.

use std::ops::RangeInclusive;
use std::time::Duration;

use flyball_sync::Nanos;

use crate::error::InvalidConcurrencyLimits;

/// A limit on the number of operations in flight, which adapts to their outcomes.
///
/// As long as answers arrive in time, the limit rises by one in each round in which it was reached. If more than half of the answers in a round took
/// longer than the bound, or more than a tenth failed, the limit falls to seven tenths of its value. A round ends when the number of its answers
/// reaches the limit, but not before ten answers. So the number of operations in flight stays near the number that the server can handle without
/// queueing for longer than the bound. Several clients of one server converge to equal shares, and a single bad answer changes nothing.
///
/// Set the bound to the longest latency that you accept: for example, two or three times the latency of an idle server, or a service-level objective.
/// You configure the bound; the limit does not measure it, because a client that starts under load cannot measure the latency of an idle server.
///
/// This type is only the rule; [`ConcurrencyLimiter`](crate::ConcurrencyLimiter) applies it, and can be shared between
/// threads and tasks.
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
    /// The latency above which an answer is slow, in nanoseconds.
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
    /// Whether the limit was reached in this round: an operation took the last slot, or was refused.
    full: bool,
}

/// The outcome of an operation, as a sign of its server's load.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The server answered; the time from the start of the operation to its end counts as the latency. An error answer such as *no such object*
    /// counts as a success, too.
    Success,
    /// The operation was refused, timed out or was abandoned, as happens when a server is overloaded.
    Failure,
    /// The outcome says nothing about the server's load, for example because the operation was never sent.
    Ignored,
}

/// An operation in flight. End it with [`AimdLimit::end`].
#[doc(hidden)]
#[derive(Debug)]
#[must_use = "an operation that is never ended stays in flight"]
pub struct Started {
    at: Nanos,
    round: u64,
}

// === impl AimdLimit ===

impl AimdLimit {
    /// Creates a limit that adapts between `*limits.start()` and `*limits.end()` operations in flight, and falls when the median latency is above
    /// `bound`.
    ///
    /// The limit starts at `*limits.start()`; see [`initial_limit`](Self::initial_limit).
    ///
    /// # Panics
    /// Panics if the range starts at zero or is empty. For values from outside the program, use
    /// [`try_new`](Self::try_new).
    #[must_use]
    #[track_caller]
    pub fn new(limits: RangeInclusive<u32>, bound: Duration) -> Self {
        match Self::try_new(limits, bound) {
            Ok(adaptive) => adaptive,
            Err(invalid) => panic!("{invalid}"),
        }
    }

    /// Creates a limit that adapts between `*limits.start()` and `*limits.end()` operations in flight, and falls when the median latency is above
    /// `bound`.
    ///
    /// # Errors
    /// Returns [`InvalidConcurrencyLimits`], which contains the range, if the range starts at zero or is empty.
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

    /// Sets the initial limit, clamped to the range. Use this if you know a load that the server can handle.
    #[must_use]
    pub fn initial_limit(self, limit: u32) -> Self {
        Self { limit: limit.clamp(self.least, self.most), ..self }
    }

    /// If fewer operations than the limit are in flight, starts an operation at `now` and returns it.
    #[doc(hidden)]
    pub fn start(&mut self, now: Nanos) -> Option<Started> {
        self.admit().then(|| self.started(now))
    }

    /// Ends an operation at `now`, which may change the limit. `now` is used only to measure the latency of a success.
    #[doc(hidden)]
    pub fn end(&mut self, operation: Started, outcome: Outcome, now: Nanos) {
        self.leave();
        // Invariant 3: an operation that started under an older limit is not counted.
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
            self.end_round();
        }
    }

    /// The current limit.
    #[doc(hidden)]
    #[must_use]
    pub const fn limit(&self) -> u32 {
        self.limit
    }

    /// The number of operations in flight; it can be higher than the limit if the limit has just fallen.
    #[doc(hidden)]
    #[must_use]
    pub const fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Checks the invariants.
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

    /// If a slot is free, takes the slot and returns true. The operation may start later.
    pub(crate) fn admit(&mut self) -> bool {
        // Invariants 2 and 5.
        let free = self.in_flight < self.limit;
        self.in_flight += u32::from(free);
        self.round.full |= self.in_flight >= self.limit;
        free
    }

    /// Starts an operation that was admitted.
    pub(crate) fn started(&self, now: Nanos) -> Started {
        Started { at: now, round: self.round.number }
    }

    /// Releases the slot of an operation that was admitted.
    pub(crate) fn leave(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
    }

    fn end_round(&mut self) {
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

/// The minimum number of answers in a round, even if the limit is lower. In shorter rounds, a single bad answer could exceed a threshold.
const SHORTEST_ROUND: u32 = 10;

/// Failures lower the limit if more than 1 / `TOLERATED_FAILURES` of the answers in a round are failures.
const TOLERATED_FAILURES: u64 = 10;
