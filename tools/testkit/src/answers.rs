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

impl Seen {
    /// Itself while time counts. Once a queue is shut down no deadline passes, and which one shows is nobody's concern.
    #[must_use]
    pub fn timely(self, open: bool) -> Self {
        match self {
            Self::Waiting(_) if !open => Self::Waiting(0),
            Self::LeasedWaiting(_) if !open => Self::LeasedWaiting(0),
            seen => seen,
        }
    }
}

/// What an add did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key was absent.
    New,
    /// It was there already, or comes back already; of two delays the earlier holds.
    Merged,
    /// It waited, and is Ready now.
    Promoted,
    /// It is handed out, and now comes back, at once or after the delay.
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
    /// Keys that came back after shut down, sorted: they wait, too, for a time that never comes.
    pub late: Vec<K>,
    /// Leased keys, sorted.
    pub leased: Vec<K>,
}
