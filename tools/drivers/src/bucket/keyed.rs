//! Runs buckets by key and their oracle side by side. Shared by the random test, the corpus test and the fuzz target.

use std::num::NonZeroU32;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{KeyedRateLimiter, Reservation, TryAcquireError};
use flyball_sync::{ManualClock, Nanos};
use testkit::naive_keyed::{KeyedOp, NaiveKeyed, NaiveReservation};
use testkit::naive_limiter::{Key, NaiveQuota};

use crate::bucket::quota::quota;

/// Reads a quota, whether there is room for one key only, and operations from `bytes`, and compares after every step.
pub fn run(bytes: &[u8]) {
    let mut food = Unstructured::new(bytes);
    let Ok((first, only_one)) = <(NaiveQuota, bool)>::arbitrary(&mut food) else { return };
    let clock = ManualClock::new();
    let real = KeyedRateLimiter::with_clock(quota(first), clock.clone());
    let real = if only_one { real.max_keys(NonZeroU32::MIN) } else { real };
    let mut pair = Pair { real, clock, naive: NaiveKeyed::new(first, only_one), held: Vec::new(), now: 0 };
    for _ in 0..200 {
        let Ok(op) = KeyedOp::arbitrary(&mut food) else { break };
        pair.step(op);
        pair.real.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        if food.is_empty() {
            break;
        }
    }
    for key in [Key::A, Key::B, Key::C, Key::D] {
        let available = pair.naive.available(key, pair.now);
        assert_eq!(pair.real.available_tokens(&key), available, "{key:?} at the end");
    }
    assert_eq!(pair.naive.within_rate(), Ok(()), "more than burst + rate x time");
}

struct Pair {
    real: KeyedRateLimiter<Key, ManualClock>,
    clock: ManualClock,
    naive: NaiveKeyed,
    held: Vec<(Key, Reservation, NaiveReservation)>,
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
                assert_eq!(real, self.naive.try_acquire(key, 1, now), "{op:?} at {now}");
            }
            KeyedOp::TryAcquireMany(key, count) => {
                let real = self.real.try_acquire_many(&key, nz(count)).map_err(|denied| match denied {
                    TryAcquireError::NotYet(not_yet) => Some(not_yet.due().get()),
                    TryAcquireError::InsufficientCapacity(_) => None,
                });
                assert_eq!(real, self.naive.try_acquire(key, nz(count).get(), now), "{op:?} at {now}");
            }
            KeyedOp::Reserve(key) => {
                let real = self.real.reserve(&key);
                let (naive, due) = self.naive.reserve(key, 1, now).expect("a burst is one or more");
                assert_eq!((real.due().get(), real.count().get()), (due, 1), "{op:?} at {now}");
                self.held.push((key, real, naive));
            }
            KeyedOp::ReserveMany(key, count) => {
                let naive = self.naive.reserve(key, nz(count).get(), now);
                match self.real.reserve_many(&key, nz(count)) {
                    Ok(real) => {
                        let (naive, due) = naive.expect("no more than the burst");
                        assert_eq!((real.due().get(), real.count()), (due, nz(count)), "{op:?} at {now}");
                        self.held.push((key, real, naive));
                    }
                    Err(refused) => assert_eq!(naive.unwrap_err(), refused.burst().get(), "{op:?}"),
                }
            }
            KeyedOp::Cancel(_) if self.held.is_empty() => {}
            KeyedOp::Cancel(which) => {
                let (key, real, naive) = self.held.swap_remove(usize::from(which) % self.held.len());
                let made_a_difference = self.real.cancel(&key, real);
                assert_eq!(made_a_difference, self.naive.cancel(naive, now), "{naive:?} back at {now}");
            }
            KeyedOp::Available(key) => {
                assert_eq!(
                    self.real.available_tokens(&key),
                    self.naive.available(key, now),
                    "{op:?} at {now}"
                );
            }
            KeyedOp::SetQuota(new) => {
                self.real.set_quota(quota(new));
                self.naive.set_quota(new, now);
            }
            KeyedOp::Advance(span) => {
                self.now = now.saturating_add(span.finite());
                self.clock.set(Nanos::new(self.now));
            }
        }
    }
}
