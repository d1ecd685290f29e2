//! The configuration of the oracle queue.

use crate::oracle::backoff::OracleExponential;
use crate::oracle::limiter::OracleQuota;

/// The options of an oracle queue; the default has none of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleSetup {
    /// Backoff of failures.
    pub limiter: Option<OracleExponential>,
    /// A failure also takes a token of this bucket, and waits for the later of backoff and token.
    pub bucket: Option<OracleQuota>,
    /// No add shortens a backoff.
    pub strict: bool,
    /// The capacity.
    pub capacity: Option<usize>,
    /// The number of failures after which a key is given up.
    pub give_up_after: Option<u32>,
}
