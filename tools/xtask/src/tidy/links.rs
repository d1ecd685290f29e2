//! Pages point at files that exist: relative links, and paths of sources in backticks.

use std::path::{Component, Path, PathBuf};

/// Complains about a page's pointers to what `exists` does not know. Paths in backticks count from the root or the page.
pub(super) fn check(page: &str, text: &str, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let folder = Path::new(page).parent().unwrap_or(Path::new(""));
    let mut complaints = Vec::new();
    // Names of files that were, and of some that are to be.
    if page.starts_with("docs/renames/") {
        return complaints;
    }
    let mut example = false;
    for (at, line) in text.lines().enumerate() {
        example ^= line.trim_start().starts_with("```");
        if example {
            continue;
        }
        let links = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        let links =
            links.filter(|link| !link.contains(':') && !link.starts_with('#') && !link.contains("::"));
        let links = links.map(|link| tidied(&folder.join(link.split('#').next().unwrap_or(link))));
        let sources =
            line.split('`').skip(1).step_by(2).filter(|path| path.contains('/') && path.ends_with(".rs"));
        let sources = sources.filter(|path| !path.contains(['<', '*', ' ', '{', '…'])).map(PathBuf::from);
        let sources = sources.filter(|path| !exists(&folder.join(path)));
        for path in links.chain(sources).filter(|path| !exists(path)) {
            complaints.push(format!("{page}:{}: there is no {}", at + 1, path.display()));
        }
    }
    complaints
}

/// Without `.` and `..`.
fn tidied(path: &Path) -> PathBuf {
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
        check(page, text, |path| ["a.md", "docs/b.md", "q/src/core.rs"].contains(&path.to_str().unwrap()))
    }

    #[test]
    fn pointers_that_hold_pass() {
        assert!(
            complaints("docs/b.md", "[a](../a.md) [b](b.md#part) [web](https://a.b/c) [here](#part)")
                .is_empty()
        );
        assert!(complaints("a.md", "the moves in `q/src/core.rs`, `sync.rs`, `tests/<name>.rs`").is_empty());
        assert!(complaints("q/README.md", "`src/core.rs`").is_empty());
        assert!(complaints("a.md", "```rust\nlet a = b[0](c.md);\n```\n").is_empty());
    }

    #[test]
    fn pointers_into_the_void_fail() {
        assert_eq!(complaints("docs/b.md", "\n[a](a.md)"), ["docs/b.md:2: there is no docs/a.md"]);
        assert_eq!(complaints("a.md", "`q/src/gone.rs`"), ["a.md:1: there is no q/src/gone.rs"]);
    }
}
