//! PURE. Server-side apply: merges a configuration into an object, or creates it, and records the managers of its fields.

mod comparison;
mod conflict;
mod field_type;
#[cfg(test)]
mod laws;
pub(crate) mod managers;
mod merge;
mod tracking;

use std::sync::Arc;

use jiff::Timestamp;
use kube::core::Status;
use serde_json::{Value, json};

use self::field_type::FieldType;
use self::managers::{Managers, Operation, Writer};
use crate::request::RecordedRequest;
use crate::state::update::{Updated, check_name};
use crate::state::{State, metadata};
use crate::status_error;

impl State {
    pub(crate) fn apply(
        &mut self,
        kind_id: usize,
        request: &RecordedRequest,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Updated, Box<Status>> {
        let Ok(config) = serde_json::from_slice::<Value>(body) else {
            return Err(status_error::unsupported_media(&["application/json"]));
        };
        let live = match self.get(kind_id, request) {
            Ok(live) => Some(live),
            Err(absent) if request.subresource.is_some() => return Err(absent),
            Err(_) => None,
        };
        if live.is_none() && metadata::text(&config, "name").is_none() {
            return Err(status_error::nameless(&format!("{} ", request.name.as_deref().unwrap_or_default())));
        }
        self.check_config(kind_id, request, &config)?;
        let kind = self.kind(kind_id);
        let of = FieldType::of(kind, &request.version);
        let ignored = kind.reset_fields(request.subresource.is_some());
        let writer = Writer::of(request, Operation::Apply, now);
        let nothing = Arc::new(json!({}));
        let before = live.as_ref().unwrap_or(&nothing);
        let mut managers = match &live {
            Some(live) => self.managers(kind_id, live, request, now),
            None => Managers::default(),
        };
        let force = request.flag("force");
        let applied = managers.apply(&writer, before, &config, of, &ignored, force);
        let mut object = applied.map_err(|conflicts| conflict::status(&conflicts))?;
        if live.is_some() {
            return self.update(kind_id, request, object, Some(managers)).map(Updated::Changed);
        }
        check_name(request.name.as_deref().unwrap_or_default(), &object)?;
        if let Some(uid) = metadata::text(&object, "uid") {
            let why = format!(
                "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
            );
            let (kind, name) = (self.kind(kind_id), metadata::name(&object));
            return Err(status_error::conflict(&kind.title(), &kind.resource, name, &why));
        }
        // If the object does not exist, the `resourceVersion` in the configuration is ignored, as on a real server.
        metadata::of(&mut object).remove("resourceVersion");
        self.create(kind_id, request, object, Some(managers), now).map(Updated::Created)
    }

    /// Returns an error if the configuration is invalid.
    fn check_config(
        &self,
        kind_id: usize,
        request: &RecordedRequest,
        config: &Value,
    ) -> Result<(), Box<Status>> {
        let kind = self.kind(kind_id);
        let text = |field: &str| config[field].as_str().unwrap_or_default();
        let is_type = text("apiVersion") == request.api_version() && text("kind") == kind.resource.kind;
        let gvk = || {
            let version = text("apiVersion");
            let slash = if version.contains('/') { "" } else { "/" };
            format!("{slash}{version}, Kind={}", text("kind"))
        };
        if !is_type {
            return Err(status_error::bad_request(&format!("invalid object type: {}", gvk())));
        }
        if !config["metadata"]["managedFields"].is_null() {
            return Err(status_error::bad_request("metadata.managedFields must be nil"));
        }
        let mut problems = merge::problems(config, FieldType::of(kind, &request.version));
        problems.extend(metadata::other_than_strings(config).map(|(field, key, value)| {
            format!(".metadata.{field}.{key}: expected string, got &value.valueUnstructured{{Value:{value}}}")
        }));
        if problems.is_empty() {
            return Ok(());
        }
        let name = metadata::name(config);
        let namespace = metadata::text(config, "namespace").unwrap_or_default();
        let problems = match &problems[..] {
            [problem] => problem.clone(),
            _ => format!("errors:\n  {}", problems.join("\n  ")),
        };
        let message =
            format!("failed to create typed patch object ({namespace}/{name}; {}): {problems}", gvk());
        Err(status_error::internal(&message))
    }
}
