//! What the kernel says of this process, and its clock, which is that of all processes.

use std::fs;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

fn of(clock: ClockId) -> Duration {
    clock_gettime(clock).try_into().expect("clocks do not run backwards")
}

pub(crate) fn now() -> Duration {
    of(ClockId::Monotonic)
}

/// Time that all threads have run, those that ended included.
pub(crate) fn cpu() -> Duration {
    of(ClockId::ProcessCPUTime)
}

/// The most memory that was resident, in MiB.
pub(crate) fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux");
    line.trim().trim_end_matches(" kB").parse::<f64>().expect("a number") / 1024.0
}
