//! PURE. The differences between built-in kinds, as of Kubernetes 1.36.

/// A rule that applies only to some built-in kinds.
#[derive(Debug, Clone, Copy)]
pub(super) enum BuiltIn {
    /// Has the subresource `status`.
    Status,
    /// A write to `status` does not change the metadata, as for custom resources.
    StatusAlone,
    /// Has a `generation`.
    Generation,
    /// An update must carry a `resourceVersion`.
    ConditionalUpdate,
    /// An update of a missing object creates it.
    CreateOnUpdate,
    /// The server answers a completed deletion with the object.
    ReturnsDeleted,
    /// A deletion without a propagation policy orphans dependents.
    OrphansDependents,
}

/// API groups, each with the plural names of some of its kinds.
type Kinds = &'static [(&'static str, &'static [&'static str])];

impl BuiltIn {
    fn kinds(self) -> Kinds {
        match self {
            Self::Status => STATUS,
            Self::StatusAlone => &[
                ("certificates.k8s.io", &["podcertificaterequests"]),
                ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
                ("internal.apiserver.k8s.io", &["storageversions"]),
                ("networking.k8s.io", &["servicecidrs"]),
                ("resource.k8s.io", &["devicetaintrules", "resourceclaims", "resourcepoolstatusrequests"]),
                ("storage.k8s.io", &["volumeattachments"]),
            ],
            Self::Generation => GENERATION,
            Self::ConditionalUpdate => &[
                ("certificates.k8s.io", &["clustertrustbundles", "podcertificaterequests"]),
                ("coordination.k8s.io", &["leasecandidates", "leases"]),
                ("internal.apiserver.k8s.io", &["storageversions"]),
                ("node.k8s.io", &["runtimeclasses"]),
                ("policy", &["poddisruptionbudgets"]),
                ("resource.k8s.io", &["resourcepoolstatusrequests"]),
                ("storage.k8s.io", &["csidrivers", "csinodes", "csistoragecapacities", "volumeattachments"]),
                ("storagemigration.k8s.io", &["storageversionmigrations"]),
            ],
            Self::CreateOnUpdate => &[
                ("", &["endpoints", "events", "limitranges", "services"]),
                ("coordination.k8s.io", &["leasecandidates", "leases"]),
                ("events.k8s.io", &["events"]),
                ("node.k8s.io", &["runtimeclasses"]),
                (
                    "rbac.authorization.k8s.io",
                    &["clusterrolebindings", "clusterroles", "rolebindings", "roles"],
                ),
            ],
            Self::ReturnsDeleted => &[
                (
                    "",
                    &[
                        "namespaces",
                        "persistentvolumeclaims",
                        "persistentvolumes",
                        "pods",
                        "podtemplates",
                        "resourcequotas",
                        "serviceaccounts",
                        "services",
                    ],
                ),
                (
                    "resource.k8s.io",
                    &[
                        "deviceclasses",
                        "devicetaintrules",
                        "resourceclaims",
                        "resourceclaimtemplates",
                        "resourcepoolstatusrequests",
                        "resourceslices",
                    ],
                ),
                (
                    "storage.k8s.io",
                    &[
                        "csidrivers",
                        "csinodes",
                        "storageclasses",
                        "volumeattachments",
                        "volumeattributesclasses",
                    ],
                ),
            ],
            Self::OrphansDependents => &[("", &["replicationcontrollers"]), ("batch", &["jobs"])],
        }
    }
}

const STATUS: Kinds = &[
    (
        "",
        &[
            "namespaces",
            "nodes",
            "persistentvolumeclaims",
            "persistentvolumes",
            "pods",
            "replicationcontrollers",
            "resourcequotas",
            "services",
        ],
    ),
    ("admissionregistration.k8s.io", &["validatingadmissionpolicies"]),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apiregistration.k8s.io", &["apiservices"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("autoscaling", &["horizontalpodautoscalers"]),
    ("batch", &["cronjobs", "jobs"]),
    ("certificates.k8s.io", &["certificatesigningrequests", "podcertificaterequests"]),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("internal.apiserver.k8s.io", &["storageversions"]),
    ("networking.k8s.io", &["ingresses", "servicecidrs"]),
    ("policy", &["poddisruptionbudgets"]),
    ("resource.k8s.io", &["devicetaintrules", "resourceclaims", "resourcepoolstatusrequests"]),
    ("storage.k8s.io", &["volumeattachments"]),
    ("storagemigration.k8s.io", &["storageversionmigrations"]),
];

const GENERATION: Kinds = &[
    ("", &["pods", "podtemplates", "replicationcontrollers"]),
    (
        "admissionregistration.k8s.io",
        &[
            "mutatingadmissionpolicies",
            "mutatingadmissionpolicybindings",
            "mutatingwebhookconfigurations",
            "validatingadmissionpolicies",
            "validatingadmissionpolicybindings",
            "validatingwebhookconfigurations",
        ],
    ),
    ("apiextensions.k8s.io", &["customresourcedefinitions"]),
    ("apps", &["daemonsets", "deployments", "replicasets", "statefulsets"]),
    ("batch", &["cronjobs", "jobs"]),
    ("discovery.k8s.io", &["endpointslices"]),
    ("flowcontrol.apiserver.k8s.io", &["flowschemas", "prioritylevelconfigurations"]),
    ("networking.k8s.io", &["ingressclasses", "ingresses", "networkpolicies"]),
    ("policy", &["poddisruptionbudgets"]),
    ("resource.k8s.io", &["deviceclasses", "devicetaintrules", "resourceslices"]),
    ("scheduling.k8s.io", &["priorityclasses"]),
];

