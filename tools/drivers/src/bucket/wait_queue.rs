//! Applies the same operations to a bucket with a wait queue and its oracle. The random test, the corpus test and the fuzz target use this driver.
//!
//! Futures are polled without a wake-up and with other wakers, dropped, and forgotten; a thread waits with a limit of zero. Each future is woken once,
//! when it is served, and an alarm is armed if, and only if, there is a waiter.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use flyball_ratelimit::{RateLimiter, Reservation, TryAcquireError};
use flyball_sync::{Clock, ManualClock, ManualTimer, Nanos, block_on};
use testkit::oracle::limiter::OracleQuota;
use testkit::oracle::wait_queue::{OracleWaitQueue, Promise, WaitQueueOp, WaiterState};
use testkit::wakers::{Counting, poll_with};

use crate::bucket::quota::quota;

/// Decodes `bytes` to a quota and operations, and compares the bucket with its oracle after every operation.
pub fn run(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(first) = OracleQuota::arbitrary(&mut input) else { return };
    let clock = ManualClock::new();
    let bucket = RateLimiter::with_timer(quota(first), clock.timer());
    let mut pair = Pair {
        bucket: &bucket,
        clock: &clock,
        oracle: OracleWaitQueue::new(first),
        waiters: Vec::new(),
        leaked: Vec::new(),
        held: Vec::new(),
    };
    for _ in 0..100 {
        let Ok(op) = WaitQueueOp::arbitrary(&mut input) else { break };
        pair.step(op);
        pair.compare(op);
        if input.is_empty() {
            break;
        }
    }
    assert_eq!(pair.oracle.within_rate(), Ok(()), "more than burst + rate x time");
}

struct Pair<'a> {
    bucket: &'a RateLimiter<ManualTimer>,
    clock: &'a ManualClock,
    oracle: OracleWaitQueue,
    waiters: Vec<Waiter<'a>>,
    /// Neither polled nor dropped before the end of the run.
    leaked: Vec<Waiter<'a>>,
    /// The reservations, with the number of their tokens.
    held: Vec<(Reservation, Promise, u32)>,
}

struct Waiter<'a> {
    future: Pin<Box<dyn Future<Output = WaiterState> + 'a>>,
    wakes: Arc<Counting>,
    waker: Waker,
    /// Wakers that were replaced, with the number of their wake-ups until then.
    replaced: Vec<(Arc<Counting>, usize)>,
    /// The number of polls in which the future woke itself, in order to yield.
    yields: usize,
    oracle: usize,
}

fn nz(count: u8) -> NonZeroU32 {
    NonZeroU32::new(count.into()).unwrap_or(NonZeroU32::MIN)
}

/// The due time in an error, or `None` for more tokens than the burst.
fn due(error: TryAcquireError, now: u64) -> Option<u64> {
    match error {
        TryAcquireError::NotYet(not_yet) => Some((Nanos::new(now) + not_yet.retry_after()).get()),
        TryAcquireError::InsufficientCapacity(_) => None,
    }
}

impl<'a> Pair<'a> {
    fn now(&self) -> u64 {
        self.clock.now().get()
    }

