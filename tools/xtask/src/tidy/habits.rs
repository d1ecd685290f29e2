//! Forbids weak tests and examples: ignored tests, `should_panic` without a message, sleeps, and examples that are not compiled.

use super::Source;

/// The folders whose tests may be ignored if they state a reason: `cargo xtask e2e` runs them.
const ELSEWHERE: [&str; 4] = [
    "tools/e2e/tests/",
    "tools/replay/tests/kube/",
    "docs/examples/controllers/tests/e2e/",
    // The other tests of this program test the same scenarios without a cluster.
    "docs/examples/programs/tests/e2e/",
];

/// The forbidden attributes and calls, each with the reason or the alternative.
const WEAK: [(&str, &str); 3] = [
    ("#[ignore", "an ignored test checks nothing"),
    ("#[should_panic]", "say which panic: `expected = \"…\"`"),
    ("thread::sleep", "virtual time instead: ManualClock"),
];

pub(super) fn check(source: &Source) -> Vec<String> {
    let in_tests = ["/tests/", "/benches/", "loom-tests/", "tools/drivers/", "tools/testkit/"];
    let all = in_tests.iter().any(|folder| source.path.contains(folder));
    let mut complaints = Vec::new();
    for (at, line) in source.lines.iter().enumerate().filter(|(_, line)| all || line.test) {
        for (word, instead) in WEAK.iter().filter(|(word, _)| line.code.contains(word)) {
            let elsewhere = ELSEWHERE.iter().any(|folder| source.path.starts_with(folder));
            if elsewhere && line.code.contains("#[ignore = ") {
                continue;
            }
            complaints.push(source.at(at + 1, format_args!("`{word}`: {instead}")));
        }
    }
    complaints
}

/// Finds code blocks that are not compiled, in Rust docs or in a page.
pub(super) fn check_docs(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start().trim_start_matches(['/', '!']).trim_start();
        let Some(words) = line.strip_prefix("```") else { continue };
        if words.split([',', ' ']).any(|word| word == "ignore" || word.starts_with("ignore-")) {
            complaints.push(format!("{path}:{}: an example that is not compiled", at + 1));
        }
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weak_tests_fail() {
        let complaints = |text| check(&Source::read("a/tests/it/b.rs", text).unwrap()).len();
        assert_eq!(complaints("#[test]\nfn a() {}\n"), 0);
        assert_eq!(complaints("#[ignore = \"slow\"]\nfn a() {}\n"), 1);
        assert_eq!(complaints("#[should_panic]\nfn a() {}\n"), 1);
        assert_eq!(complaints("#[should_panic(expected = \"why\")]\nfn a() {}\n"), 0);
        assert_eq!(complaints("fn a() {\n    std::thread::sleep(second);\n}\n"), 1);
        assert_eq!(complaints("// thread::sleep would be wrong\n"), 0);
    }

    #[test]
    fn what_another_command_runs_is_ignored_with_a_reason() {
        let complaints = |path, text| check(&Source::read(path, text).unwrap()).len();
        assert_eq!(complaints("tools/e2e/tests/a.rs", "#[ignore = \"needs a server\"]\nfn a() {}\n"), 0);
        assert_eq!(complaints("tools/e2e/tests/a.rs", "#[ignore]\nfn a() {}\n"), 1);
        assert_eq!(complaints("tools/e2e/tests/kube/a.rs", "#[should_panic]\nfn a() {}\n"), 1);
        assert_eq!(complaints("kube-adapter/tests/it/a.rs", "#[ignore = \"slow\"]\nfn a() {}\n"), 1);
    }

    #[test]
    fn shipped_code_is_not_checked() {
        let text = "fn a() {\n    std::thread::sleep(second);\n}\n";
        assert!(check(&Source::read("a/src/b.rs", text).unwrap()).is_empty());
    }

    #[test]
    fn an_example_has_to_compile() {
        assert_eq!(check_docs("a.rs", "/// ```ignore\n/// x\n/// ```\n").len(), 1);
        assert_eq!(check_docs("a.md", "```rust,ignore\n```\n").len(), 1);
        assert_eq!(check_docs("a.md", "```no_run\n```\n```text\nignore\n```\n").len(), 0);
    }
}
