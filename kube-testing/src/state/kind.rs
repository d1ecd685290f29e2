//! PURE. A registered kind.

use kube::core::ApiResource;

/// A kind, and whether its objects are in namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Kind {
    pub(crate) resource: ApiResource,
    pub(crate) namespaced: bool,
}

impl Kind {
    /// The name in messages: `deployments.apps`.
    pub(crate) fn title(&self) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    /// Whether it is one of Kubernetes' own, not a custom resource.
    pub(crate) fn is_built_in(&self) -> bool {
        // Custom resources may be in groups of `k8s.io`, too: those of the Gateway API are.
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
        let group = &self.resource.group;
        !group.contains('.') || GROUPS.contains(&&**group)
    }

    /// Whether an update may leave out the version: most of Kubernetes' own kinds, and no custom resource.
    pub(crate) fn allows_unconditional_update(&self) -> bool {
        const STRICT: [&str; 5] = [
            "admissionregistration.k8s.io",
            "apiextensions.k8s.io",
            "apiregistration.k8s.io",
            "coordination.k8s.io",
            "policy",
        ];
        self.is_built_in() && !STRICT.contains(&&*self.resource.group)
    }

    /// Whether this is a valid name: a DNS subdomain, but for kinds that allow any path segment.
    pub(crate) fn is_valid_name(&self, name: &str) -> bool {
        let label = |label: &str| {
            let inner = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let (first, last) = (label.bytes().next(), label.bytes().last());
            first.is_some_and(inner)
                && last.is_some_and(inner)
                && label.bytes().all(|byte| inner(byte) || byte == b'-')
        };
        self.resource.group == "rbac.authorization.k8s.io" || name.len() <= 253 && name.split('.').all(label)
    }

    /// The key of an object. As in etcd, so that lists have the order of a real server.
    pub(crate) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    }
}
