//! PURE. Updates objects: conflicts, separate status, generations, finalizers.

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde_json::Value;

use crate::request::{RecordedRequest, Verb};
use crate::state::apply::managers::{Managers, Writer};
use crate::state::create::set_namespace;
use crate::state::kind::Kind;
use crate::state::{State, metadata, validation};
use crate::status_error;

/// The result of an update.
#[derive(Debug)]
pub(crate) enum Updated {
    Created(Arc<Value>),
    Changed(Arc<Value>),
}

impl State {
    /// Updates an object, or creates it if the kind allows updates of missing objects.
    pub(crate) fn put_object(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        object: Value,
        now: Timestamp,
    ) -> Result<Updated, Box<Status>> {
        let creates = self.kind(kind_id).creates_on_update() && request.subresource.is_none();
        if creates && self.get(kind_id, request).is_err() {
            check_name(request.name.as_deref().unwrap_or_default(), &object)?;
            return self.create(kind_id, request, object, None, now).map(Updated::Created);
        }
        self.update(kind_id, request, object, None).map(Updated::Changed)
    }

    /// Updates an object. `managers` is set only for an apply, and contains the managers of the object's fields.
    pub(crate) fn update(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        mut object: Value,
        managers: Option<Managers>,
    ) -> Result<Arc<Value>, Box<Status>> {
        set_namespace(request, &mut object)?;
        let kind = self.kind(kind_id);
        kind.check_types(request, &object)?;
        validation::check_strings(kind, request, &object)?;
        check_name(request.name.as_deref().unwrap_or_default(), &object)?;
        let before = self.get(kind_id, request)?;
        let name = metadata::name(&before);
        check_version(kind, request, &before, &object)?;

        let sent = metadata::take_managers(&mut object);
        let mut after = match request.subresource.as_deref() {
            Some(_) => {
                let mut after = Value::clone(&before);
                metadata::take_managers(&mut after);
                copy(&mut after, "status", &object);
                if let Some(kept) = kind.metadata_kept_by_status() {
                    copy(&mut after, "metadata", &object);
                    kept.iter().for_each(|field| metadata::take_over(&mut after, field, &before));
                }
                after
            }
            None => {
                if kind.has_status() {
                    copy(&mut object, "status", &before);
                }
                object
            }
        };
        if metadata::is_terminating(&before) {
            let held = metadata::finalizers(&before);
            let added: Vec<_> =
                metadata::finalizers(&after).into_iter().filter(|new| !held.contains(new)).collect();
            if !added.is_empty() {
                return Err(status_error::late_finalizers(&kind.resource, name, &added));
            }
        }
        validation::check_update(kind, &before, &after)?;
        for field in metadata::SERVER_FIELDS.into_iter().chain(["name", "namespace", "resourceVersion"]) {
            metadata::take_over(&mut after, field, &before);
        }
        kind.store_types(&mut after);
        metadata::normalize(&mut after);
        if kind.is_new_generation(&before, &after) {
            metadata::raise_generation(&mut after);
        }
        let managers = managers
            .unwrap_or_else(|| self.managers_after(kind, &request.version, &before, &after, sent.as_ref()));
        // A write that changes nothing creates no version and no event.
        if managers.have_same_fields(&Managers::of(&before)) {
            metadata::take_over(&mut after, "managedFields", &before);
            if after == *before {
                return Ok(before);
            }
        }
        managers.set_in(&mut after);
        let key = kind.key_of(&before);
        if metadata::is_terminating(&after)
            && !metadata::has_finalizers(&after)
            && !metadata::has_grace(&after)
        {
            // The deletion event contains the state of the object before this update; the response contains the state after it.
            self.commit(kind_id, key, None);
            return Ok(Arc::new(after));
        }
        Ok(self.commit(kind_id, key, Some(after)))
    }

