//! What a naive queue is built with.

use crate::naive_backoff::NaiveExponential;
use crate::naive_limiter::NaiveQuota;

/// Nothing, unless said.
#[derive(Clone, Copy, Debug, Default)]
pub struct NaiveSetup {
    /// Backoff of failures.
    pub limiter: Option<NaiveExponential>,
    /// A failure takes a token of this bucket, too, and waits for the later of the two.
    pub bucket: Option<NaiveQuota>,
    /// No add shortens a backoff.
    pub strict: bool,
    /// How many keys there may be.
    pub capacity: Option<usize>,
    /// With so many failures a key is given up.
    pub give_up_after: Option<u32>,
}
