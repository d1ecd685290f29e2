//! A port of client-go's queue, as an example of a queue from another library. It hands out keys without leases, and workers must call `done` with
//! each key.

#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "a port uses what std has")]

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::traits::{BlockingGet, KeyQueue};

/// A rate-limiting queue. The backoff of a failing key is 1 ms, 2 ms, 4 ms, …
#[derive(Default)]
pub(crate) struct RateLimiting {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    queue: VecDeque<u32>,
    dirty: HashSet<u32>,
    processing: HashSet<u32>,
    waiting: BTreeSet<(Instant, u32)>,
    failures: HashMap<u32, u32>,
    shutting_down: bool,
}

impl State {
    fn add(&mut self, key: u32) {
        if !self.shutting_down && self.dirty.insert(key) && !self.processing.contains(&key) {
            self.queue.push_back(key);
        }
    }
}

// === client-go's methods ===

impl RateLimiting {
    pub(crate) fn add(&self, key: u32) {
        self.lock().add(key);
        self.changed.notify_one();
    }

    pub(crate) fn add_after(&self, key: u32, delay: Duration) {
        self.lock().waiting.insert((Instant::now() + delay, key));
        self.changed.notify_one();
    }

    pub(crate) fn add_rate_limited(&self, key: u32) {
        let mut state = self.lock();
        let failures = state.failures.entry(key).or_insert(0);
        *failures += 1;
        let delay = Duration::from_millis(1 << (*failures - 1).min(10));
        drop(state);
        self.add_after(key, delay);
    }

    pub(crate) fn get(&self) -> Option<u32> {
        let mut state = self.lock();
        loop {
            let now = Instant::now();
            while let Some((_, key)) = state.waiting.first().copied().filter(|(at, _)| *at <= now) {
                state.waiting.pop_first();
                state.add(key);
            }
            if let Some(key) = state.queue.pop_front() {
                state.processing.insert(key);
                state.dirty.remove(&key);
                return Some(key);
            }
            if state.shutting_down {
                return None;
            }
            let longest = state.waiting.first().map_or(Duration::from_secs(60), |(at, _)| *at - now);
            state = self.changed.wait_timeout(state, longest).expect("no holder of the lock panics").0;
        }
    }

    pub(crate) fn done(&self, key: u32) {
        let mut state = self.lock();
        state.processing.remove(&key);
        if state.dirty.contains(&key) {
            state.queue.push_back(key);
            self.changed.notify_one();
        }
    }

    pub(crate) fn forget(&self, key: u32) {
        self.lock().failures.remove(&key);
    }

    pub(crate) fn shut_down(&self) {
        self.lock().shutting_down = true;
        self.changed.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

// === behind the traits: a few lines each ===

impl KeyQueue for RateLimiting {
    type Leased = u32;

    fn add(&self, key: u32) {
        self.add(key);
    }

    fn add_after(&self, key: u32, delay: Duration) {
        self.add_after(key, delay);
    }

    fn key(&self, leased: &u32) -> u32 {
        *leased
    }

    fn succeed(&self, key: u32) {
        self.forget(key);
        self.done(key);
    }

    fn retry(&self, key: u32) {
        self.add_rate_limited(key);
        self.done(key);
    }
}

impl BlockingGet for RateLimiting {
    fn blocking_get(&self) -> Option<u32> {
        self.get()
    }
}
