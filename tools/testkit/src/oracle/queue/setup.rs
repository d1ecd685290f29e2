//! What the oracle of the queue is built with.

use crate::oracle::backoff::OracleExponential;
use crate::oracle::limiter::OracleQuota;

/// Nothing, unless said.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleSetup {
    /// Backoff of failures.
    pub limiter: Option<OracleExponential>,
    /// A failure takes a token of this bucket, too, and waits for the later of the two.
    pub bucket: Option<OracleQuota>,
    /// No add shortens a backoff.
    pub strict: bool,
    /// How many keys there may be.
    pub capacity: Option<usize>,
    /// With so many failures a key is given up.
    pub give_up_after: Option<u32>,
}
