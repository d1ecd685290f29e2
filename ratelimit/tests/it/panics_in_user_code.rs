//! Keys, clocks and policies that panic, keys that call their limiter, and numbers at the end of their range.

use std::hash::{Hash, Hasher};
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use flyball_ratelimit::{
    AimdLimit, Capped, ConcurrencyLimiter, Exponential, Failure, FastSlow, Limiter, MaxOf, Policy, Quota,
    TokenBucket, controller_default,
};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::panicking::{PanicSwitch, PanickingKey, Point};

#[test]
fn a_panic_of_a_key_at_any_point_leaves_the_limiter_usable() {
    for point in Point::ALL {
        let mut fired = 0;
        for nth in 1..=40 {
            fired += usize::from(run_with_a_fuse(point, nth));
        }
        // The n-th run panics at the n-th call in the script, so as many runs panic as the script has calls. `Eq` has the fewest calls, because it
        // runs only if the hashes match.
        assert!(fired >= 3, "{point:?} panicked in {fired} runs only");
    }
}

/// Counts failures, evicts and forgets keys while the `nth` call at `point` panics. Returns whether it has panicked.
fn run_with_a_fuse(point: Point, nth: i64) -> bool {
    let switch = PanicSwitch::new();
    let clock = ManualClock::new();
    let backoff =
        Exponential::new(secs(1)..=secs(2)).max_keys(NonZeroU32::new(3).unwrap()).forget_after(secs(5));
    let limiter = Limiter::with_clock(backoff, clock.clone());
    let quietly = |step: &dyn Fn()| catch_unwind(AssertUnwindSafe(step)).is_err();

    switch.arm(point, nth);
    let mut fired = false;
    for id in [1, 2, 1, 3, 4, 5, 1] {
        fired |= quietly(&|| _ = limiter.record_failure(&switch.key(id)));
        assert_eq!(
            limiter.update_policy(|policy, _| policy.check()),
            Ok(()),
            "{point:?} {nth}, after {id} failed"
        );
        clock.advance(secs(2));
    }
    fired |= quietly(&|| limiter.forget(&switch.key(1)));
    fired |= quietly(&|| _ = limiter.num_requeues(&switch.key(4)));
    assert_eq!(limiter.update_policy(|policy, _| policy.check()), Ok(()), "{point:?} {nth}, after forget");
    let burning = switch.disarm(point);
    assert_ne!(fired, burning, "the panic is neither pending nor has it happened");

    // The limiter still counts failures correctly.
    limiter.forget(&switch.key(9));
    assert_eq!(limiter.record_failure(&switch.key(9)), secs(1));
    assert_eq!(limiter.record_failure(&switch.key(9)), secs(2));
    assert_eq!(limiter.num_requeues(&switch.key(9)), 2);
    drop(limiter);
    assert_eq!(switch.live(), 0, "{point:?} {nth}: keys leak or are dropped twice");
    fired
}

/// A key that calls its limiter when it is dropped: under the lock, this call would deadlock.
struct CallsBack {
    id: u32,
    limiter: Weak<Limiter<CallsBack, Exponential<CallsBack>, ManualClock>>,
    drops: Arc<AtomicUsize>,
}

impl Clone for CallsBack {
    fn clone(&self) -> Self {
        Self { id: self.id, limiter: self.limiter.clone(), drops: self.drops.clone() }
    }
}

impl PartialEq for CallsBack {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for CallsBack {}

impl Hash for CallsBack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Drop for CallsBack {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.upgrade() {
            let _ = limiter.tracked_keys();
            self.drops.fetch_add(1, Ordering::SeqCst);
        }
    }
}

#[test]
fn drops_no_key_under_the_lock() {
    let clock = ManualClock::new();
    let backoff =
        Exponential::new(secs(1)..=secs(1)).max_keys(NonZeroU32::new(2).unwrap()).forget_after(secs(5));
    let limiter = Arc::new(Limiter::with_clock(backoff, clock.clone()));
    let drops = Arc::new(AtomicUsize::new(0));
    let key = |id| CallsBack { id, limiter: Arc::downgrade(&limiter), drops: drops.clone() };
    let died_within = |step: &dyn Fn(&CallsBack), id| {
        let key = key(id);
        let before = drops.load(Ordering::SeqCst);
        step(&key);
        drops.load(Ordering::SeqCst) - before
    };
    assert_eq!(died_within(&|key| _ = limiter.record_failure(key), 1), 0);
    assert_eq!(died_within(&|key| _ = limiter.record_failure(key), 2), 0);
    assert_eq!(died_within(&|key| _ = limiter.record_failure(key), 3), 1, "key 1 was not evicted");
    assert_eq!(died_within(&|key| limiter.forget(key), 2), 1);
    clock.advance(secs(60));
    assert_eq!(
        died_within(
            &|key| _ =
                limiter.update_policy(|policy, now| policy.record_failure(key, now, 0, &mut |_| false)),
            4
        ),
        1,
        "key 3 has expired"
    );
    assert_eq!(limiter.tracked_keys(), 1);
}

