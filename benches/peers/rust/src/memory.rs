//! What the process has resident.

use std::fs;

use crate::Figures;

pub(crate) struct Memory {
    before: f64,
}

impl Memory {
    /// Forgets the peak so far.
    pub(crate) fn watch() -> Self {
        fs::write("/proc/self/clear_refs", "5").expect("Linux");
        Self { before: status("VmRSS:") }
    }

    /// In MiB: what was resident before, and by how much the most that was since is more.
    pub(crate) fn end(&self, figures: &mut Figures) {
        figures.insert("before", self.before);
        figures.insert("grown", (status("VmHWM:") - self.before).max(0.0));
    }
}

fn status(name: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("it is told");
    let kibibytes = line.trim().trim_end_matches("kB").trim().parse::<f64>().expect("a number");
    kibibytes / 1024.0
}
