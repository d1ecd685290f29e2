//! Finds the public types and functions that no compiled example of their crate uses.
//!
//! An example is a Rust block in the documentation of a public item or of the crate (its readme). The examples are searched only for the names of the
//! items, as words: a method counts as used if any method with the same name is called. So an item that is reported is really unused, but some unused
//! items are not reported.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use anyhow::{Context, Result};
use serde_json::Value;

/// The result for one crate.
#[derive(Debug, Default)]
pub(super) struct Found {
    types: usize,
    functions: usize,
    types_without: Vec<String>,
    functions_without: Vec<String>,
    undocumented: Vec<String>,
}

/// The paths of the functions that need no example. The value is true if `has` was called with the path.
#[derive(Debug, Default)]
pub(super) struct Excused(BTreeMap<String, bool>);

impl Excused {
    pub(super) fn read(text: &str) -> Self {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self(
            lines
                .filter_map(|line| line.split_once(": "))
                .map(|(path, _)| (path.to_owned(), false))
                .collect(),
        )
    }

    fn has(&mut self, path: &str) -> bool {
        self.0.get_mut(path).map(|used| *used = true).is_some()
    }

    /// The paths with which `has` was never called.
    pub(super) fn left(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter(|(_, used)| !**used).map(|(path, _)| path.as_str())
    }
}

impl Found {
    pub(super) fn complaints(&self, excused: &mut Excused) -> Vec<String> {
        let undocumented = self.undocumented.iter().map(|path| format!("{path}: not documented"));
        let types = self.types_without.iter().map(|path| format!("{path}: a type without an example"));
        let mut all: Vec<_> = undocumented.chain(types).collect();
        let functions = self.functions_without.iter().filter(|path| !excused.has(path));
        all.extend(functions.map(|path| {
            format!("{path}: occurs in no example, and has no reason in docs/api/without-example.txt")
        }));
        all
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { types, functions, types_without, functions_without, .. } = self;
        write!(
            f,
            "{types} types, {} without an example; {functions} functions, {} in no example",
            types_without.len(),
            functions_without.len()
        )
    }
}

struct Item {
    path: String,
    is_function: bool,
    docs: String,
}

/// Collects the public items that have a public path.
struct Walk<'a> {
    index: &'a Value,
    seen: BTreeSet<u64>,
    items: Vec<Item>,
}

pub(super) fn find(rustdoc: &Value) -> Result<Found> {
    let root = rustdoc["root"].as_u64().context("a root")?;
    let mut walk = Walk { index: &rustdoc["index"], seen: BTreeSet::new(), items: Vec::new() };
    let name = walk.item(root).and_then(|item| item["name"].as_str()).unwrap_or_default().to_owned();
    walk.module(root, &name);
    let code: String = walk.items.iter().map(|item| examples(&item.docs)).collect();
    let (words, called) = words(&code);
    let mut found = Found::default();
    for Item { path, is_function, docs } in &walk.items {
        let last = path.rsplit("::").next().unwrap_or(path);
        if docs.is_empty() {
            found.undocumented.push(path.clone());
        }
        if *is_function {
            found.functions += 1;
            if !called.contains(last) {
                found.functions_without.push(path.clone());
            }
        } else if *path != name {
            found.types += 1;
            if examples(docs).is_empty() && !words.contains(last) {
                found.types_without.push(path.clone());
            }
        }
    }
    Ok(found)
}

