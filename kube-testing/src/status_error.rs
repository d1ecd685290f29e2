//! PURE. Error responses, with the codes, reasons and messages of a real server.

use kube::core::response::{StatusCause, StatusDetails, reason};
use kube::core::{ApiResource, Status};
use serde_json::{Value, json};

/// Returns a status as a response or an event contains it.
pub(crate) fn body(status: &Status) -> Value {
    let mut body = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}});
    if let (Some(body), Ok(Value::Object(status))) = (body.as_object_mut(), serde_json::to_value(status)) {
        body.extend(status);
    }
    body
}

fn failure(code: u16, reason: &str, message: &str) -> Status {
    Status::failure(message, reason).with_code(code)
}

fn of(resource: &ApiResource, name: &str) -> StatusDetails {
    let (group, plural) = (resource.group.clone(), resource.plural.clone());
    StatusDetails { name: name.to_owned(), group, kind: plural, ..nothing() }
}

/// Returns the resource name as messages show it, such as `deployments.apps`.
pub(crate) fn title(resource: &ApiResource) -> String {
    qualified(&resource.plural, &resource.group)
}

/// Returns the kind name as messages show it, such as `Deployment.apps`.
pub(crate) fn qualified_kind(resource: &ApiResource) -> String {
    qualified(&resource.kind, &resource.group)
}

fn qualified(name: &str, group: &str) -> String {
    if group.is_empty() { name.to_owned() } else { format!("{name}.{group}") }
}

fn nothing() -> StatusDetails {
    StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: Vec::new(),
        retry_after_seconds: 0,
    }
}

pub(crate) fn no_such_path() -> Box<Status> {
    failure(404, reason::NOT_FOUND, "the server could not find the requested resource").boxed()
}

pub(crate) fn not_registered(plural: &str) -> Box<Status> {
    let message = format!("the server could not find the requested resource: register {plural} with it");
    failure(404, reason::NOT_FOUND, &message).boxed()
}

/// The error for a path with a namespace of a kind that has none, or without one of a kind that has one.
pub(crate) fn other_scope(plural: &str, namespaced: bool) -> Box<Status> {
    let scope = if namespaced { "are in a namespace" } else { "are in no namespace" };
    let message = format!("the server could not find the requested resource: {plural} {scope}");
    failure(404, reason::NOT_FOUND, &message).boxed()
}

pub(crate) fn no_such_method() -> Box<Status> {
    let message = "the server does not allow this method on the requested resource";
    failure(405, reason::METHOD_NOT_ALLOWED, message).boxed()
}

pub(crate) fn bad_request(message: &str) -> Box<Status> {
    failure(400, reason::BAD_REQUEST, message).boxed()
}

/// The error for a body of more than `limit` bytes.
pub(crate) fn body_too_large(limit: usize) -> Box<Status> {
    failure(413, "RequestEntityTooLarge", &format!("Request entity too large: limit is {limit}")).boxed()
}

pub(crate) fn unsupported_media(accepted: &[&str]) -> Box<Status> {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {}",
        accepted.join(", ")
    );
    failure(415, reason::UNSUPPORTED_MEDIA_TYPE, &message).boxed()
}

pub(crate) fn not_acceptable() -> Box<Status> {
    let message = "only the following media types are accepted: application/json";
    failure(406, reason::NOT_ACCEPTABLE, message).boxed()
}

/// The error for a patch whose result is no object of this kind.
pub(crate) fn not_patched(result: &Value, why: &str) -> Box<Status> {
    let why = format!("Invalid value: {:?}: {why}", result.to_string());
    refused("", nothing(), &[("patch", why)])
}

/// The error for a body that is no object of this kind, for example because a field has another type.
pub(crate) fn not_decoded(resource: &ApiResource, version: &str, why: &str) -> Box<Status> {
    let kind = &resource.kind;
    bad_request(&format!("{kind} in version {version:?} cannot be handled as a {kind}: {why}"))
}

/// The error for a feature of a real server that is not implemented here.
pub(crate) fn not_implemented(what: &str) -> Box<Status> {
    failure(501, "NotImplemented", &format!("flyball-kube-testing does not implement {what}")).boxed()
}

pub(crate) fn forbidden(resource: &ApiResource, name: &str, why: &str) -> Box<Status> {
    let message = format!("{} {name:?} is forbidden: {why}", title(resource));
    failure(403, reason::FORBIDDEN, &message).with_details(of(resource, name)).boxed()
}

pub(crate) fn not_found(resource: &ApiResource, name: &str) -> Box<Status> {
    let message = format!("{} {name:?} not found", title(resource));
    failure(404, reason::NOT_FOUND, &message).with_details(of(resource, name)).boxed()
}

pub(crate) fn already_exists(resource: &ApiResource, name: &str) -> Box<Status> {
    let message = format!("{} {name:?} already exists", title(resource));
    failure(409, reason::ALREADY_EXISTS, &message).with_details(of(resource, name)).boxed()
}

/// `title` is the name of the kind or of its resource, as the message shows it.
pub(crate) fn conflict(title: &str, resource: &ApiResource, name: &str, why: &str) -> Box<Status> {
    let message = format!("Operation cannot be fulfilled on {title} {name:?}: {why}");
    let mut details = of(resource, name);
    title.split('.').next().unwrap_or_default().clone_into(&mut details.kind);
    failure(409, reason::CONFLICT, &message).with_details(details).boxed()
}

