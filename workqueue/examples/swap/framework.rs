//! A framework that brings its own idea of a queue, in client-go's shape; ours fits without a wrapper.

use std::time::Duration;

use flyball_ratelimit::Exponential;
use flyball_workqueue::{Fifo, Lease, Queue, WithClock};

/// The framework's trait: it knows keys and nothing else.
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

/// Ours behind it. What client-go does not say (a refused add, a `done` of what is not leased) is dropped here.
impl WorkQueue for Queue<u32, Fifo, Exponential<u32>, WithClock> {
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

/// The framework: it runs a key until it has worked, and gives it a second look later.
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
    assert_eq!(runs, [0, 1, 2, 0], "two failures, a success, a second look");
}
