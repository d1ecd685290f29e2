//! Limits the length of a source file: more than 350 lines give a warning, and more than 500 give an error. Test code and blank lines do not count.

use super::Source;

const WARN: usize = 350;
const FAIL: usize = 500;

/// The files that may be longer, each with the reason why it is not split.
const EXCEPTIONS: [(&str, &str); 0] = [];

pub(super) fn check(source: &Source) -> Vec<String> {
    let lines = source.shipped().filter(|(_, line)| !line.is_blank()).count();
    if lines > FAIL && !EXCEPTIONS.iter().any(|(path, _)| *path == source.path) {
        return vec![format!("{}: {lines} source lines, the limit is {FAIL}", source.path)];
    }
    if lines > WARN {
        eprintln!("warning: {}: {lines} source lines, the budget is {WARN}", source.path);
    }
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(shipped: usize, tests: usize) -> Vec<String> {
        let shipped = "fn a() {}\n".repeat(shipped);
        let tests = "    fn b() {}\n".repeat(tests);
        let text = format!("{shipped}#[cfg(test)]\nmod tests {{\n{tests}}}\n");
        check(&Source::read("a.rs", &text).unwrap())
    }

    #[test]
    fn tests_and_empty_lines_are_not_counted() {
        assert!(lines(500, 900).is_empty());
        assert!(check(&Source::read("a.rs", &"\n".repeat(900)).unwrap()).is_empty());
    }

    #[test]
    fn a_long_file_fails() {
        assert_eq!(lines(501, 0), ["a.rs: 501 source lines, the limit is 500"]);
    }
}