impl<'a> Walk<'a> {
    fn item(&self, id: u64) -> Option<&'a Value> {
        self.index.get(id.to_string())
    }

    fn add(&mut self, item: &Value, path: String, is_function: bool) {
        let docs = item["docs"].as_str().unwrap_or_default().to_owned();
        self.items.push(Item { path, is_function, docs });
    }

    fn module(&mut self, id: u64, path: &str) {
        let Some(item) = self.item(id) else { return };
        if !self.seen.insert(id) {
            return;
        }
        if item["inner"]["module"]["is_crate"].as_bool() == Some(true) {
            // The docs of the crate root are the readme of the crate, so its examples are those of the readme.
            self.add(item, path.to_owned(), false);
        }
        for child in ids(&item["inner"]["module"]["items"]) {
            self.child(child, path);
        }
    }

    fn child(&mut self, id: u64, path: &str) {
        let Some(item) = self.item(id) else { return };
        let inner = &item["inner"];
        if let Some(import) = inner.get("use") {
            let Some(target) = import["id"].as_u64() else { return };
            let is_glob = import["is_glob"].as_bool() == Some(true);
            let items =
                self.item(target).map(|target| ids(&target["inner"]["module"]["items"])).unwrap_or_default();
            match is_glob {
                true => items.into_iter().for_each(|child| self.child(child, path)),
                false => self.child(target, path),
            }
            return;
        }
        let path = format!("{path}::{}", item["name"].as_str().unwrap_or_default());
        if inner.get("module").is_some() {
            self.module(id, &path);
            return;
        }
        if !self.seen.insert(id) {
            return;
        }
        if inner.get("function").is_some() {
            self.add(item, path, true);
        } else if let Some(of) = inner.get("trait") {
            self.add(item, path.clone(), false);
            self.functions(&of["items"], &path);
        } else if let Some(of) = ["struct", "enum", "union"].iter().find_map(|kind| inner.get(*kind)) {
            self.add(item, path.clone(), false);
            for id in ids(&of["impls"]) {
                let Some(block) = self.item(id).map(|item| &item["inner"]["impl"]) else { continue };
                if block["trait"].is_null() {
                    self.functions(&block["items"], &path);
                }
            }
        }
    }

    /// Collects the functions of a trait or of an inherent implementation.
    fn functions(&mut self, of: &Value, path: &str) {
        for id in ids(of) {
            let Some(item) = self.item(id).filter(|item| item["inner"].get("function").is_some()) else {
                continue;
            };
            // Functions of a trait have the visibility "default"; private functions are not in the JSON.
            if matches!(item["visibility"].as_str(), Some("public" | "default")) && self.seen.insert(id) {
                let name = item["name"].as_str().unwrap_or_default();
                self.add(item, format!("{path}::{name}"), true);
            }
        }
    }
}

fn ids(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}

/// Returns the code of the Rust blocks in `docs` that are compiled.
fn examples(docs: &str) -> String {
    let (mut code, mut inside, mut is_rust) = (String::new(), false, false);
    for line in docs.lines() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            inside = !inside;
            let flags = ["", "rust", "no_run", "should_panic", "edition2024"];
            is_rust = inside && info.split(',').all(|flag| flags.contains(&flag.trim()));
        } else if inside && is_rust {
            code.push_str(line);
            code.push('\n');
        }
    }
    code
}

/// Returns two sets: all words of the code, and only those words that are called as functions or follow a `::`.
fn words(code: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let (mut words, mut called) = (BTreeSet::new(), BTreeSet::new());
    let mut rest = code;
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let mut before = "";
    while let Some(start) = rest.find(is_word) {
        before = if start == 0 { before } else { &rest[..start] };
        let word = &rest[start..];
        let end = word.find(|char| !is_word(char)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        words.insert(word);
        if after.trim_start().starts_with('(') || after.starts_with("::<") || before.ends_with("::") {
            called.insert(word);
        }
        rest = after;
    }
    (words, called)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_occurs_in_no_example_is_found() {
        let function = |name: &str, docs: &str| json!({"name": name, "docs": docs, "visibility": "public", "inner": {"function": {}}});
        let rustdoc = json!({"root": 0, "index": {
            "0": {"name": "krate", "docs": "```\nlet it = Shown::new();\n```\n```text\nhidden()\n```", "inner": {"module": {"is_crate": true, "items": [1, 2, 3]}}},
            "1": {"name": "Shown", "docs": "It.", "inner": {"struct": {"impls": [10]}}},
            "2": {"name": "Hidden", "docs": "", "inner": {"enum": {"impls": []}}},
            "3": {"name": null, "docs": "", "inner": {"use": {"id": 4, "is_glob": false}}},
            "4": function("hidden", "```\nother::<u8>();\n```"),
            "10": {"name": null, "inner": {"impl": {"trait": null, "items": [11, 12]}}},
            "11": function("new", "New."),
            "12": function("other", "Other."),
        }});
        let found = find(&rustdoc).unwrap();
        assert_eq!((found.types, found.functions), (2, 3));
        assert_eq!(found.types_without, ["krate::Hidden"]);
        assert_eq!(found.functions_without, ["krate::hidden"]);
        assert_eq!(found.undocumented, ["krate::Hidden"]);
        let mut excused = Excused::read("# why\nkrate::hidden: shown by its name\nkrate::gone: no\n");
        assert_eq!(found.complaints(&mut excused).len(), 2);
        assert_eq!(excused.left().collect::<Vec<_>>(), ["krate::gone"]);
    }
}
