//! The limiters that compute how long a failed key waits, as in client-go, with a switch for each intended difference of flyball.

use super::failures::Failures;
use super::{Answer, LimiterConfig, LimiterLine, Rule, Rules};

/// Executes a script for limiters, line by line. The clock always shows 0.
#[derive(Clone, Debug)]
pub struct ReferenceLimiter {
    rules: Rules,
    limiter: Limiter,
}

impl ReferenceLimiter {
    /// Creates the exponential backoff that controllers use by default. A `Config` line replaces it.
    #[must_use]
    pub fn new(rules: Rules) -> Self {
        Self { rules, limiter: Limiter::default_backoff(rules) }
    }

    /// Executes a line and returns its answer. `None` stands for an invalid line.
    pub fn answer(&mut self, line: Option<&LimiterLine>) -> Answer {
        match line {
            None => Answer::Error,
            Some(LimiterLine::Config(config)) => match Limiter::new(config, self.rules) {
                None => Answer::Error,
                Some(limiter) => {
                    self.limiter = limiter;
                    Answer::Done
                }
            },
            Some(LimiterLine::When(key)) => Answer::Wait(self.limiter.when(key, 0, &|_| false)),
            Some(LimiterLine::Forget(key)) => {
                self.limiter.forget(key);
                Answer::Done
            }
            Some(LimiterLine::Requeues(key)) => Answer::Number(self.limiter.requeues(key)),
        }
    }
}

/// A limiter; its waits are in nanoseconds.
#[derive(Clone, Debug)]
pub(super) enum Limiter {
    Exponential { base: u64, max: u64, whole: bool, failures: Failures },
    FastSlow { fast: u64, slow: u64, attempts: u64, failures: Failures },
    MaxOf(Vec<Self>),
}

impl Limiter {
    pub(super) fn default_backoff(rules: Rules) -> Self {
        Self::exponential(5_000_000, 1_000_000_000_000, rules)
    }

    fn exponential(base: u64, max: u64, rules: Rules) -> Self {
        Self::Exponential {
            base,
            max,
            whole: rules.has(Rule::WholeNanoseconds),
            failures: Failures::new(max, rules),
        }
    }

    /// Creates the limiter that `config` describes, or returns `None` if `config` is invalid and `rules` contains [`Rule::InvalidLimiterRefused`].
    pub(super) fn new(config: &LimiterConfig, rules: Rules) -> Option<Self> {
        let strict = rules.has(Rule::InvalidLimiterRefused);
        match config {
            LimiterConfig::Exponential { base_ms, max_ms } => {
                let valid = *base_ms > 0 && base_ms <= max_ms;
                (valid || !strict).then(|| Self::exponential(base_ms * 1_000_000, max_ms * 1_000_000, rules))
            }
            LimiterConfig::FastSlow { fast_ms, slow_ms, fast: attempts } => {
                let (fast, slow) = (fast_ms * 1_000_000, slow_ms * 1_000_000);
                let failures = Failures::new(fast.max(slow), rules);
                Some(Self::FastSlow { fast, slow, attempts: u64::from(*attempts), failures })
            }
            LimiterConfig::MaxOf(of) if of.is_empty() && strict => None,
            LimiterConfig::MaxOf(of) => {
                Some(Self::MaxOf(of.iter().map(|config| Self::new(config, rules)).collect::<Option<_>>()?))
            }
        }
    }

    /// Counts a failure of the key and returns how long the key waits. The failure count of a key does not expire while `in_use` returns true for the
    /// key.
    pub(super) fn when(&mut self, key: &str, now: u64, in_use: &dyn Fn(&str) -> bool) -> u64 {
        match self {
            Self::Exponential { base, max, whole: true, failures } => {
                let doubled = u128::from(*base) << failures.count(key, now, in_use).min(64);
                u64::try_from(doubled).unwrap_or(u64::MAX).min(*max)
            }
            // At exactly 2⁶³ ns, client-go's conversion to an integer would overflow. This case does not occur here: a whole number of milliseconds
            // that is doubled repeatedly never equals 2⁶³ ns.
            Self::Exponential { base, max, failures, .. } => {
                let doubled = *base as f64 * 2f64.powi(failures.count(key, now, in_use) as i32);
                if doubled > i64::MAX as f64 { *max } else { (doubled as u64).min(*max) }
            }
            Self::FastSlow { fast, slow, attempts, failures } => {
                if failures.count(key, now, in_use) < *attempts { *fast } else { *slow }
            }
            // Every limiter counts the failure, not only the one with the longest wait.
            Self::MaxOf(of) => of.iter_mut().map(|limiter| limiter.when(key, now, in_use)).max().unwrap_or(0),
        }
    }

    pub(super) fn forget(&mut self, key: &str) {
        match self {
            Self::Exponential { failures, .. } | Self::FastSlow { failures, .. } => failures.forget(key),
            Self::MaxOf(of) => of.iter_mut().for_each(|limiter| limiter.forget(key)),
        }
    }

    pub(super) fn requeues(&self, key: &str) -> u64 {
        match self {
            Self::Exponential { failures, .. } | Self::FastSlow { failures, .. } => failures.of(key),
            Self::MaxOf(of) => of.iter().map(|limiter| limiter.requeues(key)).max().unwrap_or(0),
        }
    }
}
