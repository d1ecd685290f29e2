//! How long a slot stays reserved for the waiter that was woken for it.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use flyball_ratelimit::{AcquirePermit, AimdLimit, ConcurrencyLimiter, Permit};
use flyball_sync::{Clock, ManualClock, Nanos};
use testkit::wakers::{Counting, HostileWaker, WakerCall, poll_once, poll_with};

const KEPT: Duration = Duration::from_millis(100);
const SECOND: Duration = Duration::from_secs(1);

/// Creates a limiter with one slot.
fn limiter() -> (ConcurrencyLimiter<ManualClock>, ManualClock) {
    let clock = ManualClock::new();
    (ConcurrencyLimiter::with_clock(AimdLimit::new(1..=1, SECOND), clock.clone()), clock)
}

type Waiting = Pin<Box<AcquirePermit<ManualClock>>>;

fn poll(waiting: &mut Waiting) -> Poll<Permit<ManualClock>> {
    poll_once(waiting.as_mut())
}

fn in_line(limiter: &ConcurrencyLimiter<ManualClock>) -> Waiting {
    let mut waiting = Box::pin(limiter.acquire());
    assert!(poll(&mut waiting).is_pending());
    waiting
}

/// The operations take longer than a slot stays reserved, and a new waiter joins whenever an operation ends.
#[test]
fn the_first_waiter_is_served_however_the_operation_before_it_ended() {
    let unwinds = |permit: Permit<_>| {
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _permit = permit;
            panic!("the operation panics");
        }));
        assert!(caught.is_err());
    };
    let ends: [fn(Permit<ManualClock>); 5] = [Permit::succeed, Permit::fail, Permit::ignore, drop, unwinds];
    for end in ends {
        let (limiter, clock) = limiter();
        let mut holder = limiter.try_acquire().unwrap();
        let mut line: VecDeque<_> = (0..4).map(|_| in_line(&limiter)).collect();
        for round in 0..100 {
            clock.advance(SECOND);
            end(holder);
            line.push_back(in_line(&limiter));
            let mut first = line.pop_front().unwrap();
            let Poll::Ready(permit) = poll(&mut first) else {
                panic!("round {round}: the first waiter was woken without a slot")
            };
            holder = permit;
            limiter.check().unwrap();
        }
    }
}

#[test]
fn a_slot_that_is_passed_on_is_reserved_from_then_on() {
    let (limiter, clock) = limiter();
    let permit = limiter.try_acquire().unwrap();
    let (first, mut second) = (in_line(&limiter), in_line(&limiter));
    clock.advance(SECOND);
    permit.fail();
    clock.advance(KEPT / 2);
    // The first waiter was woken and is dropped: its slot goes to the second waiter.
    drop(first);
    clock.advance(KEPT - Duration::from_nanos(1));
    assert!(limiter.try_acquire().is_none(), "the slot is reserved for the second waiter");
    assert!(poll(&mut second).is_ready());
}

/// A waiter that is polled late keeps its slot if no other call has taken the slot back in between.
#[test]
fn a_late_poll_still_gets_the_slot() {
    let (limiter, clock) = limiter();
    let permit = limiter.try_acquire().unwrap();
    let mut both = [in_line(&limiter), in_line(&limiter)];
    permit.succeed();
    for round in 0..10 {
        for waiting in &mut both {
            clock.advance(KEPT);
            if let Poll::Ready(permit) = poll(waiting) {
                assert_eq!(round, 0, "the first late poll got no slot");
                permit.succeed();
                *waiting = Box::pin(limiter.acquire());
                assert_eq!(limiter.waiters(), 0, "the slot did not go to the next waiter");
                return;
            }
        }
    }
    panic!("two waiters that are polled late take the slot from each other for ever");
}

#[test]
fn a_slot_whose_waiter_is_not_polled_is_taken_back_whatever_ended_before() {
    for end in [Permit::succeed, Permit::fail, Permit::ignore, drop] {
        let (limiter, clock) = limiter();
        let permit = limiter.try_acquire().unwrap();
        let kept = in_line(&limiter);
        clock.advance(SECOND);
        end(permit);
        clock.advance(KEPT - Duration::from_nanos(1));
        assert!(limiter.try_acquire().is_none());
        clock.advance(Duration::from_nanos(1));
        assert!(limiter.try_acquire().is_some());
        drop(kept);
        limiter.check().unwrap();
    }
}

