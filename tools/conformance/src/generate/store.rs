//! PURE. Scripts for a store.
//!
//! If an index function fails, the state of client-go's store depends on the iteration order of Go maps: the map of
//! indexes and, for an operation that indexes all objects, also the map of objects. Therefore, scripts with objects
//! that cannot be indexed have only one index, and write such objects one at a time.

use testkit::client_go::Rules;
use testkit::random::Random;

use super::{one_in, op, pick, weighted};
use crate::kind::{Answering, Kind};

/// Strings that are easy to compare wrongly: é as one code point and as two, and a character of three bytes.
const KEYS: [&str; 8] = ["a", "b", "ns/a", "ns/b", "", "é", "e\u{301}", "字"];

const NAMES: [&str; 5] = ["i", "j", "I", "node name", "é"];

const VALUES: [&str; 9] = ["x", "y", "z", "", "X", "é", "e\u{301}", "𝄞", "\u{ffee}"];

/// Values that are not lists of strings.
const NO_LISTS: [&str; 6] = ["null", "5", "\"x\"", "{}", "[\"x\",null]", "[\"x\",[\"y\"]]"];

const NO_VERSIONS: [&str; 5] = ["v7", "-1", "+7", "7 ", "18446744073709551616"];

const INVALID: [&str; 14] = [
    " ",
    "{",
    "[]",
    "null",
    r#"{"op":"fly","k":"a"}"#,
    r#"{"op":"index"}"#,
    r#"{"op":"upsert","k":"a"}"#,
    r#"{"op":"upsert","k":"a","o":null}"#,
    r#"{"op":"upsert","k":7,"o":{}}"#,
    r#"{"op":"replace","items":{"a":[]},"rv":"7"}"#,
    r#"{"op":"replace","items":{},"rv":7}"#,
    r#"{"op":"replace","rv":"7"}"#,
    r#"{"op":"by_index","name":"i"}"#,
    r#"{"op":"values","name":["i"]}"#,
];

pub(super) struct StoreScript<'a> {
    random: &'a mut Random,
    keys: Vec<&'static str>,
    names: Vec<&'static str>,
    values: Vec<&'static str>,
    /// Whether some objects cannot be indexed.
    failing: bool,
    /// The largest number of values of an object in one index.
    most: u64,
    lines: Vec<String>,
    /// Answers each line as soon as it has been generated, so that the generator knows the number of objects.
    reference: Box<dyn Answering>,
}

/// Writes a line.
type Writer<'a> = fn(&mut StoreScript<'a>) -> String;

impl<'a> StoreScript<'a> {
    pub(super) fn new(random: &'a mut Random) -> Self {
        let failing = one_in(random, 5);
        let mut keys = some(random, &KEYS);
        let names = if failing { vec![pick(random, &NAMES)] } else { some(random, &NAMES) };
        let mut values = some(random, &VALUES);
        if failing {
            // The effect of a panic is visible only in later writes of the same key, so there are few keys and values.
            keys.truncate(3);
            values.truncate(2);
        }
        let most = pick(random, &[1, 1, 2, 4]);
        let reference = Kind::Store.reference(Rules::NONE);
        Self { random, keys, names, values, failing, most, lines: Vec::new(), reference }
    }