    fn step(&mut self, op: WaitQueueOp) {
        let (bucket, now) = (self.bucket, self.now());
        match op {
            WaitQueueOp::Join(count) => {
                let oracle = self.oracle.join(nz(count).get(), None, now);
                let state = async move {
                    match bucket.acquire_many(nz(count)).await {
                        Ok(()) => WaiterState::Granted,
                        Err(_) => WaiterState::Refused,
                    }
                };
                self.join(Box::pin(state), oracle, now);
            }
            WaitQueueOp::JoinTimeout(count, limit) => {
                let oracle = self.oracle.join(nz(count).get(), Some(limit.nanos()), now);
                let limit = Duration::from_nanos(limit.nanos());
                let state = async move {
                    match bucket.acquire_many_timeout(nz(count), limit).await {
                        Ok(()) => WaiterState::Granted,
                        Err(TryAcquireError::InsufficientCapacity(_)) => WaiterState::Refused,
                        Err(TryAcquireError::NotYet(_)) => WaiterState::TimedOut,
                    }
                };
                self.join(Box::pin(state), oracle, now);
            }
            WaitQueueOp::Poll(which) if !self.waiters.is_empty() => {
                let index = usize::from(which) % self.waiters.len();
                let waiter = &mut self.waiters[index];
                if which >= 192 && self.oracle.state(waiter.oracle) == WaiterState::Waiting {
                    let (wakes, waker) = Counting::waker();
                    let replaced = std::mem::replace(&mut waiter.wakes, wakes);
                    let until_now = replaced.wakes();
                    waiter.replaced.push((replaced, until_now));
                    (waiter.waker, waiter.yields) = (waker, 0);
                }
                self.poll(index, now);
            }
            WaitQueueOp::Drop(which) if !self.waiters.is_empty() => {
                let dropped = self.waiters.swap_remove(usize::from(which) % self.waiters.len());
                if which >= 224 {
                    self.leaked.push(dropped);
                } else {
                    self.oracle.leave(dropped.oracle, now);
                }
            }
            // A thread with a limit of zero joins the queue and leaves it again.
            WaitQueueOp::TryAcquire(count) if count % 2 == 1 => {
                let real = block_on(bucket.acquire_many_timeout(nz(count), Duration::ZERO))
                    .map_err(|error| due(error, now));
                assert_eq!(real, self.oracle.try_acquire(nz(count).get(), now), "a thread: {op:?} at {now}");
            }
            WaitQueueOp::TryAcquire(count) => {
                let real = bucket.try_acquire_many(nz(count)).map_err(|error| due(error, now));
                assert_eq!(real, self.oracle.try_acquire(nz(count).get(), now), "{op:?} at {now}");
            }
            WaitQueueOp::Reserve(count) => {
                let real = bucket.reserve_many(nz(count)).ok();
                let oracle = self.oracle.reserve(nz(count).get(), now);
                let due = real.as_ref().map(|reserved| reserved.due().get());
                assert_eq!(due, oracle.map(|promise| promise.due), "{op:?} at {now}");
                self.held.extend(real.zip(oracle).map(|(real, oracle)| (real, oracle, nz(count).get())));
            }
            WaitQueueOp::Cancel(which) if !self.held.is_empty() => {
                let (real, oracle, count) = self.held.swap_remove(usize::from(which) % self.held.len());
                assert_eq!(bucket.cancel(real), self.oracle.cancel(oracle, count, now), "{op:?} at {now}");
            }
            WaitQueueOp::Poll(_) | WaitQueueOp::Drop(_) | WaitQueueOp::Cancel(_) => {}
            WaitQueueOp::SetQuota(new) => {
                bucket.set_quota(quota(new));
                self.oracle.set_quota(new, now);
            }
            WaitQueueOp::Advance(span) => self.pass_to(now.saturating_add(span.finite())),
            WaitQueueOp::AdvanceToAlarm => {
                if let Some(at) = self.clock.next_alarm().filter(|at| *at < Nanos::MAX) {
                    self.pass_to(at.get());
                }
            }
            WaitQueueOp::JumpBack(span) => {
                self.clock.set(Nanos::new(now.saturating_sub(span.finite())));
                // The clock has jumped back, so it will show some instants again. If a reservation was due at such an instant, its holder cannot
                // detect the jump. Its token therefore counts as used, and the driver drops the reservations.
                self.held.clear();
                self.oracle.jumped(self.now());
            }
        }
    }

    fn join(&mut self, future: Pin<Box<dyn Future<Output = WaiterState> + 'a>>, oracle: usize, now: u64) {
        let (wakes, waker) = Counting::waker();
        self.waiters.push(Waiter { future, wakes, waker, replaced: Vec::new(), yields: 0, oracle });
        self.poll(self.waiters.len() - 1, now);
    }

    fn pass_to(&mut self, now: u64) {
        self.clock.set(Nanos::new(now));
        self.oracle.passed(now);
    }

    fn poll(&mut self, which: usize, now: u64) {
        let waiter = &mut self.waiters[which];
        let state = self.oracle.poll(waiter.oracle, now);
        let expected = match state {
            WaiterState::Waiting => Poll::Pending,
            WaiterState::Granted | WaiterState::Refused | WaiterState::TimedOut => Poll::Ready(state),
            WaiterState::Left => unreachable!("a waiter is removed when it has left"),
        };
        let woken = waiter.wakes.wakes();
        let mut polled = poll_with(waiter.future.as_mut(), &waiter.waker);
        if polled.is_pending() && waiter.wakes.wakes() > woken {
            // The future has woken itself in order to yield, so it is polled again.
            waiter.yields += 1;
            polled = poll_with(waiter.future.as_mut(), &waiter.waker);
        }
        assert_eq!(polled, expected, "polled at {now}");
        if state != WaiterState::Waiting {
            self.waiters.swap_remove(which);
        }
    }

    fn compare(&mut self, op: WaitQueueOp) {
        let now = self.now();
        self.bucket.check().unwrap_or_else(|broken| panic!("after {op:?}: {broken}"));
        assert_eq!(
            self.bucket.available_tokens(),
            self.oracle.available(now),
            "available after {op:?} at {now}"
        );
        assert_eq!(self.bucket.waiters(), self.oracle.waiting(), "waiting after {op:?} at {now}");
        for waiter in self.waiters.iter().chain(&self.leaked) {
            let served = self.oracle.state(waiter.oracle) != WaiterState::Waiting;
            let woken = waiter.wakes.wakes() - waiter.yields;
            assert_eq!(woken, usize::from(served), "woken once, when served: {op:?} at {now}");
            let stale = waiter.replaced.iter().any(|(wakes, until_then)| wakes.wakes() > *until_then);
            assert!(!stale, "a replaced waker was woken: {op:?} at {now}");
        }
        if let Some(until) = self.oracle.next_deadline() {
            let alarm = self.clock.next_alarm().map(Nanos::get);
            assert!(alarm.is_some_and(|at| at <= until), "alarm {alarm:?}, limit {until} after {op:?}");
        }
        let alarm = self.clock.next_alarm();
        assert_eq!(alarm.is_some(), self.oracle.waiting() > 0, "alarm {alarm:?} after {op:?}");
        assert!(alarm.is_none_or(|at| at > self.clock.now()), "alarm {alarm:?} after {op:?}");
    }
}