    /// Writes an object as it is, including its status, without the checks for writes of clients.
    pub(crate) fn put(&mut self, kind_id: usize, object: Value, now: Timestamp) -> Arc<Value> {
        self.writer = Some(Writer::direct(self.kind(kind_id), now));
        let object = self.put_unchecked(kind_id, object, now);
        self.writer = None;
        object
    }

    fn put_unchecked(&mut self, kind_id: usize, mut object: Value, now: Timestamp) -> Arc<Value> {
        let kind = self.kind(kind_id);
        let key = kind.key_of(&object);
        match self.objects(kind_id).get(&key).cloned() {
            Some(before) => {
                for field in metadata::SERVER_FIELDS {
                    metadata::take_over(&mut object, field, &before);
                }
                kind.store_types(&mut object);
                if metadata::has_managers(&before) {
                    let managers = self.managers_after(kind, &kind.resource.version, &before, &object, None);
                    managers.set_in(&mut object);
                }
                if kind.is_new_generation(&before, &object) {
                    metadata::raise_generation(&mut object);
                }
            }
            None => self.init_metadata(kind_id, &mut object, now),
        }
        let is_over = metadata::is_terminating(&object)
            && !metadata::has_finalizers(&object)
            && !metadata::has_grace(&object);
        if is_over && self.objects(kind_id).contains_key(&key) {
            // The object is being deleted and has no finalizer left, so it is removed, as after a client's write.
            self.commit(kind_id, key, None);
            return Arc::new(object);
        }
        self.commit(kind_id, key, Some(object))
    }
}

pub(crate) fn check_name(name: &str, object: &Value) -> Result<(), Box<Status>> {
    match metadata::text(object, "name") {
        None => Err(status_error::nameless("")),
        Some(given) if given != name => Err(status_error::bad_request(&format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        ))),
        Some(_) => Ok(()),
    }
}

/// Checks that the stored object has the version and the `uid` that the client expects.
fn check_version(
    kind: &Kind,
    request: &RecordedRequest,
    before: &Value,
    object: &Value,
) -> Result<(), Box<Status>> {
    let name = metadata::name(before);
    let uid = metadata::text(before, "uid").unwrap_or_default();
    let other_uid = metadata::text(object, "uid").filter(|given| *given != uid);
    // In an update, a `uid` is a precondition; in a patch, it is an attempt to change the `uid`.
    if let Some(given) = other_uid.filter(|_| request.verb == Verb::Update) {
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: {}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {given}, UID in object meta: {uid}",
            kind.storage_key(before)
        );
        return Err(status_error::conflict(&kind.title(), &kind.resource, name, &why));
    }
    let given = metadata::text(object, "resourceVersion");
    // The version 0 means "any", as a missing one does.
    match given.map_or(Ok(0), str::parse::<u64>) {
        Ok(0) if !kind.allows_unconditional_update() => {
            Err(status_error::version_required(&kind.resource, name))
        }
        Err(_) => {
            let given = given.unwrap_or_default();
            let problem =
                format!("Invalid value: {given:?}: strconv.ParseUint: parsing {given:?}: invalid syntax");
            Err(status_error::invalid(&kind.resource, name, &[("metadata.resourceVersion", problem)]))
        }
        Ok(given) if given > 0 && Some(given) != metadata::version(before) => {
            Err(status_error::modified(&kind.resource, name))
        }
        _ => match other_uid {
            Some(given) => {
                let why = format!("Invalid value: {given:?}: field is immutable");
                Err(status_error::invalid(&kind.resource, name, &[("metadata.uid", why)]))
            }
            None => Ok(()),
        },
    }
}

/// Copies a field from `from`, or removes it if `from` does not have the field.
fn copy(object: &mut Value, field: &str, from: &Value) {
    let Some(fields) = object.as_object_mut() else { return };
    match from.get(field) {
        Some(value) => drop(fields.insert(field.to_owned(), value.clone())),
        None => drop(fields.remove(field)),
    }
}
