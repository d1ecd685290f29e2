//! PURE. Reads a request: verb, resource and parameters, from its method, path, query and headers.

use std::collections::BTreeMap;

use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, Method, request::Parts};
use kube::core::Status;

use crate::status_error;

/// The verb of a request, named as in Kubernetes' authorisation.
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
    /// `PATCH` of any type.
    Patch,
    /// `DELETE` of an object.
    Delete,
    /// `DELETE` of a collection.
    DeleteCollection,
}

/// A request to an [`ApiServer`](crate::ApiServer), as recorded in the server's log.
///
/// # Examples
/// ```
/// use flyball_kube_testing::{ApiServer, Verb};
/// use k8s_openapi::api::core::v1::Pod;
/// use kube::api::{Api, ListParams};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), kube::Error> {
/// let server = ApiServer::new();
/// server.register::<Pod>();
/// let pods = Api::<Pod>::namespaced(server.client(), "default");
/// pods.list(&ListParams::default().labels("app=web").limit(10)).await?;
///
/// let request = &server.requests()[0];
/// assert_eq!((request.verb, request.plural.as_str()), (Verb::List, "pods"));
/// assert_eq!(request.namespace.as_deref(), Some("default"));
/// assert_eq!(request.query_param("labelSelector"), Some("app=web"));
/// assert_eq!(request.query_param("continue"), None);
///
/// server.clear_requests();
/// assert!(server.requests().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordedRequest {
    /// The verb.
    pub verb: Verb,
    /// The group of the resource; empty for the core group.
    pub group: String,
    /// The version of the group.
    pub version: String,
    /// The plural name of the resource, such as `pods`; empty for a discovery request, whose verb is [`Verb::Get`].
    pub plural: String,
    /// The namespace; `None` for all namespaces, and for kinds without namespaces.
    pub namespace: Option<String>,
    /// The name of the object; `None` for a collection.
    pub name: Option<String>,
    /// The subresource, such as `status`; `None` for the object itself.
    pub subresource: Option<String>,
    /// The query parameters, such as `limit` and `resourceVersion`.
    pub query: BTreeMap<String, String>,
    /// Whether the client requests only the metadata of objects.
    pub metadata_only: bool,
    pub(crate) representation: Representation,
    pub(crate) path: Vec<String>,
    content_type: String,
    /// The client's product name: the user agent up to the first slash.
    user_agent: String,
}

/// The representation that the client accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Representation {
    Object,
    Metadata,
    /// Aggregated discovery: all groups and their kinds in one response.
    Discovery,
    /// No representation that this server supports.
    Unknown,
}

impl Representation {
    /// Returns the first representation in the `Accept` header that the server supports.
    fn read(accept: &str) -> Self {
        if accept.trim().is_empty() {
            return Self::Object;
        }
        let known = accept.split(',').find_map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let is_json = matches!(parts.next(), Some("application/json" | "application/*" | "*/*"));
            let parameter = |name: &str| {
                let mut all = clause.split(';').filter_map(|part| part.trim().split_once('='));
                all.find(|(key, _)| *key == name).map(|(_, value)| value)
            };
            match (parameter("as"), parameter("v")) {
                _ if !is_json => None,
                (None, _) => Some(Self::Object),
                (Some("PartialObjectMetadata" | "PartialObjectMetadataList"), Some("v1")) => {
                    Some(Self::Metadata)
                }
                (Some("APIGroupDiscoveryList"), Some("v2")) => Some(Self::Discovery),
                _ => None,
            }
        });
        known.unwrap_or(Self::Unknown)
    }
}

