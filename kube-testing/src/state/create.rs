//! PURE. Creates objects: names, namespaces, and the fields that the server sets.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::apply::managers::Managers;
use crate::state::{State, metadata, validation};
use crate::status_error;

impl State {
    /// Creates an object. `managers` is set only for an apply, and contains the managers of the object's fields.
    pub(crate) fn create(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        mut object: Value,
        managers: Option<Managers>,
        now: Timestamp,
    ) -> Result<Arc<Value>, Box<Status>> {
        set_namespace(request, &mut object)?;
        self.kind(kind_id).check_types(request, &object)?;
        validation::check_strings(self.kind(kind_id), request, &object)?;
        if metadata::version(&object).is_some_and(|version| version > 0) {
            return Err(status_error::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        let stem = metadata::text(&object, "generateName").map(str::to_owned);
        if let (None, Some(stem)) = (metadata::text(&object, "name"), &stem) {
            let name = format!("{}{}", name_base(stem), self.ending());
            metadata::set(&mut object, "name", name);
        }
        let name = metadata::name(&object).to_owned();
        validation::check_create(self.kind(kind_id), &object, stem.as_deref())?;
        self.check_definition(kind_id, &name, &object)?;
        let kind = self.kind(kind_id);
        let key = kind.key_of(&object);
        if self.objects(kind_id).contains_key(&key) {
            return Err(status_error::already_exists(&kind.resource, &name));
        }
        for field in metadata::SERVER_FIELDS {
            metadata::of(&mut object).remove(field);
        }
        if kind.has_status()
            && let Some(fields) = object.as_object_mut()
        {
            fields.remove("status");
            fields.extend(kind.initial_status().map(|status| ("status".to_owned(), status)));
        }
        managers.unwrap_or_default().set_in(&mut object);
        metadata::normalize(&mut object);
        self.init_metadata(kind_id, &mut object, now);
        Ok(self.commit(kind_id, key, Some(object)))
    }
}

/// Sets the object's namespace to that of the request. Returns an error if the object has a different namespace.
pub(crate) fn set_namespace(request: &RecordedRequest, object: &mut Value) -> Result<(), Box<Status>> {
    if !object.is_object() {
        return Err(status_error::bad_request("the body is not an object"));
    }
    let given = metadata::text(object, "namespace");
    if given.is_some() && given != request.namespace.as_deref() {
        return Err(status_error::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    if let Some(namespace) = request.namespace.as_deref() {
        metadata::set(object, "namespace", namespace);
    }
    Ok(())
}

/// Returns the part of `generateName` to which the suffix is appended: a generated name has at most 63 bytes, whatever rule the names of the kind have.
fn name_base(stem: &str) -> &str {
    let mut end = stem.len().min(58);
    while !stem.is_char_boundary(end) {
        end -= 1;
    }
    &stem[..end]
}
