//! SHELL. How often the limits of all groups were to be asked again.
//!
//! | what | guarded by |
//! |---|---|
//! | the number | an atomic: raised after what is asked has changed, and read before it is asked |

use flyball_sync::locks::{AtomicUsize, Ordering};

/// A number for what is asked now: what is asked after the next call to ask again has a higher one.
pub(super) struct Asked(AtomicUsize);

impl Default for Asked {
    fn default() -> Self {
        Self(AtomicUsize::new(0))
    }
}

impl Asked {
    /// To be read before anything is asked: what is answered then is no older than this number says.
    #[inline]
    pub(super) fn number(&self) -> usize {
        // Ordering: Acquire, see `ask_again`.
        self.0.load(Ordering::Acquire)
    }

    /// What was asked before is stale from now on; gives the number of this call.
    pub(super) fn ask_again(&self) -> usize {
        // Ordering: AcqRel. Release: an add that reads this number calls the functions after it, and sees what the caller changed
        // before. Acquire: a later refresh, which reads this number to raise it, sees that, too.
        self.0.fetch_add(1, Ordering::AcqRel) + 1
    }
}
