//! The date of a run, and a description of the machine on which it runs.

use std::fs;

/// Returns the number and the model of the processors, and the size of the memory.
pub(super) fn describe() -> String {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let model = field("/proc/cpuinfo", "model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    let memory = field("/proc/meminfo", "MemTotal").and_then(|text| gibibytes(&text));
    let memory = memory.map_or(String::new(), |memory| format!(", {memory} GiB"));
    format!("{processors} × {model}{memory}")
}

/// Returns the value of the first line with this name in a file whose lines have the form `name: value`.
fn field(file: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(file).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim().replace('|', "/"))
}

/// Converts a text like `16384000 kB` to a rounded number of GiB.
fn gibibytes(text: &str) -> Option<u64> {
    let kibibytes: u64 = text.split(' ').next()?.parse().ok()?;
    Some((kibibytes + (1 << 19)) >> 20)
}

/// Returns the day in UTC, in the form `2026-01-31`.
pub(super) fn date(seconds: u64) -> String {
    let mut days = seconds / 86_400;
    let mut year = 1970;
    let leap = |year: u64| (year.is_multiple_of(4) && !year.is_multiple_of(100)) || year.is_multiple_of(400);
    while days >= 365 + u64::from(leap(year)) {
        days -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while days >= lengths[month] {
        days -= lengths[month];
        month += 1;
    }
    format!("{year}-{:02}-{:02}", month + 1, days + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(951_782_400), "2000-02-29");
        assert_eq!(date(951_868_800), "2000-03-01");
        assert_eq!(date(1_798_761_599), "2026-12-31");
        assert_eq!(date(1_798_761_600), "2027-01-01");
    }

    #[test]
    fn memory_is_rounded_to_gibibytes() {
        assert_eq!(gibibytes("16384000 kB"), Some(16));
        assert_eq!(gibibytes("kB"), None);
    }
}
