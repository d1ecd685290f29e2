//! Times work, and computes the figures.

use std::time::{Duration, Instant};

use crate::Figures;

/// Times `work`. This function is not inlined, so that callgrind can count it alone (`--toggle-collect`).
#[inline(never)]
pub(crate) fn measured<R>(work: impl FnOnce() -> R) -> (R, Duration) {
    let start = Instant::now();
    let result = work();
    (result, start.elapsed())
}

pub(crate) fn per_op(time: Duration, ops: usize) -> f64 {
    time.as_nanos() as f64 / ops as f64
}

/// Returns two figures: the time per operation (`ns`) and the number of operations (`ops`). Callers that count
/// something other than time divide it by `ops`.
pub(crate) fn ns(time: Duration, ops: usize) -> Figures {
    [("ns", per_op(time, ops)), ("ops", ops as f64)].into()
}

/// Percentiles in microseconds.
pub(crate) fn percentiles(mut all: Vec<Duration>) -> Figures {
    all.sort_unstable();
    let at = |permille: usize| {
        let index = (all.len() * permille / 1000).min(all.len() - 1);
        all[index].as_nanos() as f64 / 1e3
    };
    [("p50", at(500)), ("p90", at(900)), ("p99", at(990)), ("p999", at(999)), ("max", at(1000))].into()
}
