//! PURE. The timeouts of waiting tasks, and the wakers to wake when the timeouts expire.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::task::Waker;

use flyball_sync::Nanos;
use flyball_sync::waiting::WakeBatch;

/// Wakers, ordered by the times of their timeouts. A waker is woken only once its time has passed.
///
/// # Invariants
/// 1. A waker whose time is at or before `passed` is due; [`wake_passed`](Self::wake_passed) removes the wakers that are due.
#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    waiting: BTreeMap<Timeout, Waker>,
    passed: Nanos,
    turn: u64,
}

/// The key under which a task's timeout is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timeout {
    at: Nanos,
    /// A unique number, which distinguishes timeouts that expire at the same time.
    turn: u64,
}

impl Timeouts {
    /// Inserts a waker to be woken at `at`, which is later than `now`.
    pub(crate) fn insert(&mut self, at: Nanos, now: Nanos, waker: Waker) -> Timeout {
        // `passed` is ahead of the clock if the alarm fired early or the clock jumped back. In these cases `passed` is set back to `now`. Otherwise
        // the task would be woken immediately, wait again and be woken again, over and over.
        if at <= self.passed {
            self.passed = now;
        }
        self.turn += 1;
        let place = Timeout { at, turn: self.turn };
        self.waiting.insert(place, waker);
        place
    }

    /// Removes the timeout of a task that no longer waits. The caller must drop the waker outside the lock.
    pub(crate) fn remove(&mut self, place: Timeout) -> Option<Waker> {
        self.waiting.remove(&place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the time of the earliest timeout that has not passed.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let passed = Timeout { at: self.passed, turn: u64::MAX };
        self.waiting.range((Excluded(passed), Unbounded)).next().map(|(place, _)| place.at)
    }

    /// Advances `passed` to `now`, if `now` is later.
    pub(crate) fn pass(&mut self, now: Nanos) {
        self.passed = self.passed.max(now);
    }

    /// Moves the wakers whose time has passed into the batch. Returns whether some wakers did not fit.
    pub(crate) fn wake_passed(&mut self, batch: &mut WakeBatch) -> bool {
        while let Some(first) = self.waiting.first_entry().filter(|first| first.key().at <= self.passed) {
            if batch.is_full() {
                return true;
            }
            batch.push(first.remove());
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn woken(timeouts: &mut Timeouts) -> usize {
        let before = timeouts.waiting.len();
        loop {
            let mut batch = WakeBatch::default();
            let more = timeouts.wake_passed(&mut batch);
            let _ = batch.wake();
            if !more {
                return before - timeouts.waiting.len();
            }
        }
    }

    #[test]
    fn wakes_exactly_the_getters_with_an_expired_timeout() {
        let mut timeouts = Timeouts::default();
        let at = Nanos::new;
        let places: Vec<_> =
            (0..100).map(|task| timeouts.insert(at(1 + task / 10), at(0), Waker::noop().clone())).collect();
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (Some(at(1)), 0));
        timeouts.pass(at(3));
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (Some(at(4)), 30));
        assert!(timeouts.remove(places[0]).is_none(), "it was woken");
        assert!(timeouts.remove(places[99]).is_some());
        timeouts.pass(Nanos::MAX);
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (None, 69));
        assert!(timeouts.is_empty());
    }

    #[test]
    fn one_that_comes_back_before_its_time_waits() {
        let mut timeouts = Timeouts::default();
        let at = Nanos::new;
        timeouts.insert(at(9), at(0), Waker::noop().clone());
        timeouts.pass(at(9));
        assert_eq!(woken(&mut timeouts), 1);
        timeouts.insert(at(9), at(8), Waker::noop().clone());
        assert_eq!((timeouts.next(), woken(&mut timeouts)), (Some(at(9)), 0));
    }
}
