//! Finds the public types without an example, and the public functions that no example shows.
//!
//! An example is a Rust block in the documentation of a public item, of a module or of the crate (its readme). It is compiled as a documentation test.
//!
//! - A type or a trait needs an example in its own docs or in the docs of one of its own functions.
//! - A function needs an example in its own docs, or a call in an example that is in the docs of its type or that contains the name of its type. The
//!   call is found by the name of the function, so a function can count as shown because of another one with the same name.
//! - All other items need an entry in the list (`excused`). The entry of a type names the item whose example contains the type.

use std::collections::BTreeSet;
use std::fmt;

use super::excused::{Excused, FILE};
use super::items::{Item, Kind};

/// The result for one crate.
#[derive(Debug, Default)]
pub(super) struct Found {
    types: usize,
    functions: usize,
    /// The number of types, and of functions, that are listed instead of having an example.
    listed: (usize, usize),
    pub(super) complaints: Vec<String>,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { types, functions, listed, .. } = self;
        write!(f, "{types} types, {} of them listed as without an example; ", listed.0)?;
        write!(f, "{functions} functions, {} of them listed", listed.1)
    }
}

/// The examples of one item.
struct Examples<'a> {
    of: &'a Item<'a>,
    all: Vec<Example>,
}

struct Example {
    words: BTreeSet<String>,
    /// The words that are called as functions or follow a `::`.
    called: BTreeSet<String>,
}

