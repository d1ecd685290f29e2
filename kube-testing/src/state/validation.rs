//! PURE. Validates the metadata of objects that clients write.

use kube::core::Status;
use serde_json::Value;

use crate::request::{RecordedRequest, Verb};
use crate::state::kind::Kind;
use crate::state::kind::names::NameRule;
use crate::state::label_selector::is_spelled_as_name;
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
    if let Some(most) = kind.longest_name().filter(|most| name.len() > *most) {
        let problem = format!("Invalid value: {name:?}: must be no more than {most} characters");
        wrong.push(("metadata.name".to_owned(), problem));
    }
    labels(object, &mut wrong);
    annotations(object, &mut wrong);
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

/// Checks an object that replaces the stored object `before`.
pub(crate) fn check_update(kind: &Kind, before: &Value, object: &Value) -> Result<(), Box<Status>> {
    let mut wrong = Wrong::new();
    deletion(before, object, &mut wrong);
    labels(object, &mut wrong);
    annotations(object, &mut wrong);
    owners(object, &mut wrong);
    end(kind, metadata::name(before), &wrong)
}

/// Returns an error if a label or an annotation is not a string, as the decoder of a real server does before all other checks.
pub(crate) fn check_strings(
    kind: &Kind,
    request: &RecordedRequest,
    object: &Value,
) -> Result<(), Box<Status>> {
    let Some((field, _, value)) = metadata::other_than_strings(object).next() else { return Ok(()) };
    let found = match value {
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::Array(_) => "array",
        _ => "object",
    };
    let parent = if kind.is_built_in() { "ObjectMeta.metadata" } else { "ObjectMeta" };
    let why = format!("json: cannot unmarshal {found} into Go struct field {parent}.{field} of type string");
    Err(match request.verb {
        Verb::Patch => status_error::not_patched(object, &why),
        _ => status_error::not_decoded(&kind.resource, &request.version, &why),
    })
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

/// Checks that a write neither begins nor changes a deletion. Fields of a deletion that a write omits are kept.
fn deletion(before: &Value, object: &Value, wrong: &mut Wrong) {
    let field = |object: &Value, field: &str| object["metadata"][field].clone();
    for name in ["deletionTimestamp", "deletionGracePeriodSeconds"] {
        let (old, new) = (field(before, name), field(object, name));
        let is_kept = name == "deletionTimestamp" && !old.is_null();
        if !new.is_null() && !is_kept && old != new {
            wrong.push((format!("metadata.{name}"), format!("Invalid value: {new}: field is immutable")));
        }
    }
}

fn labels(object: &Value, wrong: &mut Wrong) {
    let mut push = |problem: String| wrong.push(("metadata.labels".to_owned(), problem));
    for (key, value) in object["metadata"]["labels"].as_object().into_iter().flatten() {
        key_problems(key).iter().for_each(|why| push(format!("Invalid value: {key:?}: {why}")));
        let value = value.as_str().unwrap_or_default();
        if value.len() > 63 {
            push(format!("Invalid value: {value:?}: must be no more than 63 bytes"));
        }
        if !value.is_empty() && !is_spelled_as_name(value) {
            push(format!(
                "Invalid value: {value:?}: a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
                 or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', \
                 regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
            ));
        }
    }
}

fn annotations(object: &Value, wrong: &mut Wrong) {
    const MOST: usize = 256 * 1024;
    let mut size = 0;
    for (key, value) in object["metadata"]["annotations"].as_object().into_iter().flatten() {
        // The rule is that of labels, but the prefix may have upper-case letters.
        for why in key_problems(&key.to_lowercase()) {
            wrong.push(("metadata.annotations".to_owned(), format!("Invalid value: {key:?}: {why}")));
        }
        size += key.len() + value.as_str().unwrap_or_default().len();
    }
    if size > MOST {
        let why = format!("Too long: may not be more than {MOST} bytes");
        wrong.push(("metadata.annotations".to_owned(), why));
    }
}

/// Returns why a text is not the key of a label; empty if it is one.
fn key_problems(key: &str) -> Vec<String> {
    const SPELLING: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric \
                            character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is \
                            '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')";
    let mut problems = Vec::new();
    let name = match key.split('/').collect::<Vec<_>>()[..] {
        [name] => name,
        [prefix, name] => {
            if prefix.is_empty() {
                problems.push("prefix part must be non-empty".to_owned());
            } else if prefix.len() > 253 {
                problems.push("prefix part must be no more than 253 bytes".to_owned());
            } else if let Some(problem) = NameRule::Subdomain.problem(prefix, false) {
                problems.push(format!("prefix part {problem}"));
            }
            name
        }
        _ => {
            let optional = "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
            return vec![format!("a valid label key {SPELLING} {optional}")];
        }
    };
    if name.is_empty() {
        problems.push("name part must be non-empty".to_owned());
    } else if name.len() > 63 {
        problems.push("name part must be no more than 63 bytes".to_owned());
    }
    if !is_spelled_as_name(name) {
        problems.push(format!("name part {SPELLING}"));
    }
    problems
}

fn owners(object: &Value, wrong: &mut Wrong) {
    for (at, owner) in metadata::references(object).iter().enumerate() {
        let mut refuse = |field: &str, problem: String| {
            wrong.push((format!("metadata.ownerReferences[{at}].{field}"), problem));
        };
        let is_there = |field: &str| owner[field].as_str().is_some_and(|value| !value.is_empty());
        for field in ["apiVersion", "kind", "name", "uid"] {
            if !is_there(field) {
                refuse(field, "Required value: must not be empty".to_owned());
            }
        }
        let api_version = owner["apiVersion"].as_str().unwrap_or_default();
        if is_there("apiVersion") && (api_version.ends_with('/') || api_version.matches('/').count() > 1) {
            let problem = format!("Invalid value: \"{api_version}\": must be <group>/<version> or <version>");
            refuse("apiVersion", problem);
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
