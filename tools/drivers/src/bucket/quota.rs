//! Converts the quotas of the oracles to quotas of `flyball-ratelimit`.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::Quota;
use testkit::oracle::limiter::OracleQuota;

/// Converts a quota of an oracle to the same quota for the bucket under test.
pub fn quota(oracle: OracleQuota) -> Quota {
    let nz = |value| NonZeroU32::new(value).expect("zeros count as ones");
    let quota = Quota::new(nz(oracle.tokens().into()), Duration::from_nanos(oracle.period()));
    quota.expect("zeros count as ones").allow_burst(nz(oracle.burst().into()))
}
