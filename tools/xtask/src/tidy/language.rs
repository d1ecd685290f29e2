//! Forbids words that make a reader hesitate, and suggests alternatives. The check covers Markdown pages and the comments of Rust code that is not
//! test code. It skips the decision records, which are not changed any more.

use super::Source;

/// The banned words, and their alternatives. A word that ends in `*` is a prefix.
const BANNED: [(&str, &str); 16] = [
    ("told", "reported, notified, delivered"),
    ("tells", "reports, notifies"),
    ("tell", "report, notify; distinguish"),
    ("lets go", "drops, releases"),
    ("let go", "dropped, released"),
    ("whoever", "the subject by its name"),
    ("who waits", "a waiter"),
    ("hears", "receives"),
    ("believes", "the mechanism"),
    ("believed", "the mechanism"),
    ("his", "its"),
    ("him", "it"),
    ("dies", "ends, is dropped"),
    ("seat*", "reader slot"),
    ("crew*", "worker pool"),
    ("overstay*", "lease overrun"),
];

/// Pages that are not changed any more, and files that list the banned words.
const ELSEWHERE: [&str; 3] = ["docs/decisions/", "CONTRIBUTING.md", "tools/xtask/src/tidy/language.rs"];

pub(super) fn check(source: &Source) -> Vec<String> {
    let comments = source.lines.iter().enumerate().filter(|(_, line)| !line.test);
    let found = comments.flat_map(|(at, line)| banned(&line.comment).map(move |complaint| (at, complaint)));
    match is_elsewhere(&source.path) {
        true => Vec::new(),
        false => found.map(|(at, complaint)| source.at(at + 1, format_args!("{complaint}"))).collect(),
    }
}

pub(super) fn check_page(path: &str, text: &str) -> Vec<String> {
    if is_elsewhere(path) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(at, line)| banned(line).map(move |complaint| format!("{path}:{}: {complaint}", at + 1)))
        .collect()
}

fn is_elsewhere(path: &str) -> bool {
    ELSEWHERE.iter().any(|prefix| path.starts_with(prefix))
}

/// Finds banned words in prose. Code spans and link targets are skipped.
fn banned(line: &str) -> impl Iterator<Item = String> + use<> {
    let prose: String = line.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let mut parts = prose.split("](");
    let first = parts.next().unwrap_or_default().to_owned();
    let text = parts.fold(first, |text, part| text + "]" + part.split_once(')').map_or("", |(_, rest)| rest));
    let text = text.to_lowercase();
    let is_letter = |char: char| char.is_alphanumeric() || char == '_';
    let occurs = |word: &str| {
        let (word, open) = word.strip_suffix('*').map_or((word, false), |word| (word, true));
        let mut found = text.match_indices(word);
        found.any(|(at, _)| {
            !text[..at].ends_with(is_letter) && (open || !text[at + word.len()..].starts_with(is_letter))
        })
    };
    let complaints: Vec<_> = BANNED
        .iter()
        .filter(|(word, _)| occurs(word))
        .map(|(word, instead)| format!("\"{}\": {instead}", word.trim_end_matches('*')))
        .collect();
    complaints.into_iter()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_banned_word_in_a_comment_or_a_page_is_found() {
        let complaints = |text| check(&Source::read("a/src/b.rs", text).unwrap()).len();
        assert_eq!(complaints("// The subscriber is notified.\nfn told() {}\n"), 0);
        assert_eq!(complaints("//! The subscriber is told.\n"), 1);
        assert_eq!(complaints("/// Lets go of it, and tells\nfn a() {}\n"), 2);
        assert_eq!(complaints("// `told` is a name here, an untold one; let gone = 1\n"), 0);
        assert_eq!(complaints("#[cfg(test)]\nmod tests {\n    // told\n    fn a() {}\n}\n"), 0);
        assert_eq!(
            check_page("docs/a.md", "the key is told\n"),
            ["docs/a.md:1: \"told\": reported, notified, delivered"]
        );
        assert!(check_page("a.md", "slots ([0026](docs/decisions/0026-seats.md))\n").is_empty());
        assert_eq!(check_page("a.md", "[one](a.md) is told\n").len(), 1);
        assert!(check_page("docs/decisions/a.md", "told\n").is_empty());
    }
}
