//! PURE. Custom resource definitions. The server serves the kind of a definition as long as the definition exists.

use std::mem;

use jiff::Timestamp;
use kube::core::{ApiResource, Status};
use serde_json::{Value, json};

use crate::state::delete::Deletion;
use crate::state::dependents::Dependents;
use crate::state::kind::Kind;
use crate::state::{State, metadata, seconds};
use crate::status_error;

impl State {
    /// Returns an error for a definition that cannot be served, and for an object whose definition is being deleted.
    pub(crate) fn check_definition(
        &self,
        kind_id: usize,
        name: &str,
        object: &Value,
    ) -> Result<(), Box<Status>> {
        let kind = self.kind(kind_id);
        if let Some(definition) = self.definition_of(kind)
            && metadata::is_terminating(definition)
        {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(status_error::forbidden(&kind.resource, name, why));
        }
        if !kind.is_definition() {
            return Ok(());
        }
        if object["spec"]["conversion"]["strategy"] == "Webhook" {
            return Err(status_error::not_implemented("the conversion of custom resources by a webhook"));
        }
        let mut wrong = Vec::new();
        let (group, plural) = (&object["spec"]["group"], &object["spec"]["names"]["plural"]);
        for (field, value) in [("spec.group", group), ("spec.names.plural", plural)] {
            if value.as_str().is_none_or(str::is_empty) {
                wrong.push((field, "Required value".to_owned()));
            }
        }
        let expected =
            format!("{}.{}", plural.as_str().unwrap_or_default(), group.as_str().unwrap_or_default());
        if wrong.is_empty() && name != expected {
            let why = "must be spec.names.plural+\".\"+spec.group";
            wrong.push(("metadata.name", format!("Invalid value: {name:?}: {why}")));
        }
        if wrong.is_empty() { Ok(()) } else { Err(status_error::invalid(&kind.resource, name, &wrong)) }
    }

    fn definition_of(&self, kind: &Kind) -> Option<&Value> {
        let definitions = self.find_kind(Kind::is_definition)?;
        self.objects(definitions).get(&kind.title()).map(|definition| &**definition)
    }

    /// Registers or removes the kinds of definitions that have changed, and returns whether this wrote any object.
    pub(crate) fn define(&mut self, now: Timestamp) -> bool {
        let Some(definitions) = self.find_kind(Kind::is_definition) else { return false };
        let version = self.version;
        for key in mem::take(&mut self.definitions) {
            match self.objects(definitions).get(&key).cloned() {
                Some(definition) if metadata::is_terminating(&definition) => {
                    self.clean_up(definitions, key, &definition, now);
                }
                Some(definition) => self.establish(definitions, key, &definition, now),
                None => {
                    if let Some((plural, group)) = key.split_once('.')
                        && let Some(kind_id) = self.kind_in_any_version(group, plural)
                    {
                        self.retire(kind_id);
                    }
                }
            }
        }
        self.version != version
    }

    fn establish(&mut self, definitions: usize, key: String, definition: &Value, now: Timestamp) {
        let Some(kind) = read(definition) else { return };
        let stored = kind.resource.version.clone();
        match self.kind_in_any_version(&kind.resource.group, &kind.resource.plural) {
            Some(kind_id) => self.kinds[kind_id].kind = kind,
            None => self.register(kind),
        }
        let mut after = definition.clone();
        let condition = |name: &str, reason: &str, message: &str| {
            json!({
                "type": name, "status": "True", "reason": reason, "message": message,
                "lastTransitionTime": seconds(now),
            })
        };
        if after["status"]["conditions"].as_array().is_none_or(Vec::is_empty) {
            after["status"]["conditions"] = json!([
                condition("NamesAccepted", "NoConflicts", "no conflicts found"),
                condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
            ]);
        }
        after["status"]["acceptedNames"] = names(definition);
        after["status"]["storedVersions"] = json!([stored]);
        if after != *definition {
            self.commit(definitions, key, Some(after));
        }
    }

    /// Deletes the objects of a definition that is being deleted, and then the definition.
    fn clean_up(&mut self, definitions: usize, key: String, definition: &Value, now: Timestamp) {
        let (group, plural) = (&definition["spec"]["group"], &definition["spec"]["names"]["plural"]);
        let names = group.as_str().zip(plural.as_str());
        let kind_id = names.and_then(|(group, plural)| self.kind_in_any_version(group, plural));
        if let Some(kind_id) = kind_id {
            let deletion = Deletion { dependents: Dependents::Default, grace: None };
            for (key, object) in self.objects(kind_id).clone() {
                if !metadata::is_terminating(&object) {
                    self.begin_delete(kind_id, key, &object, deletion, now);
                }
            }
            if !self.objects(kind_id).is_empty() {
                // The definition is checked again after the next write.
                self.definitions.insert(key);
                return;
            }
        }
        let Some(finalizer) = self.kind(definitions).deletion_finalizer() else { return };
        if !metadata::finalizers(definition).contains(&finalizer) {
            return;
        }
        let mut after = definition.clone();
        metadata::remove_finalizer(&mut after, finalizer);
        let left = metadata::has_finalizers(&after).then_some(after);
        self.commit(definitions, key, left);
    }
}

/// Returns the kind that a definition describes; `None` if a field is missing, or if no version is marked as the storage version.
fn read(definition: &Value) -> Option<Kind> {
    let spec = &definition["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let versions = spec["versions"].as_array()?;
    let stored = versions.iter().find(|version| version["storage"] == true)?;
    let (group, version) = (text(&spec["group"])?, text(&stored["name"])?);
    let resource = ApiResource {
        api_version: format!("{group}/{version}"),
        kind: text(&spec["names"]["kind"])?,
        plural: text(&spec["names"]["plural"])?,
        group,
        version,
    };
    let mut kind = Kind::new(resource, spec["scope"] == "Namespaced");
    let served = versions.iter().filter(|version| version["served"] == true);
    kind.versions = served.filter_map(|version| text(&version["name"])).collect();
    let schemas = versions.iter().map(|version| (&version["name"], &version["schema"]["openAPIV3Schema"]));
    let schemas = schemas.filter(|(_, schema)| schema.is_object());
    kind.schemas = schemas.filter_map(|(name, schema)| Some((text(name)?, schema.clone()))).collect();
    kind.custom_status = stored["subresources"]["status"].is_object();
    let fields = stored["selectableFields"].as_array().into_iter().flatten();
    let paths = fields.filter_map(|field| field["jsonPath"].as_str());
    kind.selectable_fields = paths.map(|path| path.trim_start_matches('.').to_owned()).collect();
    Some(kind)
}

/// Returns the names of a definition, including those that the server fills in.
fn names(definition: &Value) -> Value {
    let mut names = definition["spec"]["names"].clone();
    let kind = names["kind"].as_str().unwrap_or_default().to_owned();
    if names["singular"].is_null() {
        names["singular"] = kind.to_lowercase().into();
    }
    if names["listKind"].is_null() {
        names["listKind"] = format!("{kind}List").into();
    }
    names
}
