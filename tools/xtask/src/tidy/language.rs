//! Forbids words that make a reader hesitate, and suggests alternatives. The check covers Markdown pages, the comments and messages of Rust code and of
//! its tests, the comments of Go code, the comments and descriptions of TOML files, the texts of pictures, and the scripts and workflows of CI. It skips
//! the decision records, which are not changed any more.

use super::Source;

/// The banned words, and their alternatives. A word that ends in `*` is a prefix.
const BANNED: [(&str, &str); 43] = [
    ("told", "reported, notified, delivered"),
    ("tells", "reports, notifies"),
    ("telling", "reporting, notifying"),
    ("tell", "report, notify; distinguish"),
    ("lets go", "drops, releases"),
    ("let go", "dropped, released"),
    ("who waits", "a waiter"),
    ("hears", "receives"),
    ("hear", "receive"),
    ("heard", "received"),
    ("news", "change, event"),
    ("believes", "the mechanism"),
    ("believed", "the mechanism"),
    ("he", "it"),
    ("his", "its"),
    ("him", "it"),
    ("she", "it"),
    ("her", "its"),
    ("nobody", "no caller, no subscriber"),
    ("anybody", "any caller, any subscriber"),
    ("somebody", "the subject by its name"),
    ("someone", "the subject by its name"),
    ("everybody", "every caller, every subscriber"),
    ("whoever", "the subject by its name"),
    ("die", "end"),
    ("dies", "ends, is dropped"),
    ("died", "ended, was dropped"),
    ("dying", "ending"),
    ("lives", "exists; random operation sequences"),
    ("wish", "request"),
    ("wishes", "requests"),
    ("wished", "requested"),
    ("seat*", "reader slot"),
    ("crew*", "worker pool"),
    ("shop*", "worker pool"),
    ("staff*", "worker pool"),
    ("hire*", "start a worker, scale up"),
    ("recipe*", "index set"),
    ("standing", "leader status"),
    ("overstay*", "lease overrun"),
    ("twin*", "seeded fault"),
    ("mutant*", "seeded fault"),
    ("work in hand", "leased keys"),
];

/// Files that are not changed any more, and files that list the banned words.
const ELSEWHERE: [&str; 3] = ["docs/decisions/", "CONTRIBUTING.md", "tools/xtask/src/tidy/language.rs"];

/// Checks the comments, the string literals and the names of the functions of Rust code. A literal without a space is data, not a message.
pub(super) fn check(source: &Source) -> Vec<String> {
    if is_elsewhere(&source.path) {
        return Vec::new();
    }
    let mut complaints = Vec::new();
    for (at, line) in source.lines.iter().enumerate() {
        let messages = line.literals.iter().filter(|literal| literal.trim().contains(' '));
        let names = line.code.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
        let names: Vec<String> = names.map(|name| name.replace('_', " ")).collect();
        let found =
            std::iter::once(&line.comment).chain(messages).chain(&names).flat_map(|text| banned(text));
        complaints.extend(found.map(|complaint| source.at(at + 1, format_args!("{complaint}"))));
    }
    complaints
}

/// Checks the prose of a file that is not Rust code.
pub(super) fn check_page(path: &str, text: &str) -> Vec<String> {
    let Some(prose) = prose_of(path).filter(|_| !is_elsewhere(path)) else { return Vec::new() };
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(at, line)| {
            banned(&prose(line)).map(move |complaint| format!("{path}:{}: {complaint}", at + 1))
        })
        .collect()
}

/// The function that returns the prose in a line of a file, by the name of the file. `None` if the file is not checked.
fn prose_of(path: &str) -> Option<fn(&str) -> String> {
    let name = path.rsplit('/').next().unwrap_or(path);
    Some(match name.rsplit_once('.').map_or("", |(_, extension)| extension) {
        "md" | "yml" => |line| line.to_owned(),
        "toml" => |line| match line.split_once('#') {
            _ if line.trim_start().starts_with("description =") => line.to_owned(),
            Some((_, comment)) => comment.to_owned(),
            None => String::new(),
        },
        "go" => |line| line.split_once("//").map_or("", |(_, comment)| comment).to_owned(),
        // The text between the tags.
        "svg" => |line| {
            line.split('<').map(|part| part.rsplit('>').next().unwrap_or(part)).collect::<Vec<_>>().join(" ")
        },
        _ if path == ".ci/run" => |line| line.to_owned(),
        _ => return None,
    })
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
    fn a_banned_word_in_a_comment_or_a_message_is_found() {
        let complaints = |text| check(&Source::read("a/src/b.rs", text).unwrap()).len();
        assert_eq!(complaints("// The subscriber is notified.\nfn untold() { told() }\n"), 0);
        assert_eq!(complaints("#[test]\nfn every_subscriber_is_told() {}\n"), 1);
        assert_eq!(complaints("//! The subscriber is told.\n"), 1);
        assert_eq!(complaints("/// Lets go of it, and tells\nfn a() {}\n"), 2);
        assert_eq!(complaints("// `told` is a name here, an untold one; let gone = 1\n"), 0);
        assert_eq!(complaints("#[cfg(test)]\nmod tests {\n    // told\n    fn a() {}\n}\n"), 1);
        assert_eq!(complaints("const A: &str = \"nobody listens\";\n"), 1);
        assert_eq!(complaints("const USER: &str = \"nobody\";\n"), 0);
    }

    #[test]
    fn a_banned_word_in_a_page_is_found() {
        assert_eq!(
            check_page("docs/a.md", "the key is told\n"),
            ["docs/a.md:1: \"told\": reported, notified, delivered"]
        );
        assert!(check_page("a.md", "slots ([0026](docs/decisions/0026-seats.md))\n").is_empty());
        assert_eq!(check_page("a.md", "[one](a.md) is told\n").len(), 1);
        assert!(check_page("docs/decisions/a.md", "told\n").is_empty());
    }

    #[test]
    fn a_banned_word_in_another_file_is_found() {
        assert_eq!(check_page("a/Cargo.toml", "# random lives\nlives = 1\na = 2 # lives\n").len(), 2);
        assert_eq!(
            check_page("a/Cargo.toml", "description = \"Who is told?\"\nkeywords = [\"told\"]\n").len(),
            1
        );
        assert_eq!(check_page("a.svg", "<text class=\"told\">it is told</text><path d=\"\"/>\n").len(), 1);
        assert!(check_page("a.svg", "<text class=\"told\">it\n").is_empty());
        assert_eq!(check_page("a.go", "told := 1 // nobody\n").len(), 1);
        assert_eq!(check_page(".github/workflows/ci.yml", "# told\nname: nobody\n").len(), 2);
        assert_eq!(check_page(".ci/run", "# told\necho nobody\n").len(), 2);
        assert!(check_page("a.csv", "told\n").is_empty());
    }
}