pub(super) fn is(group: &str, plural: &str, rule: BuiltIn) -> bool {
    rule.kinds().iter().any(|(of, plurals)| *of == group && plurals.contains(&plural))
}

pub(super) fn is_group(group: &str) -> bool {
    // The suffix `k8s.io` of a group does not suffice, because groups of custom resources may have it, too, such as those of the Gateway API.
    const GROUPS: [&str; 18] = [
        "admissionregistration.k8s.io",
        "apiextensions.k8s.io",
        "apiregistration.k8s.io",
        "authentication.k8s.io",
        "authorization.k8s.io",
        "certificates.k8s.io",
        "coordination.k8s.io",
        "discovery.k8s.io",
        "events.k8s.io",
        "flowcontrol.apiserver.k8s.io",
        "internal.apiserver.k8s.io",
        "networking.k8s.io",
        "node.k8s.io",
        "rbac.authorization.k8s.io",
        "resource.k8s.io",
        "scheduling.k8s.io",
        "storage.k8s.io",
        "storagemigration.k8s.io",
    ];
    !group.contains('.') || GROUPS.contains(&group)
}

/// Returns whether Kubernetes has a subresource with this name, other than `status`.
pub(super) fn has_subresource(name: &str) -> bool {
    const NAMES: [&str; 13] = [
        "approval",
        "attach",
        "binding",
        "ephemeralcontainers",
        "eviction",
        "exec",
        "finalize",
        "log",
        "portforward",
        "proxy",
        "resize",
        "scale",
        "token",
    ];
    NAMES.contains(&name)
}

/// Returns the fields that a field selector may use besides name and namespace, each with its path in the object; `None` if there are none.
fn fields(group: &str, plural: &str) -> Option<&'static [(&'static str, &'static str)]> {
    Some(match (group, plural) {
        ("", "pods") => &[
            ("spec.host", "spec.nodeName"),
            ("spec.hostNetwork", "spec.hostNetwork"),
            ("spec.nodeName", "spec.nodeName"),
            ("spec.restartPolicy", "spec.restartPolicy"),
            ("spec.schedulerName", "spec.schedulerName"),
            ("spec.serviceAccountName", "spec.serviceAccountName"),
            ("status.nominatedNodeName", "status.nominatedNodeName"),
            ("status.phase", "status.phase"),
            ("status.podIP", "status.podIP"),
            ("status.podIPs", "status.podIPs"),
        ],
        ("", "nodes") => &[("spec.unschedulable", "spec.unschedulable")],
        ("", "namespaces") => &[("status.phase", "status.phase")],
        ("", "secrets") => &[("type", "type")],
        ("", "services") => &[("spec.clusterIP", "spec.clusterIP"), ("spec.type", "spec.type")],
        ("", "replicationcontrollers") => &[("status.replicas", "status.replicas")],
        ("", "events") => &[
            ("involvedObject.apiVersion", "involvedObject.apiVersion"),
            ("involvedObject.fieldPath", "involvedObject.fieldPath"),
            ("involvedObject.kind", "involvedObject.kind"),
            ("involvedObject.name", "involvedObject.name"),
            ("involvedObject.namespace", "involvedObject.namespace"),
            ("involvedObject.resourceVersion", "involvedObject.resourceVersion"),
            ("involvedObject.uid", "involvedObject.uid"),
            ("reason", "reason"),
            ("reportingComponent", "reportingComponent"),
            ("source", "source.component"),
            ("type", "type"),
        ],
        ("events.k8s.io", "events") => &[
            ("reason", "reason"),
            ("regarding.apiVersion", "regarding.apiVersion"),
            ("regarding.fieldPath", "regarding.fieldPath"),
            ("regarding.kind", "regarding.kind"),
            ("regarding.name", "regarding.name"),
            ("regarding.namespace", "regarding.namespace"),
            ("regarding.resourceVersion", "regarding.resourceVersion"),
            ("regarding.uid", "regarding.uid"),
            ("reportingController", "reportingController"),
            ("type", "type"),
        ],
        ("batch", "jobs") => &[("status.successful", "status.succeeded")],
        ("certificates.k8s.io", "certificatesigningrequests" | "clustertrustbundles") => {
            &[("spec.signerName", "spec.signerName")]
        }
        ("certificates.k8s.io", "podcertificaterequests") => {
            &[("spec.nodeName", "spec.nodeName"), ("spec.signerName", "spec.signerName")]
        }
        ("resource.k8s.io", "resourceslices") => {
            &[("spec.driver", "spec.driver"), ("spec.nodeName", "spec.nodeName")]
        }
        _ => return None,
    })
}

pub(super) fn has_selectable(group: &str, plural: &str) -> bool {
    fields(group, plural).is_some()
}

/// Returns the path of a selectable field within an object.
pub(super) fn selectable(group: &str, plural: &str, field: &str) -> Option<&'static str> {
    fields(group, plural)?.iter().find(|(name, _)| *name == field).map(|(_, path)| *path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_name_built_in_groups_in_order() {
        use BuiltIn::{
            ConditionalUpdate, CreateOnUpdate, Generation, OrphansDependents, ReturnsDeleted, Status,
            StatusAlone,
        };
        for rule in [
            Status,
            StatusAlone,
            Generation,
            ConditionalUpdate,
            CreateOnUpdate,
            ReturnsDeleted,
            OrphansDependents,
        ] {
            let groups = rule.kinds();
            assert!(groups.is_sorted_by(|a, b| a.0 < b.0), "{rule:?}");
            for (group, plurals) in groups {
                assert!(is_group(group), "{group}");
                assert!(plurals.is_sorted_by(|a, b| a < b), "{rule:?} {group}");
            }
        }
    }
}
