//! Checks that a published crate contains a readme, a changelog, and the two licences of the repository. The readme
//! and the changelog are also shown outside of the repository, so they must not contain relative links to files
//! outside of the package.

use anyhow::Result;

use crate::workspace::Workspace;

const LICENCES: [&str; 2] = ["LICENSE-MIT", "LICENSE-APACHE"];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let mut complaints = Vec::new();
    for package in workspace.published() {
        let folder = package.folder(workspace);
        for name in ["README.md", "CHANGELOG.md"] {
            let path = folder.join(name);
            match workspace.read(&path) {
                Ok(text) if text.lines().count() > 5 => {
                    complaints.extend(outside(&path.to_string_lossy(), &text))
                }
                Ok(_) => complaints.push(format!("{}: is almost empty", path.display())),
                Err(_) => complaints.push(format!("{}: missing", path.display())),
            }
        }
        for name in LICENCES {
            let path = folder.join(name);
            match workspace.read(&path) {
                Ok(text) if text == workspace.read(name)? => {}
                Ok(_) => complaints.push(format!("{}: differs from the root's", path.display())),
                Err(_) => complaints.push(format!("{}: missing", path.display())),
            }
        }
    }
    Ok(complaints)
}

/// Finds links to files outside of the package.
fn outside(page: &str, text: &str) -> Vec<String> {
    let lines =
        text.lines().enumerate().filter(|(_, line)| line.contains("](../") || line.contains("]: ../"));
    lines.map(|(at, _)| format!("{page}:{}: the link is dead outside the repository", at + 1)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_out_of_the_package_fails() {
        let text = "see [a](../docs/a.md)\nand [b](CHANGELOG.md), [c](https://docs.rs)\n[d]: ../d.md\n";
        let complaints = outside("a/README.md", text);
        assert_eq!(
            complaints,
            [
                "a/README.md:1: the link is dead outside the repository",
                "a/README.md:3: the link is dead outside the repository"
            ]
        );
    }
}
