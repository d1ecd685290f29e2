//! Finds the public functions that return a future but whose docs do not state what happens if the future is dropped.
//!
//! The section `# Cancel safety` is in the docs of the function, or in the docs of the named future type that the function returns. A function returns
//! a future if it is an `async fn`, or if its return type contains `impl Future`, `dyn Future`, or a type of these crates that implements `Future` or
//! `IntoFuture`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::items::{Item, Kind};

const SECTION: &str = "# Cancel safety";

/// The named future types of all crates.
#[derive(Debug, Default)]
pub(super) struct Futures {
    /// Whether the docs of the type have the section, by the path of the type's definition.
    documented: BTreeMap<String, bool>,
}

impl Futures {
    /// Adds the future types of one crate.
    pub(super) fn add(&mut self, rustdoc: &Value, items: &[Item<'_>]) {
        for item in items.iter().filter(|item| item.kind == Kind::Type) {
            let inner = &item.json["inner"];
            let impls =
                ["struct", "enum"].iter().filter_map(|kind| inner[*kind]["impls"].as_array()).flatten();
            let mut traits = impls.map(|id| &rustdoc["index"][id.to_string()]["inner"]["impl"]);
            // A blanket implementation, as that of `IntoFuture` for all futures, is for a type parameter.
            if traits.any(|block| block["blanket_impl"].is_null() && is_future(&block["trait"])) {
                let path = definition(rustdoc, &item.json["id"]);
                self.documented.insert(path, has_section(item.docs));
            }
        }
    }

    pub(super) fn complaints(&self, rustdoc: &Value, items: &[Item<'_>]) -> Vec<String> {
        let functions = items.iter().filter(|item| item.kind == Kind::Function && !has_section(item.docs));
        functions
            .filter(|item| {
                let function = &item.json["inner"]["function"];
                let mut is_async = function["header"]["is_async"].as_bool() == Some(true);
                let mut is_documented = false;
                walk(&function["sig"]["output"], &mut |name, value| match name {
                    "trait" if is_future(value) => is_async = true,
                    "resolved_path" => {
                        let known = self.documented.get(&definition(rustdoc, &value["id"]));
                        is_async |= known.is_some() || last(&value["path"]) == "BoxFuture";
                        is_documented |= known == Some(&true);
                    }
                    _ => {}
                });
                is_async && !is_documented
            })
            .map(|item| format!("{}: returns a future, without the section `{SECTION}`", item.path))
            .collect()
    }
}

fn has_section(docs: &str) -> bool {
    docs.lines().any(|line| line.trim() == SECTION)
}

fn is_future(of: &Value) -> bool {
    matches!(last(&of["path"]), "Future" | "IntoFuture")
}

fn last(path: &Value) -> &str {
    path.as_str().and_then(|path| path.rsplit("::").next()).unwrap_or_default()
}

/// The path of the definition, which is the same in the JSON of all crates.
fn definition(rustdoc: &Value, id: &Value) -> String {
    let path = rustdoc["paths"][id.to_string()]["path"].as_array();
    path.into_iter().flatten().filter_map(Value::as_str).collect::<Vec<_>>().join("::")
}

/// Visits all members of all objects in `value`.
fn walk(value: &Value, visit: &mut impl FnMut(&str, &Value)) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                visit(name, member);
                walk(member, visit);
            }
        }
        Value::Array(all) => all.iter().for_each(|value| walk(value, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::items;
    use serde_json::json;

    /// The complaints for a function `f` with these docs, which is async or returns `output`. The type `Get` is a future.
    fn complaints(docs: &str, is_async: bool, output: Value, future_docs: &str) -> usize {
        let signature = json!({"header": {"is_async": is_async}, "sig": {"output": output}});
        let rustdoc = json!({
            "root": 0,
            "index": {
                "0": {"name": "krate", "docs": "", "inner": {"module": {"items": [1, 3]}}},
                "1": {"id": 1, "name": "Get", "docs": future_docs, "inner": {"struct": {"impls": [2]}}},
                "2": {"inner": {"impl": {"trait": {"path": "Future"}, "blanket_impl": null, "items": []}}},
                "3": {"id": 3, "name": "f", "docs": docs, "inner": {"function": signature}},
            },
            "paths": {"1": {"path": ["krate", "Get"]}},
        });
        let items = items::read(&rustdoc).unwrap();
        let mut futures = Futures::default();
        futures.add(&rustdoc, &items);
        futures.complaints(&rustdoc, &items).len()
    }

    #[test]
    fn a_function_that_returns_a_future_needs_the_section() {
        let get = json!({"resolved_path": {"path": "Get", "id": 1}});
        let other = json!({"resolved_path": {"path": "Vec", "id": 7, "args": []}});
        let any = json!({"impl_trait": [{"trait_bound": {"trait": {"path": "Future"}}}]});
        let section = "One line.\n\n# Cancel safety\nSafe.";
        assert_eq!(complaints("f", true, Value::Null, ""), 1);
        assert_eq!(complaints("f", false, get.clone(), ""), 1);
        assert_eq!(complaints("f", false, json!({"tuple": [other, any]}), ""), 1);
        assert_eq!(complaints("f", false, other, ""), 0);
        assert_eq!(complaints(section, true, Value::Null, ""), 0);
        assert_eq!(complaints("f", false, get, section), 0);
    }
}
