//! Only one file, the shim, may name locks, atomics and the configuration flags of the model checkers. All other code
//! uses the shim, so the models check the same code that is shipped.

use super::Source;

/// The shim, which is the only file that may name them.
const SHIM: &str = "sync/src/locks.rs";

/// A test tool for any project that uses kube. It is exempt, because no model uses it and it depends on no other flyball crate.
const TEST_TOOL: &str = "kube-testing/src/";

/// Names that are forbidden outside of the shim.
const BANNED: [&str; 7] =
    ["parking_lot", "flyball_loom", "flyball_shuttle", "loom::", "shuttle::", "UnsafeCell", "crossbeam"];

/// This type is allowed although it is in a forbidden crate: it only sets an alignment, and has no state.
const PADDING: &str = "crossbeam_utils::CachePadded";

/// Items of `std::sync` that are allowed, because they add no interleavings: types for shared ownership, and types for statics that are set once.
const HARMLESS: [&str; 4] = ["Arc", "Weak", "OnceLock", "LazyLock"];

pub(super) fn check(source: &Source) -> Vec<String> {
    if source.path == SHIM || source.path.starts_with(TEST_TOOL) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (number, line) in source.shipped() {
        let code = line.code.replace(PADDING, "");
        for word in BANNED.iter().filter(|word| code.contains(**word)) {
            complaints.push(source.at(number, format_args!("`{word}` outside {SHIM}")));
        }
    }
    for (number, path) in source.shipped_paths() {
        let names: Vec<&str> = path.trim_start_matches("::").split("::").collect();
        let harmful = |name: &str| !HARMLESS.contains(&name);
        match names[..] {
            [root @ ("std" | "core"), "sync", name, ..] if harmful(name) => {
                complaints.push(source.at(number, format_args!("`{root}::sync::{name}` outside {SHIM}")));
            }
            [root @ ("std" | "core"), "sync"] => {
                complaints.push(source.at(number, format_args!("`{root}::sync` as a whole outside {SHIM}")));
            }
            _ => {}
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        check(&Source::read("a/src/b.rs", text).unwrap())
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
            complaints("use ::core::sync::atomic::AtomicU64;\n"),
            ["a/src/b.rs:1: `core::sync::atomic` outside sync/src/locks.rs"]
        );
        assert_eq!(
            complaints("use std::sync::{\n    Arc,\n    Condvar,\n};\n"),
            ["a/src/b.rs:3: `std::sync::Condvar` outside sync/src/locks.rs"]
        );
        assert_eq!(
            complaints("fn a(x: &std::sync::atomic::AtomicU64) {}\n"),
            ["a/src/b.rs:1: `std::sync::atomic` outside sync/src/locks.rs"]
        );
        assert_eq!(
            complaints("use core::{fmt, sync::{atomic::AtomicU8, atomic::AtomicU16}};\n"),
            ["a/src/b.rs:1: `core::sync::atomic` outside sync/src/locks.rs"; 2]
        );
        assert_eq!(
            complaints("use std::sync;\nuse std::{fmt, sync::*};\n"),
            [
                "a/src/b.rs:1: `std::sync` as a whole outside sync/src/locks.rs",
                "a/src/b.rs:2: `std::sync` as a whole outside sync/src/locks.rs"
            ]
        );
        assert_eq!(
            complaints("lazy! {\n    static A: std::sync::Mutex<u8> = b();\n}\n"),
            ["a/src/b.rs:2: `std::sync::Mutex` outside sync/src/locks.rs"]
        );
        assert_eq!(
            complaints("use parking_lot::Mutex;\n"),
            ["a/src/b.rs:1: `parking_lot` outside sync/src/locks.rs"]
        );
    }

    #[test]
    fn padding_is_harmless_and_the_rest_of_its_crate_is_not() {
        assert!(complaints("use crossbeam_utils::CachePadded;\n").is_empty());
        assert_eq!(
            complaints("use crossbeam_utils::CachePadded;\nuse crossbeam_utils::sync::Parker;\n"),
            ["a/src/b.rs:2: `crossbeam` outside sync/src/locks.rs"]
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
    fn shim_and_tests_are_exempt() {
        assert!(check(&Source::read(SHIM, "use parking_lot::Mutex;\n").unwrap()).is_empty());
        assert!(
            check(&Source::read("kube-testing/src/a.rs", "use parking_lot::Mutex;\n").unwrap()).is_empty()
        );
        assert!(complaints("#[cfg(test)]\nmod tests {\n    use std::sync::Mutex;\n}\n").is_empty());
    }
}
