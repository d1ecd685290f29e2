//! PURE. Which requests are meant: of a fault, or of a look at the log.

use kube::Resource;

use crate::request::Request;

/// What a request asks for, as Kubernetes' authorisation names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Verb {
    /// `GET` of an object.
    Get,
    /// `GET` of a collection.
    List,
    /// `GET` of a collection with `watch=true`.
    Watch,
    /// `POST`.
    Create,
    /// `PUT`.
    Update,
    /// `PATCH`, of whatever type.
    Patch,
    /// `DELETE` of an object.
    Delete,
    /// `DELETE` of a collection.
    DeleteCollection,
}

/// Which requests are meant. All of them, until it is said more narrowly.
///
/// # Examples
/// ```
/// use flyball_kube_testing::{Call, Verb};
/// use k8s_openapi::api::core::v1::Pod;
///
/// let lists_of_pods = Call::to(Verb::List).of::<Pod>();
/// let whatever_touches_a = Call::any().within("default").named("a");
/// # let _ = (lists_of_pods, whatever_touches_a);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Call {
    verb: Option<Verb>,
    resource: Option<(String, String)>,
    namespace: Option<String>,
    name: Option<String>,
}

impl Call {
    /// Every request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Requests with this verb.
    #[must_use]
    pub fn to(verb: Verb) -> Self {
        Self { verb: Some(verb), ..Self::default() }
    }

    /// Only of this kind.
    #[must_use]
    pub fn of<K: Resource<DynamicType: Default>>(self) -> Self {
        self.of_with::<K>(&K::DynamicType::default())
    }

    /// Only of this kind, known at run time.
    #[must_use]
    pub fn of_with<K: Resource>(self, dyntype: &K::DynamicType) -> Self {
        let resource = (K::group(dyntype).into_owned(), K::plural(dyntype).into_owned());
        Self { resource: Some(resource), ..self }
    }

    /// Only in this namespace.
    #[must_use]
    pub fn within(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Only of the object of this name. A create names its object in the body, which is not looked at.
    #[must_use]
    pub fn named(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Whether this request is meant.
    #[must_use]
    pub fn matches(&self, request: &Request) -> bool {
        fn agrees<T: PartialEq>(asked: &Option<T>, is: Option<&T>) -> bool {
            asked.as_ref().is_none_or(|asked| is == Some(asked))
        }
        let resource = (request.group.clone(), request.plural.clone());
        agrees(&self.verb, Some(&request.verb))
            && agrees(&self.resource, Some(&resource))
            && agrees(&self.namespace, request.namespace.as_ref())
            && agrees(&self.name, request.name.as_ref())
    }
}
