//! From the oracles' words to the crate's.

use std::num::NonZeroU32;
use std::time::Duration;

use flyball_ratelimit::Quota;
use testkit::naive_limiter::NaiveQuota;

/// The same quota for the bucket under test.
pub fn quota(naive: NaiveQuota) -> Quota {
    let nz = |value| NonZeroU32::new(value).expect("zeros count as ones");
    let quota = Quota::new(nz(naive.tokens().into()), Duration::from_nanos(naive.period()));
    quota.expect("zeros count as ones").allow_burst(nz(naive.burst().into()))
}