    pub(super) fn write(mut self) -> Vec<String> {
        let operations: [(u64, Writer<'a>); 8] = [
            (1, Self::index),
            (8, Self::upsert),
            (3, |script| script.of_key("delete")),
            (1, Self::replace),
            (2, |script| script.of_key("get")),
            (1, |_| op("keys")),
            (4, Self::by_index),
            (2, |script| script.of_name("values")),
        ];
        let weights = operations.map(|(weight, _)| weight * pick(self.random, &[0, 1, 1, 1, 3]));
        if !one_in(self.random, 3) {
            for name in self.names.clone() {
                self.push(index(name));
            }
        }
        for _ in 0..1 + self.random.below(60) {
            let line = match weighted(self.random, &weights) {
                _ if one_in(self.random, 150) => pick(self.random, &INVALID).to_owned(),
                Some(operation) => operations[operation].1(&mut self),
                None => self.upsert(),
            };
            self.push(line);
        }
        if one_in(self.random, 2) {
            self.look();
        }
        self.lines
    }

    /// Reads the whole content.
    fn look(&mut self) {
        let keys = self.keys.iter().map(|key| format!(r#"{{"op":"get","k":"{key}"}}"#));
        self.lines.extend(keys.chain([op("keys")]));
        for name in &self.names {
            self.lines.push(format!(r#"{{"op":"values","name":"{name}"}}"#));
            let values = self.values.iter();
            self.lines.extend(values.map(|value| by_index(name, value)));
        }
    }

    fn push(&mut self, line: String) {
        self.reference.answer(&line);
        self.lines.push(line);
    }

    fn index(&mut self) -> String {
        let several = self.reference.answer(&op("keys")).contains(',');
        if self.failing && several { op("keys") } else { index(pick(self.random, &self.names)) }
    }

    fn upsert(&mut self) -> String {
        let key = pick(self.random, &self.keys);
        format!(r#"{{"op":"upsert","k":"{key}","o":{}}}"#, self.object(self.failing))
    }

    fn replace(&mut self) -> String {
        let mut keys = self.keys.clone();
        keys.retain(|_| !one_in(self.random, 2));
        let failing = self.failing && keys.len() == 1;
        let items: Vec<_> =
            keys.into_iter().map(|key| format!(r#""{key}":{}"#, self.object(failing))).collect();
        let version = match self.random.below(8) {
            0 => pick(self.random, &NO_VERSIONS).to_owned(),
            1 => String::new(),
            2 => u64::MAX.to_string(),
            _ => self.random.below(100).to_string(),
        };
        format!(r#"{{"op":"replace","items":{{{}}},"rv":"{version}"}}"#, items.join(","))
    }

    /// An object with values for some indexes, and sometimes with other members.
    fn object(&mut self, failing: bool) -> String {
        let mut members = Vec::new();
        for name in self.names.clone() {
            if failing && one_in(self.random, 4) {
                members.push(format!(r#""{name}":{}"#, pick(self.random, &NO_LISTS)));
            } else if !one_in(self.random, 4) {
                // An object may list a value twice, because there are few values.
                let values: Vec<_> = (0..self.random.below(self.most + 1))
                    .map(|_| format!(r#""{}""#, pick(self.random, &self.values)))
                    .collect();
                members.push(format!(r#""{name}":[{}]"#, values.join(",")));
            }
        }
        if one_in(self.random, 4) {
            members.push(format!(r#""generation":{}"#, self.random.below(3)));
        }
        format!("{{{}}}", members.join(","))
    }

    fn by_index(&mut self) -> String {
        by_index(self.any_name(), pick(self.random, &self.values))
    }

    fn of_key(&mut self, op: &str) -> String {
        format!(r#"{{"op":"{op}","k":"{}"}}"#, pick(self.random, &self.keys))
    }

    fn of_name(&mut self, op: &str) -> String {
        format!(r#"{{"op":"{op}","name":"{}"}}"#, self.any_name())
    }

    /// Returns the name of an index; sometimes one that no index of the script has.
    fn any_name(&mut self) -> &'static str {
        if one_in(self.random, 10) { pick(self.random, &NAMES) } else { pick(self.random, &self.names) }
    }
}

fn index(name: &str) -> String {
    format!(r#"{{"op":"index","name":"{name}"}}"#)
}

fn by_index(name: &str, value: &str) -> String {
    format!(r#"{{"op":"by_index","name":"{name}","v":"{value}"}}"#)
}

/// Returns at least one of the items, in random order.
fn some(random: &mut Random, of: &[&'static str]) -> Vec<&'static str> {
    let mut of = of.to_vec();
    let count = 1 + random.below(of.len() as u64) as usize;
    (0..count).map(|_| of.swap_remove(random.below(of.len() as u64) as usize)).collect()
}
