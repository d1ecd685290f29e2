//! A naive port of client-go's queue: one mutex, a deque, two sets and a condvar.
//!
//! `queue.rs` compares flyball's queue with this port. Its sets use std's default hasher.

#![allow(clippy::disallowed_types, reason = "the naive port uses std's locks")]

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use flyball_workqueue::{AddKeys, BlockingGetKeys, EndKeys};

/// A deduplicating queue with client-go's three containers: queue, dirty and processing.
#[derive(Debug)]
pub struct NaivePort<K> {
    state: Mutex<State<K>>,
    available: Condvar,
}

#[derive(Debug)]
struct State<K> {
    queue: VecDeque<K>,
    dirty: HashSet<K>,
    processing: HashSet<K>,
    shutting_down: bool,
}

impl<K> Default for NaivePort<K> {
    fn default() -> Self {
        let (dirty, processing) = (HashSet::new(), HashSet::new());
        let state = State { queue: VecDeque::new(), dirty, processing, shutting_down: false };
        Self { state: Mutex::new(state), available: Condvar::new() }
    }
}

impl<K: Clone + Eq + Hash> NaivePort<K> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `Add`.
    pub fn add(&self, key: K) {
        let mut state = self.lock();
        if state.shutting_down || !state.dirty.insert(key.clone()) || state.processing.contains(&key) {
            return;
        }
        state.queue.push_back(key);
        drop(state);
        self.available.notify_one();
    }

    /// `Get`: waits for a key. Returns `None` once the queue is shut down and empty.
    pub fn get(&self) -> Option<K> {
        let mut state = self.lock();
        while state.queue.is_empty() && !state.shutting_down {
            state = self.available.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let key = state.queue.pop_front()?;
        state.processing.insert(key.clone());
        state.dirty.remove(&key);
        Some(key)
    }

    /// `Done`.
    pub fn done(&self, key: &K) {
        let mut state = self.lock();
        state.processing.remove(key);
        if state.dirty.contains(key) {
            state.queue.push_back(key.clone());
            drop(state);
            self.available.notify_one();
        }
    }

    /// `ShutDown`.
    pub fn shut_down(&self) {
        self.lock().shutting_down = true;
        self.available.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<K>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === implements the traits that make queues interchangeable; it supports neither delays nor failures ===

impl<K: Clone + Eq + Hash> AddKeys<K> for NaivePort<K> {
    fn add(&self, key: K) -> Result<(), K> {
        self.add(key);
        Ok(())
    }
}

impl<K: Clone + Eq + Hash> EndKeys for NaivePort<K> {
    type Key = K;
    type Leased = K;

    fn key<'a>(&self, leased: &'a K) -> &'a K {
        leased
    }

    fn succeed(&self, leased: K) {
        self.done(&leased);
    }

    fn retry(&self, leased: K) {
        self.add(leased.clone());
        self.done(&leased);
    }
}

impl<K: Clone + Eq + Hash> BlockingGetKeys for NaivePort<K> {
    fn blocking_get(&self) -> Option<K> {
        self.get()
    }
}

#[cfg(test)]
mod tests {
    use flyball_workqueue::Queue;

    use super::*;

    /// Adds keys to a queue of any type and processes them with one worker. Each key fails once. Returns the keys in
    /// the order in which they were processed.
    fn work<Q: BlockingGetKeys<Key = u32> + AddKeys<u32>>(queue: &Q, shut_down: impl Fn()) -> Vec<u32> {
        for key in [1, 2, 1] {
            queue.add(key).expect("open");
        }
        let mut runs = Vec::new();
        while let Some(leased) = queue.blocking_get() {
            let key = *queue.key(&leased);
            let again = runs.contains(&key);
            runs.push(key);
            if again {
                queue.succeed(leased)
            } else {
                queue.retry(leased)
            }
            if runs.len() == 4 {
                shut_down();
            }
        }
        runs
    }

    #[test]
    fn naive_port_runs_like_queue() {
        let (theirs, ours) = (NaivePort::new(), Queue::new());
        let runs = work(&theirs, || theirs.shut_down());
        assert_eq!(runs, [1, 2, 1, 2]);
        assert_eq!(runs, work(&ours, || ours.shut_down()));
    }

    #[test]
    fn naive_port_matches_client_go() {
        let queue = NaivePort::new();
        queue.add(1);
        queue.add(2);
        queue.add(1);
        assert_eq!(queue.get(), Some(1));
        queue.add(1);
        assert_eq!(queue.get(), Some(2));
        queue.done(&1);
        queue.shut_down();
        queue.add(3);
        assert_eq!((queue.get(), queue.get()), (Some(1), None));
    }
}
