//! PURE. Discovery: the groups, versions and kinds that are served, separately or aggregated in one response.

use kube::core::Status;
use serde_json::{Value, json};

use crate::request::{RecordedRequest, Representation};
use crate::state::State;
use crate::state::kind::Kind;
use crate::status_error;

const VERBS: [&str; 8] = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: [&str; 3] = ["get", "patch", "update"];

impl State {
    /// Answers a discovery request: a request whose path names no resource.
    pub(crate) fn discover(&self, request: &RecordedRequest) -> Result<Value, Box<Status>> {
        let aggregated = request.representation == Representation::Discovery;
        let group = request.group.as_str();
        Ok(match request.path.as_slice() {
            [path] if path == "version" => version(),
            [path] if path == "api" && aggregated => self.aggregated(|group| group.is_empty()),
            [path] if path == "apis" && aggregated => self.aggregated(|group| !group.is_empty()),
            [path] if path == "api" => {
                json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
            }
            [path] if path == "apis" => {
                let groups = self.groups().into_iter().filter(|group| !group.is_empty());
                let groups: Vec<_> = groups.map(|group| self.group(&group)).collect();
                json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})
            }
            [path, _] if path == "apis" && self.groups().iter().any(|served| served == group) => {
                let mut found = self.group(group);
                found["kind"] = "APIGroup".into();
                found["apiVersion"] = "v1".into();
                found
            }
            [path, ..] if matches!(&**path, "api" | "apis") && !request.version.is_empty() => {
                let resources = self.resources(group, &request.version);
                // The core group exists even if it is empty.
                if resources.is_empty() && request.api_version() != "v1" {
                    return Err(status_error::no_such_path());
                }
                json!({
                    "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": request.api_version(),
                    "resources": resources,
                })
            }
            [path, ..] if path == "openapi" => {
                return Err(status_error::not_implemented("OpenAPI: there are no schemas here"));
            }
            _ => return Err(status_error::no_such_path()),
        })
    }

    /// Returns the groups, sorted by name.
    fn groups(&self) -> Vec<String> {
        let mut groups: Vec<_> = self.kinds().map(|kind| kind.resource.group.clone()).collect();
        groups.sort();
        groups.dedup();
        groups
    }

    /// Returns the versions, newest first.
    fn versions(&self, group: &str) -> Vec<String> {
        let kinds = self.kinds().filter(|kind| kind.resource.group == group);
        let mut versions: Vec<_> = kinds.flat_map(|kind| kind.versions.iter().cloned()).collect();
        versions.sort_by_key(|version| std::cmp::Reverse(kube::core::Version::parse(version).priority()));
        versions.dedup();
        versions
    }

    fn group(&self, group: &str) -> Value {
        let versions = self.versions(group).into_iter();
        let versions: Vec<_> = versions
            .map(|version| json!({"groupVersion": format!("{group}/{version}"), "version": version}))
            .collect();
        json!({"name": group, "preferredVersion": versions.first(), "versions": versions})
    }

    fn served(&self, group: &str, version: &str) -> impl Iterator<Item = &Kind> {
        let mut kinds: Vec<_> = self
            .kinds()
            .filter(|kind| {
                kind.resource.group == group && kind.versions.iter().any(|served| served == version)
            })
            .collect();
        kinds.sort_by(|a, b| a.resource.plural.cmp(&b.resource.plural));
        kinds.into_iter()
    }

    fn resources(&self, group: &str, version: &str) -> Vec<Value> {
        let mut resources = Vec::new();
        for kind in self.served(group, version) {
            let resource = &kind.resource;
            resources.push(json!({
                "name": resource.plural, "singularName": resource.kind.to_lowercase(), "namespaced": kind.namespaced,
                "kind": resource.kind, "verbs": VERBS,
            }));
            if kind.has_status() {
                resources.push(json!({
                    "name": format!("{}/status", resource.plural), "singularName": "", "namespaced": kind.namespaced,
                    "kind": resource.kind, "verbs": STATUS_VERBS,
                }));
            }
        }
        resources
    }

    fn aggregated(&self, of: impl Fn(&str) -> bool) -> Value {
        let groups = self.groups().into_iter().filter(|group| of(group)).map(|group| {
            let versions: Vec<_> = self
                .versions(&group)
                .into_iter()
                .map(|version| {
                    let resources: Vec<_> = self
                        .served(&group, &version)
                        .map(|kind| aggregated_resource(kind, &version))
                        .collect();
                    json!({"version": version, "freshness": "Current", "resources": resources})
                })
                .collect();
            let metadata = if group.is_empty() { json!({}) } else { json!({"name": group}) };
            json!({"metadata": metadata, "versions": versions})
        });
        json!({
            "kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {},
            "items": groups.collect::<Vec<_>>(),
        })
    }
}

fn aggregated_resource(kind: &Kind, version: &str) -> Value {
    let resource = &kind.resource;
    let response = json!({"group": resource.group, "version": version, "kind": resource.kind});
    let mut found = json!({
        "resource": resource.plural, "responseKind": response,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
        "singularResource": resource.kind.to_lowercase(), "verbs": VERBS,
    });
    if kind.has_status() {
        let status = json!({"subresource": "status", "responseKind": response, "verbs": STATUS_VERBS});
        found["subresources"] = json!([status]);
    }
    found
}

/// Returns the version of Kubernetes that this server imitates.
fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "", "gitTreeState": "",
        "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
    })
}