/// Like [`CallsBack`], but panics in the `clone` at which `clones` reaches zero.
struct PanicsAndCallsBack {
    id: u32,
    limiter: Weak<Limiter<Self, Both, ManualClock>>,
    clones: Arc<AtomicUsize>,
}

type Both = MaxOf<Exponential<PanicsAndCallsBack>, FastSlow<PanicsAndCallsBack>>;

impl Clone for PanicsAndCallsBack {
    fn clone(&self) -> Self {
        // Counts down to the panic; later clones do not panic.
        let left = self.clones.fetch_sub(1, Ordering::SeqCst);
        assert!(left != 1, "a key panics in `Clone`");
        Self { id: self.id, limiter: self.limiter.clone(), clones: self.clones.clone() }
    }
}

impl PartialEq for PanicsAndCallsBack {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for PanicsAndCallsBack {}

impl Hash for PanicsAndCallsBack {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.id.hash(state);
    }
}

impl Drop for PanicsAndCallsBack {
    fn drop(&mut self) {
        if let Some(limiter) = self.limiter.upgrade() {
            let _ = limiter.tracked_keys();
        }
    }
}

/// If an operation evicts keys and then panics, the same operation drops these keys outside the lock. If the next operation dropped them under the
/// lock, the drop would deadlock.
#[test]
fn drops_evicted_keys_outside_the_lock_after_a_panic() {
    for nth in 1..=2 {
        let clock = ManualClock::new();
        let both = MaxOf::new(Exponential::new(secs(1)..=secs(1)), FastSlow::new(secs(1), secs(1), 1));
        let limiter = Arc::new(Limiter::with_clock(both, clock.clone()));
        let clones = Arc::new(AtomicUsize::new(usize::MAX));
        let key = |id| PanicsAndCallsBack { id, limiter: Arc::downgrade(&limiter), clones: clones.clone() };
        limiter.record_failure(&key(1));
        limiter.record_failure(&key(2));
        clock.advance(secs(10_000));
        // Either the clone for the first policy panics, or the clone for the second policy panics after the first policy has evicted both keys.
        clones.store(nth, Ordering::SeqCst);
        let panicked = catch_unwind(AssertUnwindSafe(|| limiter.record_failure(&key(3)))).is_err();
        assert!(panicked);
        let mut dead = Vec::new();
        limiter.update_policy(|both, _| both.take_evicted(&mut dead));
        assert_eq!(dead.len(), 0, "evicted keys were left in the policies");
        // The failure of key 3 stays counted in the first policy if only the second one panicked.
        assert_eq!((limiter.record_failure(&key(4)), limiter.tracked_keys()), (secs(1), nth));
    }
}

#[test]
fn a_panic_in_take_evicted_leaves_the_limiter_usable() {
    #[derive(Default)]
    struct Moody {
        failures: u32,
        panics: bool,
    }
    impl Policy<u32> for Moody {
        fn record_failure(&mut self, _: &u32, _: Nanos, _: u64, _: &mut dyn FnMut(&u32) -> bool) -> Failure {
            self.failures += 1;
            Failure { wait: secs(self.failures.into()), counted: true }
        }
        fn forget(&mut self, _: &u32) {
            self.failures = 0;
        }
        fn num_requeues(&self, _: &u32) -> u32 {
            self.failures
        }
        fn tracked_keys(&self) -> usize {
            usize::from(self.failures > 0)
        }
        fn take_evicted(&mut self, _: &mut Vec<u32>) {
            assert!(!self.panics, "a hostile policy panics");
        }
    }
    let limiter = Limiter::with_clock(Moody::default(), ManualClock::new());
    let panics =
        |panics| catch_unwind(AssertUnwindSafe(|| limiter.update_policy(|policy, _| policy.panics = panics)));
    assert!(panics(true).is_err());
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.record_failure(&1))).is_err());
    assert!(panics(false).is_ok());
    assert_eq!((limiter.num_requeues(&1), limiter.record_failure(&1)), (1, secs(2)));
    limiter.forget(&1);
    assert_eq!((limiter.num_requeues(&1), limiter.tracked_keys()), (0, 0));
}

