//! Checks that every link of the built book leads to an existing file and anchor of the book, or to an allowed host. The same check is used for the
//! links between the pages that rustdoc builds.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::html::{Pages, redirection, values};
use crate::tidy::links::{is_allowed, tidied};

pub(super) fn check(pages: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    check_links(pages, &["href", "src"], |link| !link.starts_with("data:") && !link.is_empty(), &exists)
}

/// Checks only links to pages, with their anchors. Links to other hosts are skipped, and so are relative links that do not lead to an HTML file: rustdoc
/// copies them, unresolved, from the docs of traits of other crates.
pub(crate) fn check_own(pages: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let is_own = |link: &str| {
        let file = link.split('#').next().unwrap_or_default();
        !link.is_empty() && !link.contains(':') && (file.is_empty() || file.ends_with(".html"))
    };
    check_links(pages, &["href"], is_own, &exists)
}

fn check_links(
    pages: &Pages,
    attributes: &[&str],
    is_checked: impl Fn(&str) -> bool,
    exists: &impl Fn(&Path) -> bool,
) -> Vec<String> {
    let (mut found, mut complaints) = (false, BTreeSet::new());
    for (path, page) in pages {
        for link in attributes.iter().flat_map(|attribute| values(page, attribute)) {
            found = true;
            if let Some(why) = is_checked(link).then(|| broken(pages, path, link, exists)).flatten() {
                complaints.insert(format!("{}: {link}: {why}", path.display()));
            }
        }
    }
    // The pages are read as text, so links in a different form would otherwise pass unnoticed.
    if !found {
        complaints.insert("no page has a link: the form of the links has changed".to_owned());
    }
    complaints.into_iter().collect()
}

fn broken(pages: &Pages, page: &Path, link: &str, exists: impl Fn(&Path) -> bool) -> Option<&'static str> {
    if link.contains(':') {
        return (!is_allowed(link)).then_some("a host that is not on the list");
    }
    let (file, anchor) = link.split_once('#').map_or((link, None), |(file, anchor)| (file, Some(anchor)));
    let resolved = |from: &Path, file: &str| tidied(&from.parent().unwrap_or(Path::new("")).join(file));
    let mut target: PathBuf = match file {
        "" => page.to_owned(),
        file => resolved(page, file),
    };
    if let Some(other) = pages.get(&target).and_then(|page| redirection(page)) {
        target = resolved(&target, other);
    }
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

    fn pages(link: &str) -> Pages {
        let page = |text: &str| text.to_owned();
        let moved = |to: &str| format!("<meta http-equiv=\"refresh\" content=\"0;URL={to}\">");
        Pages::from([
            ("a.html".into(), page("<h1 id=\"top\">a</h1>")),
            ("guides/b.html".into(), page(&format!("<a id=\"here\" href=\"{link}\">b</a>"))),
            ("guides/moved.html".into(), moved("../a.html")),
            ("guides/lost.html".into(), moved("../lost.html")),
        ])
    }

    fn complaints(link: &str) -> Vec<String> {
        let pages = pages(link);
        check(&pages, |path| pages.contains_key(path) || path == Path::new("c.css"))
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let own = ["../a.html", "../a.html#top", "#here", "../c.css", "#", "moved.html#top"];
        for link in own.into_iter().chain(["https://docs.rs/tokio"]) {
            assert_eq!(complaints(link), [""; 0], "{link}");
        }
    }

    #[test]
    fn pages_without_links_fail() {
        let pages = Pages::from([("a.html".into(), "<a href='b.html'>b</a>".to_owned())]);
        assert_eq!(check(&pages, |_| true).len(), 1);
        assert_eq!(check_own(&pages, |_| true).len(), 1);
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
        assert_eq!(complaints("moved.html#gone"), ["guides/b.html: moved.html#gone: no such anchor"]);
        assert_eq!(complaints("lost.html"), ["guides/b.html: lost.html: no such file"]);
    }

    #[test]
    fn only_links_to_pages_are_checked_in_rustdoc() {
        let complaints = |link: &str| {
            let pages = pages(link);
            check_own(&pages, |path| pages.contains_key(path))
        };
        for link in
            ["../a.html#top", "https://a.b/c", "", "dispatcher#setting-it", "super::Subscriber", "c.css"]
        {
            assert_eq!(complaints(link), [""; 0], "{link}");
        }
        assert_eq!(complaints("../gone.html"), ["guides/b.html: ../gone.html: no such file"]);
        assert_eq!(complaints("#gone"), ["guides/b.html: #gone: no such anchor"]);
    }
}
