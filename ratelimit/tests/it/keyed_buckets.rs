//! A bucket for each key: bounded memory, reservations, and keys whose code panics or calls the limiter.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flyball_ratelimit::{KeyedRateLimiter, Quota, TryAcquireError};
use flyball_sync::{Clock, ManualClock};
use testkit::panicking::{PanicSwitch, Point};
use testkit::random::thorough;

const SECOND: Duration = Duration::from_secs(1);

fn nz(value: u32) -> NonZeroU32 {
    NonZeroU32::new(value).expect("not zero")
}

fn one_a_second() -> Quota {
    Quota::per_second(nz(1))
}

#[test]
fn millions_of_keys_stream_through_in_bounded_memory() {
    // 100 000 new keys are used per second, and a bucket is full again after a second, so 100 000 buckets are not full at any time. At most twice as
    // many keys are kept.
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone());
    let mut most = 0;
    for key in 0..if thorough() { 10_000_000_u32 } else { 1_000_000 } {
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
fn a_new_key_replaces_the_only_key() {
    let quota = Quota::per_second(nz(1)).allow_burst(nz(100));
    let keyed = KeyedRateLimiter::with_clock(quota, ManualClock::new()).max_keys(nz(1));
    keyed.try_acquire_many(&0, nz(100)).unwrap();
    keyed.try_acquire(&1).unwrap();
    assert_eq!((keyed.available_tokens(&0), keyed.available_tokens(&1)), (100, 99));
    assert_eq!(keyed.tracked_keys(), 1);
}

#[test]
fn a_new_key_replaces_the_fullest_bucket() {
    let quota = Quota::per_second(nz(1)).allow_burst(nz(100));
    // There are 64 locks with two slots each. So key 0 shares its lock with one other stored key, which is replaced by each new key that belongs to
    // the same lock.
    let keyed = KeyedRateLimiter::with_clock(quota, ManualClock::new()).max_keys(nz(128));
    keyed.try_acquire_many(&0, nz(100)).unwrap();
    for key in 1..10_000 {
        keyed.try_acquire(&key).unwrap();
    }
    assert_eq!((keyed.available_tokens(&0), keyed.tracked_keys()), (0, 128));
}

#[test]
fn a_full_bucket_is_no_state() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(1));
    assert_eq!((keyed.available_tokens(&1), keyed.tracked_keys()), (1, 0), "reading a key stores no state");
    keyed.try_acquire(&1).unwrap();
    assert!(keyed.try_acquire(&1).is_err());
    clock.advance(SECOND);
    keyed.try_acquire(&2).unwrap();
    assert_eq!(keyed.tracked_keys(), 1, "the full bucket of key 1 is evicted");
    clock.advance(SECOND);
    keyed.set_quota(Quota::per_second(nz(1)).allow_burst(nz(5)));
    assert_eq!((keyed.tracked_keys(), keyed.available_tokens(&2)), (0, 5));
}

#[test]
fn too_many_are_refused_and_leave_nothing() {
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), ManualClock::new());
    let Err(TryAcquireError::InsufficientCapacity(error)) = keyed.try_acquire_many(&"a", nz(2)) else {
        panic!("two tokens are above the burst of one")
    };
    assert_eq!((error.requested(), error.burst(), keyed.tracked_keys()), (nz(2), nz(1), 0));
    assert_eq!(keyed.quota(), one_a_second());
}

#[test]
fn reservations_of_one_key_are_due_one_after_the_other() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone());
    let delays = [(); 3].map(|()| keyed.reserve(&"a").delay(clock.now()));
    assert_eq!(delays, [Duration::ZERO, SECOND, SECOND * 2]);
    assert_eq!(keyed.reserve(&"b").delay(clock.now()), Duration::ZERO);
    assert_eq!(keyed.try_acquire(&"a").unwrap_err().retry_after(), SECOND * 3);
    assert_eq!(keyed.reserve_many(&"c", nz(2)).unwrap_err().requested(), nz(2));
    assert_eq!(keyed.tracked_keys(), 2, "a refused request stores no state");
}

#[test]
fn a_key_with_a_debt_is_kept_until_it_is_paid() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone());
    let reservations = [(); 10].map(|()| keyed.reserve(&0));
    for other in 1..1_000 {
        assert!(keyed.try_acquire(&other).is_ok());
        clock.advance(SECOND / 200);
    }
    assert_eq!(keyed.try_acquire(&0).unwrap_err().due(), reservations[9].due() + SECOND);
}

