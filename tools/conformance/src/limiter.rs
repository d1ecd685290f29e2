//! EDGE. Runs scripts on the limiters of `flyball-ratelimit`.

use flyball_ratelimit::Limiter;
use flyball_sync::ManualClock;
use testkit::client_go::{Answer, LimiterConfig, LimiterLine};

use crate::policy::AnyPolicy;

/// A limiter whose clock stands still.
pub(crate) struct FlyballLimiter(Limiter<String, AnyPolicy, ManualClock>);

impl FlyballLimiter {
    /// The limiter has the default backoff of client-go's controllers, until a config line changes it.
    pub(crate) fn new() -> Self {
        let default = LimiterConfig::Exponential { base_ms: 5, max_ms: 1_000_000 };
        Self::with(&default).expect("5 ms to 1000 s is a range")
    }

    fn with(config: &LimiterConfig) -> Option<Self> {
        Some(Self(Limiter::with_clock(AnyPolicy::new(config)?, ManualClock::new())))
    }

    /// Returns the answer to a line. Pass `None` for an invalid line.
    pub(crate) fn answer(&mut self, line: Option<&LimiterLine>) -> Answer {
        match line {
            None => Answer::Error,
            Some(LimiterLine::Config(config)) => match Self::with(config) {
                None => Answer::Error,
                Some(limiter) => {
                    *self = limiter;
                    Answer::Done
                }
            },
            Some(LimiterLine::When(key)) => {
                let wait = self.0.record_failure(key).as_nanos();
                Answer::Wait(u64::try_from(wait).unwrap_or(u64::MAX))
            }
            Some(LimiterLine::Forget(key)) => {
                self.0.forget(key);
                Answer::Done
            }
            Some(LimiterLine::Requeues(key)) => Answer::Number(self.0.num_requeues(key).into()),
        }
    }
}
