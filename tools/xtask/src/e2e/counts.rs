//! The numbers of passed and failed tests that test programs print.

use std::fmt;

/// The sum of the counts of all test programs of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) passed: u64,
    pub(super) failed: u64,
}

impl Counts {
    /// Adds the counts that a line of output reports. A line that is not a test result is ignored.
    pub(super) fn add(&mut self, line: &str) {
        let Some(result) = line.strip_prefix("test result: ") else { return };
        let words: Vec<&str> = result.split([' ', ';', '.']).filter(|word| !word.is_empty()).collect();
        for pair in words.windows(2) {
            let Ok(number) = pair[0].parse::<u64>() else { continue };
            match pair[1] {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                _ => {}
            }
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)
    }
}

/// Returns the number of tests in `list` whose path contains `part`.
pub(super) fn listed(list: &str, part: &str) -> usize {
    list.lines().filter(|line| line.strip_suffix(": test").is_some_and(|path| path.contains(part))).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_add_up() {
        let mut counts = Counts::default();
        counts.add(
            "test result: ok. 8 passed; 0 failed; 1 ignored; 0 measured; 3 filtered out; finished in 31.60s",
        );
        counts.add(
            "test result: FAILED. 1 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0s",
        );
        counts.add("test 5 passed ... ok");
        assert_eq!(counts, Counts { passed: 9, failed: 2 });
        assert_eq!(counts.to_string(), "9 passed, 2 failed");
    }

    #[test]
    fn a_list_is_counted_by_path() {
        let list = "own_cluster::a: test\nb::own_cluster::c: test\nd: test\n\n3 tests, 0 benchmarks\n";
        assert_eq!(listed(list, "own_cluster::"), 2);
    }
}
