//! Links of the book to files of the repository. These files are copied into the book, so that its links work without a clone of the repository.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::html::{self, values};
use super::{SOURCES, write};
use crate::tidy::links::tidied;
use crate::workspace::Workspace;

/// The folder of the book into which the files are copied.
const FOLDER: &str = "repository";

/// Copies each file of the repository that a page links to, and rewrites the links to the copies.
pub(super) fn bring(workspace: &Workspace, book: &Path) -> Result<()> {
    for (path, page) in html::pages(book)? {
        let mut text = page.clone();
        for link in values(&page, "href") {
            let Some(file) = outside(&path, link, |file| workspace.root.join(file).is_file()) else {
                continue;
            };
            let copy = Path::new(FOLDER).join(&file);
            let from = workspace.root.join(&file);
            write(&book.join(&copy), fs::read(&from).with_context(|| from.display().to_string())?)?;
            let up = "../".repeat(path.components().count() - 1);
            text = text.replace(&format!("href=\"{link}\""), &format!("href=\"{up}{}\"", copy.display()));
        }
        if text != page {
            write(&book.join(&path), text)?;
        }
    }
    Ok(())
}

/// Returns the file of the repository that a link refers to; `None` if there is no such file, or if it is a page of the book. mdBook
/// replaces `.md` by `.html` in links, so a link to `README.html` refers to `README.md`.
fn outside(page: &Path, link: &str, is_file: impl Fn(&Path) -> bool) -> Option<PathBuf> {
    let source = Path::new(SOURCES).join(page);
    let file = link.split('#').next().filter(|file| file.starts_with("../"))?;
    let file = tidied(&source.parent()?.join(file));
    if file.starts_with(SOURCES) {
        return None;
    }
    let page = file.with_extension("md");
    if file.extension().is_some_and(|extension| extension == "html") && is_file(&page) {
        return Some(page);
    }
    is_file(&file).then_some(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_outside_of_the_book_are_found() {
        let outside = |page: &str, link| {
            outside(Path::new(page), link, |file| {
                ["ops/README.md", "a/b.rs"].contains(&file.to_str().unwrap())
            })
        };
        assert_eq!(outside("kube.html", "../../../ops/README.html#part"), Some("ops/README.md".into()));
        assert_eq!(outside("guides/a.html", "../../../../a/b.rs"), Some("a/b.rs".into()));
        assert_eq!(outside("guides/a.html", "../kube.html"), None);
        assert_eq!(outside("kube.html", "../../../gone.rs"), None);
        assert_eq!(outside("kube.html", "css/a.css"), None);
    }
}
