//! The types of the results that the oracle queue returns. A test converts the results of the real queue to these types to compare them.

use std::time::Duration;

/// Nanoseconds on the test's time line; `u64::MAX` means never.
pub type Time = u64;

/// Returns `now + delay`, but at most `Time::MAX`.
#[must_use]
pub fn later(now: Time, delay: Duration) -> Time {
    now.saturating_add(u64::try_from(delay.as_nanos()).unwrap_or(u64::MAX))
}

/// The observable state of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OracleKeyState {
    /// The key is not in the queue.
    Absent,
    /// The key is waiting, and becomes Ready at this time.
    Waiting(Time),
    /// The key is Ready.
    Ready,
    /// The key is leased.
    Leased,
    /// The key is leased and dirty.
    LeasedDirty,
    /// The key is leased, and its next run is due at this time.
    LeasedWaiting(Time),
}

impl OracleKeyState {
    /// Returns this state with `Time::MAX` as its deadline if its deadline is after `last`. Such a deadline never passes, so tests do not compare its
    /// exact value.
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

/// The outcome of an add.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The key was absent.
    New,
    /// The key was already Ready, dirty or waiting. If it was waiting, the mode of the add decides which deadline is kept.
    Merged,
    /// The key was waiting, and the add made it Ready.
    Promoted,
    /// The key is leased. The key becomes Ready when its lease has ended and the delay of the add, if any, has passed.
    Marked,
}

/// The reason why an add was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The queue is shut down.
    ShutDown,
    /// The key is new, and the queue is full.
    Full,
    /// The key failed too often.
    Exhausted,
}

/// The outcome of several adds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddManyOutcome<K> {
    /// The number of keys that were absent.
    pub new: usize,
    /// See [`Outcome::Merged`].
    pub merged: usize,
    /// See [`Outcome::Promoted`].
    pub promoted: usize,
    /// See [`Outcome::Marked`].
    pub marked: usize,
    /// The keys that were refused, in the order of the adds.
    pub refused: Vec<(K, Refused)>,
}

/// The key has no detached lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotDetached;

/// The reason why a get returned no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GetError {
    /// No key can be handed out now.
    Empty,
    /// The queue is closed and hands out no more keys.
    Closed,
}

/// The outcome of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// `done`.
    Done,
    /// `done`, with a requeue after a delay.
    DoneAfter(Duration),
    /// `succeed`.
    Succeed,
    /// `succeed`, with a requeue after a delay.
    RequeueAfter(Duration),
    /// The lease failed.
    Retry,
    /// The lease failed, and its key waits for at least this delay.
    RetryNoSooner(Duration),
    /// The lease was dropped, which counts as a failure.
    Dropped,
}

/// The number of keys in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Ready.
    pub ready: usize,
    /// Waiting keys that are not leased.
    pub waiting: usize,
    /// Leased keys, including dirty and waiting ones.
    pub leased: usize,
    /// Leased keys that are dirty.
    pub dirty: usize,
}

/// The leftovers of a shutdown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OracleLeftovers<K> {
    /// The Ready keys: first those that can be handed out, in the order of hand-out, then the others, sorted by key.
    pub ready: Vec<K>,
    /// The number of Ready keys that can be handed out.
    pub able: usize,
    /// Waiting keys, by deadline.
    pub waiting: Vec<K>,
    /// Waiting keys whose leases ended after the shutdown, sorted. Their deadlines never pass.
    pub late: Vec<K>,
    /// Leased keys, sorted.
    pub leased: Vec<K>,
}

/// The complete observable state of the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueSnapshot<K> {
    /// All keys in the queue, sorted, each with its state and the number of its failures.
    pub keys: Vec<(K, OracleKeyState, u32)>,
    /// Whether the queue is paused.
    pub paused: bool,
    /// Whether the queue is shut down.
    pub shut_down: bool,
}

impl<K> QueueSnapshot<K> {
    /// See [`OracleKeyState::timely`].
    #[must_use]
    pub fn timely(mut self, last: Option<Time>) -> Self {
        for (_, seen, _) in &mut self.keys {
            *seen = seen.timely(last);
        }
        self
    }
}

/// The ages of the oldest Ready key and the oldest lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldestAges {
    /// The age of the oldest Ready key.
    pub ready: Option<Time>,
    /// The age of the oldest lease.
    pub leased: Option<Time>,
}

/// An event that a queue reports to its metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Report {
    /// A key was handed out.
    HandedOut {
        /// The time since the key became Ready or dirty.
        queued: Time,
        /// Whether the key became Ready because its deadline passed, not because of an add.
        delayed: bool,
    },
    /// A lease ended with this outcome, and had this age at its end. The real queue does not report the delay of a requeue, so tests ignore the delay
    /// when they compare reports.
    Ended(Ending, Time),
    /// A failure was counted.
    Failed,
    /// A key was given up after this number of failures.
    GaveUp(u32),
    /// An add was refused.
    Refused(Refused),
    /// A lease was found to be overdue, with this age.
    Overdue(Time),
}

/// The numbers that metrics read from a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Read {
    /// The number of times that a key became Ready or dirty.
    pub adds: u64,
    /// The number of accepted delays.
    pub delays: u64,
    /// Keys that are Ready or dirty.
    pub depth: usize,
    /// Waiting keys, leased or not.
    pub waiting: usize,
    /// Leased keys.
    pub leased: usize,
    /// The sum of the ages of all leases.
    pub unfinished: Time,
    /// The age of the oldest lease.
    pub longest: Time,
    /// The age of the oldest Ready key.
    pub oldest_ready: Time,
    /// The remaining capacity.
    pub room: Option<usize>,
}

/// The result of a search for overdue leases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overdue<K> {
    /// The lease of this key is overdue, with this age.
    Lease(K, Time),
    /// No lease is overdue now.
    NotYet,
    /// The queue is drained or stopped, so no lease will become overdue.
    Never,
}
