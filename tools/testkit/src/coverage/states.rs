//! Counts for each cell of the queue's state table how often a test executes the operation of the column on a key in the state of the row.

use crate::queue_answers::Ending;

/// The rows of the table: the state of a key before an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Row {
    Absent,
    Waiting,
    /// The key has a debounced wait: adds can postpone its deadline, up to a cap.
    Debounced,
    /// The key waits after a failure: adds do not shorten this wait.
    Backoff,
    Ready,
    Leased,
    LeasedDirty,
    LeasedWaiting,
    LeasedDebounced,
    LeasedBackoff,
}

impl Row {
    const ALL: [Self; 10] = [
        Self::Absent,
        Self::Waiting,
        Self::Debounced,
        Self::Backoff,
        Self::Ready,
        Self::Leased,
        Self::LeasedDirty,
        Self::LeasedWaiting,
        Self::LeasedDebounced,
        Self::LeasedBackoff,
    ];

    /// Returns the row in which a coarse column counts this state. A coarse column does not distinguish the kinds of waits.
    fn coarse(self) -> Self {
        match self {
            Self::Debounced | Self::Backoff => Self::Waiting,
            Self::LeasedDebounced | Self::LeasedBackoff => Self::LeasedWaiting,
            other => other,
        }
    }

    fn waits(self) -> bool {
        matches!(self, Self::Waiting | Self::Debounced | Self::Backoff) || self.waits_leased()
    }

    fn waits_leased(self) -> bool {
        matches!(self, Self::LeasedWaiting | Self::LeasedDebounced | Self::LeasedBackoff)
    }

    fn is_leased(self) -> bool {
        matches!(self, Self::Leased | Self::LeasedDirty) || self.waits_leased()
    }
}

/// The columns of the table: the operations. The end of a lease has one column for each way in which a lease can end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Column {
    Add,
    Earliest,
    Latest,
    Replace,
    /// A rate-limited add, which counts a failure.
    Limited,
    /// A rate-limited add that is refused, because the key has failed too often.
    LimitedExhausted,
    Full,
    Postpone,
    Get,
    Done,
    Succeed,
    RequeueAfter,
    DoneAfter,
    Retry,
    RetryNoSooner,
    Dropped,
    /// The lease ends with a failure, and the queue gives the key up, because it has failed too often.
    Exhausted,
    /// A lease that fails in a queue without a limiter.
    Tail,
    /// Like `Retry` and `Dropped`, but after the shutdown of a queue that still serves its waiting keys.
    FailedServing,
    Cancel,
    Deadline,
    /// Like `Deadline`, but after the shutdown of a queue that still serves its waiting keys.
    DeadlineServing,
    Detach,
    DoneKey,
    /// `done` of a key without a detached lease.
    NotDetached,
}

impl Column {
    const COUNT: usize = 25;

    const ALL: [Self; Self::COUNT] = [
        Self::Add,
        Self::Earliest,
        Self::Latest,
        Self::Replace,
        Self::Limited,
        Self::LimitedExhausted,
        Self::Full,
        Self::Postpone,
        Self::Get,
        Self::Done,
        Self::Succeed,
        Self::RequeueAfter,
        Self::DoneAfter,
        Self::Retry,
        Self::RetryNoSooner,
        Self::Dropped,
        Self::Exhausted,
        Self::Tail,
        Self::FailedServing,
        Self::Cancel,
        Self::Deadline,
        Self::DeadlineServing,
        Self::Detach,
        Self::DoneKey,
        Self::NotDetached,
    ];

    /// Returns whether the column counts all kinds of waits in one row. `DoneAfter` and `RetryNoSooner` are coarse although the kind of wait changes
    /// their effect, because it changes the effects of `RequeueAfter` and `Retry` in the same way, and these are counted separately for each kind.
    fn is_coarse(self) -> bool {
        matches!(
            self,
            Self::LimitedExhausted
                | Self::Exhausted
                | Self::DoneAfter
                | Self::RetryNoSooner
                | Self::Tail
                | Self::FailedServing
                | Self::DeadlineServing
                | Self::Detach
                | Self::DoneKey
                | Self::NotDetached
        )
    }

    /// Returns whether the cell in the row `was` is blank: either the operation is not possible in this state, or the column is coarse and counts
    /// this state in a different row.
    fn is_blank(self, was: Row) -> bool {
        match self {
            _ if self.is_coarse() && was != was.coarse() => true,
            Self::Add
            | Self::Earliest
            | Self::Latest
            | Self::Replace
            | Self::Limited
            | Self::LimitedExhausted
            | Self::Postpone
            | Self::Cancel
            | Self::NotDetached => false,
            Self::Full => was != Row::Absent,
            Self::Get => was == Row::Absent,
            Self::Done
            | Self::Succeed
            | Self::RequeueAfter
            | Self::DoneAfter
            | Self::Retry
            | Self::RetryNoSooner
            | Self::Dropped
            | Self::Exhausted
            | Self::Tail
            | Self::FailedServing
            | Self::Detach
            | Self::DoneKey => !was.is_leased(),
            Self::Deadline | Self::DeadlineServing => !was.waits(),
        }
    }
}

impl From<Ending> for Column {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Done => Self::Done,
            Ending::Succeed => Self::Succeed,
            Ending::RequeueAfter(_) => Self::RequeueAfter,
            Ending::DoneAfter(_) => Self::DoneAfter,
            Ending::Retry => Self::Retry,
            Ending::RetryNoSooner(_) => Self::RetryNoSooner,
            Ending::Dropped => Self::Dropped,
        }
    }
}

/// A counter for every cell.
#[derive(Clone, Debug, Default)]
pub struct Cells([[u64; Column::COUNT]; Row::ALL.len()]);

impl Cells {
    /// Counts one occurrence of the operation `doing` on a key in the state `was`.
    ///
    /// # Panics
    /// Panics for a blank cell.
    pub fn hit(&mut self, was: Row, doing: Column) {
        let was = if doing.is_coarse() { was.coarse() } else { was };
        assert!(!doing.is_blank(was), "{doing:?} on a key that is {was:?} cannot happen");
        self.0[was as usize][doing as usize] += 1;
    }

    /// Returns how often the operation `doing` occurred on a key in the state `was`.
    #[must_use]
    pub fn hits(&self, was: Row, doing: Column) -> u64 {
        self.0[was as usize][doing as usize]
    }

    /// Adds the counts of another run.
    pub fn merge(&mut self, other: &Self) {
        for (row, more) in self.0.iter_mut().zip(&other.0) {
            for (count, more) in row.iter_mut().zip(more) {
                *count += more;
            }
        }
    }

    /// Returns the cells with fewer than `floor` occurrences, except for the blank cells.
    #[must_use]
    pub fn below(&self, floor: u64) -> Vec<(Row, Column, u64)> {
        let every = Row::ALL.into_iter().flat_map(|was| Column::ALL.map(|doing| (was, doing)));
        every
            .filter(|(was, doing)| !doing.is_blank(*was))
            .map(|(was, doing)| (was, doing, self.hits(was, doing)))
            .filter(|(.., hits)| *hits < floor)
            .collect()
    }
}
