//! EDGE. CPU time and memory of this process, as the kernel reports them. Linux only; `None` elsewhere.
//!
//! Cancel safety: this module has no async code.

use std::fs;

use serde::Serialize;

/// The memory of the process, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Memory {
    /// The resident memory before the first pass. This is the decoded trace, and memory that the decoder has used and that the allocator has not
    /// returned to the system.
    pub(crate) before: u64,
    /// The peak resident memory since then.
    pub(crate) peak: u64,
}

/// A memory measurement in progress.
#[derive(Debug)]
pub(crate) struct Watched {
    before: u64,
}

impl Watched {
    /// Starts a measurement. Resets the peak value of the kernel, which would otherwise include the decoding of the trace. Returns `None` if the
    /// kernel does not support this.
    pub(crate) fn begin() -> Option<Self> {
        fs::write("/proc/self/clear_refs", "5").ok()?;
        Some(Self { before: status("VmRSS:")? })
    }

    pub(crate) fn end(&self) -> Option<Memory> {
        Some(Memory { before: self.before, peak: status("VmHWM:")? })
    }
}

fn status(name: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kibibytes| kibibytes * 1024)
}

/// Returns the CPU time of the threads of this process, in seconds. Threads that have ended are not included.
pub(crate) fn cpu_seconds() -> Option<f64> {
    let threads = fs::read_dir("/proc/self/task").ok()?;
    let ran = threads.flatten().filter_map(|thread| {
        let stat = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        stat.split(' ').next()?.parse::<u64>().ok()
    });
    Some(ran.sum::<u64>() as f64 / 1e9)
}
