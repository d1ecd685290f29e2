//! Runs a bucket and its oracle side by side. Shared by the random test, the corpus test and the fuzz target.

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{Nanos, Token, TokenBucket};
use testkit::naive_limiter::{BucketOp, NaiveBucket, NaiveQuota};

use crate::real_quota::quota;

/// Reads a quota and operations from `bytes`, and compares after every step.
pub(crate) fn run(bytes: &[u8]) {
    let mut food = Unstructured::new(bytes);
    let Ok(first) = NaiveQuota::arbitrary(&mut food) else { return };
    let mut pair = Pair {
        real: TokenBucket::new(quota(first)),
        naive: NaiveBucket::new(first),
        held: Vec::new(),
        now: 0,
    };
    for _ in 0..200 {
        let Ok(op) = BucketOp::arbitrary(&mut food) else { break };
        pair.step(op);
        pair.real.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        if food.is_empty() {
            break;
        }
    }
    assert_eq!(
        pair.real.available(Nanos::new(pair.now)),
        pair.naive.available(pair.now),
        "available at the end"
    );
    assert_eq!(pair.naive.within_rate(), Ok(()), "more than burst + rate x time");
}

struct Pair {
    real: TokenBucket,
    naive: NaiveBucket,
    held: Vec<(Token, usize)>,
    now: u64,
}

impl Pair {
    fn step(&mut self, op: BucketOp) {
        let now = Nanos::new(self.now);
        match op {
            BucketOp::Reserve => {
                let (real, naive) = (self.real.reserve(now), self.naive.reserve(self.now));
                assert_eq!(real.due().get(), self.naive.due(naive), "due of a token reserved at {now:?}");
                self.held.push((real, naive));
            }
            BucketOp::TryAcquire => {
                let real = self.real.try_acquire(now).map_err(|not_yet| not_yet.due().get());
                assert_eq!(real, self.naive.try_acquire(self.now), "acquired at {now:?}");
            }
            BucketOp::GiveBack(which) => {
                if self.held.is_empty() {
                    return;
                }
                let (real, naive) = self.held.swap_remove(usize::from(which) % self.held.len());
                let due = real.due();
                let made_a_difference = self.real.give_back(real, now);
                assert_eq!(
                    made_a_difference,
                    self.naive.give_back(naive, self.now),
                    "{due:?} given back at {now:?}"
                );
            }
            BucketOp::SetQuota(new) => {
                self.real.set_quota(quota(new), now);
                self.naive.set_quota(new, self.now);
            }
            BucketOp::Advance(span) => self.now += span.finite(),
            BucketOp::JumpBack(span) => {
                self.now = self.now.saturating_sub(span.finite());
                // A token reserved at a time that is to come again counts as used: that is all a holder can know.
                self.held.clear();
            }
        }
    }
}
