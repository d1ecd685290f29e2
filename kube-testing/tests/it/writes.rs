use super::{config_map, config_maps, deployment, refused, server};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{from_value, json};

#[tokio::test(start_paused = true)]
async fn create_sets_server_side_metadata() {
    let server = server();
    let api = config_maps(&server);
    let made = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    assert_eq!(made.metadata.resource_version, Some(server.resource_version().to_string()));
    assert_eq!(made.metadata.namespace.as_deref(), Some("default"));
    assert!(made.metadata.uid.is_some() && made.metadata.creation_timestamp.is_some());
    // A ConfigMap has no spec, so it has no generation.
    assert_eq!(made.metadata.generation, None);

    let again = refused(api.create(&PostParams::default(), &config_map("a", "2")).await);
    assert_eq!((again.code, again.reason.as_str()), (409, "AlreadyExists"));
    assert_eq!(
        refused(api.create(&PostParams::default(), &made).await).code,
        400,
        "a new object must not have a version"
    );
    let nameless = refused(api.create(&PostParams::default(), &ConfigMap::default()).await);
    assert_eq!((nameless.code, nameless.reason.as_str()), (422, "Invalid"));
}

#[tokio::test(start_paused = true)]
async fn names_are_generated_and_differ() {
    let server = server();
    let api = config_maps(&server);
    let mut wanted = ConfigMap::default();
    wanted.metadata.generate_name = Some("a-".into());
    for _ in 0..100 {
        let made = api.create(&PostParams::default(), &wanted).await.unwrap();
        let name = made.metadata.name.unwrap();
        assert!(name.starts_with("a-") && name.len() == 7, "{name}");
    }
    assert_eq!(server.list::<ConfigMap>().len(), 100);
}

#[tokio::test(start_paused = true)]
async fn a_write_on_an_old_version_is_a_conflict() {
    let server = server();
    let api = config_maps(&server);
    let old = server.put(&config_map("a", "1"));
    let mut mine = old.clone();
    mine.data = config_map("a", "2").data;
    let new = api.replace("a", &PostParams::default(), &mine).await.unwrap();
    assert_ne!(new.metadata.resource_version, old.metadata.resource_version);

    mine.data = config_map("a", "3").data;
    let conflict = refused(api.replace("a", &PostParams::default(), &mine).await);
    assert_eq!((conflict.code, conflict.reason.as_str()), (409, "Conflict"));
    assert!(conflict.message.contains("the object has been modified"), "{}", conflict.message);
    let patch = Patch::Merge(json!({"metadata": {"resourceVersion": old.metadata.resource_version}}));
    assert!(refused(api.patch("a", &PatchParams::default(), &patch).await).is_conflict());
    // Without a `resourceVersion`, the last write wins.
    api.replace("a", &PostParams::default(), &config_map("a", "4")).await.unwrap();
    assert!(refused(api.replace("b", &PostParams::default(), &config_map("b", "4")).await).is_not_found());
    // A different `uid`, or a different name in the body, is refused.
    let mut other = config_map("a", "5");
    other.metadata.uid = Some("another".into());
    assert!(refused(api.replace("a", &PostParams::default(), &other).await).is_conflict());
    assert_eq!(refused(api.replace("a", &PostParams::default(), &config_map("b", "5")).await).code, 400);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_changes_nothing_takes_no_version() {
    let server = server();
    let api = config_maps(&server);
    let made = api.create(&PostParams::default(), &config_map("a", "1")).await.unwrap();
    let version = server.resource_version();
    assert_eq!(api.replace("a", &PostParams::default(), &made).await.unwrap(), made);
    let patch = Patch::Merge(json!({"data": {"value": "1"}}));
    assert_eq!(api.patch("a", &PatchParams::default(), &patch).await.unwrap(), made);
    assert_eq!(server.resource_version(), version);
}

#[tokio::test(start_paused = true)]
async fn status_is_written_apart_and_only_the_spec_raises_the_generation() {
    let server = server();
    let api = Api::<Deployment>::default_namespaced(server.client());
    let mut wanted = deployment(1);
    wanted.status = Some(Default::default());
    let made = api.create(&PostParams::default(), &wanted).await.unwrap();
    assert_eq!((made.metadata.generation, made.status), (Some(1), None), "a new object has no status");

    let status = Patch::Merge(json!({"status": {"replicas": 3}, "spec": {"replicas": 9}}));
    let told = api.patch_status("a", &PatchParams::default(), &status).await.unwrap();
    assert_eq!(told.status.unwrap().replicas, Some(3));
    assert_eq!((told.spec.unwrap().replicas, told.metadata.generation), (Some(1), Some(1)));

    let wish = Patch::Merge(json!({"spec": {"replicas": 2}, "status": {"replicas": 9}}));
    let told = api.patch("a", &PatchParams::default(), &wish).await.unwrap();
    assert_eq!((told.spec.unwrap().replicas, told.metadata.generation), (Some(2), Some(2)));
    assert_eq!(told.status.unwrap().replicas, Some(3));

    let label = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}, "generation": 77}}));
    let told = api.patch("a", &PatchParams::default(), &label).await.unwrap();
    assert_eq!(told.metadata.generation, Some(2));
}

