//! PURE. The metadata of objects as JSON.

use std::sync::Arc;

use serde_json::{Map, Value, json};

/// Metadata fields that clients cannot write.
pub(crate) const SERVER_FIELDS: [&str; 6] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

/// Returns the string in this field of the metadata; an empty string counts as missing.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str().filter(|text| !text.is_empty())
}

/// Returns the labels and annotations that are neither strings nor null: the field, the key and the value of each.
pub(crate) fn other_than_strings(object: &Value) -> impl Iterator<Item = (&'static str, &str, &Value)> {
    ["labels", "annotations"].into_iter().flat_map(|field| {
        let entries = object["metadata"][field].as_object().into_iter().flatten();
        let entries = entries.filter(|(_, value)| !value.is_string() && !value.is_null());
        entries.map(move |(key, value)| (field, key.as_str(), value))
    })
}

pub(crate) fn version(object: &Value) -> Option<u64> {
    text(object, "resourceVersion")?.parse().ok()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name").unwrap_or_default()
}

/// Returns the metadata, which is created if it is missing.
pub(crate) fn of(object: &mut Value) -> &mut Map<String, Value> {
    if !object.is_object() {
        *object = json!({});
    }
    let meta = &mut object["metadata"];
    if !meta.is_object() {
        *meta = json!({});
    }
    meta.as_object_mut().expect("made above")
}

pub(crate) fn set(object: &mut Value, field: &str, value: impl Into<Value>) {
    of(object).insert(field.to_owned(), value.into());
}

/// Copies a field of the metadata from `from`, or removes it if `from` does not have the field.
pub(crate) fn take_over(object: &mut Value, field: &str, from: &Value) {
    match from.get("metadata").and_then(|meta| meta.get(field)) {
        Some(value) => set(object, field, value.clone()),
        None => drop(of(object).remove(field)),
    }
}

pub(crate) fn has_finalizers(object: &Value) -> bool {
    object["metadata"]["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty())
}

pub(crate) fn finalizers(object: &Value) -> Vec<&str> {
    object["metadata"]["finalizers"].as_array().into_iter().flatten().filter_map(Value::as_str).collect()
}

pub(crate) fn is_terminating(object: &Value) -> bool {
    text(object, "deletionTimestamp").is_some()
}

/// Returns whether a grace period is running.
pub(crate) fn has_grace(object: &Value) -> bool {
    object["metadata"]["deletionGracePeriodSeconds"].as_i64().is_some_and(|seconds| seconds > 0)
}

pub(crate) fn raise_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_u64() {
        set(object, "generation", generation + 1);
    }
}

pub(crate) fn has_managers(object: &Value) -> bool {
    object["metadata"]["managedFields"].as_array().is_some_and(|entries| !entries.is_empty())
}

/// Removes `managedFields` and returns its value.
pub(crate) fn take_managers(object: &mut Value) -> Option<Value> {
    of(object).remove("managedFields")
}

pub(crate) fn references(object: &Value) -> &[Value] {
    object["metadata"]["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default()
}

/// Removes the metadata fields that a real server does not store: null, empty lists and empty maps. A label or annotation that is null becomes empty.
pub(crate) fn normalize(object: &mut Value) {
    for field in ["labels", "annotations"] {
        let values = of(object).get_mut(field).and_then(Value::as_object_mut);
        values
            .into_iter()
            .flat_map(Map::values_mut)
            .filter(|value| value.is_null())
            .for_each(|value| *value = json!(""));
    }
    of(object).retain(|_, value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty(),
        _ => true,
    });
}

/// Returns the object as the response to a request for metadata only.
pub(crate) fn partial(object: &Value) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": "meta.k8s.io/v1",
        "metadata": object.get("metadata").cloned().unwrap_or_default(),
    })
}

pub(crate) fn with_version(object: &Value, version: u64) -> Value {
    let mut object = object.clone();
    set(&mut object, "resourceVersion", version.to_string());
    object
}

/// Returns the object with this `apiVersion`, which is one of the versions of its kind. Objects have the same fields in all versions of a kind.
pub(crate) fn in_version(object: &Arc<Value>, api_version: &str) -> Arc<Value> {
    if object["apiVersion"] == *api_version {
        return object.clone();
    }
    let mut object = Value::clone(object);
    object["apiVersion"] = api_version.into();
    Arc::new(object)
}

pub(crate) fn add_finalizer(object: &mut Value, finalizer: &str) {
    if !finalizers(object).contains(&finalizer) {
        let with: Vec<Value> = finalizers(object).into_iter().chain([finalizer]).map(Value::from).collect();
        set(object, "finalizers", with);
    }
}

pub(crate) fn remove_finalizer(object: &mut Value, finalizer: &str) {
    let left: Vec<Value> =
        finalizers(object).into_iter().filter(|held| *held != finalizer).map(Value::from).collect();
    match left.is_empty() {
        true => drop(of(object).remove("finalizers")),
        false => set(object, "finalizers", left),
    }
}
