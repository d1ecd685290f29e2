//! A future with its own waker, and helpers that show the contents of a queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Poll, Waker};

use flyball_ratelimit::{Exponential, Policy};
use flyball_sync::ManualClock;
use flyball_workqueue::{Fifo, Key, KeyState, Lease, Leftovers, Queue, QueueLimiter, Timer};
use testkit::wakers::{Counting, poll_with};

use crate::support::{BackoffQueue, ns};

/// A future that is polled by hand and counts its wake-ups.
pub(crate) struct Task<'a, T> {
    future: Pin<Box<dyn Future<Output = T> + 'a>>,
    counting: Arc<Counting>,
    waker: Waker,
    /// How often the task had been woken at its last poll; `None` before the first poll.
    polled: Option<usize>,
}

impl<'a, T> Task<'a, T> {
    pub(crate) fn new(future: impl Future<Output = T> + 'a) -> Self {
        let (counting, waker) = Counting::waker();
        Self { future: Box::pin(future), counting, waker, polled: None }
    }

    /// Creates a task and polls it once; the future must be pending.
    pub(crate) fn waiting(future: impl Future<Output = T> + 'a) -> Self {
        let mut task = Self::new(future);
        assert!(task.poll().is_pending(), "the future completed at its first poll");
        task
    }

    pub(crate) fn poll(&mut self) -> Poll<T> {
        self.polled = Some(self.wakes());
        poll_with(self.future.as_mut(), &self.waker)
    }

    pub(crate) fn is_ready(&mut self) -> bool {
        self.poll().is_ready()
    }

    /// Polls the future, which must complete, and returns its output.
    pub(crate) fn finish(&mut self) -> T {
        match self.poll() {
            Poll::Ready(output) => output,
            Poll::Pending => panic!("the future is pending"),
        }
    }

    pub(crate) fn wakes(&self) -> usize {
        self.counting.wakes()
    }

    /// Returns whether the future has been polled. The tests drop a task that has completed, so a task that has been polled is pending.
    pub(crate) fn is_parked(&self) -> bool {
        self.polled.is_some()
    }

    /// Returns whether the task was woken since its last poll.
    pub(crate) fn was_woken(&self) -> bool {
        self.polled.is_some_and(|wakes| wakes < self.wakes())
    }

    /// Leaks the future: it is neither polled again nor dropped.
    pub(crate) fn leak(self) {
        std::mem::forget(self.future);
    }
}

/// Returns the deadline of a key that waits, leased or not.
pub(crate) fn deadline<L, T>(queue: &Queue<&'static str, Fifo, L, T>, key: &'static str) -> u64
where
    L: Policy<&'static str> + Send + 'static,
    T: Timer,
{
    match queue.state(&key) {
        KeyState::Waiting(at) | KeyState::LeasedWaiting(at) => at.get(),
        state => panic!("{key} is {state:?}"),
    }
}

/// Returns the ready, waiting and leased keys of the leftovers; sorts the leased keys.
pub(crate) fn lists<K: Ord>(left: Leftovers<K>) -> (Vec<K>, Vec<K>, Vec<K>) {
    let Leftovers { ready, waiting, mut leased, .. } = left;
    leased.sort();
    (ready, waiting, leased)
}

/// Serves all Ready keys. Returns their number.
pub(crate) fn serve<K: Key, L, T>(queue: &Queue<K, Fifo, L, T>) -> usize
where
    L: QueueLimiter<K>,
    T: Timer,
{
    let leases: Vec<_> = std::iter::from_fn(|| queue.try_get().ok()).collect();
    let served = leases.len();
    leases.into_iter().for_each(Lease::done);
    served
}

pub(crate) fn keys<K: Clone>(leases: &[Lease<K>]) -> Vec<K> {
    leases.iter().map(|lease| lease.key().clone()).collect()
}

/// Returns a queue with a strict backoff of 100 ns, 200 ns, … 1 µs, and its clock.
pub(crate) fn strict() -> (BackoffQueue, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(100)..=ns(1_000));
    (Queue::builder().timer(clock.timer()).limiter(limiter).strict_backoff().seed(1).build(), clock)
}
