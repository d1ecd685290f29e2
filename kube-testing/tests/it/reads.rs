use super::{config_map, config_maps, labelled, names, refused, server};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::Api;
use kube::api::{GetParams, ListParams, VersionMatch};
use kube::core::{ApiResource, DynamicObject, PartialObjectMeta};
use serde_json::json;

#[tokio::test(start_paused = true)]
async fn one_object_is_got_or_not_found() {
    let server = server();
    let api = config_maps(&server);
    let put = server.put(&config_map("a", "1"));
    assert_eq!(api.get("a").await.unwrap(), put);
    let missing = refused(api.get("b").await);
    assert_eq!((missing.code, missing.reason.as_str()), (404, "NotFound"));
    assert_eq!(missing.message, "configmaps \"b\" not found");
    assert_eq!(missing.details.unwrap().name, "b");
    assert!(refused(Api::<ConfigMap>::namespaced(server.client(), "other").get("a").await).is_not_found());
    assert!(api.get_with("a", &GetParams::any()).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_list_is_of_one_namespace_or_of_all_in_order() {
    let server = server();
    for (namespace, name) in [("b", "x"), ("a-b", "y"), ("a", "z"), ("a", "x")] {
        let mut object = config_map(name, "1");
        object.metadata.namespace = Some(namespace.into());
        server.put(&object);
    }
    let all = Api::<ConfigMap>::all(server.client()).list(&ListParams::default()).await.unwrap();
    let keys = all.items.iter().map(|object| {
        let meta = &object.metadata;
        format!("{}/{}", meta.namespace.as_deref().unwrap(), meta.name.as_deref().unwrap())
    });
    // The order of etcd: `-` comes before `/`.
    assert_eq!(keys.collect::<Vec<_>>(), ["a-b/y", "a/x", "a/z", "b/x"]);
    assert_eq!(all.metadata.resource_version, Some(server.resource_version().to_string()));
    let a = Api::<ConfigMap>::namespaced(server.client(), "a").list(&ListParams::default()).await.unwrap();
    assert_eq!(names(&a.items), ["x", "z"]);
}

#[tokio::test(start_paused = true)]
async fn pages_are_of_one_version_whatever_is_written_between_them() {
    let server = server();
    let api = config_maps(&server);
    for name in ["a", "b", "c", "d", "e"] {
        server.put(&config_map(name, "old"));
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    assert_eq!(names(&first.items), ["a", "b"]);
    assert_eq!(first.metadata.remaining_item_count, Some(3));
    server.put(&config_map("c", "new"));
    server.put(&config_map("bb", "new"));
    server.delete::<ConfigMap>("default", "e");

    let token = first.metadata.continue_.unwrap();
    let second = api.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!(names(&second.items), ["c", "d"]);
    assert_eq!(second.items[0].data.as_ref().unwrap()["value"], "old");
    assert_eq!(second.metadata.resource_version, first.metadata.resource_version);
    let token = second.metadata.continue_.unwrap();
    let third = api.list(&ListParams::default().limit(2).continue_token(&token)).await.unwrap();
    assert_eq!(names(&third.items), ["e"]);
    assert_eq!((third.metadata.continue_, third.metadata.remaining_item_count), (None, None));
}

#[tokio::test(start_paused = true)]
async fn a_list_does_not_go_on_over_a_compacted_history() {
    let server = server();
    let api = config_maps(&server);
    for name in ["a", "b", "c"] {
        server.put(&config_map(name, "1"));
    }
    let first = api.list(&ListParams::default().limit(2)).await.unwrap();
    server.compact();
    // Nothing was written since the first page, so the version of the list is still available.
    let token = first.metadata.continue_.unwrap();
    let more = ListParams::default().limit(2).continue_token(&token);
    assert_eq!(names(&api.list(&more).await.unwrap().items), ["c"]);
    server.put(&config_map("d", "1"));
    server.compact();
    let gone = refused(api.list(&more).await);
    assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn lists_of_a_version_are_exact_or_not_older_or_too_large() {
    let server = server();
    let api = config_maps(&server);
    let old = server.put(&config_map("a", "old")).metadata.resource_version.unwrap();
    server.put(&config_map("a", "new"));
    let value =
        |list: kube::core::ObjectList<ConfigMap>| list.items[0].data.as_ref().unwrap()["value"].clone();
    let at = |version: &str, matching| ListParams::default().at(version).matching(matching);

    assert_eq!(value(api.list(&at(&old, VersionMatch::Exact)).await.unwrap()), "old");
    assert_eq!(value(api.list(&at(&old, VersionMatch::NotOlderThan)).await.unwrap()), "new");
    assert_eq!(value(api.list(&ListParams::default().at(&old)).await.unwrap()), "new");
    assert_eq!(value(api.list(&ListParams::default().match_any()).await.unwrap()), "new");
    // For compatibility, a request with a limit and without `resourceVersionMatch` gets the list at exactly the requested version.
    assert_eq!(value(api.list(&ListParams::default().at(&old).limit(5)).await.unwrap()), "old");

    let large = refused(api.list(&at("1000", VersionMatch::NotOlderThan)).await);
    assert_eq!((large.code, large.reason.as_str()), (504, "Timeout"));
    let details = large.details.unwrap();
    assert_eq!(details.causes[0].reason, "ResourceVersionTooLarge");
    assert_eq!(details.retry_after_seconds, 1);

    server.compact();
    let gone = refused(api.list(&at(&old, VersionMatch::Exact)).await);
    assert_eq!((gone.code, gone.reason.as_str()), (410, "Expired"));
}

#[tokio::test(start_paused = true)]
async fn lists_select_by_labels_and_fields() {
    let server = server();
    let api = config_maps(&server);
    server.put(&labelled("a", json!({"app": "web", "tier": "front"})));
    server.put(&labelled("b", json!({"app": "web"})));
    server.put(&labelled("c", json!({})));
    for (labels, expected) in [
        ("app=web", &["a", "b"][..]),
        ("app=web,tier", &["a"]),
        ("!app", &["c"]),
        ("tier notin (front)", &["b", "c"]),
    ] {
        let list = api.list(&ListParams::default().labels(labels)).await.unwrap();
        assert_eq!(names(&list.items), expected, "{labels}");
    }
    for (fields, expected) in
        [("metadata.name=b", &["b"][..]), ("metadata.name!=b,metadata.namespace==default", &["a", "c"])]
    {
        let list = api.list(&ListParams::default().fields(fields)).await.unwrap();
        assert_eq!(names(&list.items), expected, "{fields}");
    }
    assert_eq!(refused(api.list(&ListParams::default().labels("a b")).await).code, 400);
    assert_eq!(refused(api.list(&ListParams::default().fields("name")).await).code, 400);
    // The response to a list with a selector has no `remainingItemCount`.
    let list = api.list(&ListParams::default().labels("app").limit(1)).await.unwrap();
    assert_eq!(list.metadata.remaining_item_count, None);
    assert!(list.metadata.continue_.is_some());
}

#[tokio::test(start_paused = true)]
async fn metadata_alone_is_sent_where_it_alone_is_asked_for() {
    let server = server();
    server.put(&config_map("a", "1"));
    let api = Api::<PartialObjectMeta<ConfigMap>>::default_namespaced(server.client());
    let one = api.get("a").await.unwrap();
    assert_eq!(one.types.unwrap().kind, "PartialObjectMetadata");
    let list = api.list(&ListParams::default()).await.unwrap();
    assert_eq!(list.items[0].metadata.name.as_deref(), Some("a"));
    assert!(server.requests().iter().all(|request| request.metadata_only));

    let resource = ApiResource::erase::<ConfigMap>(&());
    let dynamic = Api::<DynamicObject>::default_namespaced_with(server.client(), &resource);
    let text = dynamic.list_metadata(&ListParams::default()).await.unwrap();
    assert_eq!(text.types.kind, "PartialObjectMetadataList");
}

#[tokio::test(start_paused = true)]
async fn kinds_without_namespaces_and_kinds_without_types_are_served() {
    let server = server();
    let mut namespace = Namespace::default();
    namespace.metadata.name = Some("a".into());
    server.put(&namespace);
    let api = Api::<Namespace>::all(server.client());
    assert_eq!(api.get("a").await.unwrap().metadata.namespace, None);
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);

    let gizmo = kube::core::GroupVersionKind::gvk("example.com", "v1", "Gizmo");
    let resource = ApiResource::from_gvk(&gizmo);
    let api = Api::<DynamicObject>::namespaced_with(server.client(), "a", &resource);
    assert_eq!(refused(api.list(&ListParams::default()).await).code, 404);
    server.register_dynamic(resource.clone(), true);
    let created = api.create(&Default::default(), &DynamicObject::new("g", &resource)).await.unwrap();
    assert_eq!(created.types.unwrap().api_version, "example.com/v1");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), 1);
}
