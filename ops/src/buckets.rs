//! PURE. The bounds of histogram buckets.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

/// The error for invalid bounds of histogram buckets: there is no bound, a bound is not finite, or the bounds do not increase.
///
/// # Examples
/// ```
/// use flyball_ops::{InvalidBuckets, PrometheusQueues};
///
/// let invalid: InvalidBuckets = PrometheusQueues::with_buckets([1.0, 0.1]).unwrap_err();
/// assert_eq!(invalid.to_string(), "bounds of buckets must rise and be finite");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBuckets;

impl fmt::Display for InvalidBuckets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bounds of buckets must rise and be finite")
    }
}

impl Error for InvalidBuckets {}

pub(crate) fn buckets(bounds: impl IntoIterator<Item = f64>) -> Result<Arc<[f64]>, InvalidBuckets> {
    let bounds: Arc<[f64]> = bounds.into_iter().collect();
    let rise = bounds.windows(2).all(|pair| pair[0] < pair[1]);
    let finite = bounds.iter().all(|bound| bound.is_finite());
    if rise && finite && !bounds.is_empty() { Ok(bounds) } else { Err(InvalidBuckets) }
}
