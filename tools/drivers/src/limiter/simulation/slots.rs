//! The oracle of a limit on concurrency: the waiters, those of them that were given a slot, and the number of permits, as plain lists.

use std::time::Duration;

use flyball_sync::Nanos;

/// How long a slot is reserved for a waiter that was woken for it.
const RESERVATION: Duration = Duration::from_millis(100);

/// The waiters are identified by numbers.
#[derive(Debug, Default)]
pub(super) struct Slots {
    /// The waiters that have lost a slot, which come first, and the others.
    late: Vec<u64>,
    waiting: Vec<u64>,
    /// The waiters that were given a slot and not polled since, with the time of the wake-up.
    given: Vec<(u64, Nanos)>,
    held: usize,
    /// The latest time so far.
    seen: Nanos,
    /// The waiters that must have been woken, once for each occurrence.
    pub(super) woken: Vec<u64>,
}

impl Slots {
    pub(super) fn in_flight(&self) -> usize {
        self.held + self.given.len()
    }

    pub(super) fn waiting(&self) -> usize {
        self.late.len() + self.waiting.len()
    }

    /// Takes back the slots of waiters that were not polled in time, and gives free slots to the waiters in order.
    fn grant(&mut self, limit: usize, now: Nanos) {
        self.seen = self.seen.max(now);
        let seen = self.seen;
        self.given.retain(|(_, since)| seen.since(*since) < RESERVATION);
        while self.waiting() > 0 && self.in_flight() < limit {
            let first = if self.late.is_empty() { self.waiting.remove(0) } else { self.late.remove(0) };
            self.given.push((first, seen));
            self.woken.push(first);
        }
    }

    /// Returns whether there is a permit.
    pub(super) fn try_acquire(&mut self, limit: usize, now: Nanos) -> bool {
        self.grant(limit, now);
        let free = self.in_flight() < limit;
        self.held += usize::from(free);
        free
    }

    /// Returns whether the waiter has a permit now.
    pub(super) fn poll(&mut self, id: u64, limit: usize, now: Nanos) -> bool {
        if self.take_given(id) {
            self.held += 1;
            self.grant(limit, now);
            return true;
        }
        self.grant(limit, now);
        if self.take_given(id) {
            self.held += 1;
            return true;
        }
        if self.waiting.contains(&id) || self.late.contains(&id) {
            return false;
        }
        if self.in_flight() < limit {
            self.held += 1;
            return true;
        }
        // A waiter that was woken and has no slot has lost it.
        let line = if self.woken.contains(&id) { &mut self.late } else { &mut self.waiting };
        line.push(id);
        false
    }

    pub(super) fn leave(&mut self, id: u64, limit: usize, now: Nanos) {
        for line in [&mut self.late, &mut self.waiting] {
            line.retain(|waiting| *waiting != id);
        }
        self.take_given(id);
        self.grant(limit, now);
    }

    pub(super) fn end(&mut self, limit: usize, now: Nanos) {
        self.held -= 1;
        self.grant(limit, now);
    }

    fn take_given(&mut self, id: u64) -> bool {
        let before = self.given.len();
        self.given.retain(|(given, _)| *given != id);
        self.given.len() < before
    }
}
