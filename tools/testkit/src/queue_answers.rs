//! The words in which the oracle queue answers; a test translates the real queue's answers into them.

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
    /// Itself as far as time counts: which deadline shows that never passes, as the queue ends before, is nobody's
    /// concern.
    #[must_use]
    pub fn timely(self, last: Option<Time>) -> Self {
        let never = |until: Time| last.is_none_or(|last| last < until);
        match self {
            Self::Waiting(until) if never(until) => Self::Waiting(Time::MAX),
            Self::LeasedWaiting(until) if never(until) => Self::LeasedWaiting(Time::MAX),
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

/// Why an add did nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No more adds.
    ShutDown,
    /// The key is new, and there is no room.
    Full,
    /// It failed too often.
    Exhausted,
}

/// What several adds did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Many<K> {
    /// How often each of them.
    pub new: usize,
    /// See [`Outcome::Merged`].
    pub merged: usize,
    /// See [`Outcome::Promoted`].
    pub promoted: usize,
    /// See [`Outcome::Marked`].
    pub marked: usize,
    /// In order.
    pub refused: Vec<(K, Refused)>,
}

/// Nobody holds the key by its name alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDetached;

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
    /// Nothing to say, comes back.
    DoneAfter(Duration),
    /// Failures forgotten.
    Succeed,
    /// Failures forgotten, comes back.
    RequeueAfter(Duration),
    /// A failure.
    Retry,
    /// A failure that waits for so long, at least.
    RetryNoSooner(Duration),
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
    /// Ready keys, in order, as far as they can be handed out, the others sorted.
    pub ready: Vec<K>,
    /// How many of them can be.
    pub able: usize,
    /// Waiting keys, by deadline.
    pub waiting: Vec<K>,
    /// Keys that came back after shut down, sorted: they wait, too, for a time that never comes.
    pub late: Vec<K>,
    /// Leased keys, sorted.
    pub leased: Vec<K>,
}

/// The whole queue at a glance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Glance<K> {
    /// Every key that is not absent, with its failures, sorted.
    pub keys: Vec<(K, Seen, u32)>,
    /// Nothing is handed out.
    pub paused: bool,
    /// No longer open.
    pub shut_down: bool,
}

impl<K> Glance<K> {
    /// See [`Seen::timely`].
    #[must_use]
    pub fn timely(mut self, last: Option<Time>) -> Self {
        for (_, seen, _) in &mut self.keys {
            *seen = seen.timely(last);
        }
        self
    }
}

/// The oldest ages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestAges {
    /// Of a key that is Ready.
    pub ready: Option<Time>,
    /// Of a key that is leased.
    pub leased: Option<Time>,
}

/// An event that a queue reports to its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// A key was handed out.
    HandedOut {
        /// Time since the key became Ready or dirty.
        queued: Time,
        /// A deadline made it so, not an add.
        delayed: bool,
    },
    /// A lease ended after this time. A requeue is reported without its delay.
    Ended(Ending, Time),
    /// A failure was counted.
    Failed,
    /// A key was given up after so many failures.
    GaveUp(u32),
    /// An add was refused.
    Refused(Refused),
    /// A lease is overdue at this age.
    Overdue(Time),
}

/// The figures that metrics read from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// How often a key became Ready or dirty.
    pub adds: u64,
    /// Delays that were accepted.
    pub delays: u64,
    /// Keys that are Ready or dirty.
    pub depth: usize,
    /// Keys that wait, leased or not.
    pub waiting: usize,
    /// Keys leased.
    pub leased: usize,
    /// The ages of leases, summed.
    pub unfinished: Time,
    /// The oldest lease.
    pub longest: Time,
    /// The oldest Ready key.
    pub oldest_ready: Time,
    /// Keys there is room for.
    pub room: Option<usize>,
}

/// What a search for overdue leases finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue<K> {
    /// This key is overdue, at this age.
    Lease(K, Time),
    /// None now.
    NotYet,
    /// None, and there will be none.
    Never,
}
