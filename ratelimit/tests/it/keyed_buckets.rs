//! A bucket for each key: against the list model, with bounded memory, and with keys that misbehave.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use drivers::bucket::quota::quota;
use flyball_ratelimit::{KeyedRateLimiter, Quota, TryAcquireError};
use flyball_sync::{ManualClock, Nanos};
use testkit::hostile::{Mood, Point};
use testkit::naive_limiter::{Key, NaiveBucket, NaiveQuota, Span};
use testkit::random::cases;

const SECOND: Duration = Duration::from_secs(1);

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("not zero")
}

fn one_a_second() -> Quota {
    Quota::per_second(nz(1))
}

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Op {
    TryAcquire(Key),
    TryAcquireMany(Key, u8),
    Available(Key),
    SetQuota(NaiveQuota),
    Advance(Span),
}

const KEYS: [Key; 4] = [Key::A, Key::B, Key::C, Key::D];

fn run(bytes: &[u8]) {
    let mut food = Unstructured::new(bytes);
    let Ok(mut naive_quota) = NaiveQuota::arbitrary(&mut food) else { return };
    let clock = ManualClock::new();
    let real = KeyedRateLimiter::with_clock(quota(naive_quota), clock.clone());
    let mut naive = KEYS.map(|_| NaiveBucket::new(naive_quota));
    let mut now = 0;
    while let Ok(op) = Op::arbitrary(&mut food) {
        match op {
            Op::TryAcquire(key) => {
                let said = real.try_acquire(&key).map_err(|not_yet| Some(not_yet.due().get()));
                assert_eq!(said, naive[key as usize].try_acquire(1, now), "{op:?} at {now}");
            }
            Op::TryAcquireMany(key, count) => {
                let count = u32::from(count.max(1));
                let said = real.try_acquire_many(&key, nz(count)).map_err(|denied| match denied {
                    TryAcquireError::NotYet(not_yet) => Some(not_yet.due().get()),
                    TryAcquireError::InsufficientCapacity(_) => None,
                });
                assert_eq!(said, naive[key as usize].try_acquire(count, now), "{op:?} at {now}");
            }
            Op::Available(key) => {
                assert_eq!(
                    real.available_tokens(&key),
                    naive[key as usize].available(now),
                    "{op:?} at {now}"
                );
            }
            Op::SetQuota(new) => {
                real.set_quota(quota(new));
                for bucket in &mut naive {
                    // Full is full, also of a larger burst.
                    if bucket.clone().try_acquire(naive_quota.burst().into(), now).is_ok() {
                        *bucket = NaiveBucket::new(new);
                    } else {
                        bucket.set_quota(new, now);
                    }
                }
                naive_quota = new;
            }
            Op::Advance(span) => {
                now = now.saturating_add(span.finite());
                clock.set(Nanos::new(now));
            }
        }
        real.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        if food.is_empty() {
            break;
        }
    }
}

#[test]
fn every_key_has_a_bucket_as_its_oracle_says() {
    cases("keyed", 10_000, 150, run);
}

#[test]
fn millions_of_keys_stream_through_in_bounded_memory() {
    // 100 000 new keys a second, each full again after a second: 100 000 that matter, never more than twice as many kept.
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone());
    let mut most = 0;
    for key in 0..if cfg!(debug_assertions) { 1_000_000 } else { 10_000_000_u32 } {
        if key % 1_000 == 0 {
            clock.advance(SECOND / 100);
        }
        assert!(keyed.try_acquire(&key).is_ok());
        if key % 100_000 == 0 {
            most = most.max(keyed.tracked_keys());
        }
    }
    assert!((100_000..=200_000).contains(&most), "{most} keys");
}

#[test]
fn no_more_keys_than_allowed_even_if_time_stands_still() {
    for most in [1, 2, 3, 63, 64, 100, 1_000] {
        let keyed = KeyedRateLimiter::with_clock(one_a_second(), ManualClock::new()).max_keys(nz(most));
        for key in 0..20_000_u32 {
            assert!(keyed.try_acquire(&key).is_ok());
        }
        let tracked = keyed.tracked_keys();
        assert!(tracked <= most as usize && tracked >= most as usize / 2, "{tracked} of {most}");
        assert_eq!(keyed.check(), Ok(()));
    }
}

