//! Whether a request with a time limit is refused at its first poll only if its tokens are late although all waiters leave: compared with a replay of the
//! same operations in which they leave.

use std::future::Future;
use std::num::NonZeroU32;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use flyball_ratelimit::{Quota, RateLimiter, Reservation, TryAcquireError};
use flyball_sync::random::SplitMix64;
use flyball_sync::{Clock, ManualClock, ManualTimer};
use testkit::random::thorough;
use testkit::wakers::poll_at_once as poll_once;

#[derive(Clone, Copy, Debug)]
enum Op {
    Advance(u64),
    Start(u32, Option<u64>),
    Poll(usize),
    Drop(usize),
    Reserve(u32),
    Cancel(usize),
    Try(u32),
    Quota(u32, u64, u32),
}

fn nz(n: u32) -> NonZeroU32 {
    NonZeroU32::new(n).unwrap()
}

fn op(rng: &mut SplitMix64, quotas: bool) -> Op {
    let few = |rng: &mut SplitMix64| 1 + rng.below(4) as u32;
    match rng.below(16) {
        0..=3 => Op::Advance(rng.below(12)),
        4..=7 => {
            let count = few(rng);
            Op::Start(count, (rng.below(3) == 0).then(|| rng.below(40)))
        }
        8 | 9 => Op::Poll(rng.below(8) as usize),
        10 | 11 => Op::Drop(rng.below(8) as usize),
        12 => Op::Reserve(few(rng)),
        13 => Op::Cancel(rng.below(4) as usize),
        14 if quotas => {
            let count = few(rng);
            Op::Quota(count, 1 + rng.below(9), few(rng))
        }
        _ => Op::Try(few(rng)),
    }
}

type Fut<'a> = Pin<Box<dyn Future<Output = bool> + 'a>>;

fn replay<R>(
    first: Quota,
    script: &[Op],
    end: impl FnOnce(&RateLimiter<ManualTimer>, &ManualClock, Vec<Fut<'_>>) -> R,
) -> R {
    let clock = ManualClock::new();
    let bucket = RateLimiter::with_timer(first, clock.timer());
    let mut futures: Vec<Fut<'_>> = Vec::new();
    let mut reserved: Vec<Reservation> = Vec::new();
    let own = &bucket;
    for op in script {
        match *op {
            Op::Advance(by) => clock.advance(Duration::from_nanos(by)),
            Op::Start(count, limit) => {
                let mut future: Fut<'_> = match limit {
                    None => Box::pin(async move { own.acquire_many(nz(count)).await.is_ok() }),
                    Some(limit) => Box::pin(async move {
                        own.acquire_many_timeout(nz(count), Duration::from_nanos(limit)).await.is_ok()
                    }),
                };
                if poll_once(future.as_mut()).is_pending() {
                    futures.push(future);
                }
            }
            Op::Poll(index) if !futures.is_empty() => {
                let index = index % futures.len();
                if poll_once(futures[index].as_mut()).is_ready() {
                    drop(futures.remove(index));
                }
            }
            Op::Drop(index) if !futures.is_empty() => {
                let index = index % futures.len();
                drop(futures.remove(index));
            }
            Op::Reserve(count) => reserved.extend(bucket.reserve_many(nz(count))),
            Op::Cancel(index) if !reserved.is_empty() => {
                let index = index % reserved.len();
                bucket.cancel(reserved.remove(index));
            }
            Op::Try(count) => _ = bucket.try_acquire_many(nz(count)),
            Op::Quota(tokens, period, burst) => bucket.set_quota(quota(tokens, period, burst)),
            _ => {}
        }
        bucket.check().unwrap();
    }
    end(&bucket, &clock, futures)
}

fn quota(tokens: u32, period: u64, burst: u32) -> Quota {
    Quota::new(nz(tokens), Duration::from_nanos(period)).unwrap().allow_burst(nz(burst))
}

#[test]
fn only_a_request_that_is_late_without_waiters_is_refused() {
    let cases = if thorough() { 500_000 } else { 20_000 };
    let (mut refused, mut waited) = (0, 0);
    for seed in 0..cases {
        let mut rng = SplitMix64::new(seed);
        let own = quota(1 + rng.below(3) as u32, 1 + rng.below(9), 1 + rng.below(4) as u32);
        let quotas = seed % 2 == 0;
        let script: Vec<Op> = (0..rng.below(14)).map(|_| op(&mut rng, quotas)).collect();
        let (count, limit) = (nz(1 + rng.below(4) as u32), 1 + rng.below(40));
        // As it is.
        let (outcome, now) = replay(own, &script, |bucket, clock, futures| {
            let mut future = Box::pin(bucket.acquire_many_timeout(count, Duration::from_nanos(limit)));
            let outcome = match poll_once(future.as_mut()) {
                Poll::Pending => None,
                Poll::Ready(result) => Some(result),
            };
            drop(future);
            drop(futures);
            (outcome, clock.now())
        });
        // All waiters leave, the last one first, so that none is granted tokens meanwhile.
        let due = replay(own, &script, |bucket, clock, mut futures| {
            while let Some(future) = futures.pop() {
                drop(future);
            }
            match bucket.try_acquire_many(count) {
                Ok(()) => Some(clock.now()),
                Err(TryAcquireError::NotYet(error)) => Some(clock.now() + error.retry_after()),
                Err(_) => None,
            }
        });
        let until = now + Duration::from_nanos(limit);
        match (outcome, due) {
            (Some(Err(TryAcquireError::NotYet(_))), Some(due)) => {
                refused += 1;
                assert!(
                    due > until,
                    "seed {seed}: refused, due {due:?}, until {until:?}\n{own:?} {script:?} {count} {limit}"
                );
            }
            (None, Some(_)) => waited += 1,
            (Some(Err(TryAcquireError::InsufficientCapacity(_))), due) => assert_eq!(due, None),
            (Some(Ok(())), due) => assert_eq!(due, Some(now), "seed {seed}"),
            other => panic!("seed {seed}: {other:?}"),
        }
    }
    assert!(refused > cases / 100 && waited > cases / 10, "{refused} refused, {waited} waited");
}
