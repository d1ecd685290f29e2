//! Many tasks wait for one token each. Counts the polls, and how often a waiter gets its token immediately before a waiter that arrived earlier.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::num::NonZeroU32;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use flyball_ratelimit::{Quota, RateLimiter};
use flyball_sync::TokioTimer;
use governor::{Quota as Allowed, RateLimiter as Governor};
use tokio::runtime::{Builder, Runtime};
use tokio::task::LocalSet;

use crate::Figures;
use crate::options::{Options, Party};

const RATE: NonZeroU32 = NonZeroU32::new(50).unwrap();

/// `keys` is the number of waiters. The run uses real time, because governor's waits support no other.
pub(crate) fn waiters(options: &Options, party: Party) -> Figures {
    let one = NonZeroU32::MIN;
    let runtime = Builder::new_current_thread().enable_time().build().expect("a runtime");
    match party {
        Party::Governor => {
            let bucket = Rc::new(Governor::direct(Allowed::per_second(RATE).allow_burst(one)));
            counted(&runtime, options.keys, || {
                let bucket = bucket.clone();
                async move { bucket.until_ready().await }
            })
        }
        Party::LeakyBucket => {
            let period = Duration::from_secs(1) / RATE.get();
            let bucket =
                leaky_bucket::RateLimiter::builder().max(1).initial(1).interval(period).refill(1).build();
            let bucket = Rc::new(bucket);
            counted(&runtime, options.keys, || {
                let bucket = bucket.clone();
                async move { bucket.acquire_one().await }
            })
        }
        _ => {
            let _inside = runtime.enter();
            let quota = Quota::per_second(RATE).allow_burst(one);
            let bucket = RateLimiter::with_timer(quota, TokioTimer::current());
            counted(&runtime, options.keys, || {
                let bucket = bucket.clone();
                async move { bucket.acquire().await }
            })
        }
    }
}

fn counted<F: Future + 'static>(runtime: &Runtime, waiters: usize, wait: impl Fn() -> F) -> Figures {
    let (polls, order) = (Rc::new(Cell::new(0_usize)), Rc::new(RefCell::new(Vec::new())));
    let local = LocalSet::new();
    let all: Vec<_> = (0..waiters)
        .map(|waiter| {
            let (wait, polls, order) = (wait(), polls.clone(), order.clone());
            local.spawn_local(async move {
                let mut wait = pin!(wait);
                poll_fn(|context| {
                    polls.set(polls.get() + 1);
                    wait.as_mut().poll(context)
                })
                .await;
                order.borrow_mut().push(waiter);
            })
        })
        .collect();
    local.block_on(runtime, async {
        for one in all {
            one.await.expect("a waiter");
        }
    });
    let overtaken = order.borrow().windows(2).filter(|pair| pair[0] > pair[1]).count();
    [("polls", polls.get() as f64), ("overtaken", overtaken as f64)].into()
}