#[test]
fn the_emptiest_bucket_is_the_last_to_go() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(Quota::per_second(nz(1)).allow_burst(nz(100)), clock.clone())
        .max_keys(nz(1));
    // One lock, one slot: nobody else to go.
    keyed.try_acquire_many(&0, nz(100)).unwrap();
    keyed.try_acquire(&1).unwrap();
    assert_eq!((keyed.available_tokens(&0), keyed.available_tokens(&1)), (100, 99));
    // One lock, and eight candidates.
    let keyed =
        KeyedRateLimiter::with_clock(Quota::per_second(nz(1)).allow_burst(nz(100)), clock).max_keys(nz(1));
    for key in 0..50 {
        keyed.try_acquire_many(&key, nz(100 - key)).unwrap();
    }
    assert_eq!(keyed.tracked_keys(), 1);
}

#[test]
fn a_full_bucket_is_no_state() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(1));
    assert_eq!((keyed.available_tokens(&1), keyed.tracked_keys()), (1, 0), "to look leaves nothing");
    keyed.try_acquire(&1).unwrap();
    assert!(keyed.try_acquire(&1).is_err());
    clock.advance(SECOND);
    keyed.try_acquire(&2).unwrap();
    assert_eq!(keyed.tracked_keys(), 1, "1 is full, and gone");
    clock.advance(SECOND);
    keyed.set_quota(Quota::per_second(nz(1)).allow_burst(nz(5)));
    assert_eq!((keyed.tracked_keys(), keyed.available_tokens(&2)), (0, 5));
}

#[test]
fn too_many_are_refused_and_leave_nothing() {
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), ManualClock::new());
    let Err(TryAcquireError::InsufficientCapacity(error)) = keyed.try_acquire_many(&"a", nz(2)) else {
        panic!("a burst of one")
    };
    assert_eq!((error.requested(), error.burst(), keyed.tracked_keys()), (nz(2), nz(1), 0));
    assert_eq!(keyed.quota(), one_a_second());
}

#[test]
fn a_panic_of_a_key_at_any_point_leaves_the_buckets_whole() {
    for point in Point::ALL {
        let mut fired = 0;
        for nth in 1..=30 {
            let mood = Mood::new();
            let clock = ManualClock::new();
            let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(1));
            mood.arm(point, nth);
            for id in [1, 1, 2, 1, 3, 3, 4, 1] {
                let step = || _ = keyed.try_acquire(&mood.key(id));
                fired += usize::from(catch_unwind(AssertUnwindSafe(step)).is_err());
                assert_eq!(keyed.check(), Ok(()), "{point:?} {nth}, after {id}");
                clock.advance(SECOND / 2);
            }
            mood.disarm(point);
            clock.advance(SECOND * 9);
            assert!(keyed.try_acquire(&mood.key(9)).is_ok());
            assert!(keyed.try_acquire(&mood.key(9)).is_err());
            drop(keyed);
            assert_eq!(mood.live(), 0, "{point:?} {nth}: keys leak or die twice");
        }
        assert!(fired >= 2, "{point:?} panicked {fired} times only");
    }
}

#[test]
fn no_key_dies_under_a_lock() {
    use std::sync::{Arc, OnceLock, Weak};

    /// Calls back into its buckets when it is dropped: were that under the lock, this would hang.
    #[derive(Clone)]
    struct CallsBack(u32, Arc<OnceLock<Weak<KeyedRateLimiter<CallsBack, ManualClock>>>>);
    impl PartialEq for CallsBack {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }
    impl Eq for CallsBack {}
    impl std::hash::Hash for CallsBack {
        fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
            self.0.hash(state);
        }
    }
    impl Drop for CallsBack {
        fn drop(&mut self) {
            if let Some(keyed) = self.1.get().and_then(Weak::upgrade) {
                assert!(keyed.tracked_keys() <= 1);
                keyed.set_quota(keyed.quota());
            }
        }
    }
    let clock = ManualClock::new();
    let home = Arc::new(OnceLock::new());
    let keyed = Arc::new(KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(1)));
    assert!(home.set(Arc::downgrade(&keyed)).is_ok());
    for id in 0..10 {
        keyed.try_acquire(&CallsBack(id, home.clone())).unwrap();
        clock.advance(SECOND * (id % 2));
    }
    clock.advance(SECOND);
    keyed.set_quota(Quota::per_minute(nz(1)));
    assert_eq!(keyed.tracked_keys(), 0);
}
