//! PURE. Matches requests, to inject faults and to filter the log.

use kube::Resource;

use crate::request::{RecordedRequest, Verb};

/// Selects requests. [`any`](Self::any) selects all requests, and [`verb`](Self::verb) those with one verb; each further method narrows the
/// selection.
///
/// # Examples
/// ```
/// use flyball_kube_testing::{ApiServer, RequestMatcher, Verb};
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::api::{Api, ApiResource, DynamicObject, ListParams};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), kube::Error> {
/// let server = ApiServer::new();
/// server.register::<Pod>();
/// let pods = Api::<Pod>::namespaced(server.client(), "default");
/// pods.list(&ListParams::default()).await?;
/// pods.get_opt("a").await?;
///
/// let lists = RequestMatcher::verb(Verb::List).resource::<Pod>();
/// let of_a = RequestMatcher::any().namespace("default").name("a");
/// let requests = server.requests();
/// assert!(lists.matches(&requests[0]) && !of_a.matches(&requests[0]));
/// assert!(of_a.matches(&requests[1]));
///
/// // The same, for a kind that is known at run time.
/// let kind = ApiResource::erase::<Pod>(&());
/// assert_eq!(RequestMatcher::verb(Verb::List).resource_with::<DynamicObject>(&kind), lists);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestMatcher {
    verb: Option<Verb>,
    resource: Option<(String, String)>,
    namespace: Option<String>,
    name: Option<String>,
}

impl RequestMatcher {
    /// Matches every request.
    #[must_use]
    pub fn any() -> Self {
        Self::default()
    }

    /// Matches requests with this verb.
    #[must_use]
    pub fn verb(verb: Verb) -> Self {
        Self { verb: Some(verb), ..Self::default() }
    }

    /// Matches only requests for this kind.
    #[must_use]
    pub fn resource<K: Resource<DynamicType: Default>>(self) -> Self {
        self.resource_with::<K>(&K::DynamicType::default())
    }

    /// Matches only requests for this kind, which is known at run time.
    #[must_use]
    pub fn resource_with<K: Resource>(self, dyntype: &K::DynamicType) -> Self {
        let resource = (K::group(dyntype).into_owned(), K::plural(dyntype).into_owned());
        Self { resource: Some(resource), ..self }
    }

    /// Matches only requests within this namespace.
    #[must_use]
    pub fn namespace(self, namespace: impl Into<String>) -> Self {
        Self { namespace: Some(namespace.into()), ..self }
    }

    /// Matches only requests for the object with this name. A request that creates an object does not match, because it has the name only in its
    /// body.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: Some(name.into()), ..self }
    }

    /// Returns whether the matcher matches this request.
    #[must_use]
    pub fn matches(&self, request: &RecordedRequest) -> bool {
        fn agrees<T: PartialEq>(wanted: &Option<T>, actual: Option<&T>) -> bool {
            wanted.as_ref().is_none_or(|wanted| actual == Some(wanted))
        }
        let resource = (request.group.clone(), request.plural.clone());
        agrees(&self.verb, Some(&request.verb))
            && agrees(&self.resource, Some(&resource))
            && agrees(&self.namespace, request.namespace.as_ref())
            && agrees(&self.name, request.name.as_ref())
    }
}
