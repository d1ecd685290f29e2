//! CPU time and thread count of this process, as the kernel reports them.

use std::fs;
use std::time::Duration;

/// CPU time of all threads.
pub(crate) fn cpu() -> Duration {
    let threads = fs::read_dir("/proc/self/task").expect("Linux");
    let ran = threads.flatten().filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Duration::from_nanos(ran.sum())
}

/// The number of threads alive.
pub(crate) fn threads() -> usize {
    fs::read_dir("/proc/self/task").expect("Linux").count()
}
