//! PURE. Sets of fields, as `managedFields` stores them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// One step of a path, in the format of `managedFields`: `f:name` is a field, `k:{"name":"a"}` and `v:"a"` are items of lists.
pub(crate) type Element = String;

/// A set of fields: a tree of paths. A field can be a member even if neither its parents nor its children are members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet(BTreeMap<Element, Node>);

/// Invariant within a set: a node is a member or has children.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) is_member: bool,
    pub(crate) children: FieldSet,
}

impl FieldSet {
    /// Creates a set of fields from their paths.
    pub(crate) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let leaf = Node { is_member: true, children: Self::default() };
            let path = path.iter().rev().map(|name| format!("f:{name}"));
            let (root, node) = path.fold((None, leaf), |(below, node), element| match below {
                None => (Some(element), node),
                Some(below) => {
                    let children = Self(BTreeMap::from([(below, node)]));
                    (Some(element), Node { is_member: false, children })
                }
            });
            set = set.union(&Self(root.map(|root| (root, node)).into_iter().collect()));
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, element: &str) -> Option<&Node> {
        self.0.get(element)
    }

    pub(crate) fn nodes(&self) -> impl Iterator<Item = (&str, &Node)> {
        self.0.iter().map(|(element, node)| (element.as_str(), node))
    }

    /// Adds a node; a node without members is ignored.
    pub(crate) fn insert(&mut self, element: Element, node: Node) {
        if node.is_member || !node.children.is_empty() {
            self.0.insert(element, node);
        }
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        self.combine(other, &|a, b| a || b)
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(other, &|a, b| a && b)
    }

    /// Returns the members of this set that are not members of `other`. Fields below a member of `other` stay in the set.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(other, &|a, b| a && !b)
    }

    fn combine(&self, other: &Self, is_member: &impl Fn(bool, bool) -> bool) -> Self {
        let nothing = Node::default();
        let mut combined = Self::default();
        let only_other = other.0.keys().filter(|element| !self.0.contains_key(*element));
        for element in self.0.keys().chain(only_other) {
            let (a, b) = (self.0.get(element).unwrap_or(&nothing), other.0.get(element).unwrap_or(&nothing));
            let children = a.children.combine(&b.children, is_member);
            combined
                .insert(element.clone(), Node { is_member: is_member(a.is_member, b.is_member), children });
        }
        combined
    }

    /// Returns the set without the members of `other`, and without all fields below these members.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = Self::default();
        for (element, node) in &self.0 {
            match other.0.get(element) {
                None => left.insert(element.clone(), node.clone()),
                Some(gone) if gone.is_member => {}
                Some(gone) => {
                    left.insert(
                        element.clone(),
                        Node { is_member: node.is_member, children: node.children.without(&gone.children) },
                    );
                }
            }
        }
        left
    }

    /// Formats an element as it appears in messages.
    pub(crate) fn path_of(element: &str) -> String {
        let (form, rest) = element.split_once(':').unwrap_or_default();
        match form {
            "k" => {
                let keys: BTreeMap<String, Value> = serde_json::from_str(rest).unwrap_or_default();
                let keys: Vec<_> = keys.iter().map(|(key, value)| format!("{key}={value}")).collect();
                format!("[{}]", keys.join(","))
            }
            "v" => format!("[={rest}]"),
            "i" => format!("[{rest}]"),
            _ => format!(".{rest}"),
        }
    }

    /// Returns the paths of all members, formatted as they appear in messages.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut paths = Vec::new();
        self.paths_below("", &mut paths);
        paths
    }

    fn paths_below(&self, parent: &str, paths: &mut Vec<String>) {
        // The members at this level are listed before all members at deeper levels.
        let members = self.0.iter().filter(|(_, node)| node.is_member);
        paths.extend(members.map(|(element, _)| format!("{parent}{}", Self::path_of(element))));
        for (element, node) in &self.0 {
            node.children.paths_below(&format!("{parent}{}", Self::path_of(element)), paths);
        }
    }

    pub(crate) fn to_json(&self) -> Value {
        Value::Object(self.json_fields())
    }

    fn json_fields(&self) -> Map<String, Value> {
        let field = |(element, node): (&Element, &Node)| {
            let mut fields = node.children.json_fields();
            if node.is_member && !fields.is_empty() {
                fields.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.clone(), Value::Object(fields))
        };
        self.0.iter().map(field).collect()
    }

    /// Reads a set; `None` if an element has an unknown form.
    pub(crate) fn from_json(json: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (element, below) in json.as_object()?.iter().filter(|(element, _)| *element != ".") {
            if !["f:", "k:", "v:", "i:"].iter().any(|form| element.starts_with(form)) {
                return None;
            }
            let is_member = below.get(".").is_some() || below.as_object().is_some_and(Map::is_empty);
            set.insert(element.clone(), Node { is_member, children: Self::from_json(below)? });
        }
        Some(set)
    }
}
