//! SHELL. Statistics of the waits for tokens. Each number is a separate atomic. A snapshot reads the numbers one after another, so they may be from
//! slightly different times.

use std::time::Duration;

use flyball_sync::Nanos;
use flyball_sync::locks::{AtomicU64, Ordering};

use crate::ThrottleLayer;

/// Statistics of a [`ThrottleLayer`](crate::ThrottleLayer) since its creation: the number of its requests, and how long they waited for their tokens.
///
/// # Examples
/// ```
/// use flyball_kube::ThrottleStats;
/// use std::time::Duration;
///
/// fn mean_wait(stats: ThrottleStats) -> Duration {
///     let delayed = u32::try_from(stats.delayed).unwrap_or(u32::MAX);
///     stats.total_wait.checked_div(delayed).unwrap_or_default()
/// }
/// assert_eq!(mean_wait(ThrottleStats::default()), Duration::ZERO);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ThrottleStats {
    /// The number of requests that were granted a token.
    pub requests: u64,
    /// The number of these requests that had to wait for their token.
    pub delayed: u64,
    /// The sum of all waits.
    pub total_wait: Duration,
    /// The longest wait.
    pub longest_wait: Duration,
}

#[derive(Default)]
pub(super) struct StatsCounters {
    requests: AtomicU64,
    delayed: AtomicU64,
    total: AtomicU64,
    longest: AtomicU64,
    /// No warning about a long wait is logged before this time.
    quiet_until: AtomicU64,
}

impl StatsCounters {
    pub(super) fn count_request(&self) {
        // Ordering: Relaxed here and below, because the numbers publish no other memory.
        self.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a wait that has ended. Returns whether a warning about this wait must be logged.
    pub(super) fn waited(&self, waited: Duration, now: Nanos) -> bool {
        let nanos = u64::try_from(waited.as_nanos()).unwrap_or(u64::MAX);
        self.count_request();
        // Ordering: as above.
        self.delayed.fetch_add(1, Ordering::Relaxed);
        // Ordering: as above.
        self.total.fetch_add(nanos, Ordering::Relaxed);
        // Ordering: as above.
        self.longest.fetch_max(nanos, Ordering::Relaxed);
        waited >= ThrottleLayer::TOO_LONG && self.may_log(now)
    }

    fn may_log(&self, now: Nanos) -> bool {
        let (now, until) = (now.get(), (now + LOG_INTERVAL).get());
        // Ordering: as above. If several threads reach this line at once, only one thread's `compare_exchange` succeeds.
        let quiet_until = self.quiet_until.load(Ordering::Relaxed);
        if now < quiet_until {
            return false;
        }
        // Ordering: as above.
        self.quiet_until.compare_exchange(quiet_until, until, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    pub(super) fn read(&self) -> ThrottleStats {
        // Ordering: as above.
        let read = |number: &AtomicU64| number.load(Ordering::Relaxed);
        ThrottleStats {
            requests: read(&self.requests),
            delayed: read(&self.delayed),
            total_wait: Duration::from_nanos(read(&self.total)),
            longest_wait: Duration::from_nanos(read(&self.longest)),
        }
    }
}

const LOG_INTERVAL: Duration = Duration::from_secs(10);
