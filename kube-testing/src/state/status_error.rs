//! PURE. Error responses, with the codes, reasons and messages of a real server.

use kube::core::response::{StatusCause, StatusDetails, reason};
use kube::core::{ApiResource, Status};

use crate::state::kind::Kind;

fn failure(code: u16, reason: &str, message: &str) -> Status {
    Status::failure(message, reason).with_code(code)
}

fn of(kind: &Kind, name: &str) -> StatusDetails {
    StatusDetails {
        name: name.to_owned(),
        group: kind.resource.group.clone(),
        kind: kind.resource.plural.clone(),
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

pub(crate) fn no_such_method() -> Box<Status> {
    let message = "the server does not allow this method on the requested resource";
    failure(405, reason::METHOD_NOT_ALLOWED, message).boxed()
}

pub(crate) fn bad_request(message: &str) -> Box<Status> {
    failure(400, reason::BAD_REQUEST, message).boxed()
}

pub(crate) fn unsupported_media(content_type: &str) -> Box<Status> {
    let message = format!(
        "the body of the request was in an unknown format - accepted media types include: {content_type:?} not"
    );
    failure(415, reason::UNSUPPORTED_MEDIA_TYPE, &message).boxed()
}

pub(crate) fn not_found(kind: &Kind, name: &str) -> Box<Status> {
    let message = format!("{} {name:?} not found", kind.title());
    failure(404, reason::NOT_FOUND, &message).with_details(of(kind, name)).boxed()
}

pub(crate) fn already_exists(kind: &Kind, name: &str) -> Box<Status> {
    let message = format!("{} {name:?} already exists", kind.title());
    failure(409, reason::ALREADY_EXISTS, &message).with_details(of(kind, name)).boxed()
}

pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> Box<Status> {
    let message = format!("Operation cannot be fulfilled on {} {name:?}: {why}", kind.title());
    failure(409, reason::CONFLICT, &message).with_details(of(kind, name)).boxed()
}

pub(crate) fn modified(kind: &Kind, name: &str) -> Box<Status> {
    conflict(
        kind,
        name,
        "the object has been modified; please apply your changes to the latest version and try again",
    )
}

pub(crate) fn invalid(kind: &Kind, name: &str, field: &str, why: &str) -> Box<Status> {
    let cause = match why.split(':').next() {
        Some("Forbidden") => "FieldValueForbidden",
        Some("Required value") => "FieldValueRequired",
        Some("Unsupported value") => "FieldValueNotSupported",
        _ => "FieldValueInvalid",
    };
    let ApiResource { group, kind: title, .. } = &kind.resource;
    let full = if group.is_empty() { title.clone() } else { format!("{title}.{group}") };
    refused(kind, name, (&full, title), (field, cause, why))
}

/// With the kind as `full` in the message and as `title` in the details.
fn refused(
    kind: &Kind,
    name: &str,
    (full, title): (&str, &str),
    (field, cause, why): (&str, &str, &str),
) -> Box<Status> {
    let message = format!("{full} {name:?} is invalid: {field}: {why}");
    let cause = StatusCause { reason: cause.into(), message: why.to_owned(), field: field.to_owned() };
    let details = StatusDetails { kind: title.to_owned(), causes: vec![cause], ..of(kind, name) };
    failure(422, reason::INVALID, &message).with_details(details).boxed()
}

/// An update without a version, of a kind that needs one. Here the message names the plural.
pub(crate) fn version_required(kind: &Kind, name: &str) -> Box<Status> {
    let why = "Invalid value: 0x0: must be specified for an update";
    let field = ("metadata.resourceVersion", "FieldValueInvalid", why);
    refused(kind, name, (&kind.title(), &kind.resource.plural), field)
}

/// New finalizers of an object that is being deleted.
pub(crate) fn late_finalizers(kind: &Kind, name: &str, added: &[&str]) -> Box<Status> {
    let added: Vec<_> = added.iter().map(|added| format!("{added:?}")).collect();
    let why = format!(
        "Forbidden: no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    let mut refused = invalid(kind, name, "metadata.finalizers", &why);
    // A real server reports it twice: as an update of any object, and of this kind.
    if let Some(details) = &mut refused.details {
        details.causes.extend_from_within(..);
    }
    refused
}

pub(crate) fn no_such_dry_run(kind: &Kind, asked: &str) -> Box<Status> {
    invalid(kind, "", "dryRun", &format!("Unsupported value: {asked:?}: supported values: \"All\""))
}

pub(crate) fn patch_failed(message: &str) -> Box<Status> {
    failure(
        422,
        reason::INVALID,
        &format!("the server rejected our request due to an error in our request: {message}"),
    )
    .boxed()
}

/// The history that a list needs has been forgotten.
pub(crate) fn expired(message: &str) -> Box<Status> {
    failure(410, reason::EXPIRED, message).boxed()
}

/// The history that a watch needs has been forgotten.
pub(crate) fn too_old(asked: u64, oldest: u64) -> Box<Status> {
    expired(&format!("too old resource version: {asked} ({oldest})"))
}

/// The server has not seen this version yet.
pub(crate) fn too_large(asked: u64, current: u64) -> Box<Status> {
    let message = format!("Too large resource version: {asked}, current: {current}");
    let cause = StatusCause {
        reason: "ResourceVersionTooLarge".into(),
        message: "Too large resource version".into(),
        field: String::new(),
    };
    let details = StatusDetails {
        name: String::new(),
        group: String::new(),
        kind: String::new(),
        uid: String::new(),
        causes: vec![cause],
        retry_after_seconds: 1,
    };
    failure(504, reason::TIMEOUT, &format!("Timeout: {message}")).with_details(details).boxed()
}

pub(crate) fn deleted(kind: &Kind, name: &str, uid: &str) -> Box<Status> {
    let details = StatusDetails { uid: uid.to_owned(), ..of(kind, name) };
    Status::success().with_details(details).boxed()
}
