//! The docs of each file start with the layer of the file: PURE, SHELL or EDGE. A PURE file must not use the paths and calls in `IMPURE`.

use std::collections::BTreeSet;

use super::Source;

const LAYERS: [&str; 3] = ["PURE", "SHELL", "EDGE"];

/// Paths and calls that are forbidden in a PURE file. The functions of a PURE file receive the time and random numbers as arguments, and never wait.
const IMPURE: [&str; 12] = [
    "flyball_sync::locks",
    "crate::locks",
    "block_on",
    "std::thread",
    "std::time::Instant",
    "Instant::now",
    "SystemTime",
    ".await",
    "async fn",
    ".wake()",
    ".wake_by_ref()",
    "tokio::",
];

pub(super) fn check(source: &Source) -> Vec<String> {
    // A crate root has no layer. Neither has the shim `locks.rs`, because all layers use it.
    if source.path.ends_with("src/lib.rs") || source.path == "sync/src/locks.rs" {
        return Vec::new();
    }
    let first = source.docs().next().unwrap_or_default().split_whitespace().next().unwrap_or_default();
    let layer = first.trim_end_matches(|c: char| !c.is_alphanumeric());
    if !LAYERS.contains(&layer) {
        return vec![
            source.at(1, format_args!("the docs start with {first:?}, not with PURE, SHELL or EDGE")),
        ];
    }
    if layer != "PURE" {
        return Vec::new();
    }
    let lines = source.shipped().map(|(number, line)| (number, line.code.as_str()));
    let found = lines.chain(source.shipped_paths()).flat_map(|(number, code)| {
        IMPURE.into_iter().filter(|word| code.contains(word)).map(move |word| (number, word))
    });
    // The set removes duplicates: most paths are found both in the text of the line and among the parsed paths.
    let found: BTreeSet<(usize, &str)> = found.collect();
    found
        .into_iter()
        .map(|(number, word)| source.at(number, format_args!("`{word}` in a PURE file")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        check(&Source::read("a/src/b.rs", text).unwrap())
    }

    #[test]
    fn a_layer_comes_first() {
        assert!(complaints("//! PURE. Integer time.\n").is_empty());
        assert!(complaints("//! SHELL: one lock.\nuse flyball_sync::locks::Mutex;\n").is_empty());
        assert_eq!(
            complaints("//! Integer time.\n"),
            ["a/src/b.rs:1: the docs start with \"Integer\", not with PURE, SHELL or EDGE"]
        );
        assert_eq!(complaints("fn a() {}\n").len(), 1);
    }

    #[test]
    fn roots_and_shims_have_none() {
        assert!(check(&Source::read("a/src/lib.rs", "//! Crate.\n").unwrap()).is_empty());
        assert!(check(&Source::read("sync/src/locks.rs", "//! Shim.\n").unwrap()).is_empty());
    }

    #[test]
    fn a_pure_file_stays_pure() {
        assert_eq!(
            complaints("//! PURE.\nuse flyball_sync::locks::Mutex;\n// Instant::now is not called\n"),
            ["a/src/b.rs:2: `flyball_sync::locks` in a PURE file"]
        );
        assert_eq!(
            complaints("//! PURE.\nuse std::{\n    fmt,\n    thread,\n};\n"),
            ["a/src/b.rs:4: `std::thread` in a PURE file"]
        );
        assert_eq!(
            complaints("//! PURE.\nasync fn a() {\n    b().await;\n    c.wake();\n}\n"),
            [
                "a/src/b.rs:2: `async fn` in a PURE file",
                "a/src/b.rs:3: `.await` in a PURE file",
                "a/src/b.rs:4: `.wake()` in a PURE file"
            ]
        );
    }
}
