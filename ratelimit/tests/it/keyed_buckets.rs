//! A bucket for each key: bounded memory, reservations, and keys whose code panics or calls the limiter.

use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use flyball_ratelimit::{KeyedRateLimiter, Quota, TryAcquireError};
use flyball_sync::{Clock, ManualClock};
use testkit::panicking::{PanicSwitch, Point};
use testkit::random::{Random, cases, thorough};

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
            assert!(keyed.try_acquire(&key).is_ok() || key >= most / 2, "there is room for {key}");
        }
        let tracked = keyed.tracked_keys();
        assert!(tracked <= most as usize && tracked >= most as usize / 2, "{tracked} of {most}");
        assert_eq!(keyed.check(), Ok(()));
    }
}

/// The keys are strings, whose hashes are spread at random over the locks.
#[test]
fn half_of_max_keys_fit_wherever_their_hashes_are() {
    for (most, keys, limiters) in [
        (1, 1, 20),
        (20, 20, 50),
        (100, 10, 200),
        (100, 100, 50),
        (255, 255, 20),
        (1_000, 500, 200),
        (10_000, 5_000, 10),
    ] {
        for _ in 0..limiters {
            let keyed =
                KeyedRateLimiter::with_clock(Quota::per_hour(nz(1)), ManualClock::new()).max_keys(nz(most));
            let clients: Vec<_> = (0..keys).map(|client| format!("client-{client}")).collect();
            for round in 0..3 {
                let granted = clients.iter().filter(|client| keyed.try_acquire(client).is_ok()).count();
                assert_eq!(
                    granted,
                    if round == 0 { clients.len() } else { 0 },
                    "of {keys} keys, at most {most}, round {round}"
                );
            }
        }
    }
}

/// Three times as many keys as fit, and random takes, reservations and cancellations: every key stays within its quota in every span of time.
#[test]
fn a_key_never_gets_more_than_its_quota_however_many_keys_there_are() {
    cases("many keys", if thorough() { 5_000 } else { 100 }, 8, |bytes| {
        let mut seed = [0; 8];
        seed[..bytes.len()].copy_from_slice(bytes);
        let mut random = Random::new(u64::from_le_bytes(seed));
        let most = [1, 2, 3, 10, 63, 100, 130, 300][random.below(8) as usize];
        let burst = [1, 1, 2, 5, 20][random.below(5) as usize];
        let clock = ManualClock::new();
        let quota = Quota::per_second(nz(1)).allow_burst(nz(burst));
        let keyed = KeyedRateLimiter::with_clock(quota, clock.clone()).max_keys(nz(most));
        let names: Vec<_> = (0..3 * most + 1).map(|name| format!("client-{name}")).collect();
        let mut granted = vec![Vec::new(); names.len()];
        let mut held = Vec::new();
        for step in 0..1_000 {
            // Every other key is one of the first three, so some keys take many tokens.
            let among = if random.below(2) == 0 { 3 } else { names.len() as u64 };
            let key = random.below(among) as usize % names.len();
            let (name, now, count) = (&names[key], clock.now(), nz(1 + random.below(burst.into()) as u32));
            match random.below(16) {
                0 => {
                    let reservation = keyed.reserve_many(name, count).expect("at most the burst");
                    granted[key].push((reservation.due(), count.get()));
                    held.push((key, reservation, count));
                }
                1 if !held.is_empty() => {
                    let (key, reservation, count) =
                        held.swap_remove(random.below(held.len() as u64) as usize);
                    let given = (reservation.due(), count.get());
                    if keyed.cancel(&names[key], reservation) {
                        let at =
                            granted[key].iter().position(|grant| *grant == given).expect("it was granted");
                        granted[key].swap_remove(at);
                    }
                }
                2 => clock.advance(SECOND / 1_000 * random.below(4_000 / u64::from(most)) as u32),
                3 => {
                    let available = keyed.available_tokens(name);
                    if let Some(all) = NonZeroU32::new(available) {
                        keyed.try_acquire_many(name, all).expect("as many as are available");
                        granted[key].push((now, available));
                    } else {
                        assert!(keyed.try_acquire(name).is_err(), "none is available");
                    }
                }
                _ => match keyed.try_acquire_many(name, count) {
                    Ok(()) => granted[key].push((now, count.get())),
                    Err(TryAcquireError::NotYet(not_yet)) => assert!(not_yet.retry_after() > Duration::ZERO),
                    Err(TryAcquireError::InsufficientCapacity(_)) => panic!("at most the burst"),
                },
            }
            if step % 50 == 0 {
                assert!(keyed.tracked_keys() <= most as usize);
                assert_eq!(keyed.check(), Ok(()));
            }
        }
        for (name, mut granted) in names.into_iter().zip(granted) {
            granted.sort_unstable();
            for first in 0..granted.len() {
                let (start, mut tokens) = (granted[first].0, 0);
                for (end, count) in &granted[first..] {
                    tokens += u64::from(*count);
                    let span = end.since(start) + Duration::from_nanos(1);
                    let above_burst = tokens.saturating_sub(burst.into());
                    assert!(
                        u128::from(above_burst) * 1_000_000_000 <= span.as_nanos(),
                        "{name}: {tokens} in {span:?}, burst {burst}, at most {most} keys"
                    );
                }
            }
        }
    });
}