#[test]
fn a_cancelled_reservation_is_given_to_the_next() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone());
    let [_, second, third] = [(); 3].map(|()| keyed.reserve(&1));
    assert!(!keyed.cancel(&1, second), "the third reservation is due later");
    assert!(keyed.cancel(&1, third));
    let third = keyed.reserve(&1);
    assert_eq!(third.delay(clock.now()), SECOND * 2);
    clock.advance(SECOND * 2);
    let late = keyed.reserve(&1);
    clock.advance(SECOND * 2);
    assert!(!keyed.cancel(&1, late), "its time has passed");
    assert!(!keyed.cancel(&2, third), "a key without state has no reservation");
    assert_eq!(keyed.available_tokens(&1), 1);
}

#[test]
fn a_reservation_of_an_older_quota_is_not_given_back() {
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), ManualClock::new());
    let [_, ahead] = [(); 2].map(|()| keyed.reserve(&1));
    keyed.set_quota(keyed.quota());
    assert!(keyed.cancel(&1, ahead), "the same quota is no change");
    let ahead = keyed.reserve(&1);
    keyed.set_quota(Quota::per_second(nz(2)));
    assert!(!keyed.cancel(&1, ahead));
}

/// An evicted key starts with a full bucket when it is used again, and its old reservations cannot add tokens.
#[test]
fn a_reservation_from_before_its_key_was_evicted_is_not_given_back() {
    for comes_again in [false, true] {
        let keyed = KeyedRateLimiter::with_clock(one_a_second(), ManualClock::new()).max_keys(nz(1));
        let at_once = keyed.reserve(&1);
        let ahead = keyed.reserve(&1);
        keyed.try_acquire(&2).unwrap();
        if comes_again {
            // The new reservations have the same due times as the old ones.
            let _ = (keyed.reserve(&1), keyed.reserve(&1));
        }
        assert!(!keyed.cancel(&1, ahead) && !keyed.cancel(&1, at_once));
        assert_eq!(keyed.available_tokens(&1), u32::from(!comes_again));
        assert_eq!(keyed.check(), Ok(()));
    }
}

/// Reservations can no longer be cancelled after an eviction for lack of room. If there is room, only full buckets are evicted. A full bucket has no
/// reservation that is due in the future, so such an eviction affects no reservation.
#[test]
fn keys_that_come_and_go_do_not_close_reservations() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone());
    let reservations = [(); 20].map(|()| keyed.reserve(&0));
    for other in 1..10_000 {
        assert!(keyed.try_acquire(&other).is_ok());
        clock.advance(SECOND / 1_000);
    }
    let cancelled = reservations.into_iter().rev().map(|reservation| keyed.cancel(&0, reservation));
    assert_eq!(
        cancelled.filter(|made_a_difference| *made_a_difference).count(),
        10,
        "only reservations that are not due yet can be cancelled"
    );
}

#[test]
fn a_panic_of_a_key_at_any_point_leaves_the_buckets_whole() {
    for point in Point::ALL {
        let mut fired = 0;
        for nth in 1..=30 {
            let switch = PanicSwitch::new();
            let clock = ManualClock::new();
            let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(1));
            switch.arm(point, nth);
            let mut held = Vec::new();
            for (step, id) in [1, 1, 2, 1, 3, 3, 4, 1].into_iter().enumerate() {
                let step = || match step % 3 {
                    0 => _ = keyed.try_acquire(&switch.key(id)),
                    1 => held.push((id, keyed.reserve(&switch.key(id)))),
                    // `held` is empty if `reserve` has panicked.
                    _ => {
                        held.pop().into_iter().for_each(|(id, held)| _ = keyed.cancel(&switch.key(id), held))
                    }
                };
                fired += usize::from(catch_unwind(AssertUnwindSafe(step)).is_err());
                assert_eq!(keyed.check(), Ok(()), "{point:?} {nth}, after {id}");
                clock.advance(SECOND / 2);
            }
            switch.disarm(point);
            clock.advance(SECOND * 9);
            assert!(keyed.try_acquire(&switch.key(9)).is_ok());
            assert!(keyed.try_acquire(&switch.key(9)).is_err());
            drop(keyed);
            assert_eq!(switch.live(), 0, "{point:?} {nth}: keys leak or are dropped twice");
        }
        assert!(fired >= 2, "{point:?} panicked {fired} times only");
    }
}

#[test]
fn drops_no_key_under_a_lock() {
    use std::sync::{Arc, OnceLock, Weak};

    /// Calls the limiter when it is dropped: under the lock, this call would deadlock.
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
        let key = CallsBack(id, home.clone());
        let _ = if id < 5 { keyed.try_acquire(&key).map(|()| None) } else { Ok(Some(keyed.reserve(&key))) }
            .unwrap();
        clock.advance(SECOND * (id % 2));
    }
    clock.advance(SECOND);
    keyed.set_quota(Quota::per_minute(nz(1)));
    assert_eq!(keyed.tracked_keys(), 0);
}
