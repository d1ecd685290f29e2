//! A future with a waker of its own, and helpers to see what a queue holds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flyball_ratelimit::{Exponential, Policy};
use flyball_sync::ManualClock;
use flyball_workqueue::{
    Fifo, Key, KeyState, Lease, Leftovers, Queue, QueueLimiter, SupportsDelays, TimeMode,
};
use testkit::wakers::{Counting, poll_with};

use crate::support::{BackoffQueue, ns};

/// A future that is polled by hand, and knows how often it was woken.
pub(crate) struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    counting: Arc<Counting>,
    waker: Waker,
    /// Wake-ups at the last poll, if there was one.
    polled: Option<usize>,
}

impl<'a, T> Task<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'a) -> Self {
        let (counting, waker) = Counting::waker();
        Self { future: Box::pin(future), counting, waker, polled: None }
    }

    /// One that has found nothing yet.
    pub(crate) fn waiting(future: impl Future<Output = T> + 'a) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_pending(), "it had nothing to wait for");
        task
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        self.polled = Some(self.wakes());
        poll_with(self.future.as_mut(), &self.waker)
    }

    pub(crate) fn is_ready(&mut self) -> bool {
        self.poll().is_ready()
    }

    /// What it comes to, now.
    pub(crate) fn finish(&mut self) -> T {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("it is not ready"),
        }
    }

    pub(crate) fn wakes(&self) -> usize {
        self.counting.wakes()
    }

    /// Was polled, and found nothing.
    pub(crate) fn waits(&self) -> bool {
        self.polled.is_some()
    }

    /// Was woken since its last poll.
    pub(crate) fn knows(&self) -> bool {
        self.polled.is_some_and(|wakes| wakes < self.wakes())
    }

    /// Never polled again, and never dropped.
    pub(crate) fn forget(self) {
        std::mem::forget(self.future);
    }
}

/// The deadline of a key that waits, leased or not.
pub(crate) fn deadline<L, T>(queue: &Queue<&'static str, Fifo, L, T>, key: &'static str) -> u64
where
    L: Policy<&'static str> + Send + 'static,
    T: SupportsDelays,
{
    match queue.state(&key) {
        KeyState::Waiting(at) | KeyState::LeasedWaiting(at) => at.get(),
        state => panic!("{key} is {state:?}"),
    }
}

/// The lists of a report, leased keys sorted.
pub(crate) fn lists<K: Ord>(left: Leftovers<K>) -> (Vec<K>, Vec<K>, Vec<K>) {
    let Leftovers { ready, waiting, mut leased, .. } = left;
    leased.sort();
    (ready, waiting, leased)
}

/// Serves everything that is Ready; says how many keys that were.
pub(crate) fn serve<K: Key, L, T>(queue: &Queue<K, Fifo, L, T>) -> usize
where
    L: QueueLimiter<K>,
    T: TimeMode,
{
    let leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    let served = leases.len();
    leases.into_iter().for_each(Lease::done);
    served
}

pub(crate) fn keys<K: Clone, T>(leases: &[Lease<K, T>]) -> Vec<K> {
    leases.iter().map(|lease| lease.key().clone()).collect()
}

/// With a backoff of 100 ns, 200 ns, … 1 µs that no add shortens, and the clock it lives by.
pub(crate) fn strict() -> (BackoffQueue, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(100)..=ns(1_000));
    (Queue::builder().timer(clock.timer()).limiter(limiter).strict_backoff().seed(1).build(), clock)
}
