//! PURE. The tickets of the pending entries, in ascending order: a queue that grows in small steps, and whose memory depends on the entries that there are.
//!
//! The queue consists of chunks. An entry may be removed from the middle; its ticket then stays in its chunk until most tickets of the chunk belong to
//! removed entries. So no step takes longer than a chunk.
//!
//! # Invariants
//! 1. Tickets ascend. No chunk is empty, except the first one if it is the only one.
//! 2. `gone` is the number of tickets of a chunk whose entries were removed. It is at most half of the chunk, except in the first chunk.
//! 3. The first ticket of the queue belongs to an entry.

use std::collections::VecDeque;

use super::Ticket;

/// The maximum number of tickets of a chunk.
const CHUNK: usize = 512;

/// Tickets, each with the hash of its entry's key; see the [module](self).
pub(super) struct Order {
    /// The first chunk. It is not in the list, so that a short queue needs only one allocation.
    first: Chunk,
    later: VecDeque<Chunk>,
}

struct Chunk {
    tickets: VecDeque<(Ticket, u64)>,
    gone: usize,
}

impl Chunk {
    const fn new() -> Self {
        Self { tickets: VecDeque::new(), gone: 0 }
    }
}

impl Order {
    pub(super) const fn new() -> Self {
        Self { first: Chunk::new(), later: VecDeque::new() }
    }

    /// Returns the first ticket, with the hash of its entry's key.
    #[inline]
    pub(super) fn front(&self) -> Option<(Ticket, u64)> {
        self.first.tickets.front().copied()
    }

    /// Adds a ticket, which must be greater than all others.
    #[inline]
    pub(super) fn push(&mut self, ticket: Ticket, hash: u64) {
        let last = self.later.back_mut().unwrap_or(&mut self.first);
        if last.tickets.len() < CHUNK {
            return last.tickets.push_back((ticket, hash));
        }
        let mut next = Chunk { tickets: VecDeque::with_capacity(CHUNK), gone: 0 };
        next.tickets.push_back((ticket, hash));
        self.later.push_back(next);
    }

    /// Restores the invariants after the entry with this ticket was removed. `is_there` returns whether a ticket has an entry.
    #[inline]
    pub(super) fn forget(&mut self, ticket: Ticket, is_there: impl Fn(&(Ticket, u64)) -> bool) {
        if self.front().is_none_or(|(first, _)| first != ticket) {
            return self.forget_inside(ticket, is_there);
        }
        self.pop();
        // By invariant 2, the next ticket of an entry is in this chunk or in the next one.
        while self.front().is_some_and(|first| !is_there(&first)) {
            self.first.gone -= 1;
            self.pop();
        }
    }

    fn pop(&mut self) {
        self.first.tickets.pop_front();
        if self.first.tickets.is_empty() {
            if let Some(next) = self.later.pop_front() {
                self.first = next;
            }
        }
    }

    fn forget_inside(&mut self, ticket: Ticket, is_there: impl Fn(&(Ticket, u64)) -> bool) {
        let is_before = |chunk: &Chunk| chunk.tickets.back().is_some_and(|(last, _)| *last < ticket);
        let at = if is_before(&self.first) { Some(self.later.partition_point(is_before)) } else { None };
        let chunk = match at {
            Some(at) => self.later.get_mut(at),
            None => Some(&mut self.first),
        };
        let Some(Chunk { tickets, gone }) = chunk else { return };
        *gone += 1;
        if 2 * *gone > tickets.len() {
            tickets.retain(is_there);
            *gone = 0;
            if tickets.capacity() > 4 * tickets.len().max(16) {
                tickets.shrink_to(2 * tickets.len());
            }
            if let Some(at) = at.filter(|_| tickets.is_empty()) {
                self.later.remove(at);
            }
        }
    }

    /// Checks the invariants. Returns the number of tickets whose entries exist.
    pub(super) fn check(&self, is_there: impl Fn(&(Ticket, u64)) -> bool) -> Result<usize, String> {
        let chunks = || std::iter::once(&self.first).chain(&self.later);
        let all = chunks().flat_map(|chunk| &chunk.tickets);
        if !all.clone().is_sorted_by(|a, b| a.0 < b.0) {
            return Err("order invariant 1: tickets out of order".into());
        }
        if !self.later.is_empty() && chunks().any(|chunk| chunk.tickets.is_empty()) {
            return Err("order invariant 1: an empty chunk".into());
        }
        for (at, Chunk { tickets, gone }) in chunks().enumerate() {
            let absent = tickets.iter().filter(|ticket| !is_there(ticket)).count();
            if absent != *gone || at > 0 && 2 * gone > tickets.len() {
                return Err(format!(
                    "order invariant 2: {absent} of {} entries are gone, not {gone}",
                    tickets.len()
                ));
            }
        }
        if self.front().is_some_and(|first| !is_there(&first)) {
            return Err("order invariant 3: the first ticket has no entry".into());
        }
        Ok(all.filter(|ticket| is_there(ticket)).count())
    }
}
