//! PURE. The fields of a value, and the difference between two values.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::state::apply::field_type::FieldType;
use crate::state::field_set::{FieldSet, Node};

/// The fields that differ between two objects. No field is in two of the sets.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Comparison {
    pub(crate) added: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) removed: FieldSet,
}

impl Comparison {
    pub(crate) fn of(before: &Value, after: &Value, of: FieldType<'_>) -> Self {
        let changed = Changed::of(Some(before), Some(after), of);
        Self {
            added: changed.added.children,
            modified: changed.modified.children,
            removed: changed.removed.children,
        }
    }

    pub(crate) fn without(self, ignored: &FieldSet) -> Self {
        Self {
            added: self.added.without(ignored),
            modified: self.modified.without(ignored),
            removed: self.removed.without(ignored),
        }
    }

    pub(crate) fn written(&self) -> FieldSet {
        self.added.union(&self.modified)
    }
}

/// The differences at one field and at the fields below it.
#[derive(Default)]
struct Changed {
    added: Node,
    modified: Node,
    removed: Node,
}

impl Changed {
    fn of(before: Option<&Value>, after: Option<&Value>, of: FieldType<'_>) -> Self {
        let mut changed = Self::default();
        let children =
            |value: Option<&'_ Value>| value.map(|value| of.children(value).len()).unwrap_or_default();
        let has_children = children(before) + children(after) > 0;
        match (before, after) {
            (None, _) => changed.added.is_member = true,
            (_, None) => changed.removed.is_member = true,
            (Some(a), Some(b)) => {
                // Null counts as an empty object or an empty list.
                let is_same_type = a.is_null()
                    || b.is_null()
                    || (of.is_granular(a) && of.is_granular(b) && a.is_array() == b.is_array());
                changed.modified.is_member = a != b && !(has_children && is_same_type);
            }
        }
        if !has_children {
            return changed;
        }
        let before = before.map(|value| of.children(value)).unwrap_or_default();
        let after = after.map(|value| of.children(value)).unwrap_or_default();
        // The children of `after`, by their path element. If several children have the same element, the map contains the first one.
        let others: BTreeMap<_, _> =
            after.iter().rev().map(|(element, _, value)| (element, *value)).collect();
        let known: BTreeSet<_> = before.iter().map(|(element, ..)| element).collect();
        for (element, of, value) in &before {
            let other = others.get(element).copied();
            changed.descend(element, Self::of(Some(value), other, *of));
        }
        for (element, of, value) in &after {
            if !known.contains(element) {
                changed.descend(element, Self::of(None, Some(value), *of));
            }
        }
        changed
    }

    fn descend(&mut self, element: &str, below: Self) {
        self.added.children.insert(element.to_owned(), below.added);
        self.modified.children.insert(element.to_owned(), below.modified);
        self.removed.children.insert(element.to_owned(), below.removed);
    }
}

impl FieldSet {
    /// Returns the fields that an object sets: its leaves, the items of its lists and the entries of its maps.
    pub(crate) fn of_object(object: &Value, of: FieldType<'_>) -> Self {
        let mut set = Self::default();
        for (element, child_type, value) in of.children(object) {
            let children = Self::of_object(value, child_type);
            let is_declared = element.strip_prefix("f:").is_some_and(|name| of.declares(name));
            let is_empty = value.is_null() || value.as_object().is_some_and(serde_json::Map::is_empty);
            let is_member = !is_declared || is_empty || !child_type.is_granular(value);
            set.insert(element, Node { is_member, children });
        }
        set
    }

    /// Returns the union of this set and all declared fields that have a member below them.
    pub(crate) fn with_parents(&self, of: FieldType<'_>) -> Self {
        let mut set = Self::default();
        for (element, node) in self.nodes() {
            let is_declared = element.strip_prefix("f:").is_some_and(|name| of.declares(name));
            let is_member = node.is_member || (is_declared && !node.children.is_empty());
            set.insert(
                element.to_owned(),
                Node { is_member, children: node.children.with_parents(of.at(element)) },
            );
        }
        set
    }
}
