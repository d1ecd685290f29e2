//! PURE. How patches merge the lists and maps of built-in kinds, as the types of Kubernetes 1.36 declare it.
//!
//! A field is identified by its name and the name of its parent, which is empty at the root; an item of a list and an entry of a map have the
//! names of their list or map.

/// The merge strategy of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListRule {
    /// Items are objects, identified by these fields. A strategic merge patch uses the first one.
    Keyed(&'static [&'static str]),
    /// Items are scalars, identified by their value.
    Set,
    /// The patch replaces the list.
    Atomic,
}

use ListRule::{Atomic, Keyed, Set};

/// Returns the rule of a list in a strategic merge patch.
pub(crate) fn strategic_list(parent: &str, field: &str) -> ListRule {
    let in_container = matches!(parent, "containers" | "initContainers" | "ephemeralContainers");
    match (parent, field) {
        ("metadata", "finalizers") | ("spec", "podCIDRs") => Set,
        (_, "ports") if in_container => Keyed(&["containerPort", "protocol"]),
        // The ports of a service. The ports of endpoints and network policies have a different rule.
        ("spec", "ports") => Keyed(&["port", "protocol"]),
        ("status", "addresses" | "conditions") => Keyed(&["type"]),
        (_, "ownerReferences" | "reservedFor") => Keyed(&["uid"]),
        (_, "hostAliases" | "hostIPs" | "podIPs") => Keyed(&["ip"]),
        (_, "topologySpreadConstraints") => Keyed(&["topologyKey", "whenUnsatisfiable"]),
        (_, "volumeDevices") => Keyed(&["devicePath"]),
        (_, "volumeMounts") => Keyed(&["mountPath"]),
        (_, "x-kubernetes-validations") => Keyed(&["rule"]),
        (
            "spec",
            "containers" | "drivers" | "ephemeralContainers" | "imagePullSecrets" | "initContainers" | "resourceClaims"
            | "schedulingGates" | "variables" | "volumes",
        )
        // The secrets of a service account.
        | ("", "secrets")
        | (_, "allocatedResourcesStatus" | "env" | "matchConditions" | "resourceClaimStatuses" | "webhooks") => Keyed(&["name"]),
        _ => Atomic,
    }
}

/// Returns the rule of a list in server-side apply, which differs from that of strategic merge patch for some lists.
pub(crate) fn applied_list(plural: &str, parent: &str, field: &str) -> ListRule {
    match (parent, field) {
        ("status", "hostIPs") => Atomic,
        ("status", "conditions") if plural == "jobs" => Atomic,
        ("spec", "variables") if plural == "mutatingadmissionpolicies" => Atomic,
        ("devices", "conditions") => Keyed(&["type"]),
        ("status", "devices") => Keyed(&["device", "driver", "pool", "shareID"]),
        ("status", "storageVersions") => Keyed(&["apiServerID"]),
        ("resources", "claims") | ("spec", "podGroupTemplates") | ("podGroupTemplates", "resourceClaims") => {
            Keyed(&["name"])
        }
        ("allocatedResourcesStatus", "resources") => Keyed(&["resourceID"]),
        ("endpoints", "addresses")
        | ("exitCodes" | "onExitCodes", "values")
        | ("nodeAllocatableResourceClaimStatuses", "containers")
        | ("nonResourceRules", "nonResourceURLs" | "verbs")
        | ("resourceRules", "apiGroups" | "namespaces" | "resources" | "verbs")
        | ("spec", "validationActions" | "volumeLifecycleModes")
        | ("storageVersions", "decodableVersions" | "servedVersions")
        | ("uncountedTerminatedPods", "failed" | "succeeded") => Set,
        _ => strategic_list(parent, field),
    }
}

/// Returns the default value of a key field that an item of a keyed list may omit.
pub(crate) fn default_key(field: &str, key: &str) -> Option<&'static str> {
    (field == "ports" && key == "protocol").then_some("TCP")
}

/// Returns whether server-side apply replaces an object as a whole.
pub(crate) fn is_atomic_object(parent: &str, field: &str) -> bool {
    match field {
        // Label selectors, node selectors, and the selectors of services, which are maps.
        "labelSelector"
        | "namespaceSelector"
        | "nodeSelector"
        | "nodeTopology"
        | "objectSelector"
        | "podSelector"
        | "preference"
        | "requiredDuringSchedulingIgnoredDuringExecution"
        | "scopeSelector"
        | "selector" => true,
        // References to other objects.
        "configMapKeyRef"
        | "controllerExpandSecretRef"
        | "controllerPublishSecretRef"
        | "dataSource"
        | "fieldRef"
        | "fileKeyRef"
        | "imagePullSecrets"
        | "involvedObject"
        | "nodeExpandSecretRef"
        | "nodePublishSecretRef"
        | "nodeStageSecretRef"
        | "ownerReferences"
        | "paramKind"
        | "paramRef"
        | "regarding"
        | "related"
        | "resourceFieldRef"
        | "roleRef"
        | "secretKeyRef"
        | "secretRef"
        | "secrets"
        | "target"
        | "targetRef" => true,
        "matchConstraints" | "matchResources" | "variables" => true,
        // These fields of the schema in a custom resource definition may contain any JSON value.
        "additionalItems" | "additionalProperties" | "default" | "example" | "items" => true,
        "port" => parent == "service",
        "required" => parent == "nodeAffinity",
        "resource" => matches!(parent, "backend" | "defaultBackend"),
        _ => false,
    }
}

/// Returns whether the object in this field is a map, whose keys are data and not fields of a type.
pub(crate) fn is_map(field: &str) -> bool {
    matches!(
        field,
        "allocatable"
            | "allocatedResourceStatuses"
            | "allocatedResources"
            | "annotations"
            | "attachmentMetadata"
            | "attributes"
            | "binaryData"
            | "capacity"
            | "consumedCapacity"
            | "counters"
            | "data"
            | "definitions"
            | "dependencies"
            | "deprecatedTopology"
            | "disruptedPods"
            | "extra"
            | "hard"
            | "labels"
            | "limits"
            | "nodeAllocatableResourceMappings"
            | "options"
            | "overhead"
            | "parameters"
            | "patternProperties"
            | "podFixed"
            | "properties"
            | "requests"
            | "stringData"
            | "used"
            | "userAnnotations"
            | "volumeAttributes"
    )
}

/// Returns whether a new object has this field before any client sets it, because its Go type is a struct, not a pointer.
pub(crate) fn is_always_present(field: &str) -> bool {
    matches!(
        field,
        "jobTemplate" | "metadata" | "spec" | "status" | "strategy" | "template" | "updateStrategy"
    )
}