#[tokio::test(start_paused = true)]
async fn patches_merge_and_edit() {
    let server = server();
    let api = config_maps(&server);
    server.put(&config_map("a", "1"));
    let merge = Patch::Merge(json!({"data": {"value": null, "other": "2"}}));
    let told = api.patch("a", &PatchParams::default(), &merge).await.unwrap();
    assert_eq!(json!(told.data), json!({"other": "2"}));

    let edit = |operations| {
        let patch = from_value::<json_patch::Patch>(operations).unwrap();
        Patch::<()>::Json(patch)
    };
    let good = edit(json!([
        {"op": "test", "path": "/data/other", "value": "2"},
        {"op": "replace", "path": "/data/other", "value": "3"},
    ]));
    let told = api.patch("a", &PatchParams::default(), &good).await.unwrap();
    assert_eq!(json!(told.data), json!({"other": "3"}));
    let refusal = refused(api.patch("a", &PatchParams::default(), &good).await);
    assert_eq!(
        (refusal.code, refusal.reason.as_str()),
        (422, "Invalid"),
        "the test operation of the patch must fail"
    );

    assert!(refused(api.patch("c", &PatchParams::default(), &merge).await).is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_object_is_removed_or_waits_for_its_finalizers() {
    let server = server();
    let api = config_maps(&server);
    server.put(&config_map("a", "1"));
    let gone = api.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(gone.right().unwrap().is_success());
    assert!(refused(api.delete("a", &DeleteParams::default()).await).is_not_found());

    let mut held = config_map("b", "1");
    held.metadata.finalizers = Some(vec!["example.com/x".into(), "example.com/y".into()]);
    let held = server.put(&held);
    let left = api.delete("b", &DeleteParams::default()).await.unwrap().left().unwrap();
    assert!(left.metadata.deletion_timestamp.is_some());
    assert_ne!(left.metadata.resource_version, held.metadata.resource_version);
    let version = server.resource_version();
    api.delete("b", &DeleteParams::default()).await.unwrap();
    assert_eq!(server.resource_version(), version, "a second deletion must not write");
    // A client cannot change the deletion timestamp.
    let undelete = Patch::Merge(json!({"metadata": {"deletionTimestamp": null}}));
    let told = api.patch("b", &PatchParams::default(), &undelete).await.unwrap();
    assert!(told.metadata.deletion_timestamp.is_some());

    let release = |finalizers: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    api.patch("b", &PatchParams::default(), &release(&["example.com/y"])).await.unwrap();
    assert!(api.get("b").await.is_ok());
    api.patch("b", &PatchParams::default(), &release(&[])).await.unwrap();
    assert!(refused(api.get("b").await).is_not_found());
}

#[tokio::test(start_paused = true)]
async fn a_delete_may_be_of_one_object_only() {
    let server = server();
    let api = config_maps(&server);
    let uid = server.put(&config_map("a", "1")).metadata.uid;
    let of = |uid| {
        let preconditions = Some(Preconditions { uid, resource_version: None });
        DeleteParams { preconditions, ..Default::default() }
    };
    assert!(refused(api.delete("a", &of(Some("another".into()))).await).is_conflict());
    assert!(api.delete("a", &of(uid)).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_collection_is_deleted() {
    let server = server();
    let api = config_maps(&server);
    for name in ["a", "b", "c"] {
        server.put(&config_map(name, "1"));
    }
    let some = ListParams::default().fields("metadata.name!=b");
    let deleted = api.delete_collection(&DeleteParams::default(), &some).await.unwrap();
    assert_eq!(deleted.left().unwrap().items.len(), 2);
    assert_eq!(super::names(&server.list()), ["b"]);
}

#[tokio::test(start_paused = true)]
async fn kube_runtimes_finalizer_works() {
    use kube::runtime::controller::Action;
    use kube::runtime::finalizer::{Event, finalizer};
    use std::sync::Arc;

    let server = server();
    let api = config_maps(&server);
    server.put(&config_map("a", "1"));
    let run = async |expected: &str| {
        let object = Arc::new(api.get("a").await.unwrap());
        let reconcile = async |event| {
            let is = if matches!(event, Event::Apply(_)) { "apply" } else { "cleanup" };
            assert_eq!(is, expected);
            Ok::<_, std::io::Error>(Action::await_change())
        };
        finalizer(&api, "example.com/x", object, reconcile).await.unwrap();
    };
    run("apply").await;
    run("apply").await;
    api.delete("a", &DeleteParams::default()).await.unwrap();
    run("cleanup").await;
    assert!(server.list::<ConfigMap>().is_empty());
}

#[tokio::test(start_paused = true)]
async fn an_object_that_is_deleted_takes_no_new_finalizers() {
    let server = server();
    let api = config_maps(&server);
    let mut held = config_map("a", "1");
    held.metadata.finalizers = Some(vec!["example.com/x".into(), "example.com/y".into()]);
    server.put(&held);
    api.delete("a", &DeleteParams::default()).await.unwrap();
    let set = |finalizers: &[&str]| Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    let late = set(&["example.com/x", "example.com/z"]);
    let refusal = refused(api.patch("a", &PatchParams::default(), &late).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (422, "Invalid"));
    let expected = "ConfigMap \"a\" is invalid: metadata.finalizers: Forbidden: no new finalizers can be added if \
                    the object is being deleted, found new finalizers []string{\"example.com/z\"}";
    assert_eq!(refusal.message, expected);
    let fewer = api.patch("a", &PatchParams::default(), &set(&["example.com/y"])).await.unwrap();
    assert_eq!(fewer.metadata.finalizers.unwrap(), ["example.com/y"]);
}

#[tokio::test(start_paused = true)]
async fn leases_and_custom_resources_are_not_replaced_without_a_version() {
    let server = server();
    server.register::<Lease>();
    let custom = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Site"));
    server.register_dynamic(custom.clone(), true);
    let leases = Api::<Lease>::default_namespaced(server.client());
    let lease: Lease = from_value(json!({"metadata": {"name": "l"}})).unwrap();
    let made = leases.create(&PostParams::default(), &lease).await.unwrap();
    let refusal = refused(leases.replace("l", &PostParams::default(), &lease).await);
    assert_eq!((refusal.code, refusal.reason.as_str()), (422, "Invalid"));
    let expected = "leases.coordination.k8s.io \"l\" is invalid: metadata.resourceVersion: \
                    Invalid value: 0: must be specified for an update";
    assert_eq!(refusal.message, expected);
    leases.replace("l", &PostParams::default(), &made).await.unwrap();

    let sites = Api::<DynamicObject>::default_namespaced_with(server.client(), &custom);
    let site = DynamicObject::new("s", &custom);
    let made = sites.create(&PostParams::default(), &site).await.unwrap();
    assert_eq!(refused(sites.replace("s", &PostParams::default(), &site).await).code, 422);
    assert_eq!(refused(sites.replace_status("s", &PostParams::default(), &site).await).code, 422);
    sites.replace("s", &PostParams::default(), &made).await.unwrap();
    // An update whose body contains no name is refused.
    let maps = config_maps(&server);
    server.put(&config_map("a", "1"));
    assert_eq!(refused(maps.replace("a", &PostParams::default(), &ConfigMap::default()).await).code, 400);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_answers_and_stores_nothing() {
    let server = server();
    let api = config_maps(&server);
    let dry = PostParams { dry_run: true, ..Default::default() };
    let made = api.create(&dry, &config_map("b", "1")).await.unwrap();
    assert_eq!((made.metadata.resource_version, made.metadata.uid.is_some()), (None, true));
    let mut held = config_map("a", "1");
    held.metadata.finalizers = Some(vec!["example.com/x".into()]);
    let kept = server.put(&held);
    let (version, uids) = (server.resource_version(), kept.metadata.uid.clone());
    let replaced = api.replace("a", &dry, &config_map("a", "2")).await.unwrap();
    assert_eq!(replaced.data, config_map("a", "2").data);
    assert_eq!(
        (replaced.metadata.resource_version, replaced.metadata.uid),
        (kept.metadata.resource_version.clone(), uids)
    );
    let patch = Patch::Merge(json!({"data": {"value": "3"}}));
    let params = PatchParams { dry_run: true, ..Default::default() };
    assert_eq!(api.patch("a", &params, &patch).await.unwrap().data, config_map("a", "3").data);
    let delete = DeleteParams { dry_run: true, ..Default::default() };
    let left = api.delete("a", &delete).await.unwrap().left().unwrap();
    assert!(left.metadata.deletion_timestamp.is_some());
    api.delete_collection(&delete, &ListParams::default()).await.unwrap();
    assert_eq!(refused(api.create(&dry, &config_map("a", "1")).await).reason, "AlreadyExists");
    assert_eq!((server.list::<ConfigMap>(), server.resource_version()), (vec![kept], version));
}

#[tokio::test(start_paused = true)]
async fn a_deletion_in_the_foreground_waits_for_the_dependents_that_block_it() {
    let server = server();
    let api = config_maps(&server);
    let owner = server.put(&config_map("owner", "1"));
    let owned = |name: &str, owner: &ConfigMap, blocks: bool, finalizers: &[&str]| -> ConfigMap {
        let of = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "name": owner.name_any(), "uid": owner.metadata.uid,
            "blockOwnerDeletion": blocks,
        });
        let metadata = json!({"name": name, "ownerReferences": [of], "finalizers": finalizers});
        server.put(&from_value(json!({ "metadata": metadata })).unwrap())
    };
    let child = owned("child", &owner, true, &[]);
    owned("grandchild", &child, true, &["example.com/x"]);
    owned("other", &owner, false, &[]);
    let left = api.delete("owner", &DeleteParams::foreground()).await.unwrap().left().unwrap();
    assert_eq!(left.metadata.finalizers.unwrap(), ["foregroundDeletion"]);
    let waiting = server.list::<ConfigMap>();
    assert!(waiting.iter().all(|map| map.metadata.deletion_timestamp.is_some()), "{waiting:?}");
    // `other`, the dependent that does not block the deletion, was deleted immediately.
    assert_eq!(super::names(&waiting), ["child", "grandchild", "owner"]);
    let free = Patch::Merge(json!({"metadata": {"finalizers": []}}));
    api.patch("grandchild", &PatchParams::default(), &free).await.unwrap();
    assert!(server.list::<ConfigMap>().is_empty(), "the deletion must complete from the dependents up");

    // With `orphan`, the dependents lose their reference to the owner.
    let owner = server.put(&config_map("owner", "1"));
    owned("child", &owner, true, &[]);
    let delete = DeleteParams::orphan();
    let left = api.delete("owner", &delete).await.unwrap().left().unwrap();
    assert_eq!(left.metadata.finalizers.unwrap(), ["orphan"]);
    assert_eq!(super::names(&server.list()), ["child"]);
    let child = api.get("child").await.unwrap();
    assert!(child.owner_references().is_empty());
    // A background deletion does not wait for dependents.
    assert!(api.delete("child", &DeleteParams::background()).await.unwrap().right().is_some());
}

#[tokio::test]
async fn an_object_that_is_deleted_goes_with_the_last_finalizer_that_a_test_takes_out() {
    let server = server();
    let mut map: ConfigMap = from_value(
        json!({"metadata": {"name": "a", "namespace": "default", "finalizers": ["example.com/f"]}}),
    )
    .unwrap();
    server.put(&map);
    let maps = Api::<ConfigMap>::namespaced(server.client(), "default");
    maps.delete("a", &DeleteParams::default()).await.unwrap();
    assert!(
        server.get::<ConfigMap>("default", "a").is_some_and(|map| map.metadata.deletion_timestamp.is_some())
    );
    map.metadata.finalizers = None;
    server.put(&map);
    assert!(server.get::<ConfigMap>("default", "a").is_none());
}