/// If an operation ends without success, the clock is read only to reserve slots for waiters, so a panic of the clock has no effect on the operation.
#[test]
fn a_panicking_clock_affects_no_outcome_without_a_time() {
    /// A clock that panics while its flag is set.
    #[derive(Clone)]
    struct Broken(ManualClock, Arc<AtomicBool>);

    impl Clock for Broken {
        fn now(&self) -> Nanos {
            assert!(!self.1.load(Ordering::SeqCst), "a hostile clock panics");
            self.0.now()
        }
    }

    let (clock, broken) = (ManualClock::new(), Arc::new(AtomicBool::new(false)));
    let limiter =
        ConcurrencyLimiter::with_clock(AimdLimit::new(1..=1, SECOND), Broken(clock.clone(), broken.clone()));
    let permit = limiter.try_acquire().unwrap();
    let mut line: Vec<_> = (0..2).map(|_| Box::pin(limiter.acquire())).collect();
    assert!(line.iter_mut().all(|waiting| poll_once(waiting.as_mut()).is_pending()));
    clock.advance(SECOND);
    broken.store(true, Ordering::SeqCst);
    permit.fail();
    drop(line.remove(0));
    broken.store(false, Ordering::SeqCst);
    clock.advance(SECOND);
    assert!(limiter.try_acquire().is_none(), "the slot is reserved from this call on");
    clock.advance(KEPT - Duration::from_nanos(1));
    assert!(limiter.try_acquire().is_none());
    assert!(poll_once(line[0].as_mut()).is_ready());
    limiter.check().unwrap();
}

/// There are more slots and waiters than one batch of wakers holds.
#[test]
fn one_call_passes_all_slots_of_late_waiters_on() {
    let clock = ManualClock::new();
    let adaptive = AimdLimit::new(20..=20, SECOND * 10);
    let limiter = ConcurrencyLimiter::with_clock(adaptive, clock.clone());
    let permits: Vec<_> = (0..20).filter_map(|_| limiter.try_acquire()).collect();
    let mut line: Vec<_> = (0..50).map(|_| in_line(&limiter)).collect();
    permits.into_iter().for_each(Permit::succeed);
    assert_eq!((limiter.waiters(), limiter.in_flight()), (30, 20));
    clock.advance(KEPT);
    assert!(limiter.try_acquire().is_none());
    assert_eq!((limiter.waiters(), limiter.in_flight()), (10, 20));
    limiter.check().unwrap();
    let mut late: Vec<_> = line.drain(..20).collect();
    let mut last = line.split_off(20);
    let mut permits: VecDeque<_> = line.iter_mut().map(poll).collect();
    // The waiters that lost their slots come before the ten that have not had one, in the order in which they are polled again.
    late.reverse();
    assert!(late.iter_mut().all(|waiting| poll(waiting).is_pending()));
    for waiting in late.iter_mut().chain(&mut last) {
        let Some(Poll::Ready(permit)) = permits.pop_front() else { panic!("no permit") };
        permit.succeed();
        permits.push_back(poll(waiting));
    }
    assert_eq!((limiter.waiters(), limiter.in_flight()), (0, 20));
    limiter.check().unwrap();
}

#[test]
fn a_panic_in_the_drop_of_a_replaced_waker_takes_no_wake_up_with_it() {
    let (limiter, clock) = limiter();
    let permit = limiter.try_acquire().unwrap();
    let hostile = HostileWaker::new();
    let (wakes, waker) = Counting::waker();
    let mut first = in_line(&limiter);
    let mut second = Box::pin(limiter.acquire());
    assert!(poll_with(second.as_mut(), &waker).is_pending());
    let mut third = Box::pin(limiter.acquire());
    assert!(poll_with(third.as_mut(), &hostile.waker()).is_pending());
    permit.succeed(); // wakes the first waiter, which is not polled in time
    clock.advance(KEPT);
    hostile.panic_in(Some(WakerCall::Drop));
    // This poll takes the slot of the first waiter back for the second one.
    let polled = catch_unwind(AssertUnwindSafe(|| poll_once(third.as_mut()).is_pending()));
    hostile.panic_in(None);
    assert!(polled.is_err() && wakes.wakes() == 1, "{} wake-ups", wakes.wakes());
    assert!(poll(&mut first).is_pending() && poll_with(second.as_mut(), &waker).is_ready());
}

#[test]
fn a_slot_is_not_lost_if_the_drop_of_an_unused_waker_panics() {
    let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=1, Duration::from_secs(1)));
    let hostile = HostileWaker::new();
    let waker = hostile.waker();
    hostile.run_in(WakerCall::Drop, || panic!("the drop of a waker panics"));
    let polled =
        catch_unwind(AssertUnwindSafe(|| poll_with(pin!(limiter.acquire()).as_mut(), &waker).is_ready()));
    assert!(polled.is_err());
    assert_eq!(limiter.in_flight(), 0);
}

#[test]
fn an_unused_waker_is_dropped_outside_the_lock() {
    let limiter = ConcurrencyLimiter::new(AimdLimit::new(1..=1, Duration::from_secs(1)));
    let hostile = HostileWaker::new();
    let waker = hostile.waker();
    let own = limiter.clone();
    hostile.run_in(WakerCall::Drop, move || assert_eq!(own.in_flight(), 1));
    assert!(poll_with(pin!(limiter.acquire()).as_mut(), &waker).is_ready());
}