#[test]
fn keys_with_equal_hashes_are_kept_apart() {
    #[derive(Clone, PartialEq, Eq)]
    struct Alike(u32);
    impl Hash for Alike {
        fn hash<H: Hasher>(&self, _: &mut H) {}
    }
    let mut backoff = Exponential::new(secs(1)..=secs(60)).max_keys(NonZeroU32::new(50).unwrap());
    for round in 1..=3 {
        for id in 0..50 {
            assert_eq!(
                backoff.record_failure(&Alike(id), Nanos::ZERO, 0, &mut |_| false).wait,
                secs(1 << (round - 1))
            );
        }
    }
    backoff.forget(&Alike(7));
    assert_eq!(
        (backoff.num_requeues(&Alike(7)), backoff.num_requeues(&Alike(8)), backoff.tracked_keys()),
        (0, 3, 49)
    );
    assert_eq!(backoff.check(), Ok(()));
}

#[test]
fn what_no_shell_takes_is_dropped_all_the_same() {
    let switch = PanicSwitch::new();
    let mut backoff = Exponential::new(secs(1)..=secs(1)).max_keys(NonZeroU32::MIN);
    for id in 0..100 {
        let _ = backoff.record_failure(&switch.key(id), Nanos::ZERO, 0, &mut |_| false);
        assert!(switch.live() <= 2, "{} keys live", switch.live());
    }
    let mut dead = Vec::new();
    backoff.take_evicted(&mut dead);
    assert_eq!(dead.iter().map(PanickingKey::id).collect::<Vec<_>>(), [98]);
    drop((dead, backoff));
    assert_eq!(switch.live(), 0);
}

/// A clock that panics while its flag is set.
#[derive(Clone, Default)]
struct MoodyClock(Arc<AtomicBool>);

impl Clock for MoodyClock {
    fn now(&self) -> Nanos {
        assert!(!self.0.load(Ordering::SeqCst), "a hostile clock panics");
        Nanos::ZERO
    }
}

#[test]
fn a_panic_of_the_clock_counts_nothing() {
    let clock = MoodyClock::default();
    let limiter = Limiter::with_clock(Exponential::new(secs(1)..=secs(8)), clock.clone());
    clock.0.store(true, Ordering::SeqCst);
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.record_failure(&1))).is_err());
    clock.0.store(false, Ordering::SeqCst);
    assert_eq!((limiter.num_requeues(&1), limiter.record_failure(&1)), (0, secs(1)));
}

#[test]
fn a_panic_of_the_clock_loses_no_permit() {
    let clock = MoodyClock::default();
    let adaptive = AimdLimit::new(10..=10, secs(1));
    let limiter = ConcurrencyLimiter::with_clock(adaptive, clock.clone());
    let permits: Vec<_> = (0..10).filter_map(|_| limiter.try_acquire()).collect();
    clock.0.store(true, Ordering::SeqCst);
    for permit in permits {
        assert!(catch_unwind(AssertUnwindSafe(|| permit.succeed())).is_err());
    }
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.try_acquire())).is_err());
    assert_eq!((limiter.in_flight(), limiter.check()), (0, Ok(())));
    clock.0.store(false, Ordering::SeqCst);
    assert!(limiter.try_acquire().is_some());
}

#[test]
fn a_panic_in_a_change_leaves_the_limiter_usable() {
    let limiter = Limiter::with_clock(bucket(1, 1), ManualClock::new());
    let ten = Quota::per_second(NonZeroU32::new(10).unwrap()).allow_burst(NonZeroU32::MIN);
    let change = |bucket: &mut TokenBucket, now| {
        bucket.set_quota(ten, now);
        panic!("a hostile change panics");
    };
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.update_policy(change))).is_err());
    assert_eq!(
        [limiter.record_failure(&1), limiter.record_failure(&1)],
        [Duration::ZERO, secs(1) / 10],
        "the quota is the one that the closure set before it panicked"
    );
}

#[test]
fn a_clock_may_call_back() {
    struct CallsBack(Arc<Limiter<u32, TokenBucket, ManualClock>>);
    impl Clock for CallsBack {
        fn now(&self) -> Nanos {
            Nanos::ZERO + self.0.record_failure(&0)
        }
    }
    let inner = Arc::new(Limiter::with_clock(bucket(1, 1), ManualClock::new()));
    let outer = Limiter::with_clock(bucket(1, 1), CallsBack(inner));
    assert_eq!(outer.record_failure(&1), Duration::ZERO);
    assert_eq!(outer.record_failure(&1), Duration::ZERO, "each reading of the clock advances it by a second");
}

