//! Measures how long a thread makes no progress. The time in which the thread is runnable but the kernel runs a
//! different thread is excluded, because it is caused by the load of the machine, not by the store.

use std::fs;
use std::time::{Duration, Instant};

/// For a shorter time, the kernel's statistics are not read, because reading them would take longer than that time.
const SHORT: Duration = Duration::from_micros(20);

pub(crate) struct Stalls {
    last: Instant,
    queued: Duration,
    /// The longest time between two consecutive calls of `note`.
    pub(crate) slowest: Duration,
    /// The longest time between two consecutive calls of `note`, without the time in which the thread waited for a core.
    pub(crate) blocked: Duration,
}

impl Stalls {
    pub(crate) fn begin() -> Self {
        let queued = queued();
        Self { last: Instant::now(), queued, slowest: Duration::ZERO, blocked: Duration::ZERO }
    }

    pub(crate) fn note(&mut self) {
        let now = Instant::now();
        let gap = now - self.last;
        self.last = now;
        if gap <= SHORT {
            self.slowest = self.slowest.max(gap);
            self.blocked = self.blocked.max(gap);
            return;
        }
        let queued = queued();
        self.slowest = self.slowest.max(gap);
        self.blocked = self.blocked.max(gap.saturating_sub(queued - self.queued));
        self.queued = queued;
        self.last = Instant::now();
    }
}

/// How long this thread has waited for a core so far.
fn queued() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    let waited = stat.split(' ').nth(1).and_then(|waited| waited.parse().ok());
    Duration::from_nanos(waited.expect("ran, waited, slices"))
}
