//! A wait, and what a delayed add makes of it.

use crate::queue_answers::{Time, later};
use crate::queue_setup::Mode;

/// When a key comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wait {
    pub(super) until: Time,
    /// Where there is one, the wait may be put off so far.
    pub(super) cap: Option<Time>,
    /// Of a failure, on a strict queue.
    pub(super) backoff: bool,
    pub(super) order: u64,
}

impl Wait {
    /// Until then, whatever is asked for later.
    pub(super) fn fixed(until: Time, order: u64) -> Self {
        Self { until, cap: None, backoff: false, order }
    }

    /// A wait that a failure of a strict queue asks for.
    pub(super) fn backoff(until: Time, order: u64) -> Self {
        Self { backoff: true, ..Self::fixed(until, order) }
    }

    /// Itself with another deadline and cap. A deadline that stays keeps its turn.
    pub(super) fn moved(self, until: Time, cap: Option<Time>, order: u64) -> Self {
        let order = if until == self.until { self.order } else { order };
        Self { until, cap, order, ..self }
    }

    /// The table of modes, for a delayed add until `until`, where nothing waits.
    pub(super) fn new(mode: Mode, until: Time, now: Time, order: u64) -> Self {
        match mode {
            Mode::Earliest | Mode::Replace => Self::fixed(until, order),
            Mode::Latest(longest) => {
                let cap = later(now, longest.0);
                Self { cap: Some(cap), ..Self::fixed(until.min(cap), order) }
            }
        }
    }

    /// The table of modes, for a delayed add until `until`, where this waits.
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