#[test]
fn a_panic_of_a_policy_leaves_the_limiter_usable() {
    #[derive(Default)]
    struct Moody(u32);
    impl Policy<u32> for Moody {
        fn record_failure(
            &mut self,
            key: &u32,
            _: Nanos,
            _: u64,
            _: &mut dyn FnMut(&u32) -> bool,
        ) -> Failure {
            assert_ne!(*key, 13, "a hostile policy panics");
            self.0 += 1;
            Failure { wait: Duration::ZERO, counted: true }
        }
        fn forget(&mut self, _: &u32) {}
        fn num_requeues(&self, _: &u32) -> u32 {
            self.0
        }
        fn tracked_keys(&self) -> usize {
            1
        }
    }
    let limiter = Limiter::with_clock(Moody::default(), ManualClock::new());
    limiter.record_failure(&1);
    assert!(catch_unwind(AssertUnwindSafe(|| limiter.record_failure(&13))).is_err());
    limiter.record_failure(&2);
    assert_eq!(limiter.num_requeues(&0), 2);
}

#[test]
fn the_longest_durations_saturate() {
    let never = Duration::from_nanos(u64::MAX);
    let mut longest = Exponential::new(Duration::MAX..=Duration::MAX).forget_after(Duration::MAX);
    assert_eq!(longest.record_failure(&1, Nanos::MAX, u64::MAX, &mut |_| false).wait, never);
    assert_eq!(longest.record_failure(&1, Nanos::ZERO, u64::MAX, &mut |_| false).wait, never);
    assert_eq!(longest.num_requeues(&1), 2);

    let mut steps = FastSlow::new(Duration::MAX, Duration::ZERO, 1);
    assert_eq!(steps.record_failure(&1, Nanos::ZERO, 0, &mut |_| false).wait, never);
    assert_eq!(steps.record_failure(&1, Nanos::MAX, 0, &mut |_| false).wait, Duration::ZERO);

    let mut capped = Capped::new(controller_default(), Duration::MAX);
    assert_eq!(capped.record_failure(&1, Nanos::MAX, 0, &mut |_| false).wait, Duration::from_millis(5));

    let refused = Quota::new(NonZeroU32::MIN, Duration::MAX).unwrap_err();
    assert!(refused.to_string().ends_with(&format!("not {:?}", Duration::MAX)), "{refused}");
    assert!(Quota::new(NonZeroU32::MIN, never).is_ok());
    assert!(Quota::new(NonZeroU32::MIN, never + Duration::from_nanos(1)).is_err());
}

#[test]
fn the_slowest_and_the_fastest_bucket_do_not_overflow() {
    let slowest =
        Quota::new(NonZeroU32::MIN, Duration::from_nanos(u64::MAX)).unwrap().allow_burst(NonZeroU32::MAX);
    let fastest = Quota::new(NonZeroU32::MAX, Duration::from_nanos(1)).unwrap().allow_burst(NonZeroU32::MAX);
    let smallest = Quota::new(NonZeroU32::MIN, Duration::from_nanos(u64::MAX)).unwrap();
    for now in [Nanos::ZERO, Nanos::new(1), Nanos::new(u64::MAX - 1), Nanos::MAX] {
        for first in [slowest, fastest, smallest] {
            for second in [slowest, fastest, smallest] {
                let mut bucket = TokenBucket::new(first);
                for _ in 0..3 {
                    assert!(bucket.reserve(now).due() >= now);
                }
                bucket.set_quota(second, now);
                assert_eq!(bucket.check(), Ok(()), "{first:?} then {second:?} at {now:?}");
                let token = bucket.reserve(now);
                bucket.cancel(token, now);
                assert!(bucket.available_tokens(now) <= second.burst_size().get());
                assert_eq!(bucket.check(), Ok(()), "{first:?} then {second:?} at {now:?}");
            }
        }
    }
}

#[test]
fn a_token_that_never_comes_takes_nothing_more() {
    let once = Quota::new(NonZeroU32::MIN, Duration::from_nanos(u64::MAX)).unwrap();
    let mut bucket = TokenBucket::new(once);
    assert_eq!(bucket.reserve(Nanos::new(5)).due(), Nanos::new(5));
    let never = bucket.reserve(Nanos::new(5));
    assert_eq!(never.due(), Nanos::MAX);
    assert_eq!(bucket.reserve(Nanos::new(5)).due(), Nanos::MAX);
    assert!(!bucket.cancel(never, Nanos::new(5)));
    assert_eq!(bucket.check(), Ok(()));
}

fn bucket(per_second: u32, burst: u32) -> TokenBucket {
    let nz = |value| NonZeroU32::new(value).expect("a quota value must not be zero");
    TokenBucket::new(Quota::per_second(nz(per_second)).allow_burst(nz(burst)))
}

fn secs(secs: u64) -> Duration {
    Duration::from_secs(secs)
}
