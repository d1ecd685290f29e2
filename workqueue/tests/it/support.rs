//! Small helpers: a queue on virtual time.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::{Exponential, Failure, Policy};
use flyball_sync::{ManualClock, ManualTimer, Nanos};
use flyball_workqueue::{Fifo, NoLimiter, Queue};

pub(crate) type TimedQueue<K = &'static str> = Queue<K, Fifo, NoLimiter, ManualTimer>;
pub(crate) type BackoffQueue<K = &'static str> = Queue<K, Fifo, Exponential<K>, ManualTimer>;

/// Returns a queue with delays, and its clock.
pub(crate) fn timed() -> (TimedQueue, ManualClock) {
    let clock = ManualClock::new();
    (Queue::builder().timer(clock.timer()).seed(1).build(), clock)
}

/// Returns a queue with delays and a backoff of 10 ns, 20 ns, … 1 s, and its clock.
pub(crate) fn backoff() -> (BackoffQueue, ManualClock) {
    let clock = ManualClock::new();
    let limiter = Exponential::new(ns(10)..=Duration::from_secs(1));
    (Queue::builder().timer(clock.timer()).limiter(limiter).seed(1).build(), clock)
}

pub(crate) fn ns(nanos: u64) -> Duration {
    Duration::from_nanos(nanos)
}

/// Converts a number of failures, at least 1, to the type of the argument of `give_up_after`.
pub(crate) fn times(failures: u32) -> NonZeroU32 {
    NonZeroU32::new(failures).unwrap()
}

/// Returns whether the queue holds no key in any state.
pub(crate) fn holds_nothing(stats: &flyball_workqueue::QueueStats) -> bool {
    (stats.ready, stats.waiting, stats.leased, stats.dirty, stats.leased_waiting) == (0, 0, 0, 0, 0)
}

/// A policy that answers every failure with the result of a function, and counts no failures.
pub(crate) struct Answers(pub(crate) fn(&'static str) -> Failure);

impl Policy<&'static str> for Answers {
    fn record_failure(
        &mut self,
        key: &&'static str,
        _: Nanos,
        _: u64,
        _: &mut dyn FnMut(&&'static str) -> bool,
    ) -> Failure {
        (self.0)(key)
    }
    fn forget(&mut self, _: &&'static str) {}
    fn num_requeues(&self, _: &&'static str) -> u32 {
        0
    }
    fn tracked_keys(&self) -> usize {
        0
    }
}
