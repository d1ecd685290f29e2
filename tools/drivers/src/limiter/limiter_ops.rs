//! The fuzz target `limiter_ops`: runs an adaptive limit, buckets by key, or a failure limiter.

use crate::bucket::keyed;
use crate::limiter::{aimd, policies};

/// Runs the driver that the first byte selects: a quarter of its values select the adaptive limit, a quarter the buckets by key, and the others the
/// failure limiter.
pub fn run(bytes: &[u8]) {
    match bytes {
        [0..64, rest @ ..] => aimd::run(rest),
        [64..128, rest @ ..] => keyed::run(rest),
        [_, rest @ ..] => policies::run(rest),
        [] => {}
    }
}
