//! Applies the same operations to buckets by key and their oracle. The random test, the corpus test and the fuzz target use this driver.

use std::num::NonZeroU32;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{KeyedRateLimiter, Reservation, TryAcquireError};
use flyball_sync::{ManualClock, Nanos};
use testkit::oracle::keyed_rate_limiter::{KeyedOp, OracleKeyedRateLimiter, OracleReservation};
use testkit::oracle::limiter::{Key, OracleQuota};

use crate::bucket::quota::quota;

/// Decodes `bytes` to a quota, a flag and operations, and compares the limiter with its oracle after every operation. If the flag is set, the limiter
/// can store only one key. The oracle has a bucket for each key, so as soon as a second key is used, the limiter may grant less than the oracle, or
/// later, but it never grants more, or earlier.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok((first, only_one)) = <(OracleQuota, bool)>::arbitrary(&mut input) else { return };
    let clock = ManualClock::new();
    let real = KeyedRateLimiter::with_clock(quota(first), clock.clone());
    let real = if only_one { real.max_keys(NonZeroU32::MIN) } else { real };
    let mut pair = Pair {
        real,
        clock,
        oracle: OracleKeyedRateLimiter::new(first),
        only_one,
        used: Vec::new(),
        differ: Vec::new(),
        held: Vec::new(),
        now: 0,
    };
    for _ in 0..200 {
        let Ok(op) = KeyedOp::arbitrary(&mut input) else { break };
        pair.step(op);
        pair.real.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        if input.is_empty() {
            break;
        }
    }
    for key in [Key::A, Key::B, Key::C, Key::D] {
        pair.compare_available(key);
    }
    assert_eq!(pair.oracle.within_rate(), Ok(()), "more than burst + rate x time");
}

struct Pair {
    real: KeyedRateLimiter<Key, ManualClock>,
    clock: ManualClock,
    oracle: OracleKeyedRateLimiter,
    only_one: bool,
    /// The keys that have taken tokens.
    used: Vec<Key>,
    /// The keys that are not compared any more: with a later due time than in the oracle, a reservation can be cancelled for longer.
    differ: Vec<Key>,
    held: Vec<(Key, Reservation, OracleReservation)>,
    now: u64,
}

fn nz(count: u8) -> NonZeroU32 {
    NonZeroU32::new(count.into()).unwrap_or(NonZeroU32::MIN)
}

impl Pair {
    /// Returns whether the limiter has to do the same as the oracle: with room for one key, only one key has been used.
    fn is_exact(&mut self, key: Key) -> bool {
        if !self.used.contains(&key) {
            self.used.push(key);
        }
        !self.only_one || self.used.len() == 1
    }

    fn try_acquire(&mut self, key: Key, count: u8, real: Result<(), Option<u64>>) {
        let now = self.now;
        if self.is_exact(key) {
            assert_eq!(real, self.oracle.try_acquire(key, count.into(), now), "{key:?} {count} at {now}");
            return;
        }
        match real {
            Ok(()) if self.differ.contains(&key) => drop(self.oracle.reserve(key, count.into(), now)),
            Ok(()) => assert_eq!(
                self.oracle.try_acquire(key, count.into(), now),
                Ok(()),
                "{key:?} {count} at {now}"
            ),
            Err(None) => {
                assert_eq!(self.oracle.try_acquire(key, count.into(), now), Err(None), "{key:?} {count}")
            }
            Err(Some(due)) => {
                let earlier = self.oracle.clone().try_acquire(key, count.into(), now);
                let earlier = earlier.map_or_else(|due| due.expect("no more than the burst"), |()| now);
                assert!(
                    due > now && (earlier <= due || self.differ.contains(&key)),
                    "{key:?} {count} at {now}: {due}, before {earlier}"
                );
            }
        }
    }

    fn reserve(&mut self, key: Key, count: u32, real: Reservation) {
        let now = self.now;
        let (oracle, due) = self.oracle.reserve(key, count, now).expect("no more than the burst");
        if self.is_exact(key) {
            assert_eq!(real.due().get(), due, "{key:?} at {now}");
        } else {
            assert!(
                real.due().get() >= due || self.differ.contains(&key),
                "{key:?} at {now}: {real:?}, before {due}"
            );
        }
        self.held.push((key, real, oracle));
    }

    fn compare_available(&mut self, key: Key) {
        let (real, oracle) = (self.real.available_tokens(&key), self.oracle.available(key, self.now));
        if self.only_one && (self.used.len() > 1 || !self.used.contains(&key)) {
            assert!(
                real <= oracle || self.differ.contains(&key),
                "{key:?} at {}: {real}, more than {oracle}",
                self.now
            );
        } else {
            assert_eq!(real, oracle, "{key:?} at {}", self.now);
        }
    }

    fn step(&mut self, op: KeyedOp) {
        let now = self.now;
        match op {
            KeyedOp::TryAcquire(key) => {
                let real = self
                    .real
                    .try_acquire(&key)
                    .map_err(|not_yet| Some((Nanos::new(now) + not_yet.retry_after()).get()));
                self.try_acquire(key, 1, real);
            }
            KeyedOp::TryAcquireMany(key, count) => {
                let real = self.real.try_acquire_many(&key, nz(count)).map_err(|denied| match denied {
                    TryAcquireError::NotYet(not_yet) => Some((Nanos::new(now) + not_yet.retry_after()).get()),
                    TryAcquireError::InsufficientCapacity(_) => None,
                });
                self.try_acquire(key, count.max(1), real);
            }
            KeyedOp::Reserve(key) => {
                let real = self.real.reserve(&key);
                self.reserve(key, 1, real);
            }
            KeyedOp::ReserveMany(key, count) => match self.real.reserve_many(&key, nz(count)) {
                Ok(real) => {
                    self.reserve(key, nz(count).get(), real);
                }
                Err(refused) => {
                    let oracle = self.oracle.reserve(key, nz(count).get(), now);
                    assert_eq!(oracle.unwrap_err(), refused.burst().get(), "{op:?}");
                }
            },
            KeyedOp::Cancel(_) if self.held.is_empty() => {}
            KeyedOp::Cancel(which) => {
                let (key, real, oracle) = self.held.swap_remove(usize::from(which) % self.held.len());
                let made_a_difference = self.real.cancel(&key, real);
                if !self.only_one || self.used.len() == 1 {
                    assert_eq!(
                        made_a_difference,
                        self.oracle.cancel(oracle, now),
                        "{oracle:?} back at {now}"
                    );
                } else if made_a_difference && !self.oracle.cancel(oracle, now) {
                    self.differ.push(key);
                }
            }
            KeyedOp::Available(key) => self.compare_available(key),
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