impl RecordedRequest {
    pub(crate) fn read(parts: &Parts) -> Result<Self, Box<Status>> {
        let path: Vec<&str> = parts.uri.path().split('/').filter(|part| !part.is_empty()).collect();
        let (group, version, rest) = match path.as_slice() {
            ["api", version, rest @ ..] => ("", *version, rest),
            ["apis", group, version, rest @ ..] => (*group, *version, rest),
            ["apis", group] => (*group, "", &[][..]),
            _ => ("", "", &[][..]),
        };
        if let ["watch", ..] = rest {
            return Err(status_error::not_implemented(
                "paths with /watch/: the parameter watch=true does the same",
            ));
        }
        // `/namespaces/a` is the path of a namespace, which is a cluster-scoped object; `/namespaces/a/pods` is the
        // path of a collection within a namespace.
        let (namespace, rest) = match rest {
            ["namespaces", _] | ["namespaces", _, "status"] => (None, rest),
            ["namespaces", namespace, rest @ ..] => (Some(*namespace), rest),
            _ => (None, rest),
        };
        let (plural, name, subresource) = match rest {
            [] if parts.method == Method::GET => ("", None, None),
            [plural] => (*plural, None, None),
            [plural, name] => (*plural, Some(*name), None),
            [plural, name, subresource] => (*plural, Some(*name), Some(*subresource)),
            // The rest of the path belongs to the proxied server.
            [plural, name, subresource @ "proxy", ..] => (*plural, Some(*name), Some(*subresource)),
            _ => return Err(status_error::no_such_path()),
        };
        let query = form_urlencoded::parse(parts.uri.query().unwrap_or_default().as_bytes());
        let query: BTreeMap<String, String> =
            query.map(|(key, value)| (key.into_owned(), value.into_owned())).collect();
        let watch = query.get("watch").is_some_and(|watch| watch == "true" || watch == "1");
        let verb = match (&parts.method, name) {
            (&Method::GET, None) if plural.is_empty() => Verb::Get,
            (&Method::GET, Some(_)) => Verb::Get,
            (&Method::GET, None) if watch => Verb::Watch,
            (&Method::GET, None) => Verb::List,
            (&Method::POST, None) => Verb::Create,
            // This request creates a subresource such as `eviction`.
            (&Method::POST, Some(_)) if subresource.is_some() => Verb::Create,
            (&Method::PUT, Some(_)) => Verb::Update,
            (&Method::PATCH, Some(_)) => Verb::Patch,
            (&Method::DELETE, Some(_)) => Verb::Delete,
            (&Method::DELETE, None) => Verb::DeleteCollection,
            _ => return Err(status_error::no_such_method()),
        };
        let representation = Representation::read(header(&parts.headers, ACCEPT));
        Ok(Self {
            verb,
            group: group.to_owned(),
            version: version.to_owned(),
            plural: plural.to_owned(),
            namespace: namespace.map(str::to_owned),
            name: name.map(str::to_owned),
            subresource: subresource.map(str::to_owned),
            query,
            metadata_only: representation == Representation::Metadata,
            representation,
            path: path.into_iter().map(str::to_owned).collect(),
            content_type: header(&parts.headers, CONTENT_TYPE).to_owned(),
            user_agent: header(&parts.headers, USER_AGENT).split('/').next().unwrap_or_default().to_owned(),
        })
    }

    /// Returns a query parameter; an empty parameter counts as missing, as on a real server.
    #[must_use]
    pub fn query_param(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the `apiVersion` of the requested objects.
    pub(crate) fn api_version(&self) -> String {
        let Self { group, version, .. } = self;
        if group.is_empty() { version.clone() } else { format!("{group}/{version}") }
    }

    /// Returns the media type of the body, without parameters.
    pub(crate) fn media_type(&self) -> &str {
        self.content_type.split(';').next().unwrap_or_default().trim()
    }

    pub(crate) fn user_agent(&self) -> &str {
        &self.user_agent
    }

    /// Parses a numeric parameter.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, Box<Status>> {
        let Some(text) = self.query_param(name) else { return Ok(None) };
        let problem = |_| status_error::bad_request(&format!("{name}: Invalid value: {text:?}"));
        text.parse().map(Some).map_err(problem)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.query_param(name).is_some_and(|value| value == "true" || value == "1")
    }
}

fn header(headers: &HeaderMap, name: http::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}
