//! PURE. The deadlines of the rows of a table, and the waker of the task that waits for the earliest one.
//!
//! # Invariants
//! 1. `order` has exactly the rows of `deadlines`, each with its deadline.
//! 2. No deadline is [`Nanos::MAX`]: such an object never expires.
//!
//! Both are trees, so every operation takes O(log n) steps; a hash table takes n steps when it grows.

use std::collections::{BTreeMap, BTreeSet};
use std::task::Waker;

use flyball_sync::Nanos;

#[derive(Default)]
pub(super) struct Deadlines {
    deadlines: BTreeMap<u32, Nanos>,
    /// Rows with equal deadlines are in the order of their numbers.
    order: BTreeSet<(Nanos, u32)>,
    /// The waker of the sweeper, if it waits.
    sleeper: Option<Waker>,
}

impl Deadlines {
    /// Sets the deadline of a row; `None` if its object does not expire or is deleted. Returns the waker of the sweeper if this is now the earliest
    /// deadline.
    pub(super) fn set(&mut self, row: u32, deadline: Option<Nanos>) -> Option<Waker> {
        let deadline = deadline.filter(|deadline| *deadline != Nanos::MAX);
        let before = match deadline {
            Some(deadline) => self.deadlines.insert(row, deadline),
            None => self.deadlines.remove(&row),
        };
        if let Some(before) = before {
            self.order.remove(&(before, row));
        }
        let deadline = deadline?;
        let is_first = self.first().is_none_or(|first| deadline < first);
        self.order.insert((deadline, row));
        if is_first { self.sleeper.take() } else { None }
    }

    /// Returns the number of rows that have a deadline.
    pub(super) fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns the earliest deadline.
    pub(super) fn first(&self) -> Option<Nanos> {
        self.order.first().map(|(deadline, _)| *deadline)
    }

    /// Returns the row with the earliest deadline if it has passed, and sets its deadline to `next`.
    pub(super) fn postpone_expired(&mut self, now: Nanos, next: Nanos) -> Option<u32> {
        let (_, row) = *self.order.first().filter(|(deadline, _)| *deadline <= now)?;
        let woken = self.set(row, Some(next));
        // The deadline becomes the earliest one only if it is the only one. It was not later before, so the sweeper need not be woken.
        self.sleeper = woken.or(self.sleeper.take());
        Some(row)
    }

    /// Sets the waker of the sweeper, and returns the former one, which the caller must drop after it has released the lock.
    pub(super) fn sleep(&mut self, waker: Option<Waker>) -> Option<Waker> {
        std::mem::replace(&mut self.sleeper, waker)
    }

    /// Checks the invariants, and that every row with a deadline has an object.
    pub(super) fn check(&self, has_object: impl Fn(u32) -> bool) -> Result<(), String> {
        let ordered = |(row, deadline): (&u32, &Nanos)| self.order.contains(&(*deadline, *row));
        if self.order.len() != self.deadlines.len() || !self.deadlines.iter().all(ordered) {
            return Err("deadlines invariant 1: the order differs".into());
        }
        if self.deadlines.values().any(|deadline| *deadline == Nanos::MAX) {
            return Err("deadlines invariant 2: a deadline that is never reached".into());
        }
        match self.deadlines.keys().find(|row| !has_object(**row)) {
            Some(row) => Err(format!("row {row} has a deadline, but no object")),
            None => Ok(()),
        }
    }
}
