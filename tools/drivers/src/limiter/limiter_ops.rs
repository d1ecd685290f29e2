//! What the fuzz target of that name runs: an adaptive limit, buckets by key, or a limiter of failures.

use crate::bucket::keyed;
use crate::limiter::{aimd, policies};

/// The first byte chooses; a quarter of all go to the adaptive limit, and a quarter to the buckets by key.
pub fn run(bytes: &[u8]) {
    match bytes {
        [0..64, rest @ ..] => aimd::run(rest),
        [64..128, rest @ ..] => keyed::run(rest),
        [_, rest @ ..] => policies::run(rest),
        [] => {}
    }
}
