//! Tests of API discovery with kube's discovery clients.

use kube::core::GroupVersionKind;
use kube::core::discovery::Scope;
use kube::discovery::{Discovery, pinned_kind, verbs};

use crate::definitions::Definition;
use crate::server::Server;

fn gvk(group: &str, kind: &str) -> GroupVersionKind {
    GroupVersionKind::gvk(group, "v1", kind)
}

/// Discovery in which the client sends one request per API group.
pub async fn groups_and_kinds_are_discovered(on: &Server) {
    let sites = Definition::new(on, "Site").create(on).await;
    let group = format!("{}.example.com", on.namespace);
    let found = on.until(&format!("/apis/{group}/v1"), |reply| reply.code == 200).await;
    assert_eq!(found.body["groupVersion"], format!("{group}/v1"));
    let (resource, capabilities) = pinned_kind(&on.client, &gvk(&group, "Site")).await.unwrap();
    assert_eq!((resource.plural.as_str(), capabilities.scope), ("sites", Scope::Namespaced));
    assert_eq!(format!("{}.{group}", resource.plural), sites.title());
    let groups = Discovery::new(on.client.clone()).filter(&["apps", ""]).run().await.unwrap();
    for (of, kind, plural, has_status) in [
        ("", "ConfigMap", "configmaps", false),
        ("", "Pod", "pods", true),
        ("apps", "Deployment", "deployments", true),
    ] {
        let (resource, capabilities) = groups.resolve_gvk(&gvk(of, kind)).unwrap();
        assert_eq!((resource.plural.as_str(), &capabilities.scope), (plural, &Scope::Namespaced));
        for verb in [
            verbs::CREATE,
            verbs::DELETE,
            verbs::DELETE_COLLECTION,
            verbs::GET,
            verbs::LIST,
            verbs::PATCH,
            verbs::UPDATE,
            verbs::WATCH,
        ] {
            assert!(capabilities.supports_operation(verb), "{kind} {verb}");
        }
        let status = capabilities.subresources.iter().any(|(resource, _)| resource.plural == "status");
        assert_eq!(status, has_status, "{kind}");
    }
    let (_, namespaces) = groups.resolve_gvk(&gvk("", "Namespace")).unwrap();
    assert_eq!(namespaces.scope, Scope::Cluster);
    assert!(pinned_kind(&on.client, &gvk("apps", "None")).await.is_err());
    assert_eq!(on.get("/apis/none.example.com/v1").await.code, 404);
    assert_eq!(on.get("/apis/none.example.com").await.code, 404);
}

/// Aggregated discovery: `Discovery::run_aggregated` requests the kinds of all groups at once.
pub async fn kinds_are_discovered_in_one_answer(on: &Server) {
    let all = Discovery::new(on.client.clone()).run_aggregated().await.unwrap();
    for (group, kind, plural) in [("", "ConfigMap", "configmaps"), ("apps", "Deployment", "deployments")] {
        let (resource, capabilities) = all.resolve_gvk(&gvk(group, kind)).unwrap();
        assert_eq!((resource.plural.as_str(), &capabilities.scope), (plural, &Scope::Namespaced));
        assert!(capabilities.supports_operation(verbs::WATCH));
    }
    let (_, deployments) = all.resolve_gvk(&gvk("apps", "Deployment")).unwrap();
    assert!(deployments.subresources.iter().any(|(resource, _)| resource.plural == "status"));
    assert!(all.has_group("apps") && !all.has_group("none.example.com"));
}

/// `/version` returns the version of kube-apiserver.
pub async fn the_version_is_returned(on: &Server) {
    let version = on.client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "37"));
}
