//! One thread calls a limiter, which computes the delay of a failed key or checks for a token.
//!
//! Limiters that accept the time as an argument get a computed time, so that the run compares the arithmetic and not the clocks.
//! Half a token accrues from each check to the next, so after the burst every other check is refused.

use std::cell::Cell;
use std::hint::black_box;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use benches::naive_limiter::{NaiveBucket, NaiveDefault};
use flyball_ratelimit::{KeyedRateLimiter, Limiter, Quota, RateLimiter, TokenBucket, controller_default};
use flyball_sync::Nanos;
use governor::clock::Clock;
use governor::{Quota as Allowed, RateLimiter as Governor};

use crate::Figures;
use crate::clock::{measured, ns};
use crate::keys::{Key, keys};
use crate::options::{Options, Party};

/// The rate of the single bucket: one token per microsecond.
const RATE: NonZeroU32 = NonZeroU32::new(1_000_000).unwrap();
const BURST: NonZeroU32 = NonZeroU32::new(1_000).unwrap();
const STEP: u64 = 500;

/// The rate of each of many buckets: one token per millisecond.
const KEY_RATE: NonZeroU32 = NonZeroU32::new(1_000).unwrap();
const KEY_BURST: NonZeroU32 = NonZeroU32::new(10).unwrap();

/// A clock for governor that returns a stored time.
#[derive(Clone, Default)]
struct Stored(Rc<Cell<u64>>);

impl Clock for Stored {
    type Instant = governor::nanos::Nanos;

    fn now(&self) -> Self::Instant {
        self.0.get().into()
    }
}

/// A clock for flyball that returns a stored time. The time is atomic, because flyball's clocks are shared between threads.
#[derive(Default)]
struct ManualTime(AtomicU64);