/// The error for an apply that would change fields of other managers.
pub(crate) fn apply_conflict(message: &str, causes: Vec<StatusCause>) -> Box<Status> {
    let details = StatusDetails { causes, ..nothing() };
    failure(409, reason::CONFLICT, message).with_details(details).boxed()
}

/// An error with the code 500 and without a reason, as a real server reports it.
pub(crate) fn internal(message: &str) -> Box<Status> {
    failure(500, "", message).boxed()
}

pub(crate) fn modified(resource: &ApiResource, name: &str) -> Box<Status> {
    conflict(
        &title(resource),
        resource,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

/// The error for an object with invalid fields. Each text in `wrong` starts with the type of the error, such as `Required value`.
pub(crate) fn invalid(
    resource: &ApiResource,
    name: &str,
    wrong: &[(impl AsRef<str>, String)],
) -> Box<Status> {
    let details = StatusDetails { kind: resource.kind.clone(), ..of(resource, name) };
    refused(&qualified_kind(resource), details, wrong)
}

/// The error for invalid options of a request.
pub(crate) fn invalid_options(kind: &str, wrong: &[(impl AsRef<str>, String)]) -> Box<Status> {
    let group = "meta.k8s.io";
    let details = StatusDetails { group: group.to_owned(), kind: kind.to_owned(), ..nothing() };
    refused(&format!("{kind}.{group}"), details, wrong)
}

fn refused(title: &str, details: StatusDetails, wrong: &[(impl AsRef<str>, String)]) -> Box<Status> {
    let causes = wrong.iter().map(|(field, why)| StatusCause {
        reason: match why.split(':').next() {
            Some("Forbidden") => "FieldValueForbidden",
            Some("Required value") => "FieldValueRequired",
            Some("Too long") => "FieldValueTooLong",
            Some("Unsupported value") => "FieldValueNotSupported",
            _ => "FieldValueInvalid",
        }
        .into(),
        message: why.clone(),
        field: field.as_ref().to_owned(),
    });
    let details = StatusDetails { causes: causes.collect(), ..details };
    let each: Vec<_> = wrong.iter().map(|(field, why)| format!("{}: {why}", field.as_ref())).collect();
    let each = if let [one] = &each[..] { one.clone() } else { format!("[{}]", each.join(", ")) };
    let message = format!("{title} {:?} is invalid: {each}", details.name);
    failure(422, reason::INVALID, &message).with_details(details).boxed()
}

/// The error for an object without a name; `given` is the name in the path, which only some messages contain.
pub(crate) fn nameless(given: &str) -> Box<Status> {
    bad_request(&format!(
        "the name of the object ({given}based on URL) was undeterminable: name must be provided"
    ))
}

/// The error for an update without a `resourceVersion`, if the kind requires one. This message contains the plural name of the kind.
pub(crate) fn version_required(resource: &ApiResource, name: &str) -> Box<Status> {
    let why = "Invalid value: 0: must be specified for an update".to_owned();
    refused(&title(resource), of(resource, name), &[("metadata.resourceVersion", why)])
}

/// The error for new finalizers of an object that is being deleted.
pub(crate) fn late_finalizers(resource: &ApiResource, name: &str, added: &[&str]) -> Box<Status> {
    let added: Vec<_> = added.iter().map(|added| format!("{added:?}")).collect();
    let why = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    let mut refused = invalid(resource, name, &[("metadata.finalizers", why)]);
    // A real server reports this error twice, because it checks updates twice: with the rules for all objects, and with the rules of the kind.
    if let Some(details) = &mut refused.details {
        details.causes.extend_from_within(..);
    }
    refused
}

pub(crate) fn patch_failed() -> Box<Status> {
    failure(422, reason::INVALID, "the server rejected our request due to an error in our request").boxed()
}

/// The error for a list at a version that the server's history no longer contains.
pub(crate) fn expired(message: &str) -> Box<Status> {
    failure(410, reason::EXPIRED, message).boxed()
}

/// The error for the next page of a list whose version the server's history no longer contains. With `token`, the client can continue the list at
/// the current version.
pub(crate) fn continue_expired(token: String) -> Box<Status> {
    let mut status = expired(
        "The provided continue parameter is too old to display a consistent list result. You can start a new list \
         without the continue parameter, or use the continue token in this response to retrieve the remainder of the \
         results. Continuing with the provided token results in an inconsistent list - objects that were created, \
         modified, or deleted between the time the first chunk was returned and now may show up in the list.",
    );
    let metadata = status.metadata.get_or_insert_default();
    metadata.continue_ = Some(token);
    status
}

/// The error for a watch from a version that the server's history no longer contains.
pub(crate) fn too_old(asked: u64, oldest: u64) -> Box<Status> {
    expired(&format!("too old resource version: {asked} ({oldest})"))
}

/// The error for a request for a version that the server has not reached yet.
pub(crate) fn too_large(asked: u64, current: u64) -> Box<Status> {
    let message = format!("Too large resource version: {asked}, current: {current}");
    let cause = StatusCause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    let details = StatusDetails { causes: vec![cause], retry_after_seconds: 1, ..nothing() };
    failure(504, reason::TIMEOUT, &format!("Timeout: {message}")).with_details(details).boxed()
}

pub(crate) fn deleted(resource: &ApiResource, name: &str, uid: &str) -> Box<Status> {
    let details = StatusDetails { uid: uid.to_owned(), ..of(resource, name) };
    Status::success().with_details(details).boxed()
}
