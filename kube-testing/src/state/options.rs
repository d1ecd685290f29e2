//! PURE. The options of writes: they are rejected if a real server rejects them, or if this server does not implement them.

use kube::core::Status;
use serde_json::Value;

use crate::request::{RecordedRequest, Verb};
use crate::state::patch::APPLY;
use crate::status_error;

/// Checks the options of a request, which are in its query and, for a deletion, in its body. Returns whether the request is a dry run.
pub(crate) fn check(request: &RecordedRequest, deletion: &Value) -> Result<bool, Box<Status>> {
    let kind = match request.verb {
        Verb::Create => "CreateOptions",
        Verb::Update => "UpdateOptions",
        Verb::Patch => "PatchOptions",
        Verb::Delete | Verb::DeleteCollection => "DeleteOptions",
        Verb::Get | Verb::List | Verb::Watch => return Ok(false),
    };
    let mut wrong = Vec::new();
    if let Some(why) =
        request.query_param("fieldManager").and_then(wrong_manager).filter(|_| kind != "DeleteOptions")
    {
        wrong.push(("fieldManager", why));
    }
    let applies = request.media_type() == APPLY;
    if request.verb == Verb::Patch && applies && request.query_param("fieldManager").is_none() {
        wrong.push(("fieldManager", "Required value: is required for apply patch".to_owned()));
    }
    if request.verb == Verb::Patch && !applies && request.query_param("force").is_some() {
        wrong.push(("force", "Forbidden: may not be specified for non-apply patch".to_owned()));
    }
    let in_body = deletion["dryRun"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let dry: Vec<_> = in_body.chain(request.query_param("dryRun")).collect();
    if dry.iter().any(|asked| *asked != "All") {
        let asked = Value::from(dry.clone());
        wrong.push(("dryRun", format!("Unsupported value: {asked}: supported values: \"All\"")));
    }
    let policy = deletion["propagationPolicy"].as_str().or_else(|| request.query_param("propagationPolicy"));
    if kind == "DeleteOptions"
        && let Some(policy) = policy.filter(|policy| !["Foreground", "Background", "Orphan"].contains(policy))
    {
        let why = format!(
            "Unsupported value: {policy:?}: supported values: \"Foreground\", \"Background\", \"Orphan\", \"nil\""
        );
        wrong.push(("propagationPolicy", why));
    }
    let validation = request.query_param("fieldValidation").filter(|_| kind != "DeleteOptions");
    if let Some(asked) = validation.filter(|asked| !["Ignore", "Warn", "Strict"].contains(asked)) {
        let why =
            format!("Unsupported value: {asked:?}: supported values: \"\", \"Ignore\", \"Strict\", \"Warn\"");
        wrong.push(("fieldValidation", why));
    }
    if !wrong.is_empty() {
        return Err(status_error::invalid_options(kind, &wrong));
    }
    if validation == Some("Strict") {
        return Err(status_error::not_implemented("fieldValidation=Strict: there are no schemas here"));
    }
    Ok(!dry.is_empty())
}

fn wrong_manager(name: &str) -> Option<String> {
    if name.len() > 128 {
        return Some("Too long: may not be more than 128 bytes".to_owned());
    }
    let (position, character) = name.char_indices().find(|(_, character)| character.is_control())?;
    let code = u32::from(character);
    Some(format!("Invalid value: {name:?}: invalid character U+{code:04X} (at position {position})"))
}
