//! PURE. How several delayed adds of a key combine into one wait.
//!
//! A wait is *fixed* or *debounced*. A debounced wait has a limit: later adds may move its deadline up to this limit.
//!
//! | mode | no wait yet | fixed t₀ | debounced t₀, limit c₀ |
//! |---|---|---|---|
//! | earliest | t | min(t₀, t) | min(t₀, t), limit min(c₀, t) |
//! | debounce, at most until c | min(t, c), limit c | min(t, c′), limit c′ = min(t₀, c) | min(max(t₀, t), c′), limit c′ = min(c₀, c) |
//! | replace | t | t | t |
//!
//! So a key becomes Ready no later than any fixed deadline or limit that was requested for it, unless the deadline is replaced, or the key waits for
//! a strict backoff.

use std::time::Duration;

use flyball_sync::Nanos;

use super::QueueState;
use crate::state::deadlines::Deadlines;
use crate::state::order::sealed::ReadyQueue;

/// How a delayed add combines with an existing wait of the key.
///
/// If the key is Ready already, it stays Ready in every mode. To make such a key wait, use [`postpone`](crate::Queue::postpone).
///
/// # Examples
/// ```
/// use flyball_workqueue::{AddOptions, DelayMode, KeyState, ManualClock, Queue};
/// use std::time::Duration;
///
/// let seconds = Duration::from_secs;
/// let queue = Queue::builder().timer(ManualClock::new().timer()).build();
/// let waits_for = |delay| queue.state(&"a") == KeyState::Waiting(queue.now() + delay);
/// queue.add_with("a", AddOptions { delay: seconds(60), ..AddOptions::default() })?;
/// queue.add_with("a", AddOptions { delay: seconds(5), ..AddOptions::default() })?;
/// assert!(waits_for(seconds(5)));
/// queue.add_with("a", AddOptions { delay: seconds(60), mode: DelayMode::Replace, ..AddOptions::default() })?;
/// assert!(waits_for(seconds(60)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DelayMode {
    /// The earlier of the two deadlines applies.
    #[default]
    Earliest,
    /// Debounce: each further add in this mode postpones the key, but the key becomes Ready at most `max_wait` after each of these adds, and no later
    /// than an add in a different mode has requested.
    Debounce {
        /// The longest time that the key waits after this add, however many adds follow.
        max_wait: Duration,
    },
    /// The new deadline applies, whether it is earlier or later. With [strict backoff](crate::QueueBuilder::strict_backoff), a key in backoff waits for the
    /// later of the two.
    Replace,
}

/// The time at which a waiting key becomes Ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    pub(crate) at: Nanos,
    /// For a debounced wait, the latest time to which adds in debounce mode may move the deadline.
    pub(crate) limit: Option<Nanos>,
    /// Whether the wait follows a failure; with strict backoff no add shortens such a wait.
    pub(crate) backoff: bool,
}

/// The request of a delayed add, with absolute times instead of delays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DelayRequest {
    Earliest(Nanos),
    Debounce {
        at: Nanos,
        limit: Nanos,
    },
    Replace(Nanos),
    /// The backoff after a failure. Like `Earliest`, with one exception: if backoff is strict and the existing wait is not a backoff, the backoff
    /// replaces it even if the backoff ends later.
    Backoff(Nanos),
}

impl Wait {
    pub(crate) fn fixed(at: Nanos) -> Self {
        Self { at, limit: None, backoff: false }
    }

    pub(crate) fn backoff(at: Nanos) -> Self {
        Self { at, limit: None, backoff: true }
    }

    /// Combines this wait with a later request.
    pub(crate) fn after(self, request: DelayRequest, strict: bool) -> Self {
        let new = self.moved(request, strict);
        if strict && self.backoff && new.at < self.at { self } else { new }
    }

    fn moved(self, request: DelayRequest, strict: bool) -> Self {
        let Self { at: own, limit, backoff } = self;
        let sooner = |at: Nanos| (own.min(at), limit.map(|limit| limit.min(at)));
        let (at, limit, backoff) = match request {
            DelayRequest::Earliest(at) => {
                let (at, limit) = sooner(at);
                (at, limit, backoff)
            }
            DelayRequest::Debounce { at, limit: longest } => {
                let most = limit.unwrap_or(own).min(longest);
                let later = if limit.is_some() { own.max(at) } else { at };
                (later.min(most), Some(most), backoff)
            }
            DelayRequest::Replace(at) => (at, None, backoff),
            DelayRequest::Backoff(until) if until < own => {
                let (at, limit) = sooner(until);
                (at, limit, true)
            }
            DelayRequest::Backoff(until) if strict && !backoff => (until, None, true),
            DelayRequest::Backoff(until) => {
                let (at, limit) = sooner(until);
                (at, limit, backoff)
            }
        };
        Self { at, limit, backoff }
    }

