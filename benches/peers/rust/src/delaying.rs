//! Queues with deadlines.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;

use flyball_workqueue::{Fifo, NoLimiter, Queue, ThreadTimer};
use foldhash::fast::RandomState;
use tokio::time::Instant;
use tokio_util::time::{DelayQueue, delay_queue};

use crate::keys::Key;

/// A queue in which keys wait for their deadlines. If a key gets several deadlines, the earliest counts. Methods take `&mut self` because
/// `DelayQueue` has one owner.
pub(crate) trait Delaying {
    fn new() -> Self;
    fn add_after(&mut self, key: Key, delay: Duration);
    fn waiting(&self) -> usize;
}

/// flyball's queue. Unlike `DelayQueue`, it locks a mutex in each call, because several handles can share the queue.
pub(crate) struct Ours(pub(crate) Queue<Key, Fifo, NoLimiter, ThreadTimer>);

impl Delaying for Ours {
    fn new() -> Self {
        Self(Queue::new())
    }

    fn add_after(&mut self, key: Key, delay: Duration) {
        self.0.add_after(key, delay).expect("open");
    }

    fn waiting(&self) -> usize {
        self.0.stats().waiting
    }
}

/// tokio-util's `DelayQueue`, with a map from a key to its place in the queue. It uses the same hasher as flyball.
pub(crate) struct ByKey {
    pub(crate) delays: DelayQueue<Key>,
    pub(crate) places: HashMap<Key, delay_queue::Key, RandomState>,
}

impl ByKey {
    pub(crate) fn add_at(&mut self, key: Key, at: Instant) {
        match self.places.entry(key) {
            Entry::Occupied(place) => {
                if at < self.delays.deadline(place.get()) {
                    self.delays.reset_at(place.get(), at);
                }
            }
            Entry::Vacant(place) => {
                let key = place.key().clone();
                place.insert(self.delays.insert_at(key, at));
            }
        }
    }
}

impl Delaying for ByKey {
    fn new() -> Self {
        Self { delays: DelayQueue::new(), places: HashMap::default() }
    }

    fn add_after(&mut self, key: Key, delay: Duration) {
        self.add_at(key, Instant::now() + delay);
    }

    fn waiting(&self) -> usize {
        self.places.len()
    }
}
