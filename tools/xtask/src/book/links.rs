//! Checks that every link of the built book leads to an existing file and anchor of the book, or to an allowed host.

use std::path::{Path, PathBuf};

use super::html::{Pages, values};
use crate::tidy::links::{is_allowed, tidied};

pub(super) fn check(pages: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, page) in pages {
        let links = values(page, "href").into_iter().chain(values(page, "src"));
        for link in links.filter(|link| !link.starts_with("data:") && !link.is_empty()) {
            if let Some(why) = broken(pages, path, link, &exists) {
                complaints.push(format!("{}: {link}: {why}", path.display()));
            }
        }
    }
    complaints.dedup();
    complaints
}

fn broken(pages: &Pages, page: &Path, link: &str, exists: impl Fn(&Path) -> bool) -> Option<&'static str> {
    if link.contains(':') {
        return (!is_allowed(link)).then_some("a host that is not on the list");
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let target: PathBuf = match file {
        "" => page.to_owned(),
        file => tidied(&page.parent().unwrap_or(Path::new("")).join(file)),
    };
    if !exists(&target) {
        return Some("no such file");
    }
    let anchor = anchor.filter(|anchor| !anchor.is_empty())?;
    let text = pages.get(&target)?;
    (!values(text, "id").contains(&anchor)).then_some("no such anchor")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(link: &str) -> Vec<String> {
        let page = |text: &str| text.to_owned();
        let pages = Pages::from([
            ("a.html".into(), page("<h1 id=\"top\">a</h1>")),
            ("guides/b.html".into(), page(&format!("<a id=\"here\" href=\"{link}\">b</a>"))),
        ]);
        check(&pages, |path| pages.contains_key(path) || path == Path::new("c.css"))
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        for link in ["../a.html", "../a.html#top", "#here", "../c.css", "#", "https://docs.rs/tokio"] {
            assert_eq!(complaints(link), [""; 0], "{link}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_fail() {
        assert_eq!(complaints("a.html"), ["guides/b.html: a.html: no such file"]);
        assert_eq!(complaints("../a.html#gone"), ["guides/b.html: ../a.html#gone: no such anchor"]);
        assert_eq!(complaints("#gone"), ["guides/b.html: #gone: no such anchor"]);
        assert_eq!(
            complaints("https://a.b/c"),
            ["guides/b.html: https://a.b/c: a host that is not on the list"]
        );
    }
}
