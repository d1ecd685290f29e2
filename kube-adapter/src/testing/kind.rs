//! PURE. A kind of objects that the server knows.

use kube::core::ApiResource;

/// A kind, and whether its objects are in namespaces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) resource: ApiResource,
    pub(super) namespaced: bool,
}

impl Kind {
    /// As messages name it: `deployments.apps`.
    pub(super) fn title(&self) -> String {
        let ApiResource { group, plural, .. } = &self.resource;
        if group.is_empty() { plural.clone() } else { format!("{plural}.{group}") }
    }

    /// Under which an object is kept. As in etcd, so that lists are in the order of a real server.
    pub(super) fn key(&self, namespace: Option<&str>, name: &str) -> String {
        match namespace {
            Some(namespace) if self.namespaced => format!("{namespace}/{name}"),
            _ => name.to_owned(),
        }
    }
}
