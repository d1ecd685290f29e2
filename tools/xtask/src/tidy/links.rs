//! Checks the links of Markdown pages. The files and anchors of relative links must exist, and so must source files whose paths are in backticks.
//! Absolute links may lead only to the hosts in `HOSTS`.

use std::path::{Component, Path, PathBuf};

/// The hosts that pages may link to. The check does not fetch links, so check a new host by hand before you add it.
const HOSTS: [&str; 4] = ["docs.rs", "keepachangelog.com", "rustup.rs", "semver.org"];

/// Returns a complaint for each link target that does not exist or has a host that is not allowed. `read` returns the text of a file. Paths in
/// backticks are relative to the root or to the folder of the page.
pub(super) fn check(
    page: &str,
    text: &str,
    exists: impl Fn(&Path) -> bool,
    read: impl Fn(&Path) -> Option<String>,
) -> Vec<String> {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut complaints = Vec::new();
    for (number, line) in prose(text) {
        let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        for link in links.filter(|link| !link.contains("::")) {
            if link.contains(':') {
                if !is_allowed(link) {
                    complaints.push(format!("{page}:{number}: a host that is not on the list: {link}"));
                }
                continue;
            }
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() { PathBuf::from(page) } else { tidied(&folder.join(file)) };
            if !exists(&path) {
                complaints.push(format!("{page}:{number}: there is no {}", path.display()));
            } else if !anchor.is_empty() && path.extension().is_some_and(|extension| extension == "md") {
                let target = read(&path).unwrap_or_default();
                if !anchors(&target).iter().any(|found| found == anchor) {
                    complaints.push(format!("{page}:{number}: {} has no heading #{anchor}", path.display()));
                }
            }
        }
        let sources =
            line.split('`').skip(1).step_by(2).filter(|path| path.contains('/') && path.ends_with(".rs"));
        let sources = sources.filter(|path| !path.contains(['<', '*', ' ', '{', '…'])).map(Path::new);
        for path in sources.filter(|path| !exists(&folder.join(path)) && !exists(path)) {
            complaints.push(format!("{page}:{number}: there is no {}", path.display()));
        }
    }
    complaints
}

/// Returns whether a page may contain a link with this scheme and host. Before the first release, links to the docs of these crates on docs.rs are dead,
/// and later they would show a different version: an intra-doc link or a plain name has neither problem.
pub(crate) fn is_allowed(link: &str) -> bool {
    if ["https://docs.rs/flyball-", "https://docs.rs/crate/flyball-"].iter().any(|own| link.starts_with(own))
    {
        return false;
    }
    let host = link.strip_prefix("https://").and_then(|rest| rest.split(['/', '#', '?']).next());
    host.is_some_and(|host| HOSTS.contains(&host))
}

/// Returns the lines outside of code blocks, with their line numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut example = false;
    text.lines().enumerate().filter_map(move |(at, line)| {
        let fence = line.trim_start().starts_with("```");
        example ^= fence;
        (!example && !fence).then_some((at + 1, line))
    })
}

/// Returns the anchors of a page. An anchor is a heading in lower case, without punctuation, and with hyphens instead of spaces.
fn anchors(text: &str) -> Vec<String> {
    let headings = prose(text).filter(|(_, line)| line.starts_with('#'));
    let slug = |heading: &str| -> String {
        let kept = heading.chars().filter(|c| c.is_alphanumeric() || "_- ".contains(*c));
        kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
    };
    headings.map(|(_, line)| slug(line.trim_start_matches('#').trim())).collect()
}

/// Returns the path with its `.` and `..` components resolved.
pub(crate) fn tidied(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => drop(tidied.pop()),
            Component::CurDir => {}
            other => tidied.push(other),
        }
    }
    tidied
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(page: &str, text: &str) -> Vec<String> {
        let known = |path: &Path| ["a.md", "docs/b.md", "q/src/core.rs"].contains(&path.to_str().unwrap());
        check(page, text, known, |_| {
            Some("# B\n```sh\n# no heading\n```\n## The `first` part, again\n".into())
        })
    }

    #[test]
    fn pointers_that_hold_pass() {
        assert!(
            complaints(
                "docs/b.md",
                "[a](../a.md) [b](b.md#the-first-part-again) [web](https://docs.rs/c) [here](#b)"
            )
            .is_empty()
        );
        assert!(complaints("a.md", "the moves in `q/src/core.rs`, `sync.rs`, `tests/<name>.rs`").is_empty());
        assert!(complaints("q/README.md", "`src/core.rs`").is_empty());
        assert!(complaints("a.md", "```rust\nlet a = b[0](c.md);\n```\n").is_empty());
    }

    #[test]
    fn dead_links_fail() {
        assert_eq!(complaints("docs/b.md", "\n[a](a.md)"), ["docs/b.md:2: there is no docs/a.md"]);
        assert_eq!(complaints("a.md", "`q/src/gone.rs`"), ["a.md:1: there is no q/src/gone.rs"]);
        assert_eq!(complaints("a.md", "[b](docs/b.md#gone)"), ["a.md:1: docs/b.md has no heading #gone"]);
        assert_eq!(complaints("a.md", "[b](#no-heading)"), ["a.md:1: a.md has no heading #no-heading"]);
    }

    #[test]
    fn other_hosts_are_listed() {
        let complaint = "a.md:1: a host that is not on the list: https://a.b/c";
        assert_eq!(complaints("a.md", "[web](https://a.b/c)"), [complaint]);
        assert_eq!(complaints("a.md", "[web](http://docs.rs)").len(), 1);
        assert_eq!(complaints("a.md", "[own](https://docs.rs/flyball-sync)").len(), 1);
    }
}
