//! Applies the same operations to a bucket and its oracle. The random test, the corpus test and the fuzz target use this driver.

use std::num::NonZeroU32;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{RateLimiter, Reservation, TokenBucket, TryAcquireError};
use flyball_sync::{ManualClock, ManualTimer, Nanos};
use testkit::oracle::limiter::{BucketOp, OracleBucket, OracleQuota};

use crate::bucket::quota::quota;

/// Decodes `bytes` to a quota and operations, and compares the buckets with their oracle after every operation.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(first) = OracleQuota::arbitrary(&mut input) else { return };
    let clock = ManualClock::new();
    let mut pair = Pair {
        real: TokenBucket::new(quota(first)),
        shared: RateLimiter::with_timer(quota(first), clock.timer()),
        clock,
        oracle: OracleBucket::new(first),
        held: Vec::new(),
        now: 0,
    };
    for _ in 0..200 {
        let Ok(op) = BucketOp::arbitrary(&mut input) else { break };
        pair.step(op);
        pair.real.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        pair.clock.set(Nanos::new(pair.now));
        pair.shared.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        let now = Nanos::new(pair.now);
        assert_eq!(pair.shared.available_tokens(), pair.real.available_tokens(now), "available after {op:?}");
        if input.is_empty() {
            break;
        }
    }
    assert_eq!(
        pair.real.available_tokens(Nanos::new(pair.now)),
        pair.oracle.available(pair.now),
        "available at the end"
    );
    assert_eq!(pair.oracle.within_rate(), Ok(()), "more than burst + rate x time");
}

struct Pair {
    real: TokenBucket,
    shared: RateLimiter<ManualTimer>,
    /// The clock of `shared`.
    clock: ManualClock,
    oracle: OracleBucket,
    held: Vec<(Reservation, Reservation, usize)>,
    now: u64,
}

fn nz(count: u8) -> NonZeroU32 {
    NonZeroU32::new(count.into()).unwrap_or(NonZeroU32::MIN)
}

impl Pair {
    /// Makes the same reservation in the oracle that both buckets have already made. Compares the due times of the three reservations, and stores
    /// them.
    fn held(&mut self, real: Reservation, shared: Reservation, count: u32) {
        assert_eq!(shared.due(), real.due(), "reserved at {}", self.now);
        let oracle = self.oracle.reserve(count, self.now).expect("no more than the burst");
        assert_eq!(real.due().get(), self.oracle.due(oracle), "due of {count} reserved at {}", self.now);
        self.held.push((real, shared, oracle));
    }

    fn step(&mut self, op: BucketOp) {
        let now = Nanos::new(self.now);
        self.clock.set(now);
        match op {
            BucketOp::Reserve => {
                let (real, shared) = (self.real.reserve(now), self.shared.reserve());
                self.held(real, shared, 1);
            }
            BucketOp::ReserveMany(count) => match self.real.reserve_many(nz(count), now) {
                Ok(real) => {
                    let shared = self.shared.reserve_many(nz(count)).expect("`TokenBucket` has granted it");
                    self.held(real, shared, nz(count).get());
                }
                Err(real) => {
                    assert_eq!(self.shared.reserve_many(nz(count)).err(), Some(real));
                    assert_eq!(self.oracle.reserve(nz(count).get(), self.now), Err(real.burst().get()));
                }
            },
            BucketOp::TryAcquire => {
                let real = self.real.try_acquire(now);
                assert_eq!(self.shared.try_acquire(), real, "acquired at {now:?}");
                let real = real.map_err(|not_yet| Some((now + not_yet.retry_after()).get()));
                assert_eq!(real, self.oracle.try_acquire(1, self.now), "acquired at {now:?}");
            }
            BucketOp::TryAcquireMany(count) => {
                let real = self.real.try_acquire_many(nz(count), now);
                assert_eq!(self.shared.try_acquire_many(nz(count)), real, "{count} at {now:?}");
                let real = real.map_err(|denied| match denied {
                    TryAcquireError::NotYet(not_yet) => Some((now + not_yet.retry_after()).get()),
                    TryAcquireError::InsufficientCapacity(_) => None,
                });
                assert_eq!(real, self.oracle.try_acquire(nz(count).get(), self.now), "{count} at {now:?}");
            }
            BucketOp::GiveBack(which) => {
                if self.held.is_empty() {
                    return;
                }
                let (real, shared, oracle) = self.held.swap_remove(usize::from(which) % self.held.len());
                let due = real.due();
                let made_a_difference = self.real.cancel(real, now);
                assert_eq!(self.shared.cancel(shared), made_a_difference, "{due:?} back at {now:?}");
                assert_eq!(
                    made_a_difference,
                    self.oracle.give_back(oracle, self.now),
                    "{due:?} given back at {now:?}"
                );
            }
            BucketOp::SetQuota(new) => {
                self.real.set_quota(quota(new), now);
                self.shared.set_quota(quota(new));
                assert_eq!(self.shared.quota(), self.real.quota());
                self.oracle.set_quota(new, self.now);
            }
            BucketOp::Advance(span) => self.now += span.finite(),
            BucketOp::JumpBack(span) => {
                self.now = self.now.saturating_sub(span.finite());
                // After the jump, the clock reaches some due times a second time. The holder of a reservation that fell due before the jump cannot
                // detect the jump, so its token counts as used, and the driver drops all reservations.
                self.held.clear();
            }
        }
    }
}
