//! The public items of a crate, from rustdoc's JSON.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use serde_json::Value;

/// A public item.
#[derive(Debug)]
pub(super) struct Item<'a> {
    /// The path by which a user names the item.
    pub(super) path: String,
    pub(super) kind: Kind,
    /// For a method, the path of its type or trait.
    pub(super) owner: Option<String>,
    pub(super) docs: &'a str,
    pub(super) json: &'a Value,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The crate root, whose docs are the readme, or a public module.
    Module,
    /// A struct, an enum, a union or a trait.
    Type,
    /// A function, or a function of a trait or of an inherent implementation.
    Function,
}

impl Item<'_> {
    /// The last segment of the path.
    pub(super) fn name(&self) -> &str {
        self.path.rsplit("::").next().unwrap_or(&self.path)
    }
}

/// Returns all items that have a public path.
pub(super) fn read(rustdoc: &Value) -> Result<Vec<Item<'_>>> {
    let root = rustdoc["root"].as_u64().context("a root")?;
    let mut walk = Walk { index: &rustdoc["index"], seen: BTreeSet::new(), items: Vec::new() };
    let name = walk.item(root).and_then(|item| item["name"].as_str()).unwrap_or_default();
    walk.module(root, name);
    Ok(walk.items)
}

struct Walk<'a> {
    index: &'a Value,
    seen: BTreeSet<u64>,
    items: Vec<Item<'a>>,
}

impl<'a> Walk<'a> {
    fn item(&self, id: u64) -> Option<&'a Value> {
        self.index.get(id.to_string())
    }

    fn add(&mut self, json: &'a Value, path: String, kind: Kind, owner: Option<&str>) {
        let docs = json["docs"].as_str().unwrap_or_default();
        self.items.push(Item { path, kind, owner: owner.map(str::to_owned), docs, json });
    }

    fn module(&mut self, id: u64, path: &str) {
        let Some(item) = self.item(id) else { return };
        if !self.seen.insert(id) {
            return;
        }
        self.add(item, path.to_owned(), Kind::Module, None);
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
            self.add(item, path, Kind::Function, None);
        } else if let Some(of) = inner.get("trait") {
            self.add(item, path.clone(), Kind::Type, None);
            self.functions(&of["items"], &path);
        } else if let Some(of) = ["struct", "enum", "union"].iter().find_map(|kind| inner.get(*kind)) {
            self.add(item, path.clone(), Kind::Type, None);
            for id in ids(&of["impls"]) {
                let Some(block) = self.item(id).map(|item| &item["inner"]["impl"]) else { continue };
                if block["trait"].is_null() {
                    self.functions(&block["items"], &path);
                }
            }
        }
    }

    /// Collects the functions of a trait or of an inherent implementation.
    fn functions(&mut self, of: &Value, owner: &str) {
        for id in ids(of) {
            let Some(item) = self.item(id).filter(|item| item["inner"].get("function").is_some()) else {
                continue;
            };
            // Functions of a trait have the visibility "default"; private functions are not in the JSON.
            if matches!(item["visibility"].as_str(), Some("public" | "default")) && self.seen.insert(id) {
                let name = item["name"].as_str().unwrap_or_default();
                self.add(item, format!("{owner}::{name}"), Kind::Function, Some(owner));
            }
        }
    }
}

fn ids(list: &Value) -> Vec<u64> {
    list.as_array().into_iter().flatten().filter_map(Value::as_u64).collect()
}
