//! PURE. Merges an applied configuration into an object, and removes fields from an object.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::state::apply::field_type::FieldType;
use crate::state::field_set::{Element, FieldSet};

/// Returns the object with the configuration merged into it.
pub(crate) fn merge(object: &Value, config: &Value, of: FieldType<'_>) -> Value {
    match (object, config) {
        (Value::Object(fields), Value::Object(applied)) if of.is_granular(config) => {
            let mut merged = fields.clone();
            for (name, value) in applied {
                let value = match fields.get(name) {
                    Some(before) => merge(before, value, of.field(name)),
                    None => value.clone(),
                };
                merged.insert(name.clone(), value);
            }
            Value::Object(merged)
        }
        (Value::Array(items), Value::Array(applied)) if of.is_granular(config) => {
            merge_list(items, applied, of)
        }
        // Null replaces a scalar, but does not change an object or a list with children.
        (_, Value::Null) if !of.children(object).is_empty() => object.clone(),
        _ => config.clone(),
    }
}

/// Merges lists whose items have keys. The applied items have the order of the configuration. An item that only the stored list has keeps its place
/// before the next item that is in both lists.
fn merge_list(items: &[Value], applied: &[Value], of: FieldType<'_>) -> Value {
    let element = |item: &Value| of.element(item).ok();
    let elements: Vec<Option<Element>> = items.iter().map(element).collect();
    let applied: Vec<_> = applied.iter().map(|item| (element(item), item)).collect();
    // Maps each key to the item with that key, or to `None` if several items have it.
    let mut known = BTreeMap::<&Element, Option<&Value>>::new();
    for (element, item) in
        elements.iter().zip(items).filter_map(|(element, item)| Some((element.as_ref()?, item)))
    {
        known.entry(element).and_modify(|item| *item = None).or_insert(Some(item));
    }
    let keys: BTreeSet<&Element> = applied.iter().filter_map(|(element, _)| element.as_ref()).collect();
    let is_applied: Vec<bool> = elements
        .iter()
        .map(|element| element.as_ref().is_some_and(|element| keys.contains(element)))
        .collect();
    let shared = applied.iter().filter_map(|(element, _)| element.as_ref());
    let mut next_shared = shared.filter(|element| known.contains_key(element)).peekable();
    let mut merged = Vec::new();
    let mut at = 0;
    for (element, item) in &applied {
        while at < items.len() && !(is_applied[at] && next_shared.peek().copied() == elements[at].as_ref()) {
            if !is_applied[at] {
                merged.push(items[at].clone());
            }
            at += 1;
        }
        next_shared.next_if(|shared| Some(*shared) == element.as_ref());
        // If several stored items have this key, the applied item replaces all of them.
        merged.push(match element.as_ref().and_then(|element| *known.get(element)?) {
            Some(before) => merge(before, item, of.at("k:")),
            None => (*item).clone(),
        });
    }
    let rest = items[at..].iter().zip(&is_applied[at..]).filter(|(_, is_applied)| !**is_applied);
    merged.extend(rest.map(|(item, _)| item.clone()));
    Value::Array(merged)
}

/// Returns the value without these fields; null if nothing is left.
pub(crate) fn remove(value: &Value, fields: &FieldSet, of: FieldType<'_>) -> Value {
    if fields.is_empty() || !of.is_granular(value) {
        return value.clone();
    }
    let left = |element: &str, value: &Value, of: FieldType<'_>| match fields.get(element) {
        Some(node) if node.is_member => None,
        Some(node) => Some(remove(value, &node.children, of)),
        None => Some(value.clone()),
    };
    match value {
        Value::Object(object) => {
            let fields = object.iter().filter_map(|(name, value)| {
                let value = left(&format!("f:{name}"), value, of.field(name))?;
                Some((name.clone(), value))
            });
            let fields: Map<_, _> = fields.collect();
            if fields.is_empty() { Value::Null } else { Value::Object(fields) }
        }
        Value::Array(items) => {
            let items = items.iter().filter_map(|item| match of.element(item) {
                Ok(element) => left(&element, item, of.at(&element)),
                Err(_) => Some(item.clone()),
            });
            let items: Vec<_> = items.collect();
            if items.is_empty() { Value::Null } else { Value::Array(items) }
        }
        _ => value.clone(),
    }
}

/// Removes fields whose value is null, because the types of built-in kinds cannot contain null.
pub(crate) fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

/// Returns the problems of a configuration: items without keys, items with the same key, and fields that the schema does not have.
pub(crate) fn problems(config: &Value, of: FieldType<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    find_problems("", config, of, &mut problems);
    problems
}

fn find_problems(path: &str, value: &Value, of: FieldType<'_>, problems: &mut Vec<String>) {
    if !of.is_granular(value) {
        return;
    }
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let path = format!("{path}.{name}");
                if of.excludes(name) {
                    problems.push(format!("{path}: field not declared in schema"));
                } else {
                    find_problems(&path, value, of.field(name), problems);
                }
            }
        }
        Value::Array(items) => {
            let mut seen = BTreeSet::new();
            for (index, item) in items.iter().enumerate() {
                match of.element(item) {
                    Err(why) => problems.push(format!("{path}: element {index}: {why}")),
                    Ok(element) => {
                        let shown = FieldSet::path_of(&element);
                        find_problems(&format!("{path}{shown}"), item, of.at(&element), problems);
                        if !seen.insert(element) {
                            problems.push(format!("{path}: duplicate entries for key {shown}"));
                        }
                    }
                }
            }
        }
        _ => {}
    }
}
