//! Checks that every commit that a Markdown page cites is in the history of `HEAD`. After a rebase, a page may still cite a commit that no other
//! clone contains.

use std::collections::BTreeSet;
use std::process::Command;

use crate::workspace::Workspace;

/// The commits of a repository, with all 40 digits of each.
#[derive(Debug)]
pub(super) struct History(BTreeSet<String>);

impl History {
    /// Returns `None`, and prints the reason, in a shallow clone or without git.
    pub(super) fn read(workspace: &Workspace) -> Option<Self> {
        let git = |args: &[&str]| {
            let output = Command::new("git").current_dir(&workspace.root).args(args).output().ok()?;
            output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
        };
        let history = match git(&["rev-parse", "--is-shallow-repository"]) {
            Some(shallow) if shallow.trim() == "false" => git(&["rev-list", "HEAD"]),
            _ => None,
        };
        if history.is_none() {
            eprintln!(
                "the commits that pages cite are not checked: this is a shallow clone, or git is missing"
            );
        }
        history.map(|commits| Self(commits.lines().map(str::to_owned).collect()))
    }

    fn contains(&self, start: &str) -> bool {
        self.0.range(start.to_owned()..).next().is_some_and(|commit| commit.starts_with(start))
    }
}

pub(super) fn check(page: &str, text: &str, history: &History) -> Vec<String> {
    let mut complaints = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let words = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for commit in words.filter(|word| is_commit(word) && !history.contains(word)) {
            complaints.push(format!("{page}:{}: the commit {commit} is not in the history", at + 1));
        }
    }
    complaints
}

/// Returns whether the word has the form of an abbreviated commit: 7 to 12 hexadecimal digits. Words without a digit, and numbers, are not commits.
fn is_commit(word: &str) -> bool {
    (7..=12).contains(&word.len())
        && word.chars().all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c))
        && word.chars().any(|c| c.is_ascii_digit())
        && word.chars().any(|c| c.is_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_commit_that_is_not_in_the_history_fails() {
        let history = History(BTreeSet::from(["03d7aeb5".repeat(5), "7f34892a".repeat(5)]));
        let text = "at 03d7aeb, [x](a#b)\n| `7f34892a7f34` |\nat 7f34893 and `d760a18`.\n";
        assert_eq!(
            check("a.md", text, &history),
            [
                "a.md:3: the commit 7f34893 is not in the history",
                "a.md:3: the commit d760a18 is not in the history"
            ]
        );
    }

    #[test]
    fn words_and_numbers_are_not_commits() {
        let history = History(BTreeSet::new());
        assert!(
            check("a.md", "effaced 10000000 0x7f34893 tag_7f34893 7f3489 03d7aeb503d7a\n", &history)
                .is_empty()
        );
    }
}
