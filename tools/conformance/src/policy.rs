//! PURE. A policy that a script selects.

use std::time::Duration;

use flyball_ratelimit::{Exponential, Failure, FastSlow, MaxOf, Policy};
use flyball_sync::Nanos;
use testkit::client_go::LimiterConfig;

/// One of the three policies of `flyball-ratelimit` that a configuration line can select.
pub(crate) enum AnyPolicy {
    Exponential(Exponential<String>),
    FastSlow(FastSlow<String>),
    MaxOf(Box<MaxOf<Self, Self>>),
}

impl AnyPolicy {
    /// Creates the policy that a configuration describes. Returns `None` if the configuration is invalid.
    pub(crate) fn new(config: &LimiterConfig) -> Option<Self> {
        let millis = Duration::from_millis;
        match config {
            LimiterConfig::Exponential { base_ms, max_ms } => {
                Exponential::try_new(millis(*base_ms)..=millis(*max_ms)).ok().map(Self::Exponential)
            }
            LimiterConfig::FastSlow { fast_ms, slow_ms, fast } => {
                Some(Self::FastSlow(FastSlow::new(millis(*fast_ms), millis(*slow_ms), *fast)))
            }
            LimiterConfig::MaxOf(of) => {
                let (last, others) = of.split_last()?;
                others.iter().rev().try_fold(Self::new(last)?, |rest, config| {
                    Some(Self::MaxOf(Box::new(MaxOf::new(Self::new(config)?, rest))))
                })
            }
        }
    }
}

impl Policy<String> for AnyPolicy {
    fn record_failure(
        &mut self,
        key: &String,
        now: Nanos,
        random: u64,
        in_use: &mut dyn FnMut(&String) -> bool,
    ) -> Failure {
        match self {
            Self::Exponential(policy) => policy.record_failure(key, now, random, in_use),
            Self::FastSlow(policy) => policy.record_failure(key, now, random, in_use),
            Self::MaxOf(policy) => policy.record_failure(key, now, random, in_use),
        }
    }

    fn forget(&mut self, key: &String) {
        match self {
            Self::Exponential(policy) => policy.forget(key),
            Self::FastSlow(policy) => policy.forget(key),
            Self::MaxOf(policy) => policy.forget(key),
        }
    }

    fn num_requeues(&self, key: &String) -> u32 {
        match self {
            Self::Exponential(policy) => policy.num_requeues(key),
            Self::FastSlow(policy) => policy.num_requeues(key),
            Self::MaxOf(policy) => policy.num_requeues(key),
        }
    }

    fn tracked_keys(&self) -> usize {
        match self {
            Self::Exponential(policy) => policy.tracked_keys(),
            Self::FastSlow(policy) => policy.tracked_keys(),
            Self::MaxOf(policy) => policy.tracked_keys(),
        }
    }
}
