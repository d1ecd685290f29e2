//! A framework with its own queue trait, modelled on client-go's interface. `Queue` implements it without a wrapper.

use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{Fifo, Lease, Queue, ThreadTimer};

/// The trait of the framework. It passes only keys.
pub(crate) trait WorkQueue {
    fn add(&self, key: u32);
    fn add_after(&self, key: u32, delay: Duration);
    fn add_rate_limited(&self, key: u32);
    fn get(&self) -> Option<u32>;
    fn done(&self, key: u32);
    fn forget(&self, key: u32);
    fn num_requeues(&self, key: u32) -> u32;
    fn shut_down(&self);
}

/// Implements the trait for `Queue`. Results that client-go does not return (a refused add, a `done` of a key that is not leased) are
/// dropped.
impl WorkQueue for Queue<u32, Fifo, Exponential<u32>, ThreadTimer> {
    fn add(&self, key: u32) {
        let _ = Self::add(self, key);
    }

    fn add_after(&self, key: u32, delay: Duration) {
        let _ = Self::add_after(self, key, delay);
    }

    fn add_rate_limited(&self, key: u32) {
        let _ = Self::add_rate_limited(self, key);
    }

    fn get(&self) -> Option<u32> {
        self.blocking_get().map(Lease::detach)
    }

    fn done(&self, key: u32) {
        let _ = Self::done(self, &key);
    }

    fn forget(&self, key: u32) {
        Self::forget(self, &key);
    }

    fn num_requeues(&self, key: u32) -> u32 {
        self.num_requeues(&key)
    }

    fn shut_down(&self) {
        Self::shut_down(self);
    }
}

/// Runs the framework's worker. It retries a key until a run succeeds, then runs the key once more after a delay.
pub(crate) fn run(queue: &dyn WorkQueue) {
    let mut runs = Vec::new();
    queue.add(7);
    while let Some(key) = queue.get() {
        runs.push(queue.num_requeues(key));
        match runs.len() {
            1 | 2 => queue.add_rate_limited(key),
            3 => {
                queue.forget(key);
                queue.add_after(key, Duration::from_millis(1));
            }
            _ => queue.shut_down(),
        }
        queue.done(key);
    }
    assert_eq!(runs, [0, 1, 2, 0], "not two failures, a success and a delayed run");
}
