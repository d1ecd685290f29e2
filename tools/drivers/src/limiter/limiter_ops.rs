//! What the fuzz target of that name runs: an adaptive limit, or a limiter of failures.

use crate::limiter::{aimd, policies};

/// The first byte chooses; a quarter of all go to the adaptive limit.
pub fn run(bytes: &[u8]) {
    match bytes {
        [0..64, rest @ ..] => aimd::run(rest),
        [_, rest @ ..] => policies::run(rest),
        [] => {}
    }
}