#[test]
fn keys_that_do_not_fit_take_turns() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(1));
    keyed.try_acquire(&0).unwrap();
    keyed.try_acquire(&1).unwrap(); // not stored: it shares the state of all keys that are not stored
    assert_eq!([0, 1, 2].map(|key| keyed.available_tokens(&key)), [0, 0, 0]);
    let denied = keyed.try_acquire(&2).unwrap_err();
    assert_eq!((denied.retry_after(), keyed.tracked_keys()), (SECOND, 1));
    clock.advance(SECOND);
    keyed.try_acquire(&2).unwrap();
    assert_eq!(
        [0, 1, 2].map(|key| keyed.available_tokens(&key)),
        [1, 1, 0],
        "key 2 is stored in the place of key 0"
    );
    assert_eq!(keyed.check(), Ok(()));
}

#[test]
fn keys_that_were_not_stored_stay_denied_when_the_quota_changes() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(1));
    for key in 0..2 {
        keyed.try_acquire(&key).unwrap();
    }
    keyed.set_quota(Quota::per_minute(nz(1)));
    assert_eq!([0, 1, 2].map(|key| keyed.available_tokens(&key)), [0, 0, 0]);
    clock.advance(SECOND * 60);
    keyed.set_quota(Quota::per_minute(nz(9)));
    assert_eq!(
        [0, 1, 2].map(|key| keyed.available_tokens(&key)),
        [9, 9, 9],
        "a full bucket is full under any quota"
    );
}

#[test]
fn the_fullest_bucket_is_evicted() {
    let quota = Quota::per_second(nz(1)).allow_burst(nz(100));
    let keyed = KeyedRateLimiter::with_clock(quota, ManualClock::new()).max_keys(nz(2));
    keyed.try_acquire_many(&0, nz(100)).unwrap();
    for key in 1..20 {
        keyed.try_acquire(&key).unwrap();
    }
    assert_eq!((keyed.available_tokens(&0), keyed.tracked_keys()), (0, 2));
    // A new key has one token less for every two keys: one of the two has had the other slot, and one was not stored.
    assert_eq!(keyed.available_tokens(&20), 100 - 9);
}

/// A debt of stored keys does not affect a new key, although there is no room for it.
#[test]
fn reservations_ahead_do_not_delay_keys_that_do_not_fit() {
    let clock = ManualClock::new();
    let keyed = KeyedRateLimiter::with_clock(one_a_second(), clock.clone()).max_keys(nz(10));
    for key in 0..10 {
        (0..1_000).for_each(|_| drop(keyed.reserve(&key)));
    }
    assert!(keyed.try_acquire(&10).is_ok());
    assert_eq!(keyed.try_acquire(&11).unwrap_err().retry_after(), SECOND);
    assert_eq!(keyed.try_acquire(&0).unwrap_err().retry_after(), SECOND * 1_000);
}

/// One token of each of very many keys leaves other keys most of their burst.
#[test]
fn a_flood_of_keys_takes_few_tokens_of_the_others() {
    let quota = Quota::per_second(nz(1)).allow_burst(nz(100));
    let keyed = KeyedRateLimiter::with_clock(quota, ManualClock::new()).max_keys(nz(200));
    for key in 0..2_000 {
        keyed.try_acquire(&key).unwrap();
    }
    let left = keyed.available_tokens(&2_000);
    assert!((80..=90).contains(&left), "ten keys for each that is stored, and {} tokens less", 100 - left);
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
    assert_eq!((error.burst(), keyed.tracked_keys()), (nz(1), 0));
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
    assert_eq!(keyed.reserve_many(&"c", nz(2)).unwrap_err().burst(), nz(1));
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
    assert_eq!(
        clock.now() + keyed.try_acquire(&0).unwrap_err().retry_after(),
        reservations[9].due() + SECOND
    );
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

/// The tokens of a key that is no longer stored count as used.
#[test]
fn a_reservation_from_before_its_key_was_evicted_is_not_given_back() {
    for comes_again in [false, true] {
        let keyed = KeyedRateLimiter::with_clock(one_a_second(), ManualClock::new()).max_keys(nz(1));
        let at_once = keyed.reserve(&1);
        let ahead = keyed.reserve(&1);
        // With its third token, key 2 has taken more than key 1.
        let [first, _, _] = [(); 3].map(|()| keyed.reserve(&2));
        if comes_again {
            let _ = (keyed.reserve(&1), keyed.reserve(&1));
        }
        assert!(!keyed.cancel(&1, ahead) && !keyed.cancel(&1, at_once) && !keyed.cancel(&2, first));
        assert_eq!([1, 2, 3].map(|key| keyed.available_tokens(&key)), [0, 0, 0]);
        assert_eq!(keyed.check(), Ok(()));
    }
}

/// If there is room, only full buckets are evicted. A full bucket has no reservation that is due in the future, so such an eviction affects no
/// reservation.
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
