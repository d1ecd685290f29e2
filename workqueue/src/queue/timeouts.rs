//! PURE. Tasks that wait no longer than until some time, with the wakers to wake them then.

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Unbounded};
use std::task::Waker;

use flyball_sync::Nanos;
use flyball_sync::waiting::WakeBatch;

/// Wakers by the time at which their tasks give up: those whose time has come are woken, and no others.
///
/// # Invariants
/// 1. A waker whose time is `passed` or before is to be woken; [`wake_passed`](Self::wake_passed) takes it out.
#[derive(Debug, Default)]
pub(crate) struct Timeouts {
    waiting: BTreeMap<Timeout, Waker>,
    passed: Nanos,
    turn: u64,
}

/// The place of a task among those that wait for a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Timeout {
    at: Nanos,
    /// Sets tasks that give up at the same time apart.
    turn: u64,
}

impl Timeouts {
    /// To be woken at `at`, which lies after `now`.
    pub(crate) fn insert(&mut self, at: Nanos, now: Nanos, waker: Waker) -> Timeout {
        // The alarm rang early, or the clock jumped back. The task would be woken at once, and come back at once, again and again.
        if at <= self.passed {
            self.passed = now;
        }
        self.turn += 1;
        let place = Timeout { at, turn: self.turn };
        self.waiting.insert(place, waker);
        place
    }

    /// The task does not wait any more. Its waker is for the caller to drop, outside the lock.
    pub(crate) fn remove(&mut self, place: Timeout) -> Option<Waker> {
        self.waiting.remove(&place)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The earliest time that has not passed.
    pub(crate) fn next(&self) -> Option<Nanos> {
        let passed = Timeout { at: self.passed, turn: u64::MAX };
        self.waiting.range((Excluded(passed), Unbounded)).next().map(|(place, _)| place.at)
    }

    /// So late it is.
    pub(crate) fn pass(&mut self, now: Nanos) {
        self.passed = self.passed.max(now);
    }

    /// Moves wakers whose time has passed to the batch; says whether there are more than it has room for.
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
    fn wakes_those_whose_time_has_passed_and_no_others() {
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
