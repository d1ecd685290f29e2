//! Properties of the public API: auto traits, sizes, error messages, and the locations of panics.

use std::error::Error;
use std::fmt::Debug;
use std::num::NonZeroU32;
use std::panic::{AssertUnwindSafe, RefUnwindSafe, UnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use flyball_ratelimit::{
    Acquire, AcquireMany, AcquirePermit, AimdLimit, Capped, ConcurrencyLimiter, Exponential, FastSlow,
    InsufficientCapacity, InvalidBackoff, InvalidQuota, Jitter, KeyedRateLimiter, Limiter, MaxElapsed, MaxOf,
    NotYet, Outcome, Permit, Quota, RateLimiter, Reservation, RetryBudget, Started, TokenBucket,
    TryAcquireError,
};
use flyball_sync::{Clock, ManualClock, ManualTimer, Monotonic, Nanos, Timer};

/// A key that is neither `Send`, `Sync` nor `Debug`.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Local(Rc<u32>);

trait NotSend<Marker> {
    fn marker() {}
}
impl<T: ?Sized> NotSend<()> for T {}
impl<T: ?Sized + Send> NotSend<u8> for T {}

trait NotSync<Marker> {
    fn marker() {}
}
impl<T: ?Sized> NotSync<()> for T {}
impl<T: ?Sized + Sync> NotSync<u8> for T {}

fn free<T: Send + Sync + Unpin + UnwindSafe + RefUnwindSafe + 'static>() {}

#[test]
fn auto_traits_are_pinned() {
    free::<Nanos>();
    free::<Quota>();
    free::<Jitter>();
    free::<TokenBucket>();
    free::<Reservation>();
    free::<Exponential<String>>();
    free::<FastSlow<String>>();
    free::<MaxOf<Exponential<String>, TokenBucket>>();
    free::<Capped<TokenBucket>>();
    free::<Monotonic>();
    free::<NotYet>();
    free::<InvalidQuota>();
    free::<InvalidBackoff>();
    free::<AimdLimit>();
    free::<Started>();
    free::<Outcome>();
    free::<MaxElapsed<String, Exponential<String>>>();
    free::<RetryBudget<Exponential<String>>>();
    free::<InsufficientCapacity>();
    free::<TryAcquireError>();
    fn shared<T: Send + Sync + Unpin>() {}
    shared::<RateLimiter>();
    shared::<RateLimiter<ManualTimer>>();
    shared::<Acquire<'static, ManualTimer>>();
    shared::<AcquireMany<'static, ManualTimer>>();
    shared::<KeyedRateLimiter<String>>();
    <KeyedRateLimiter<Local> as NotSend<_>>::marker();
    shared::<ManualClock>();
    shared::<ManualTimer>();
    shared::<ConcurrencyLimiter>();
    shared::<Permit>();
    shared::<AcquirePermit>();
    shared::<Limiter<String, MaxOf<Exponential<String>, TokenBucket>>>();
    // A limiter itself stores no keys, so the key type affects its auto traits only through the keys that its policy stores. A `TokenBucket` stores
    // none.
    shared::<Limiter<Local, TokenBucket>>();
    // These lines do not compile if the type is `Send` (or `Sync`), because both implementations would then fit.
    <Limiter<Local, Exponential<Local>> as NotSend<_>>::marker();
    <Limiter<Local, Exponential<Local>> as NotSync<_>>::marker();
    #[cfg(feature = "tokio")]
    shared::<flyball_ratelimit::TokioTimer>();
}

#[test]
fn clocks_and_timers_can_be_objects_and_shared() {
    let manual = ManualClock::new();
    let clock: Arc<dyn Clock> = Arc::new(manual.clone());
    let timer: Box<dyn Timer> = Box::new(manual.timer());
    manual.advance(Duration::from_nanos(7));
    assert_eq!((clock.now(), timer.now()), (Nanos::new(7), Nanos::new(7)));
    let limiter = Limiter::with_clock(TokenBucket::new(Quota::per_second(NonZeroU32::MIN)), clock);
    assert_eq!(limiter.record_failure(&1), Duration::ZERO);
}

#[test]
fn sizes_are_as_recorded() {
    assert_eq!(size_of::<Nanos>(), 8);
    assert_eq!(size_of::<Quota>(), 16);
    assert_eq!(size_of::<Reservation>(), 24);
    assert_eq!(size_of::<TokenBucket>(), 64);
    assert_eq!(size_of::<Limiter<String, TokenBucket>>(), 112);
}

#[test]
fn errors_are_errors_with_lower_case_messages() {
    fn message(error: impl Error + Send + Sync + 'static) -> String {
        assert!(error.source().is_none());
        error.to_string()
    }
    let backoff = Exponential::<Local>::try_new(Duration::ZERO..=Duration::from_secs(1)).unwrap_err();
    assert_eq!(message(backoff), "a backoff needs 0 < base <= cap, not base 0ns and cap 1s");
    let period = Quota::new(NonZeroU32::MIN, Duration::ZERO).unwrap_err();
    assert_eq!(message(period), "the period of a quota must be from 1 ns to 584 years, not 0ns");
    let mut bucket = TokenBucket::new(Quota::per_second(NonZeroU32::MIN));
    bucket.try_acquire(Nanos::new(5)).unwrap();
    let many = bucket.try_acquire_many(NonZeroU32::new(3).unwrap(), Nanos::new(5)).unwrap_err();
    assert_eq!(message(many), "3 tokens requested at once, but the burst size is 1");
    let one = bucket.try_acquire_many(NonZeroU32::MIN, Nanos::new(5)).unwrap_err();
    assert_eq!(message(one), "not enough tokens yet: retry after 1s");
    let not_yet = bucket.try_acquire(Nanos::new(5)).unwrap_err();
    assert_eq!(not_yet.retry_after(), Duration::from_secs(1));
    assert_eq!(message(not_yet), "not enough tokens yet: retry after 1s");
}

#[test]
fn a_wrong_literal_reports_its_own_line() {
    let (blame, blamed) = mpsc::channel();
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        let message = info.payload().downcast_ref::<String>();
        if message.is_some_and(|text| text.starts_with("a backoff needs")) {
            let _ = blame.send(info.location().map(|location| location.file().to_owned()));
        }
    }));
    let made = catch_unwind(AssertUnwindSafe(|| Exponential::<u32>::new(Duration::ZERO..=Duration::MAX)));
    std::panic::set_hook(before);
    assert!(made.is_err());
    assert_eq!(blamed.recv().unwrap().as_deref(), Some(file!()));
}

