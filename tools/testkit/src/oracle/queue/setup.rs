//! The configuration of the oracle queue.

use crate::oracle::backoff::OracleExponential;
use crate::oracle::limiter::OracleQuota;

/// The options of an oracle queue. By default, none of them is set.
#[derive(Clone, Copy, Debug, Default)]
pub struct OracleSetup {
    /// The backoff after a failure; `None` for a queue without a limiter.
    pub limiter: Option<OracleExponential>,
    /// A bucket from which each failure takes a token. The key then waits until its backoff has ended and the token is due.
    pub bucket: Option<OracleQuota>,
    /// If true, no add shortens a backoff.
    pub strict: bool,
    /// The maximum number of keys in the queue; `None` for an unbounded queue.
    pub capacity: Option<usize>,
    /// The number of failures after which a key is given up.
    pub give_up_after: Option<u32>,
}
