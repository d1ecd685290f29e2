//! PURE. A registered kind: its names, its versions, and the server's rules for its objects.

mod built_in;
pub(crate) mod field_rules;
pub(crate) mod names;

use std::collections::BTreeMap;

use kube::core::{ApiResource, Status};
use serde_json::Value;

use self::built_in::BuiltIn;
use self::names::NameRule;
use crate::request::{RecordedRequest, Verb};
use crate::state::field_set::FieldSet;
use crate::state::metadata;
use crate::status_error;

const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";

/// A registered kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The resource, with the version in which objects are stored.
    pub(crate) resource: ApiResource,
    /// The API versions in which the same objects are served, in the order of registration.
    pub(crate) versions: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether a custom kind has the `status` subresource. For built-in kinds, the rules of Kubernetes decide.
    pub(crate) custom_status: bool,
    /// The selectable fields of a custom kind: JSON paths without the leading dot.
    pub(crate) selectable_fields: Vec<String>,
    /// The schemas of a custom kind, by version. Server-side apply uses them to merge lists and maps.
    pub(crate) schemas: BTreeMap<String, Value>,
}

impl Kind {
    pub(crate) fn new(resource: ApiResource, namespaced: bool) -> Self {
        let versions = vec![resource.version.clone()];
        Self {
            resource,
            versions,
            namespaced,
            custom_status: true,
            selectable_fields: Vec::new(),
            schemas: BTreeMap::new(),
        }
    }

    /// Returns the resource name as messages show it, such as `deployments.apps`.
    pub(crate) fn title(&self) -> String {
        status_error::title(&self.resource)
    }

    /// Returns the kind name as messages show it, such as `Deployment.apps`.
    pub(crate) fn qualified_kind(&self) -> String {
        status_error::qualified_kind(&self.resource)
    }

    fn is(&self, kinds: BuiltIn) -> bool {
        built_in::is(&self.resource.group, &self.resource.plural, kinds)
    }

    /// Returns whether the kind is built into Kubernetes, not a custom resource.
    pub(crate) fn is_built_in(&self) -> bool {
        built_in::is_group(&self.resource.group)
    }

    pub(crate) fn has_status(&self) -> bool {
        if self.is_built_in() { self.is(BuiltIn::Status) } else { self.custom_status }
    }

