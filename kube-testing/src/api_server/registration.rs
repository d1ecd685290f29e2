//! PURE. The registration of a kind.

use std::any::TypeId;

use kube::Resource;
use kube::core::{ApiResource, NamespaceResourceScope};

use crate::state::kind::Kind;

/// A kind to register with [`ApiServer::register_as`](crate::ApiServer::register_as), with options that a custom resource definition can set, too.
///
/// # Examples
/// ```
/// use flyball_kube_testing::{ApiServer, Registration};
/// use k8s_openapi::api::core::v1::ConfigMap;
/// use kube::core::{ApiResource, GroupVersionKind};
///
/// let site = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Site"));
/// let server = ApiServer::new();
/// server.register_as(Registration::dynamic(site, true).without_status().selectable_field("spec.color"));
/// server.register_as(Registration::of::<ConfigMap>()); // as `register::<ConfigMap>()` does
/// ```
#[derive(Debug, Clone)]
pub struct Registration {
    pub(crate) kind: Kind,
}

impl Registration {
    /// Creates the registration of a kind from its Rust type. A custom kind has the `status` subresource, and only name and
    /// namespace as selectable fields.
    #[must_use]
    pub fn of<K>() -> Self
    where
        K: Resource<DynamicType: Default, Scope: 'static>,
    {
        let resource = ApiResource::erase::<K>(&K::DynamicType::default());
        Self::dynamic(resource, TypeId::of::<K::Scope>() == TypeId::of::<NamespaceResourceScope>())
    }

    /// Like [`of`](Self::of), for a kind without a Rust type.
    #[must_use]
    pub fn dynamic(resource: ApiResource, namespaced: bool) -> Self {
        Self { kind: Kind::new(resource, namespaced) }
    }

    /// Removes the `status` subresource of a custom kind: an update then also writes `status`, and a change of `status` increments the generation.
    /// Has no effect on a built-in kind.
    #[must_use]
    pub fn without_status(mut self) -> Self {
        self.kind.custom_status = false;
        self
    }

    /// Adds a path that field selectors of a custom kind may use, such as `spec.color`.
    #[must_use]
    pub fn selectable_field(mut self, path: impl Into<String>) -> Self {
        self.kind.selectable_fields.push(path.into());
        self
    }
}
