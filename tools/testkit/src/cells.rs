//! Which cells of the queue's state table a test has entered, and how often.

use crate::answers::Ending;

/// The rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Was {
    Absent,
    Waiting,
    Ready,
    Leased,
    LeasedDirty,
    LeasedWaiting,
}

impl Was {
    const ALL: [Self; 6] =
        [Self::Absent, Self::Waiting, Self::Ready, Self::Leased, Self::LeasedDirty, Self::LeasedWaiting];
}

/// The columns; the end of a lease is one column per outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Doing {
    Add,
    DelayedAdd,
    Get,
    Done,
    Succeed,
    RequeueAfter,
    Retry,
    Dropped,
    Cancel,
    Deadline,
}

impl Doing {
    const ALL: [Self; 10] = [
        Self::Add,
        Self::DelayedAdd,
        Self::Get,
        Self::Done,
        Self::Succeed,
        Self::RequeueAfter,
        Self::Retry,
        Self::Dropped,
        Self::Cancel,
        Self::Deadline,
    ];

    /// Blank cells of the table cannot happen.
    fn is_blank(self, was: Was) -> bool {
        let leased = matches!(was, Was::Leased | Was::LeasedDirty | Was::LeasedWaiting);
        match self {
            Self::Add | Self::DelayedAdd | Self::Cancel => false,
            Self::Get => was == Was::Absent,
            Self::Done | Self::Succeed | Self::RequeueAfter | Self::Retry | Self::Dropped => !leased,
            Self::Deadline => !matches!(was, Was::Waiting | Was::LeasedWaiting),
        }
    }
}

impl From<Ending> for Doing {
    fn from(ending: Ending) -> Self {
        match ending {
            Ending::Done => Self::Done,
            Ending::Succeed => Self::Succeed,
            Ending::RequeueAfter(_) => Self::RequeueAfter,
            Ending::Retry => Self::Retry,
            Ending::Dropped => Self::Dropped,
        }
    }
}

/// A counter for every cell.
#[derive(Clone, Debug, Default)]
pub struct Cells([[u64; 10]; 6]);

impl Cells {
    /// Counts one.
    ///
    /// # Panics
    /// In a blank cell.
    pub fn hit(&mut self, was: Was, doing: Doing) {
        assert!(!doing.is_blank(was), "{doing:?} on a key that is {was:?} cannot happen");
        self.0[was as usize][doing as usize] += 1;
    }

    /// How often a cell was entered.
    #[must_use]
    pub fn hits(&self, was: Was, doing: Doing) -> u64 {
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

    /// The cells, blank ones left out, that were entered fewer than `floor` times.
    #[must_use]
    pub fn below(&self, floor: u64) -> Vec<(Was, Doing, u64)> {
        let every = Was::ALL.into_iter().flat_map(|was| Doing::ALL.map(|doing| (was, doing)));
        every
            .filter(|(was, doing)| !doing.is_blank(*was))
            .map(|(was, doing)| (was, doing, self.hits(was, doing)))
            .filter(|(.., hits)| *hits < floor)
            .collect()
    }
}