    /// Returns the metadata fields that a write to `status` does not change; `None` if such a write changes no metadata at all, as for custom
    /// resources and newer built-in kinds.
    pub(crate) fn metadata_kept_by_status(&self) -> Option<&'static [&'static str]> {
        if !self.is_built_in() || self.is(BuiltIn::StatusAlone) {
            return None;
        }
        Some(match (&*self.resource.group, &*self.resource.plural) {
            ("apps", "deployments") => &["labels"],
            ("", "pods") => &["deletionTimestamp", "ownerReferences"],
            _ => &[],
        })
    }

    /// Returns the fields that are not changed by a write to the object or, if `to_status` is set, by a write to its `status`. The writer does not
    /// become the manager of these fields.
    pub(crate) fn reset_fields(&self, to_status: bool) -> FieldSet {
        if !to_status {
            return if self.has_status() { FieldSet::of_fields(&[&["status"]]) } else { FieldSet::default() };
        }
        let Some(kept) = self.metadata_kept_by_status() else {
            return FieldSet::of_fields(&[&["metadata"], &["spec"]]);
        };
        let kept: Vec<_> = kept.iter().map(|field| ["metadata", field]).collect();
        let kept = kept.iter().map(<[&str; 2]>::as_slice);
        FieldSet::of_fields(&kept.chain([&["spec"][..]]).collect::<Vec<_>>())
    }

    /// Returns whether objects have a `generation`.
    pub(crate) fn has_generation(&self) -> bool {
        !self.is_built_in() || self.is(BuiltIn::Generation)
    }

    /// Returns whether an update from `before` to `after` increments the generation.
    pub(crate) fn is_new_generation(&self, before: &Value, after: &Value) -> bool {
        let counts = |name: &str| match name {
            "metadata" | "apiVersion" | "kind" => false,
            "status" => !self.has_status(),
            _ => true,
        };
        let fields = |object: &Value| -> Vec<(String, Value)> {
            let fields = object.as_object().into_iter().flatten().filter(|(name, _)| counts(name));
            fields.map(|(name, value)| (name.clone(), value.clone())).collect()
        };
        self.has_generation() && fields(before) != fields(after)
    }

    /// Returns whether an update may omit the `resourceVersion`: true for most built-in kinds, and for no custom resource.
    pub(crate) fn allows_unconditional_update(&self) -> bool {
        const STRICT: [&str; 3] =
            ["admissionregistration.k8s.io", "apiextensions.k8s.io", "apiregistration.k8s.io"];
        self.is_built_in() && !STRICT.contains(&&*self.resource.group) && !self.is(BuiltIn::ConditionalUpdate)
    }

    /// Returns whether an update of a missing object creates it.
    pub(crate) fn creates_on_update(&self) -> bool {
        self.is(BuiltIn::CreateOnUpdate)
    }

    /// Returns whether the server answers a completed deletion with the object instead of a `Status`.
    pub(crate) fn returns_deleted(&self) -> bool {
        self.is(BuiltIn::ReturnsDeleted)
    }

    /// Returns whether a deletion without a propagation policy orphans dependents.
    pub(crate) fn orphans_dependents(&self) -> bool {
        self.is(BuiltIn::OrphansDependents)
    }

    pub(crate) fn is_pod(&self) -> bool {
        self.resource.group.is_empty() && self.resource.plural == "pods"
    }

    /// Returns the maximum length of the name of a new object, if it is less than that of the [rule](Self::name_rule): the names of the Jobs of a CronJob are
    /// 11 characters longer.
    pub(crate) fn longest_name(&self) -> Option<usize> {
        (self.resource.group == "batch" && self.resource.plural == "cronjobs").then_some(52)
    }

    pub(crate) fn is_definition(&self) -> bool {
        self.resource.group == "apiextensions.k8s.io" && self.resource.plural == "customresourcedefinitions"
    }

    /// Returns the finalizer that a deletion adds: that of a definition keeps it until its objects are deleted.
    pub(crate) fn deletion_finalizer(&self) -> Option<&'static str> {
        self.is_definition().then_some(CLEANUP)
    }

    /// Returns the status that the server sets in a new object.
    pub(crate) fn initial_status(&self) -> Option<Value> {
        match (&*self.resource.group, &*self.resource.plural) {
            ("", "pods" | "persistentvolumes" | "persistentvolumeclaims") => {
                Some(serde_json::json!({"phase": "Pending"}))
            }
            ("", "namespaces") => Some(serde_json::json!({"phase": "Active"})),
            _ => None,
        }
    }

    pub(crate) fn name_rule(&self) -> NameRule {
        NameRule::of(&self.resource.group, &self.resource.plural)
    }

    /// Returns the path, within an object, of the field that a field selector names `field`; returns an error if the field cannot be selected.
    pub(crate) fn selectable(&self, field: &str) -> Result<String, Box<Status>> {
        let found = match field {
            "metadata.name" => Some(field),
            "metadata.namespace" if self.namespaced || !self.has_own_fields() => Some(field),
            _ if self.is_built_in() => {
                built_in::selectable(&self.resource.group, &self.resource.plural, field)
            }
            _ => self.selectable_fields.iter().map(String::as_str).find(|path| *path == field),
        };
        found.map(str::to_owned).ok_or_else(|| {
            let message = match (&*self.resource.group, &*self.resource.plural) {
                ("batch", "jobs") => format!("field label {field:?} not supported for Job"),
                ("resource.k8s.io", "resourceslices") => {
                    let version = &self.resource.version;
                    format!("field label not supported for resource.k8s.io/{version}, Kind=ResourceSlice: {field}")
                }
                _ if self.has_own_fields() => format!("field label not supported: {field}"),
                _ => {
                    format!(
                        "{field:?} is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
                    )
                }
            };
            status_error::bad_request(&message)
        })
    }

    /// Returns whether the kind defines selectable fields of its own. Objects of other kinds can be selected by name and namespace, even if the kind
    /// has no namespaces.
    fn has_own_fields(&self) -> bool {
        !self.is_built_in() || built_in::has_selectable(&self.resource.group, &self.resource.plural)
    }

    /// Sets `kind` and `apiVersion` to the values with which objects are stored.
    pub(crate) fn store_types(&self, object: &mut Value) {
        object["apiVersion"] = self.resource.api_version.clone().into();
        object["kind"] = self.resource.kind.clone().into();
    }

    /// Returns an error for an object whose `kind` or `apiVersion` differs from that of the request.
    pub(crate) fn check_types(&self, request: &RecordedRequest, object: &Value) -> Result<(), Box<Status>> {
        let expected = request.api_version();
        let given = object["apiVersion"].as_str().filter(|given| *given != expected);
        if let Some(given) = given {
            return Err(status_error::bad_request(&format!(
                "the API version in the data ({given}) does not match the expected API version ({expected})"
            )));
        }
        let expected = &self.resource.kind;
        match object["kind"].as_str().filter(|given| given != expected) {
            Some(given) => Err(status_error::bad_request(&format!(
                "{given} in version {:?} cannot be handled as a {expected}",
                request.version
            ))),
            None => Ok(()),
        }
    }

    /// Returns the key of an object. The key has the format of a key in etcd, so that lists have the same order as on a real server.
    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    }

    /// Returns the storage key on a real server, which some error messages contain.
    pub(crate) fn storage_key(&self, object: &Value) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        let resource = if self.is_built_in() { plural.clone() } else { format!("{group}/{plural}") };
        format!("/registry/{resource}/{}", self.key_of(object))
    }

    pub(crate) fn key_of(&self, object: &Value) -> String {
        self.key(metadata::text(object, "namespace"), metadata::name(object))
    }

    /// Returns an error if the path names a namespace although the kind has none, or names none for an object that is in one.
    pub(crate) fn check_scope(&self, request: &RecordedRequest) -> Result<(), Box<Status>> {
        let is_collection = request.name.is_none();
        match request.verb {
            _ if self.namespaced == request.namespace.is_some() => Ok(()),
            // A collection can be read in all namespaces.
            Verb::List | Verb::Watch if self.namespaced => Ok(()),
            _ if self.namespaced && self.is_built_in() && is_collection => {
                Err(status_error::no_such_method())
            }
            _ => Err(status_error::other_scope(&self.resource.plural, self.namespaced)),
        }
    }

    /// Returns an error for a subresource that this kind does not have, or that is not implemented.
    pub(crate) fn check_subresource(&self, request: &RecordedRequest) -> Result<(), Box<Status>> {
        if matches!(&*self.resource.group, "authentication.k8s.io" | "authorization.k8s.io") {
            return Err(status_error::not_implemented("reviews of tokens and access"));
        }
        match request.subresource.as_deref() {
            None => Ok(()),
            Some("status") if self.has_status() => Ok(()),
            Some(other) if built_in::has_subresource(other) => Err(status_error::not_implemented(&format!(
                "the subresource {}/{other}",
                self.resource.plural
            ))),
            Some(_) => Err(status_error::no_such_path()),
        }
    }
}
