//! Resident memory of the process.

use std::fs;

use crate::Figures;

pub(crate) struct Memory {
    before: f64,
}

impl Memory {
    /// Resets the peak, and starts a measurement.
    pub(crate) fn watch() -> Self {
        fs::write("/proc/self/clear_refs", "5").expect("Linux");
        Self { before: status("VmRSS:") }
    }

    /// Inserts two figures, in MiB: the resident memory at the start, and how much the peak since then exceeds it.
    pub(crate) fn end(&self, figures: &mut Figures) {
        figures.insert("before", self.before);
        figures.insert("grown", (status("VmHWM:") - self.before).max(0.0));
    }
}

fn status(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a kernel value");
    let kibibytes = line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number");
    kibibytes / 1024.0
}
