//! The wait of a key, and how a delayed add changes it.

use crate::queue_answers::{Time, later};
use crate::queue_setup::Mode;

/// A wait until a deadline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) until: Time,
    /// The latest time to which debounced adds can postpone the deadline; `None` if the wait is not debounced.
    pub(super) cap: Option<Time>,
    /// Whether the wait is a backoff in a strict queue.
    pub(super) backoff: bool,
    pub(super) order: u64,
}

impl Wait {
    /// A wait that debounced adds cannot extend.
    pub(super) fn fixed(until: Time, order: u64) -> Self {
        Self { until, cap: None, backoff: false, order }
    }

    /// The wait after a failure in a strict queue.
    pub(super) fn backoff(until: Time, order: u64) -> Self {
        Self { backoff: true, ..Self::fixed(until, order) }
    }

    /// Returns this wait with the given deadline and cap. If the deadline is the same as before, the wait keeps its
    /// sequence number; otherwise it gets the number `order`.
    pub(super) fn moved(self, until: Time, cap: Option<Time>, order: u64) -> Self {
        let order = if until == self.until { self.order } else { order };
        Self { until, cap, order, ..self }
    }

    /// Returns the wait after a delayed add with the deadline `until`, for a key that was not waiting.
    pub(super) fn new(mode: Mode, until: Time, now: Time, order: u64) -> Self {
        match mode {
            Mode::Earliest | Mode::Replace => Self::fixed(until, order),
            Mode::Latest(longest) => {
                let cap = later(now, longest.0);
                Self { cap: Some(cap), ..Self::fixed(until.min(cap), order) }
            }
        }
    }

    /// Returns the wait after a delayed add with the deadline `until`, for a key that already has the wait `self`.
    pub(super) fn combined(self, mode: Mode, until: Time, now: Time, order: u64) -> Self {
        let (until, cap) = match (mode, self.cap) {
            (Mode::Earliest, None) => (self.until.min(until), None),
            (Mode::Earliest, Some(cap)) => (self.until.min(until), Some(cap.min(until))),
            (Mode::Latest(longest), None) => {
                let cap = self.until.min(later(now, longest.0));
                (until.min(cap), Some(cap))
            }
            (Mode::Latest(longest), Some(cap)) => {
                let cap = cap.min(later(now, longest.0));
                (self.until.max(until).min(cap), Some(cap))
            }
            (Mode::Replace, _) => (until, None),
        };
        // No add shortens a backoff.
        if self.backoff && until < self.until { self } else { self.moved(until, cap, order) }
    }
}
