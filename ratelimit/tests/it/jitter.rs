//! Jitter spreads waits evenly over the whole range, and independently in each part of a combination.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Jitter, Limiter, MaxOf, Policy};
use flyball_sync::{ManualClock, Nanos};
use testkit::random::Random;

fn first_wait(base: Duration, jitter: Jitter, random: u64) -> Duration {
    let mut backoff = Exponential::new(base..=Duration::MAX).jitter(jitter);
    backoff.record_failure(&0, Nanos::ZERO, random, &mut |_| false).wait
}

const LENGTHS: [Duration; 5] = [
    Duration::from_nanos(1),
    Duration::from_nanos(1_001),
    Duration::from_millis(999),
    Duration::from_secs(1),
    Duration::from_nanos(u64::MAX),
];

#[test]
fn the_ends_of_the_range_are_reached() {
    for wait in LENGTHS {
        assert_eq!(first_wait(wait, Jitter::None, 0), wait);
        assert_eq!(first_wait(wait, Jitter::None, u64::MAX), wait);
        assert_eq!(first_wait(wait, Jitter::Full, 0), Duration::ZERO);
        assert_eq!(first_wait(wait, Jitter::Full, u64::MAX), wait);
        assert_eq!(first_wait(wait, Jitter::Equal, 0), Duration::from_nanos(wait.as_nanos() as u64 / 2));
        assert_eq!(first_wait(wait, Jitter::Equal, u64::MAX), wait);
        assert_eq!(first_wait(wait, Jitter::Decorrelated, 0), wait);
        let thrice = (wait.as_nanos() as u64).saturating_mul(3);
        assert_eq!(first_wait(wait, Jitter::Decorrelated, u64::MAX), Duration::from_nanos(thrice));
    }
}

#[test]
fn a_decorrelated_wait_is_from_the_base_to_three_times_the_last() {
    let (base, cap) = (Duration::from_millis(5), Duration::from_secs(1_000));
    let mut random = Random::new(11);
    let mut backoff = Exponential::new(base..=cap).jitter(Jitter::Decorrelated);
    for key in 0..1_000 {
        let mut last = base;
        for failures in 0..100 {
            let most = (last * 3).min(cap);
            let wait = backoff.record_failure(&key, Nanos::ZERO, random.next(), &mut |_| false).wait;
            assert!((base..=most).contains(&wait), "{wait:?} after {failures} and {last:?}");
            last = wait;
        }
        backoff.forget(&key);
        assert!(
            backoff.record_failure(&key, Nanos::ZERO, u64::MAX, &mut |_| false).wait == base * 3,
            "`forget` must also drop the last wait"
        );
    }
}

#[test]
fn a_decorrelated_wait_after_restored_failures_follows_the_wait_that_they_stand_for() {
    let second = Duration::from_secs(1);
    let longest = |failures| {
        let mut backoff = Exponential::new(second..=second * 1_000).jitter(Jitter::Decorrelated);
        backoff.restore_failures(&"a", failures, Nanos::ZERO, &mut |_| false);
        backoff.record_failure(&"a", Nanos::ZERO, u64::MAX, &mut |_| false).wait
    };
    assert_eq!([0, 1, 5, 100].map(longest), [second * 3, second * 3, second * 48, second * 1_000]);
}

#[test]
fn decorrelated_waits_grow_by_a_tenth_a_failure() {
    // The logarithm of three times a uniform number is ln 3 - 1 on average, with a standard deviation of 1.
    let mut random = Random::new(12);
    let mut backoff =
        Exponential::new(Duration::from_nanos(1 << 20)..=Duration::MAX).jitter(Jitter::Decorrelated);
    let (keys, failures) = (4_000, 60);
    let mut sum = 0.0;
    for key in 0..keys {
        let waits = [(); 60].map(|()| {
            backoff.record_failure(&key, Nanos::ZERO, random.next(), &mut |_| false).wait.as_secs_f64()
        });
        // The first thirty waits are still affected by the base, so they are left out.
        sum += (waits[failures - 1] / waits[29]).ln() / 30.0;
    }
    let growth = (sum / f64::from(keys)).exp();
    assert!((1.05..1.25).contains(&growth), "{growth}");
}

