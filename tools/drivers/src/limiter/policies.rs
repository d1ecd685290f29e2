//! Applies the same operations to a limiter and its oracle. The random test, the corpus test and the fuzz target use this driver.

use std::num::NonZeroU32;
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{
    Capped, Exponential, FastSlow, Jitter, Limiter, MaxOf, Policy, Quota, RetryBudget, TokenBucket,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::oracle::limiter::{Key, LimiterOp, LimiterSetup, OracleJitter, OracleLimiter, Shape};
use testkit::random::Random;

use crate::bucket::quota::quota;

/// Decodes `bytes` to a limiter and operations, and compares the limiter with its oracle after every operation.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(setup) = LimiterSetup::arbitrary(&mut input) else { return };
    match setup.shape {
        Shape::Exponential => {
            drive(&setup, exponential(&setup), |policy| policy.check(), |_, _, _| {}, input)
        }
        Shape::FastSlow => drive(&setup, fast_slow(&setup), |policy| policy.check(), |_, _, _| {}, input),
        Shape::Bucket => {
            drive(&setup, bucket(&setup), |bucket| bucket.check(), TokenBucket::set_quota, input)
        }
        Shape::Default => {
            let set = |default: &mut MaxOf<_, TokenBucket>, quota, now| {
                default.get_mut().1.set_quota(quota, now);
            };
            drive(&setup, default(&setup), check_default, set, input);
        }
        Shape::Everything => {
            let all = MaxOf::new(fast_slow(&setup), default(&setup));
            let capped = Capped::new(all, Duration::from_nanos(setup.cap.nanos()));
            drive(
                &setup,
                capped,
                |capped| {
                    let (fast_slow, default) = capped.get_mut().get_mut();
                    fast_slow.check().and_then(|()| check_default(default))
                },
                |capped, quota, now| capped.get_mut().get_mut().1.get_mut().1.set_quota(quota, now),
                input,
            );
        }
        Shape::Paced => {
            let paced = RetryBudget::new(exponential(&setup), quota(setup.quota));
            drive(
                &setup,
                paced,
                |paced| paced.check().and_then(|()| paced.get_mut().check()),
                RetryBudget::set_quota,
                input,
            );
        }
    }
}

fn drive<P: Policy<Key>>(
    setup: &LimiterSetup,
    policy: P,
    check: impl Fn(&mut P) -> Result<(), String>,
    set_quota: impl Fn(&mut P, Quota, Nanos),
    mut input: Unstructured<'_>,
) {
    let clock = ManualClock::new();
    let limiter = Limiter::with_clock(policy, clock.clone()).seed(setup.seed);
    let mut run = Run {
        limiter: &limiter,
        clock,
        oracle: setup.oracle(),
        random: Random::new(setup.seed),
        jumped: false,
    };
    for _ in 0..200 {
        let Ok(op) = LimiterOp::arbitrary(&mut input) else { break };
        run.step(op, &set_quota);
        limiter
            .update_policy(|policy, _| check(policy))
            .unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        for key in [Key::A, Key::B, Key::C, Key::D] {
            assert_eq!(
                limiter.num_requeues(&key),
                run.oracle.requeues(key),
                "failures of {key:?} after {op:?}"
            );
        }
        assert_eq!(limiter.tracked_keys(), run.oracle.tracked(), "keys with state after {op:?}");
        if input.is_empty() {
            break;
        }
    }
    // The bound on the rate is not checked if the clock has jumped back: then the clock passes through a period twice, and the limiter may grant the
    // tokens of this period twice.
    if !run.jumped {
        assert_eq!(run.oracle.within_rate(), Ok(()), "more than burst + rate x time");
    }
}

struct Run<'a, P: Policy<Key>> {
    limiter: &'a Limiter<Key, P, ManualClock>,
    clock: ManualClock,
    oracle: OracleLimiter<Key>,
    /// A generator with the same seed as the limiter's, so that it returns the same numbers.
    random: Random,
    jumped: bool,
}

impl<P: Policy<Key>> Run<'_, P> {
    fn step(&mut self, op: LimiterOp, set_quota: impl Fn(&mut P, Quota, Nanos)) {
        let now = self.clock.now().get();
        match op {
            LimiterOp::When(key) => {
                let oracle = self.oracle.failed(key, now, self.random.next());
                assert_eq!(
                    self.limiter.record_failure(&key),
                    Duration::from_nanos(oracle),
                    "wait of {key:?} at {now}"
                );
            }
            LimiterOp::Forget(key) => {
                self.limiter.forget(&key);
                self.oracle.forget(key);
            }
            LimiterOp::SetQuota(new) => {
                self.limiter.update_policy(|policy, now| set_quota(policy, quota(new), now));
                self.oracle.set_quota(new, now);
            }
            LimiterOp::Advance(span) => self.clock.advance(Duration::from_nanos(span.nanos())),
            LimiterOp::JumpBack(span) => {
                self.clock.set(Nanos::new(now.saturating_sub(span.nanos())));
                self.jumped = true;
            }
        }
    }
}

fn exponential(setup: &LimiterSetup) -> Exponential<Key> {
    let base = Duration::from_nanos(setup.base());
    let exponential = Exponential::new(base..=Duration::from_nanos(setup.exponential_cap()))
        .jitter(match setup.jitter {
            OracleJitter::None => Jitter::None,
            OracleJitter::Full => Jitter::Full,
            OracleJitter::Equal => Jitter::Equal,
            OracleJitter::Decorrelated => Jitter::Decorrelated,
        })
        .max_keys(max_keys(setup))
        .forget_after(Duration::from_nanos(setup.rest.nanos()));
    if setup.immediate_first { exponential.immediate_first() } else { exponential }
}

fn fast_slow(setup: &LimiterSetup) -> FastSlow<Key> {
    let (fast, slow) = (setup.fast.nanos(), setup.slow.nanos());
    FastSlow::new(Duration::from_nanos(fast), Duration::from_nanos(slow), setup.fast_attempts.into())
        .max_keys(max_keys(setup))
        .forget_after(Duration::from_nanos(setup.rest.nanos()))
}

fn bucket(setup: &LimiterSetup) -> TokenBucket {
    TokenBucket::new(quota(setup.quota))
}

fn default(setup: &LimiterSetup) -> MaxOf<Exponential<Key>, TokenBucket> {
    MaxOf::new(exponential(setup), bucket(setup))
}

fn check_default(default: &mut MaxOf<Exponential<Key>, TokenBucket>) -> Result<(), String> {
    let (exponential, bucket) = default.get_mut();
    exponential.check().and_then(|()| bucket.check())
}

fn max_keys(setup: &LimiterSetup) -> NonZeroU32 {
    NonZeroU32::new(setup.max_keys()).expect("a limiter holds keys")
}
