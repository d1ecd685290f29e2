//! What the event handler and the workers of this program need from a queue. A program that must run with several queues defines such traits itself,
//! with the methods that it calls.

use std::future::Future;
use std::time::Duration;

use flyball_workqueue::{Fifo, Lease, Queue, QueueLimiter, Timer};

/// A queue of `u32` keys.
pub(crate) trait KeyQueue {
    /// The type that the queue hands out: a lease, or the bare key.
    type Leased;

    fn add(&self, key: u32);
    fn add_after(&self, key: u32, delay: Duration);
    fn key(&self, leased: &Self::Leased) -> u32;
    fn succeed(&self, leased: Self::Leased);
    fn retry(&self, leased: Self::Leased);
}

/// A queue that threads take keys from.
pub(crate) trait BlockingGet: KeyQueue {
    fn blocking_get(&self) -> Option<Self::Leased>;
}

/// A queue that tasks take keys from. A worker can be spawned because the future is `Send`.
pub(crate) trait AsyncGet: KeyQueue {
    fn get(&self) -> impl Future<Output = Option<Self::Leased>> + Send;
}

impl<L: QueueLimiter<u32>, T: Timer> KeyQueue for Queue<u32, Fifo, L, T> {
    type Leased = Lease<u32>;

    fn add(&self, key: u32) {
        Self::add(self, key).expect("the queue is open");
    }

    fn add_after(&self, key: u32, delay: Duration) {
        Self::add_after(self, key, delay).expect("the queue is open");
    }

    fn key(&self, leased: &Self::Leased) -> u32 {
        *leased.key()
    }

    fn succeed(&self, leased: Self::Leased) {
        leased.succeed();
    }

    fn retry(&self, leased: Self::Leased) {
        leased.retry();
    }
}

impl<L: QueueLimiter<u32>, T: Timer> BlockingGet for Queue<u32, Fifo, L, T> {
    fn blocking_get(&self) -> Option<Self::Leased> {
        Self::blocking_get(self)
    }
}

impl<L: QueueLimiter<u32>, T: Timer> AsyncGet for Queue<u32, Fifo, L, T> {
    fn get(&self) -> impl Future<Output = Option<Self::Leased>> + Send {
        Self::get(self)
    }
}
