//! PURE. The metadata of objects as JSON.

use serde_json::{Map, Value, json};

/// The string at `/metadata/…`; an empty one counts as none.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    object.get("metadata")?.get(field)?.as_str().filter(|text| !text.is_empty())
}

pub(crate) fn version(object: &Value) -> Option<u64> {
    text(object, "resourceVersion")?.parse().ok()
}

pub(crate) fn name(object: &Value) -> &str {
    text(object, "name").unwrap_or_default()
}

/// The metadata, made where there is none.
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

/// Copies a field of another object, also its absence.
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

/// Whether anything but status and metadata differs.
pub(crate) fn spec_differs(a: &Value, b: &Value) -> bool {
    let spec = |object: &Value| -> Map<String, Value> {
        let fields = object.as_object().into_iter().flatten();
        let excluded = |key: &str| matches!(key, "metadata" | "status" | "apiVersion" | "kind");
        fields.filter(|(key, _)| !excluded(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    };
    spec(a) != spec(b)
}

/// The object for a request for metadata only.
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