    /// Combines this wait of a leased key with the wait that the lease's outcome requires: the delay of a requeue, or the backoff after a failure.
    pub(crate) fn after_lease(self, outcome: Self, strict: bool) -> Self {
        match outcome {
            Self { at, backoff: true, .. } if strict => {
                Self::backoff(if self.backoff { self.at.max(at) } else { at })
            }
            Self { at, backoff: true, .. } => self.after(DelayRequest::Backoff(at), strict),
            Self { at, .. } => self.after(DelayRequest::Earliest(at), strict),
        }
    }
}

impl DelayRequest {
    /// Returns the wait that this request sets if the key does not wait yet.
    pub(crate) fn alone(self) -> Wait {
        match self {
            Self::Earliest(at) | Self::Replace(at) => Wait::fixed(at),
            Self::Debounce { at, limit } => Wait { at: at.min(limit), limit: Some(limit), backoff: false },
            Self::Backoff(at) => Wait::backoff(at),
        }
    }
}

impl<K, O: ReadyQueue> QueueState<K, O> {
    /// Returns the earliest deadline and the slot that it belongs to.
    #[inline]
    pub(super) fn first_wait(&self) -> Option<(Nanos, u32)> {
        self.order.heaps().filter_map(Deadlines::first).min()
    }

    /// Returns the number of `Waiting` keys, including those whose deadline has passed. Leased keys that wait do not count.
    #[inline]
    pub(super) fn waits(&self) -> usize {
        self.order.heaps().map(Deadlines::len).sum()
    }

    /// Like [`survey`](Self::survey), but counts each deadline once, and in pieces: `None` if the caller must unlock and call this again.
    pub(super) fn passed(
        &mut self,
        by: Nanos,
        most: usize,
        moves: &mut usize,
    ) -> Option<(usize, Option<Nanos>)> {
        let slab = &mut self.slab;
        self.order.heaps_mut().try_fold((0, None), |(count, next), heap| {
            let (more, other) = heap.passed(slab, by, most, moves)?;
            Some((count + more, next.into_iter().chain(other).min()))
        })
    }

    /// Returns the number of deadlines at or before `by`, and the first deadline after `by`. Stops counting once the count exceeds `most`; in that
    /// case the second value may be wrong. O(count).
    pub(super) fn survey(&self, by: Nanos, most: usize) -> (usize, Option<Nanos>) {
        let mut found = (0, None);
        self.order.heaps().for_each(|heap| heap.survey(by, most, &mut found));
        found
    }

    /// Returns the slots whose deadlines are after `by`, earliest first. O(n log n).
    pub(super) fn waiting_after(&self, by: Nanos) -> Vec<u32> {
        let deadline =
            |heap: &Deadlines, slot| (self.slab.get(slot).at, heap.sequence(&self.slab, slot), slot);
        let all = self
            .order
            .heaps()
            .flat_map(|heap| heap.slots().into_iter().map(move |slot| deadline(heap, slot)));
        let mut waiting: Vec<_> = all.filter(|(at, ..)| *at > by).collect();
        waiting.sort_unstable();
        waiting.into_iter().map(|(.., slot)| slot).collect()
    }

    /// Returns the next sequence number, which orders the new deadline among equal deadlines. Once all 2³² numbers are used up, the existing
    /// deadlines are renumbered in their current order, which takes O(n log n).
    #[inline]
    pub(super) fn next_sequence(&mut self) -> u32 {
        if self.sequence == u32::MAX {
            self.renumber();
        }
        self.sequence += 1;
        self.sequence
    }

    #[cold]
    fn renumber(&mut self) {
        let waiting = self
            .order
            .heaps()
            .flat_map(|heap| heap.slots().into_iter().map(|slot| (heap.sequence(&self.slab, slot), slot)));
        let mut sequences: Vec<_> =
            waiting.chain(self.postponed.iter().map(|(slot, own)| (own.sequence, slot))).collect();
        sequences.sort_unstable();
        let mut renumbered = vec![0; sequences.iter().map(|&(_, slot)| slot as usize + 1).max().unwrap_or(0)];
        for (sequence, (_, slot)) in (1..).zip(&sequences) {
            renumbered[*slot as usize] = sequence;
        }
        for (slot, postponed) in self.postponed.values_mut() {
            postponed.sequence = renumbered[slot as usize];
        }
        let slab = &mut self.slab;
        self.order.heaps_mut().for_each(|heap| heap.renumber(slab, |slot| renumbered[slot as usize]));
        self.sequence = sequences.len() as u32;
    }
}
