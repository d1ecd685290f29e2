//! The configuration of the oracle queue.

use crate::oracle::backoff::OracleExponential;
use crate::oracle::limiter::OracleQuota;

/// The options of an oracle queue; the default has none of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleSetup {
    /// The backoff after failures.
    pub limiter: Option<OracleExponential>,
    /// The bucket from which each failure takes a token; the key waits until its backoff is over and the token is due.
    pub bucket: Option<OracleQuota>,
    /// If true, no add shortens a backoff.
    pub strict: bool,
    /// The capacity.
    pub capacity: Option<usize>,
    /// The number of failures after which a key is given up.
    pub give_up_after: Option<u32>,
}
