//! PURE. Validates the metadata of objects that clients write.

use kube::core::Status;
use serde_json::Value;

use crate::state::kind::Kind;
use crate::state::label_selector::{is_key, is_name};
use crate::state::metadata;
use crate::status_error;

/// Invalid fields, and the error of each.
type Wrong = Vec<(String, String)>;

/// Checks a new object. `stem` is the prefix of a generated name.
pub(crate) fn check_create(kind: &Kind, object: &Value, stem: Option<&str>) -> Result<(), Box<Status>> {
    let name = metadata::name(object);
    let rule = kind.name_rule();
    let mut wrong = Wrong::new();
    if let Some((stem, problem)) = stem.and_then(|stem| Some((stem, rule.problem(stem, true)?))) {
        wrong.push(("metadata.generateName".to_owned(), format!("Invalid value: {stem:?}: {problem}")));
    }
    if name.is_empty() {
        wrong.push((
            "metadata.name".to_owned(),
            "Required value: name or generateName is required".to_owned(),
        ));
    } else if let Some(problem) = rule.problem(name, false) {
        wrong.push(("metadata.name".to_owned(), format!("Invalid value: {name:?}: {problem}")));
    }
    labels(object, &mut wrong);
    owners(object, &mut wrong);
    for (index, finalizer) in metadata::finalizers(object).into_iter().enumerate() {
        if !is_finalizer(kind, finalizer) {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            wrong.push((
                format!("metadata.finalizers[{index}]"),
                format!("Invalid value: {finalizer:?}: {why}"),
            ));
        }
    }
    end(kind, name, &wrong)
}

/// Checks an object that replaces a stored object.
pub(crate) fn check_update(kind: &Kind, object: &Value) -> Result<(), Box<Status>> {
    let mut wrong = Wrong::new();
    labels(object, &mut wrong);
    owners(object, &mut wrong);
    end(kind, metadata::name(object), &wrong)
}

fn end(kind: &Kind, name: &str, wrong: &Wrong) -> Result<(), Box<Status>> {
    if wrong.is_empty() { Ok(()) } else { Err(status_error::invalid(&kind.resource, name, wrong)) }
}

fn is_finalizer(kind: &Kind, finalizer: &str) -> bool {
    // Custom resources accept any name of a finalizer.
    !kind.is_built_in()
        || finalizer.contains('/')
        || ["foregroundDeletion", "orphan", "kubernetes"].contains(&finalizer)
}

fn labels(object: &Value, wrong: &mut Wrong) {
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        if !is_key(key) {
            let why = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an \
                       alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                       '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
            wrong.push(("metadata.labels".to_owned(), format!("Invalid value: {key:?}: {why}")));
        }
        let value = value.as_str().unwrap_or_default();
        if !value.is_empty() && !is_name(value) {
            let why = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must \
                       start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used \
                       for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
            wrong.push(("metadata.labels".to_owned(), format!("Invalid value: {value:?}: {why}")));
        }
    }
}

fn owners(object: &Value, wrong: &mut Wrong) {
    for owner in metadata::references(object) {
        for (field, problem) in [
            ("apiVersion", "version must not be empty"),
            ("kind", "must not be empty"),
            ("name", "must not be empty"),
            ("uid", "must not be empty"),
        ] {
            if owner[field].as_str().is_none_or(str::is_empty) {
                wrong.push((
                    format!("metadata.ownerReferences.{field}"),
                    format!("Invalid value: \"\": {problem}"),
                ));
            }
        }
    }
    let controllers = metadata::references(object).iter().filter(|owner| owner["controller"] == true);
    let named = |owner: &Value| {
        let part = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
        format!("{}/{}", part("kind"), part("name"))
    };
    let controllers: Vec<_> = controllers.map(named).collect();
    for other in controllers.iter().skip(1) {
        let all = &object["metadata"]["ownerReferences"];
        wrong.push((
            "metadata.ownerReferences".to_owned(),
            format!(
                "Invalid value: {all}: Only one reference can have Controller set to true. Found \"true\" in references for \
                 {other} and {}",
                controllers[0]
            ),
        ));
    }
}
