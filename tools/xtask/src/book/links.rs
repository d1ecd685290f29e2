//! Checks that every link of the built book leads to an existing file and anchor of the book, or to an allowed host. The same check is used for the
//! links between the pages that rustdoc builds.

use std::path::{Path, PathBuf};

use super::html::{Pages, redirection, values};
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

/// Checks only links to pages, with their anchors. Links to other hosts are skipped, and so are relative links that do not lead to an HTML file: rustdoc
/// copies them, unresolved, from the docs of traits of other crates.
pub(crate) fn check_own(pages: &Pages, exists: impl Fn(&Path) -> bool) -> Vec<String> {
    let is_own = |link: &str| {
        let file = link.split('#').next().unwrap_or_default();
        !link.is_empty() && !link.contains(':') && (file.is_empty() || file.ends_with(".html"))
    };
    let links = pages.iter().flat_map(|(path, page)| {
        values(page, "href").into_iter().filter(|link| is_own(link)).map(move |link| (path, link))
    });
    let mut complaints: Vec<String> = links
        .filter_map(|(path, link)| {
            broken(pages, path, link, &exists).map(|why| format!("{}: {link}: {why}", path.display()))
        })
        .collect();
    complaints.dedup();
    complaints
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
