//! CPU time and memory of this process as the kernel reports them, and a clock that all processes share.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn of(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().expect("a clock with a negative time")
}

pub(crate) fn now() -> Duration {
    of(ClockId::Monotonic)
}

/// CPU time of all threads, including those that have ended.
pub(crate) fn cpu() -> Duration {
    of(ClockId::ProcessCPUTime)
}

/// The peak of resident memory, in MiB.
pub(crate) fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}