impl flyball_sync::Clock for ManualTime {
    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

/// A timer on this clock. It wakes nothing, because no run waits for a token.
struct Never(Arc<ManualTime>);

impl flyball_sync::Clock for Never {
    fn now(&self) -> Nanos {
        self.0.now()
    }
}

impl flyball_sync::Timer for Never {
    fn wake_at(&self, _: Nanos, _: &std::task::Waker) {}
}

/// Repeatedly goes through all keys, and records one failure of each. No key is forgotten.
pub(crate) fn default(options: &Options, party: Party) -> Figures {
    match party {
        Party::Naive => {
            let limiter = NaiveDefault::new();
            failures(options, |key| limiter.when(key))
        }
        _ => {
            let limiter = Limiter::new(controller_default());
            failures(options, |key| limiter.record_failure(key))
        }
    }
}

fn failures(options: &Options, when: impl Fn(&Key) -> Duration) -> Figures {
    let keys = keys(options.keys);
    let round = || {
        for key in &keys {
            black_box(when(key));
        }
    };
    let rounds = (options.adds / keys.len()).max(1);
    (0..(rounds / 10).max(1)).for_each(|_| round());
    let ((), time) = measured(|| (0..rounds).for_each(|_| round()));
    ns(time, rounds * keys.len())
}

/// Checks repeatedly whether one bucket has a token.
pub(crate) fn bucket(options: &Options, party: Party) -> Figures {
    match party {
        Party::Governor => {
            let clock = Stored::default();
            let quota = Allowed::per_second(RATE).allow_burst(BURST);
            let bucket = Governor::direct_with_clock(quota, clock.clone());
            checks(options, |now| {
                clock.0.set(now);
                bucket.check().is_ok()
            })
        }
        Party::Naive => {
            let mut bucket = NaiveBucket::new(f64::from(RATE.get()), f64::from(BURST.get()));
            checks(options, |now| bucket.try_acquire(now as f64 / 1e9))
        }
        // leaky-bucket reads a clock with millisecond resolution. The run calls it as fast as possible and counts the
        // granted tokens.
        Party::LeakyBucket => {
            let bucket = leaky_bucket::RateLimiter::builder()
                .max(BURST.get() as usize)
                .initial(BURST.get() as usize)
                .interval(Duration::from_millis(1))
                .refill(BURST.get() as usize)
                .build();
            timed(options, |_| bucket.try_acquire(1)).0
        }
        Party::OursPure => {
            let mut bucket = TokenBucket::new(Quota::per_second(RATE).allow_burst(BURST));
            checks(options, |now| bucket.try_acquire(Nanos::new(now)).is_ok())
        }
        _ => {
            let clock = Arc::new(ManualTime::default());
            let bucket =
                RateLimiter::with_timer(Quota::per_second(RATE).allow_burst(BURST), Never(clock.clone()));
            checks(options, |now| {
                clock.0.store(now, Ordering::Relaxed);
                bucket.try_acquire().is_ok()
            })
        }
    }
}

fn checks(options: &Options, check: impl FnMut(u64) -> bool) -> Figures {
    let (figures, granted) = timed(options, check);
    let due = options.adds / 2 + BURST.get() as usize;
    assert!(granted.abs_diff(due) <= 1, "{granted} were granted, not {due}");
    figures
}

fn timed(options: &Options, mut check: impl FnMut(u64) -> bool) -> (Figures, usize) {
    let mut now = 0;
    let (granted, time) = measured(|| {
        let mut granted = 0;
        for _ in 0..options.adds {
            now += STEP;
            granted += usize::from(black_box(check(black_box(now))));
        }
        granted
    });
    (ns(time, options.adds), granted)
}

/// Each key has a bucket. Checks whether a token is available in the bucket of each key, one key after the other.
pub(crate) fn keyed(options: &Options, party: Party) -> Figures {
    let keys = keys(options.keys);
    let clock = Stored::default();
    let allowed = Allowed::per_second(KEY_RATE).allow_burst(KEY_BURST);
    match party {
        Party::Governor => {
            let buckets = Governor::dashmap_with_clock(allowed, clock.clone());
            checks_of(&keys, options, |key, now| {
                clock.0.set(now);
                buckets.check_key(key).is_ok()
            })
        }
        // governor uses std's hasher by default; this row uses flyball's hasher.
        Party::GovernorFoldhash => {
            let hasher = foldhash::fast::RandomState::default();
            let buckets = Governor::dashmap_with_clock_and_hasher(allowed, clock.clone(), hasher);
            checks_of(&keys, options, |key, now| {
                clock.0.set(now);
                buckets.check_key(key).is_ok()
            })
        }
        _ => {
            let clock = Arc::new(ManualTime::default());
            let buckets = KeyedRateLimiter::with_clock(
                Quota::per_second(KEY_RATE).allow_burst(KEY_BURST),
                clock.clone(),
            );
            checks_of(&keys, options, |key, now| {
                clock.0.store(now, Ordering::Relaxed);
                buckets.try_acquire(key).is_ok()
            })
        }
    }
}

fn checks_of(keys: &[Key], options: &Options, mut check: impl FnMut(&Key, u64) -> bool) -> Figures {
    // Half a token of a key accrues from each check of this key to the next.
    let step = 1_000_000_000 / u64::from(KEY_RATE.get()) / 2 / keys.len() as u64;
    let (mut now, rounds) = (0, (options.adds / keys.len()).max(1));
    let mut round = || {
        let mut granted = 0;
        for key in keys {
            now += step;
            granted += usize::from(black_box(check(key, black_box(now))));
        }
        granted
    };
    // The warm-up uses up the burst, so that the figures describe the steady state.
    let warm_up = 4 * KEY_BURST.get();
    for _ in 0..warm_up {
        round();
    }
    let (granted, time) = measured(|| (0..rounds).map(|_| round()).sum::<usize>());
    let due = rounds * keys.len() / 2;
    assert!(granted.abs_diff(due) <= keys.len(), "{granted} were granted, not {due}");
    ns(time, rounds * keys.len())
}
