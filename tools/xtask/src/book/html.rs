//! The links and anchors of an HTML page.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// The text of each page, by its path below the folder of the book.
pub(crate) type Pages = BTreeMap<PathBuf, String>;

/// Returns all pages of the book, except for `404.html`, whose links are relative to the root of the server.
pub(crate) fn pages(book: &Path) -> Result<Pages> {
    let mut pages = Pages::new();
    let mut folders = vec![book.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).with_context(|| folder.display().to_string())? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "html")
                && !path.ends_with("404.html")
            {
                let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
                pages.insert(path.strip_prefix(book)?.to_owned(), text);
            }
        }
    }
    Ok(pages)
}

/// Returns all values of an attribute in a page, in order. mdBook and rustdoc write all attributes in double quotes.
pub(super) fn values<'a>(page: &'a str, attribute: &str) -> Vec<&'a str> {
    let start = format!(" {attribute}=\"");
    page.split(&*start).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

/// Returns the target of a page that only redirects. rustdoc writes such a page at the path of the private module of each public item.
pub(super) fn redirection(page: &str) -> Option<&str> {
    let (_, rest) = page.split_once("<meta http-equiv=\"refresh\" content=\"0;URL=")?;
    rest.split(['"', '#']).next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_one_attribute_are_found() {
        let page = "<a id=\"x\" href=\"a.html#b\">a</a>\n<link href=\"c.css\">";
        assert_eq!(values(page, "href"), ["a.html#b", "c.css"]);
        assert_eq!(values(page, "id"), ["x"]);
    }

    #[test]
    fn the_target_of_a_redirection_is_found() {
        let page = "<head><meta http-equiv=\"refresh\" content=\"0;URL=../a/struct.A.html\"></head>";
        assert_eq!(redirection(page), Some("../a/struct.A.html"));
        assert_eq!(redirection("<a href=\"a.html\">a</a>"), None);
    }
}