pub(super) fn find(items: &[Item<'_>], excused: &mut Excused) -> Found {
    let examples: Vec<Examples<'_>> =
        items.iter().map(|of| Examples { of, all: examples(of.docs) }).collect();
    let mut found = Found::default();
    for Examples { of, all } in &examples {
        let path = &of.path;
        if of.docs.is_empty() {
            found.complaints.push(format!("{path}: not documented"));
        }
        let belongs = |other: &Item<'_>, to: &str| other.path == *to || other.owner.as_deref() == Some(to);
        let is_shown = match of.kind {
            Kind::Module => continue,
            Kind::Type => {
                found.types += 1;
                examples.iter().any(|other| belongs(other.of, path) && !other.all.is_empty())
            }
            Kind::Function => {
                found.functions += 1;
                let owner = of.owner.as_deref();
                let names_owner = |example: &Example| {
                    owner.is_none_or(|owner| {
                        example.words.contains(owner.rsplit("::").next().unwrap_or(owner))
                    })
                };
                !all.is_empty()
                    || examples.iter().any(|other| {
                        let of_owner = owner.is_some_and(|owner| belongs(other.of, owner));
                        let mut all = other.all.iter();
                        all.any(|example| {
                            example.called.contains(of.name()) && (of_owner || names_owner(example))
                        })
                    })
            }
        };
        if is_shown {
            continue;
        }
        let Some(entry) = excused.entry(path) else {
            let what = if of.kind == Kind::Type { "has no example" } else { "is in no example of its type" };
            found.complaints.push(format!("{path}: {what}, and no entry in {FILE}"));
            continue;
        };
        match of.kind {
            Kind::Type => found.listed.0 += 1,
            _ => found.listed.1 += 1,
        }
        let Some(place) = &entry.place else {
            if of.kind == Kind::Type {
                found
                    .complaints
                    .push(format!("{FILE}: the entry of {path} does not name the item with its example"));
            }
            continue;
        };
        let shows = |example: &Example| match of.kind {
            Kind::Type => example.words.contains(of.name()),
            _ => example.called.contains(of.name()),
        };
        let mut at_place = examples.iter().filter(|other| other.of.path == *place);
        if !at_place.any(|other| other.all.iter().any(shows)) {
            found.complaints.push(format!("{FILE}: no example of {place} contains {path}"));
        }
    }
    found
}

/// Returns the Rust blocks in `docs` that are compiled.
fn examples(docs: &str) -> Vec<Example> {
    let (mut all, mut code, mut inside, mut is_rust) = (Vec::new(), String::new(), false, false);
    for line in docs.lines() {
        if let Some(info) = line.trim_start().strip_prefix("```") {
            if inside && is_rust {
                all.push(words(&code));
                code.clear();
            }
            inside = !inside;
            let flags = ["", "rust", "no_run", "should_panic", "edition2024"];
            is_rust = inside && info.split(',').all(|flag| flags.contains(&flag.trim()));
        } else if inside && is_rust {
            code.push_str(line);
            code.push('\n');
        }
    }
    all
}

fn words(code: &str) -> Example {
    let mut example = Example { words: BTreeSet::new(), called: BTreeSet::new() };
    let mut rest = code;
    let is_word = |char: char| char.is_alphanumeric() || char == '_';
    let mut before = "";
    while let Some(start) = rest.find(is_word) {
        before = if start == 0 { before } else { &rest[..start] };
        let word = &rest[start..];
        let end = word.find(|char| !is_word(char)).unwrap_or(word.len());
        let (word, after) = word.split_at(end);
        example.words.insert(word.to_owned());
        if after.trim_start().starts_with('(') || after.starts_with("::<") || before.ends_with("::") {
            example.called.insert(word.to_owned());
        }
        rest = after;
    }
    example
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::items;
    use serde_json::{Value, json};

    /// Three types: `Shown` has an example at its constructor, `Listed` and `Hidden` have none.
    fn rustdoc() -> Value {
        let function = |name: &str, docs: &str| json!({"name": name, "docs": docs, "visibility": "public", "inner": {"function": {}}});
        json!({"root": 0, "index": {
            "0": {"name": "krate", "docs": "```\nlet it = Listed::new();\n```\n```text\nhidden()\n```", "inner": {"module": {"items": [1, 2, 3, 5]}}},
            "1": {"name": "Shown", "docs": "It.", "inner": {"struct": {"impls": [10]}}},
            "2": {"name": "Hidden", "docs": "", "inner": {"enum": {"impls": []}}},
            "3": {"name": null, "docs": "", "inner": {"use": {"id": 4, "is_glob": false}}},
            "4": function("hidden", "Other."),
            "5": {"name": "Listed", "docs": "It.", "inner": {"trait": {"items": []}}},
            "10": {"name": null, "inner": {"impl": {"trait": null, "items": [11, 12, 13]}}},
            "11": function("new", "```\nShown::new().used()\n```"),
            "12": function("used", "Used."),
            "13": function("unused", "Other."),
        }})
    }

    fn complaints(list: &str) -> Vec<String> {
        let rustdoc = rustdoc();
        let items = items::read(&rustdoc).unwrap();
        let mut excused = Excused::read(list).0;
        let found = find(&items, &mut excused);
        assert_eq!((found.types, found.functions), (3, 4));
        found.complaints
    }

    #[test]
    fn items_without_an_example_are_reported() {
        let missing = |path: &str, what: &str| format!("{path}: {what}, and no entry in {FILE}");
        assert_eq!(
            complaints(""),
            [
                missing("krate::Shown::unused", "is in no example of its type"),
                "krate::Hidden: not documented".to_owned(),
                missing("krate::Hidden", "has no example"),
                missing("krate::hidden", "is in no example of its type"),
                // The example of the crate contains the type, but only an entry makes it the example of the type.
                missing("krate::Listed", "has no example"),
            ]
        );
    }

    #[test]
    fn the_place_of_an_entry_must_contain_the_item() {
        let others = "krate::Shown::unused: evident\nkrate::hidden: evident\n";
        let list = |entries: &str| complaints(&format!("{others}{entries}"));
        let undocumented = "krate::Hidden: not documented";
        assert_eq!(
            list("krate::Listed: in krate: it\nkrate::Hidden: an error\n"),
            [
                undocumented.to_owned(),
                format!("{FILE}: the entry of krate::Hidden does not name the item with its example")
            ]
        );
        assert_eq!(
            list("krate::Listed: in krate: it\nkrate::Hidden: in krate::Shown::new: it\n"),
            [
                undocumented.to_owned(),
                format!("{FILE}: no example of krate::Shown::new contains krate::Hidden")
            ]
        );
    }
}
