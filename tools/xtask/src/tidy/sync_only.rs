//! Locks, atomics and the model checkers' switches are named in one file alone: what is checked is what ships.

use super::Source;

/// The only file that may.
const SHIM: &str = "sync/src/locks.rs";

/// Never outside it.
const BANNED: [&str; 8] = [
    "parking_lot",
    "flyball_loom",
    "flyball_shuttle",
    "loom::",
    "shuttle::",
    "core::sync::atomic",
    "UnsafeCell",
    "crossbeam",
];

/// What std's `sync` offers without an interleaving of ours: shared ownership, and statics set once.
const HARMLESS: [&str; 4] = ["Arc", "Weak", "OnceLock", "LazyLock"];

pub(super) fn check(source: &Source) -> Vec<String> {
    if source.path == SHIM {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    let mut import = String::new();
    for (number, line) in source.shipped() {
        for word in BANNED.iter().filter(|word| line.code.contains(**word)) {
            complaints.push(source.at(number, format_args!("`{word}` outside {SHIM}")));
        }
        // An import may go over several lines.
        import.push_str(&line.code);
        if import.contains("std::sync::")
            && !import.contains([';', ')', '(', '='])
            && !import.trim().is_empty()
        {
            continue;
        }
        for word in named(&import) {
            complaints.push(source.at(number, format_args!("`std::sync::{word}` outside {SHIM}")));
        }
        import.clear();
    }
    complaints
}

/// What a statement names of `std::sync` that is not harmless.
fn named(statement: &str) -> Vec<String> {
    let mut names = Vec::new();
    for rest in statement.split("std::sync::").skip(1) {
        let names_here: Vec<&str> = match rest.strip_prefix('{') {
            Some(group) => group.split('}').next().unwrap_or_default().split(',').collect(),
            None => vec![rest],
        };
        for name in names_here {
            let name = name.trim_start();
            let word: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            if !word.is_empty() && !HARMLESS.contains(&word.as_str()) {
                names.push(word);
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        check(&Source::read("a/src/b.rs", text))
    }

    #[test]
    fn shared_ownership_is_harmless() {
        assert!(complaints("use std::sync::{Arc, Weak};\nuse std::sync::Arc;\n").is_empty());
        assert!(complaints("use flyball_sync::locks::Mutex;\n// parking_lot, std::sync::Mutex\n").is_empty());
    }

    #[test]
    fn a_lock_is_not() {
        assert_eq!(
            complaints("use std::sync::Mutex;\n"),
            ["a/src/b.rs:1: `std::sync::Mutex` outside sync/src/locks.rs"]
        );
        assert_eq!(
            complaints("use std::sync::{\n    Arc,\n    Condvar,\n};\n"),
            ["a/src/b.rs:4: `std::sync::Condvar` outside sync/src/locks.rs"]
        );
        assert_eq!(
            complaints("fn a(x: &std::sync::atomic::AtomicU64) {}\n"),
            ["a/src/b.rs:1: `std::sync::atomic` outside sync/src/locks.rs"]
        );
        assert_eq!(
            complaints("use parking_lot::Mutex;\n"),
            ["a/src/b.rs:1: `parking_lot` outside sync/src/locks.rs"]
        );
    }

    #[test]
    fn a_switch_is_not() {
        assert_eq!(
            complaints("#[cfg(not(flyball_loom))]\nfn a() {}\n"),
            ["a/src/b.rs:1: `flyball_loom` outside sync/src/locks.rs"]
        );
    }

    #[test]
    fn the_shim_and_tests_may() {
        assert!(check(&Source::read(SHIM, "use parking_lot::Mutex;\n")).is_empty());
        assert!(complaints("#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}\n").is_empty());
    }
}
