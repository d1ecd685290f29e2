//! PURE. Writes, by the rules of a real server: names, conflicts, status apart, generations, finalizers.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;

use crate::request::RecordedRequest;
use crate::state::garbage_collection::Dependents;
use crate::state::metadata;
use crate::state::status_error;
use crate::state::{State, seconds};

/// Fields that clients do not write.
const KEPT: [&str; 6] =
    ["uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds", "selfLink"];

impl State {
    pub(crate) fn create(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        mut object: Value,
        now: Timestamp,
    ) -> Result<Arc<Value>, Box<Status>> {
        if metadata::text(&object, "resourceVersion").is_some() {
            return Err(status_error::bad_request(
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.set_namespace(kind_id, request, &mut object)?;
        if let (None, Some(stem)) = (metadata::text(&object, "name"), metadata::text(&object, "generateName"))
        {
            let name = format!("{stem}{}", self.ending());
            metadata::set(&mut object, "name", name);
        }
        let name = metadata::name(&object).to_owned();
        let kind = self.kind(kind_id);
        if name.is_empty() {
            let why = "Required value: name or generateName is required";
            return Err(status_error::invalid(kind, "", "metadata.name", why));
        }
        if !kind.is_valid_name(&name) {
            let why = format!(
                "Invalid value: {name:?}: a lowercase RFC 1123 subdomain must consist of lower case \
                 alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character"
            );
            return Err(status_error::invalid(kind, &name, "metadata.name", &why));
        }
        let key = kind.key(metadata::text(&object, "namespace"), &name);
        if self.objects(kind_id).contains_key(&key) {
            return Err(status_error::already_exists(kind, &name));
        }
        for field in KEPT {
            metadata::of(&mut object).remove(field);
        }
        if let Some(fields) = object.as_object_mut() {
            fields.remove("status");
        }
        self.init_metadata(kind_id, &mut object, now);
        Ok(self.commit(kind_id, key, Some(object)))
    }

    pub(crate) fn update(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        mut object: Value,
    ) -> Result<Arc<Value>, Box<Status>> {
        let before = self.get(kind_id, request)?;
        self.set_namespace(kind_id, request, &mut object)?;
        let kind = self.kind(kind_id);
        let name = metadata::name(&before);
        match metadata::text(&object, "name") {
            None => {
                return Err(status_error::bad_request(
                    "the name of the object (based on URL) was undeterminable: name must be provided",
                ));
            }
            Some(given) if given != name => {
                return Err(status_error::bad_request(&format!(
                    "the name of the object ({given}) does not match the name on the URL ({name})"
                )));
            }
            Some(_) => {}
        }
        match metadata::text(&object, "resourceVersion") {
            None if !kind.allows_unconditional_update() => {
                return Err(status_error::version_required(kind, name));
            }
            Some(_) if metadata::version(&object) != metadata::version(&before) => {
                return Err(status_error::modified(kind, name));
            }
            _ => {}
        }
        let uid = metadata::text(&before, "uid").unwrap_or_default();
        if let Some(given) = metadata::text(&object, "uid").filter(|given| *given != uid) {
            let why = format!("Precondition failed: UID in precondition: {given}, UID in object meta: {uid}");
            return Err(status_error::conflict(kind, name, &why));
        }

        let mut after = match request.subresource.as_deref() {
            Some("status") => {
                let mut after = Value::clone(&before);
                copy(&mut after, "status", &object);
                after
            }
            _ => {
                copy(&mut object, "status", &before);
                object
            }
        };
        if metadata::is_terminating(&before) {
            let held = metadata::finalizers(&before);
            let added: Vec<_> =
                metadata::finalizers(&after).into_iter().filter(|new| !held.contains(new)).collect();
            if !added.is_empty() {
                return Err(status_error::late_finalizers(kind, name, &added));
            }
        }
        for field in KEPT.into_iter().chain(["name", "namespace", "resourceVersion"]) {
            metadata::take_over(&mut after, field, &before);
        }
        after["apiVersion"] = before["apiVersion"].clone();
        after["kind"] = before["kind"].clone();
        if metadata::spec_differs(&before, &after) {
            raise_generation(&mut after);
        }
        // A write that changes nothing is none: no version, no event.
        if after == *before {
            return Ok(before);
        }
        let key = kind.key(metadata::text(&before, "namespace"), name);
        if metadata::is_terminating(&after) && !metadata::has_finalizers(&after) {
            // Its last event has what was there; the answer is what was written.
            self.commit(kind_id, key, None);
            return Ok(Arc::new(after));
        }
        Ok(self.commit(kind_id, key, Some(after)))
    }

    pub(crate) fn patch(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Arc<Value>, Box<Status>> {
        let patch = request.content_type.split(';').next().unwrap_or_default();
        let applied = patch == "application/apply-patch+yaml";
        let before = match self.get(kind_id, request) {
            Err(missing) if applied && missing.is_not_found() => {
                let mut object = parse(body)?;
                metadata::set(&mut object, "name", request.name.clone().unwrap_or_default());
                return self.create(kind_id, request, object, now);
            }
            before => before?,
        };
        let mut object = Value::clone(&before);
        match patch {
            "application/merge-patch+json" | "application/strategic-merge-patch+json" => {
                json_patch::merge(&mut object, &parse(body)?);
            }
            _ if applied => json_patch::merge(&mut object, &parse(body)?),
            "application/json-patch+json" => {
                let patch: json_patch::Patch = serde_json::from_slice(body)
                    .map_err(|error| status_error::bad_request(&error.to_string()))?;
                edit(&mut object, &patch)?;
            }
            other => return Err(status_error::unsupported_media(other)),
        }
        self.update(kind_id, request, object)
    }

    /// Deletes an object, or marks it while finalizers keep it.
    pub(crate) fn delete(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        options: &Value,
        now: Timestamp,
    ) -> Result<Deleted, Box<Status>> {
        let before = self.get(kind_id, request)?;
        let kind = self.kind(kind_id);
        let name = metadata::name(&before);
        for (field, title) in [("uid", "UID"), ("resourceVersion", "ResourceVersion")] {
            let asked = options["preconditions"][field].as_str();
            let is = metadata::text(&before, field);
            if let Some(asked) = asked.filter(|asked| Some(*asked) != is) {
                let is = is.unwrap_or_default();
                let why = format!(
                    "Precondition failed: {title} in precondition: {asked}, {title} in object meta: {is}"
                );
                return Err(status_error::conflict(kind, name, &why));
            }
        }
        let key = kind.key(metadata::text(&before, "namespace"), name);
        let dependents = Dependents::asked(request, options);
        Ok(self.begin_delete(kind_id, key, &before, dependents, now))
    }

    pub(crate) fn begin_delete(
        &mut self,
        kind_id: usize,
        key: String,
        before: &Arc<Value>,
        dependents: Dependents,
        now: Timestamp,
    ) -> Deleted {
        let mut after = Value::clone(before);
        dependents.hold(&mut after);
        if !metadata::has_finalizers(&after) {
            return Deleted::Removed(self.commit(kind_id, key, None));
        }
        if metadata::is_terminating(before) {
            return Deleted::Terminating(if after == **before {
                before.clone()
            } else {
                self.commit(kind_id, key, Some(after))
            });
        }
        metadata::set(&mut after, "deletionTimestamp", seconds(now));
        metadata::set(&mut after, "deletionGracePeriodSeconds", 0);
        raise_generation(&mut after);
        Deleted::Terminating(self.commit(kind_id, key, Some(after)))
    }

    /// Writes an object as it is, status included, past the rules for clients.
    pub(crate) fn put(&mut self, kind_id: usize, mut object: Value, now: Timestamp) -> Arc<Value> {
        let key = self.kind(kind_id).key(metadata::text(&object, "namespace"), metadata::name(&object));
        match self.objects(kind_id).get(&key).cloned() {
            Some(before) => {
                for field in KEPT {
                    metadata::take_over(&mut object, field, &before);
                }
                object["apiVersion"] = before["apiVersion"].clone();
                object["kind"] = before["kind"].clone();
                if metadata::spec_differs(&before, &object) {
                    raise_generation(&mut object);
                }
            }
            None => self.init_metadata(kind_id, &mut object, now),
        }
        self.commit(kind_id, key, Some(object))
    }

    /// Gives the object the namespace of the request; it must not name another.
    fn set_namespace(
        &self,
        kind_id: usize,
        request: &RecordedRequest,
        object: &mut Value,
    ) -> Result<(), Box<Status>> {
        if !object.is_object() {
            return Err(status_error::bad_request("the body is no object"));
        }
        let given = metadata::text(object, "namespace");
        if !self.kind(kind_id).namespaced {
            metadata::of(object).remove("namespace");
            return Ok(());
        }
        let Some(namespace) = request.namespace.as_deref() else {
            return Err(status_error::no_such_method());
        };
        if given.is_some_and(|given| given != namespace) {
            return Err(status_error::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        metadata::set(object, "namespace", namespace);
        Ok(())
    }
}

/// The result of a deletion.
#[derive(Debug)]
pub(crate) enum Deleted {
    Terminating(Arc<Value>),
    Removed(Arc<Value>),
}

pub(crate) fn parse(body: &[u8]) -> Result<Value, Box<Status>> {
    serde_json::from_slice(body)
        .map_err(|error| status_error::bad_request(&format!("unable to decode: {error}")))
}

/// A test for null passes for a missing field, too, as on a real server.
fn edit(object: &mut Value, patch: &json_patch::Patch) -> Result<(), Box<Status>> {
    for operation in patch.iter() {
        if let json_patch::PatchOperation::Test(test) = operation
            && test.value.is_null()
            && object.pointer(test.path.as_str()).is_none()
        {
            continue;
        }
        json_patch::patch(object, std::slice::from_ref(operation))
            .map_err(|error| status_error::patch_failed(&error.to_string()))?;
    }
    Ok(())
}

fn raise_generation(object: &mut Value) {
    if let Some(generation) = object["metadata"]["generation"].as_u64() {
        metadata::set(object, "generation", generation + 1);
    }
}

/// Copies a field of another object, also its absence.
fn copy(object: &mut Value, field: &str, from: &Value) {
    let Some(fields) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
        None => drop(fields.remove(field)),
    }
}
