//! SHELL. Counts the refreshes of the groups' limits.
//!
//! | what | guarded by |
//! |---|---|
//! | the number | an atomic: incremented after the results of the functions of `Fair` have changed, and read before these functions are called |

use flyball_sync::locks::{AtomicUsize, Ordering};

/// Counts the refreshes. Limits that are computed after a refresh have a higher number than those computed before it.
pub(super) struct RefreshCount(AtomicUsize);

impl Default for RefreshCount {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl RefreshCount {
    /// Returns the current number. Call this before the functions of `Fair`, so that their results are no older than
    /// the number.
    #[inline]
    pub(super) fn number(&self) -> usize {
        // Ordering: Acquire, see `start_refresh`.
        self.0.load(Ordering::Acquire)
    }

    /// Starts a refresh, and returns its number. All limits that were computed before this call are now stale.
    pub(super) fn start_refresh(&self) -> usize {
        // Ordering: AcqRel. Release: an add that reads this number and then calls the functions of `Fair` sees the changes that the caller made
        // before the refresh. Acquire: a later refresh, which increments this number, sees those changes, too.
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }
}
