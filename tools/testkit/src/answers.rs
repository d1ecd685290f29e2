//! The words in which the naive queue answers; a test translates the real queue's answers into them.

use std::time::Duration;

/// Nanoseconds on the test's time line; `u64::MAX` is never.
pub type Time = u64;

/// `now + delay`, never past the end of time.
#[must_use]
pub fn later(now: Time, delay: Duration) -> Time {
    now.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
}

/// What the outside sees of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Unknown.
    Absent,
    /// Comes back at this time.
    Waiting(Time),
    /// Next in line.
    Ready,
    /// Handed out.
    Leased,
    /// Handed out, and runs again afterwards.
    LeasedDirty,
    /// Handed out, and comes back at this time.
    LeasedWaiting(Time),
}

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key was absent.
    New,
    /// Nothing changed: it was there, and at least as soon.
    Merged,
    /// It waits no longer, or less long.
    Promoted,
    /// It is handed out, and now comes back.
    Marked,
}

/// Shut down: the add did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused;

/// Why nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nothing {
    /// Not now.
    Empty,
    /// Never again.
    Closed,
}

/// How a lease ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing to say.
    Done,
    /// Failures forgotten.
    Succeed,
    /// Failures forgotten, comes back.
    RequeueAfter(Duration),
    /// A failure.
    Retry,
    /// A failure, too.
    Dropped,
}

/// How many keys are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ready.
    pub ready: usize,
    /// Waiting, without those that are leased at the same time.
    pub waiting: usize,
    /// Leased, whatever comes after.
    pub leased: usize,
    /// Leased and dirty.
    pub dirty: usize,
}

/// What was not finished.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left<K> {
    /// Ready keys, in order.
    pub ready: Vec<K>,
    /// Waiting keys, by deadline.
    pub waiting: Vec<K>,
    /// Leased keys, sorted.
    pub leased: Vec<K>,
}