#[test]
fn nothing_needs_a_key_that_can_be_printed() {
    fn shown(value: impl Debug) -> String {
        format!("{value:?}")
    }
    let backoff = || Exponential::<Local>::new(Duration::from_millis(5)..=Duration::from_secs(1));
    assert_eq!(
        shown(backoff()),
        "Exponential { waits: 5ms..=1s, immediate_first: false, jitter: None, tracked: 0, .. }"
    );
    assert!(shown(FastSlow::<Local>::new(Duration::ZERO, Duration::ZERO, 3)).contains("fast_attempts: 3"));
    assert_eq!(shown(Limiter::new(backoff())), "Limiter { tracked: 0, .. }");
}

#[test]
fn a_quota_can_be_a_constant() {
    const QUOTA: Quota = Quota::per_minute(NonZeroU32::MIN).allow_burst(NonZeroU32::MAX);
    const BUCKET: TokenBucket = TokenBucket::new(QUOTA);
    assert_eq!(BUCKET.quota(), QUOTA);
    assert_eq!(QUOTA.period(), Duration::from_secs(60));
    assert_eq!((QUOTA.tokens(), QUOTA.burst_size()), (NonZeroU32::MIN, NonZeroU32::MAX));
    assert_eq!(Quota::per_hour(NonZeroU32::MIN).period(), Duration::from_secs(3_600));
    assert_eq!(Quota::per_second(NonZeroU32::MIN).period(), Duration::from_secs(1));
}
