//! Each crate has a `sync.rs` of its own, so that none depends on another for it; where two have the same function,
//! it is the same.

use std::collections::BTreeMap;

/// Complains about functions that two shims have under one name and header, but not alike.
pub(super) fn check(shims: &[(String, String)]) -> Vec<String> {
    let mut seen: BTreeMap<String, (&str, String)> = BTreeMap::new();
    let mut complaints = Vec::new();
    for (path, text) in shims {
        for (header, body) in functions(text) {
            match seen.get(&header) {
                Some((first, known)) if *known != body => {
                    complaints.push(format!("{path}: `{header}` differs from {first}"));
                }
                Some(_) => {}
                None => {
                    seen.insert(header, (path, body));
                }
            }
        }
    }
    complaints
}

/// The functions of a shim: headers of the blocks around it and its name, then its text without comments and
/// spaces.
fn functions(text: &str) -> Vec<(String, String)> {
    let mut open: Vec<(String, usize)> = Vec::new();
    let mut found = Vec::new();
    let mut depth = 0;
    let mut cfg = String::new();
    let mut body: Option<(String, String, usize)> = None;
    for line in text.lines() {
        let code = line.split("//").next().unwrap_or_default().trim();
        if code.starts_with("#[cfg") {
            cfg = code.to_owned();
        } else if code.ends_with(';') {
            cfg.clear();
        }
        let opens = code.matches('{').count();
        let closes = code.matches('}').count();
        if body.is_none() && code.contains("fn ") {
            let name = code.split("fn ").nth(1).unwrap_or_default();
            let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
            let headers: Vec<&str> = open.iter().map(|(header, _)| header.as_str()).collect();
            body = Some((format!("{} fn {name}", headers.join(" ")), String::new(), depth));
        } else if body.is_none() && opens > closes {
            let header = code.trim_end_matches('{').trim();
            open.push((format!("{cfg}{}{header}", if cfg.is_empty() { "" } else { " " }), depth));
            cfg.clear();
        }
        depth = depth + opens - closes.min(depth + opens);
        if let Some((header, mut collected, start)) = body.take() {
            // Imported or named by its path is the same.
            collected.extend(code.replace("model::", "").chars().filter(|c| !c.is_whitespace()));
            if depth == start && (closes > 0 || code.ends_with(';')) {
                found.push((header, collected));
            } else {
                body = Some((header, collected, start));
            }
        }
        while open.last().is_some_and(|(_, at)| depth <= *at) {
            open.pop();
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIM: &str = "#[cfg(flyball_loom)]\nmod imp {\n    #[cfg(x)]\n    use a as model;\n    impl<T> Mutex<T> {\n        // A word.\n        \
                        fn lock(&self) -> Guard {\n            self.0.lock()\n        }\n    }\n}\n";

    fn shims(other: &str) -> [(String, String); 2] {
        [("a".to_owned(), SHIM.to_owned()), ("b".to_owned(), other.to_owned())]
    }

    #[test]
    fn functions_are_found_by_their_place() {
        let found = functions(SHIM);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].0, "#[cfg(flyball_loom)] mod imp impl<T> Mutex<T> fn lock");
        assert_eq!(found[0].1, "fnlock(&self)->Guard{self.0.lock()}");
    }

    #[test]
    fn copies_agree() {
        assert!(check(&shims(&SHIM.replace("A word", "Another"))).is_empty());
        assert!(check(&shims(&SHIM.replace("fn lock", "fn try_lock"))).is_empty());
        assert!(check(&shims(&SHIM.replace("-> Guard", "-> model::Guard"))).is_empty());
    }

    #[test]
    fn copies_that_differ_fail() {
        let complaints = check(&shims(&SHIM.replace("self.0.lock()", "self.0.try_lock()")));
        assert_eq!(complaints, ["b: `#[cfg(flyball_loom)] mod imp impl<T> Mutex<T> fn lock` differs from a"]);
    }
}
