//! PURE. Strategic merge patch: lists of built-in kinds are merged by the keys that their types declare.

use kube::core::Status;
use serde_json::{Map, Value};

use crate::state::kind::field_rules::{ListRule, strategic_list};
use crate::status_error;

/// Returns the object with the patch merged into it.
pub(crate) fn merge(object: &Value, patch: &Value) -> Result<Value, Box<Status>> {
    let (Value::Object(object), Value::Object(patch)) = (object, patch) else {
        return Err(status_error::bad_request("a strategic merge patch is an object"));
    };
    merge_map("", object, patch).map(Value::Object)
}

fn merge_map(
    parent: &str,
    object: &Map<String, Value>,
    patch: &Map<String, Value>,
) -> Result<Map<String, Value>, Box<Status>> {
    match patch.get("$patch").and_then(Value::as_str) {
        Some("replace") => {
            return Ok(patch.iter().filter(|(name, _)| *name != "$patch").map(owned).collect());
        }
        Some("delete") => return Ok(Map::new()),
        Some("merge") | None => {}
        Some(other) => return Err(status_error::bad_request(&format!("Unknown patch type found: {other}"))),
    }
    let mut merged = object.clone();
    for (name, value) in patch.iter().filter(|(name, _)| *name != "$patch") {
        if let Some(list) = name.strip_prefix("$deleteFromPrimitiveList/") {
            if let (Some(items), Some(gone)) =
                (merged.get_mut(list).and_then(Value::as_array_mut), value.as_array())
            {
                items.retain(|item| !gone.contains(item));
            }
            continue;
        }
        if name.starts_with('$') {
            return Err(status_error::not_implemented(&format!("{name} in a strategic merge patch")));
        }
        match (merged.get(name), value) {
            (_, Value::Null) => drop(merged.remove(name)),
            (Some(Value::Object(before)), Value::Object(value)) => {
                let after = merge_map(name, before, value)?;
                merged.insert(name.clone(), after.into());
            }
            (None, Value::Object(value)) => {
                merged.insert(name.clone(), merge_map(name, &Map::new(), value)?.into());
            }
            (before, Value::Array(value)) => {
                let before = before.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
                let after = merge_list(parent, name, before, value)?;
                merged.insert(name.clone(), after.into());
            }
            (_, value) => drop(merged.insert(name.clone(), value.clone())),
        }
    }
    Ok(merged)
}

fn owned((name, value): (&String, &Value)) -> (String, Value) {
    (name.clone(), value.clone())
}

fn merge_list(
    parent: &str,
    field: &str,
    before: &[Value],
    patch: &[Value],
) -> Result<Vec<Value>, Box<Status>> {
    let key = match strategic_list(parent, field) {
        ListRule::Atomic => return Ok(patch.to_vec()),
        ListRule::Set => return Ok(in_order(before, patch.to_vec(), |item| Some(item))),
        ListRule::Keyed(keys) => keys[0],
    };
    let (mut left, mut patched) = (before.to_vec(), Vec::new());
    for item in patch {
        let Value::Object(item) = item else {
            return Err(status_error::bad_request("expected an object in a list that is merged by a key"));
        };
        let directive = item.get("$patch").and_then(Value::as_str);
        let Some(id) = item.get(key) else {
            if directive == Some("replace") {
                return Ok(patch.iter().filter(|other| other["$patch"] != "replace").cloned().collect());
            }
            return Err(status_error::bad_request(&format!(
                "map: {} does not contain declared merge key: {key}",
                Value::Object(item.clone())
            )));
        };
        if directive == Some("delete") {
            left.retain(|other| other.get(key) != Some(id));
            continue;
        }
        let known = left.iter().find(|other| other.get(key) == Some(id)).and_then(Value::as_object);
        patched.push(Value::Object(merge_map(field, known.unwrap_or(&Map::new()), item)?));
    }
    Ok(in_order(&left, patched, |item| item.get(key)))
}

/// Merges the items of the patch, in their order, with the items that only the stored list has. An item that only the stored list has keeps its place
/// before the next item that is in both lists. New items come as early as the order of the patch allows.
fn in_order(before: &[Value], patched: Vec<Value>, id: impl Fn(&Value) -> Option<&Value>) -> Vec<Value> {
    let is_patched = |item: &Value| patched.iter().any(|other| id(other) == id(item));
    let mut kept = before.iter().enumerate().filter(|(_, item)| !is_patched(item)).peekable();
    let mut merged = Vec::new();
    for item in &patched {
        let place = before.iter().position(|other| id(other) == id(item));
        while let Some((_, kept)) = kept.next_if(|(at, _)| place.is_some_and(|place| *at < place)) {
            merged.push(kept.clone());
        }
        merged.push(item.clone());
    }
    merged.extend(kept.map(|(_, kept)| kept.clone()));
    merged
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn containers_merge_by_name_and_their_ports_by_number() {
        let pod = json!({"spec": {"containers": [
            {"name": "a", "image": "1", "args": ["x"], "ports": [{"containerPort": 80, "name": "web"}]}, {"name": "b"}]}});
        let patch = json!({"spec": {"containers": [
            {"name": "a", "args": ["y"], "ports": [{"containerPort": 80, "protocol": "TCP"}]},
            {"name": "b", "$patch": "delete"}]}});
        let expected = json!({"spec": {"containers": [
            {"name": "a", "image": "1", "args": ["y"], "ports": [{"containerPort": 80, "name": "web", "protocol": "TCP"}]}]}});
        assert_eq!(merge(&pod, &patch).unwrap(), expected);
    }

    #[test]
    fn finalizers_are_a_set() {
        let object = json!({"metadata": {"finalizers": ["a", "b"]}});
        let added = json!({"metadata": {"finalizers": ["b", "c"]}});
        assert_eq!(merge(&object, &added).unwrap()["metadata"]["finalizers"], json!(["a", "b", "c"]));
        let removed = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}});
        assert_eq!(merge(&object, &removed).unwrap()["metadata"]["finalizers"], json!(["b"]));
    }

    #[test]
    fn objects_are_replaced_where_the_patch_says_so() {
        let object = json!({"data": {"a": "1", "b": "2"}});
        let replaced = merge(&object, &json!({"data": {"$patch": "replace", "c": "3"}})).unwrap();
        assert_eq!(replaced, json!({"data": {"c": "3"}}));
    }

    #[test]
    fn directives_that_are_not_implemented_are_refused() {
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}]}});
        assert_eq!(merge(&json!({}), &patch).unwrap_err().code, 501);
    }
}
