//! What the fuzz target of that name runs: an adaptive limit, buckets by key, or a limiter of failures.

use crate::{adaptive_driver, keyed_driver, limiter_driver};

/// The first byte chooses; a quarter of all go to the adaptive limit, and a quarter to the buckets by key.
pub(crate) fn run(bytes: &[u8]) {
    match bytes {
        [0..64, rest @ ..] => adaptive_driver::run(rest),
        [64..128, rest @ ..] => keyed_driver::run(rest),
        [_, rest @ ..] => limiter_driver::run(rest),
        [] => {}
    }
}
