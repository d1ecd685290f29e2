//! The fuzz target `limiter_ops`: runs an adaptive limit, buckets by key, or a failure limiter.

use crate::bucket::keyed;
use crate::limiter::{aimd, policies};

/// The first byte selects the driver; a quarter of its values select the adaptive limit, and a quarter the buckets by key.
pub fn run(bytes: &[u8]) {
    match bytes {
        [0..64, rest @ ..] => aimd::run(rest),
        [64..128, rest @ ..] => keyed::run(rest),
        [_, rest @ ..] => policies::run(rest),
        [] => {}
    }
}
