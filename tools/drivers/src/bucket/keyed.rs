//! Applies the same operations to buckets by key and their oracle. The random test, the corpus test and the fuzz target use this driver.

use std::num::NonZeroU32;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{KeyedRateLimiter, Reservation, TryAcquireError};
use flyball_sync::{ManualClock, Nanos};
use testkit::oracle::keyed_rate_limiter::{KeyedOp, OracleKeyedRateLimiter, OracleReservation};
use testkit::oracle::limiter::{Key, OracleQuota};

use crate::bucket::quota::quota;

/// Decodes `bytes` to a quota, a flag and operations, and compares the limiter with its oracle after every operation. If the flag is set, the limiter
/// can store only one key.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok((first, only_one)) = <(OracleQuota, bool)>::arbitrary(&mut input) else { return };
    let clock = ManualClock::new();
    let real = KeyedRateLimiter::with_clock(quota(first), clock.clone());
    let real = if only_one { real.max_keys(NonZeroU32::MIN) } else { real };
    let mut pair =
        Pair { real, clock, oracle: OracleKeyedRateLimiter::new(first, only_one), held: Vec::new(), now: 0 };
    for _ in 0..200 {
        let Ok(op) = KeyedOp::arbitrary(&mut input) else { break };
        pair.step(op);
        pair.real.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        if input.is_empty() {
            break;
        }
    }
    for key in [Key::A, Key::B, Key::C, Key::D] {
        let available = pair.oracle.available(key, pair.now);
        assert_eq!(pair.real.available_tokens(&key), available, "{key:?} at the end");
    }
    assert_eq!(pair.oracle.within_rate(), Ok(()), "more than burst + rate x time");
}

struct Pair {
    real: KeyedRateLimiter<Key, ManualClock>,
    clock: ManualClock,
    oracle: OracleKeyedRateLimiter,
    held: Vec<(Key, Reservation, OracleReservation)>,
    now: u64,
}

fn nz(count: u8) -> NonZeroU32 {
    NonZeroU32::new(count.into()).unwrap_or(NonZeroU32::MIN)
}

impl Pair {
    fn step(&mut self, op: KeyedOp) {
        let now = self.now;
        match op {
            KeyedOp::TryAcquire(key) => {
                let real = self.real.try_acquire(&key).map_err(|not_yet| {
                    assert_eq!(u128::from(not_yet.due().get() - now), not_yet.retry_after().as_nanos());
                    Some(not_yet.due().get())
                });
                assert_eq!(real, self.oracle.try_acquire(key, 1, now), "{op:?} at {now}");
            }
            KeyedOp::TryAcquireMany(key, count) => {
                let real = self.real.try_acquire_many(&key, nz(count)).map_err(|denied| match denied {
                    TryAcquireError::NotYet(not_yet) => Some(not_yet.due().get()),
                    TryAcquireError::InsufficientCapacity(_) => None,
                });
                assert_eq!(real, self.oracle.try_acquire(key, nz(count).get(), now), "{op:?} at {now}");
            }
            KeyedOp::Reserve(key) => {
                let real = self.real.reserve(&key);
                let (oracle, due) = self.oracle.reserve(key, 1, now).expect("a burst is one or more");
                assert_eq!((real.due().get(), real.count().get()), (due, 1), "{op:?} at {now}");
                self.held.push((key, real, oracle));
            }
            KeyedOp::ReserveMany(key, count) => {
                let oracle = self.oracle.reserve(key, nz(count).get(), now);
                match self.real.reserve_many(&key, nz(count)) {
                    Ok(real) => {
                        let (oracle, due) = oracle.expect("no more than the burst");
                        assert_eq!((real.due().get(), real.count()), (due, nz(count)), "{op:?} at {now}");
                        self.held.push((key, real, oracle));
                    }
                    Err(refused) => assert_eq!(oracle.unwrap_err(), refused.burst().get(), "{op:?}"),
                }
            }
            KeyedOp::Cancel(_) if self.held.is_empty() => {}
            KeyedOp::Cancel(which) => {
                let (key, real, oracle) = self.held.swap_remove(usize::from(which) % self.held.len());
                let made_a_difference = self.real.cancel(&key, real);
                assert_eq!(made_a_difference, self.oracle.cancel(oracle, now), "{oracle:?} back at {now}");
            }
            KeyedOp::Available(key) => {
                assert_eq!(
                    self.real.available_tokens(&key),
                    self.oracle.available(key, now),
                    "{op:?} at {now}"
                );
            }
            KeyedOp::SetQuota(new) => {
                self.real.set_quota(quota(new));
                self.oracle.set_quota(new, now);
            }
            KeyedOp::Advance(span) => {
                self.now = now.saturating_add(span.finite());
                self.clock.set(Nanos::new(self.now));
            }
        }
    }
}