#[test]
fn waits_are_spread_evenly() {
    const DRAWS: usize = 100_000;
    for wait in &LENGTHS[1..] {
        // The range of decorrelated waits ends at `u64::MAX` nanoseconds.
        let thrice = (wait.as_nanos() * 3).min(u64::MAX.into()) as f64 / wait.as_nanos() as f64;
        let kinds =
            [(Jitter::Full, 0.0..1.0), (Jitter::Equal, 0.5..1.0), (Jitter::Decorrelated, 1.0..thrice)];
        for (jitter, range) in kinds {
            if range.is_empty() {
                continue;
            }
            let mut random = Random::new(7);
            let mut tenths = [0; 10];
            for _ in 0..DRAWS {
                let share = first_wait(*wait, jitter, random.next()).as_secs_f64() / wait.as_secs_f64();
                let near = range.start - 0.001..=range.end + 1e-9;
                assert!(near.contains(&share), "{jitter:?} of {wait:?}: {share}");
                let tenth = (share - range.start) / (range.end - range.start) * 10.0;
                tenths[(tenth as usize).min(9)] += 1;
            }
            // Each tenth has 10 000 draws on average, with a standard deviation of 95. Allowed are six standard
            // deviations, plus the rounding of a wait of 1001 ns.
            assert!(tenths.iter().all(|n| (9_300..10_700).contains(n)), "{jitter:?} of {wait:?}: {tenths:?}");
        }
    }
}

#[test]
fn long_failing_keys_stay_apart_and_below_the_cap() {
    let cap = Duration::from_secs(1_000);
    for jitter in [Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
        let mut random = Random::new(1);
        let mut backoff = Exponential::new(Duration::from_millis(5)..=cap).jitter(jitter);
        let mut waits: Vec<_> = (0..420)
            .map(|_| backoff.record_failure(&1, Nanos::ZERO, random.next(), &mut |_| false).wait)
            .collect();
        assert!(waits.iter().all(|wait| *wait <= cap));
        let mut late = waits.split_off(400);
        late.sort_unstable();
        late.dedup();
        assert_eq!(
            late.len(),
            20,
            "{jitter:?}: some waits are equal, although jitter spreads them below the cap"
        );
    }
}

#[test]
fn an_immediate_first_retry_stays_immediate() {
    for jitter in [Jitter::None, Jitter::Full, Jitter::Equal, Jitter::Decorrelated] {
        let second = Duration::from_secs(1);
        let mut backoff = Exponential::new(second..=second).immediate_first().jitter(jitter);
        assert_eq!(backoff.record_failure(&1, Nanos::ZERO, u64::MAX, &mut |_| false).wait, Duration::ZERO);
        assert_eq!(backoff.record_failure(&1, Nanos::ZERO, u64::MAX, &mut |_| false).wait, second);
        assert_eq!(backoff.num_requeues(&1), 2);
    }
}

#[test]
fn the_parts_of_a_max_of_do_not_rise_and_fall_together() {
    let second = Duration::from_secs(1);
    let part = || Exponential::new(second..=second).jitter(Jitter::Full).max_keys(NonZeroU32::MIN);
    let mut random = Random::new(3);
    let (mut one, mut two) = (part(), MaxOf::new(part(), part()));
    let draws = 10_000;
    let mean = |policy: &mut dyn FnMut() -> Duration| {
        (0..draws).map(|_| policy().as_secs_f64()).sum::<f64>() / f64::from(draws)
    };
    let mean_of_one = mean(&mut || one.record_failure(&1, Nanos::ZERO, random.next(), &mut |_| false).wait);
    let mean_of_two = mean(&mut || two.record_failure(&1, Nanos::ZERO, random.next(), &mut |_| false).wait);
    // The mean is 1/2 for one wait and 2/3 for the longer of two independent waits; six standard deviations are 0.018.
    assert!((mean_of_one - 1.0 / 2.0).abs() < 0.02, "{mean_of_one}");
    assert!((mean_of_two - 2.0 / 3.0).abs() < 0.02, "{mean_of_two}");
}

#[test]
fn a_seed_replays_and_without_one_limiters_differ() {
    let limiter = || {
        let waits = Duration::from_secs(1)..=Duration::from_secs(1_000);
        Limiter::with_clock(Exponential::new(waits).jitter(Jitter::Full), ManualClock::new())
    };
    let waits = |limiter: Limiter<u32, _, _>| [(); 8].map(|()| limiter.record_failure(&1));
    assert_eq!(waits(limiter().seed(5)), waits(limiter().seed(5)));
    assert_ne!(waits(limiter().seed(5)), waits(limiter().seed(6)));
    assert_ne!(waits(limiter()), waits(limiter()));
}
