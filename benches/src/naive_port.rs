//! A naive port of client-go's queue: one mutex, a deque, two sets and a condvar.
//!
//! `queue.rs` compares flyball's queue with this port. Its sets use std's default hasher.

#![allow(clippy::disallowed_types, reason = "the naive port uses std's locks")]

use std::collections::{HashSet, VecDeque};
use std::hash::Hash;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

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

#[cfg(test)]
mod tests {
    use flyball_workqueue::{Lease, Queue};

    use super::*;

    #[test]
    fn naive_port_runs_like_queue() {
        /// Adds keys and processes them with one worker. Each key fails once. Returns the keys in the order in which they were processed.
        fn work<H>(
            add: impl Fn(u32),
            get: impl Fn() -> Option<(u32, H)>,
            end: impl Fn(H, bool),
            shut_down: impl Fn(),
        ) -> Vec<u32> {
            [1, 2, 1].into_iter().for_each(add);
            let mut runs = Vec::new();
            while let Some((key, leased)) = get() {
                let succeeds = runs.contains(&key);
                runs.push(key);
                end(leased, succeeds);
                if runs.len() == 4 {
                    shut_down();
                }
            }
            runs
        }
        let (theirs, ours) = (NaivePort::new(), Queue::new());
        let end = |key: u32, succeeds: bool| {
            if !succeeds {
                theirs.add(key);
            }
            theirs.done(&key);
        };
        let runs =
            work(|key| theirs.add(key), || theirs.get().map(|key| (key, key)), end, || theirs.shut_down());
        assert_eq!(runs, [1, 2, 1, 2]);
        let add = |key: u32| assert!(ours.add(key).is_ok());
        let get = || ours.blocking_get().map(|lease| (*lease.key(), lease));
        let end = |lease: Lease<u32>, succeeds: bool| if succeeds { lease.succeed() } else { lease.retry() };
        assert_eq!(runs, work(add, get, end, || ours.shut_down()));
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
