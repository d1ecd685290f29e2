//! Garbage collection. On a real cluster, the `garbage-collector-controller` of kube-controller-manager is the garbage collector.

use serde_json::{Value, json};

use crate::server::{Server, config_map, uid};

fn owned(name: &str, owners: &[(&Value, bool)], finalizers: &[&str]) -> Value {
    let owners: Vec<_> = owners
        .iter()
        .map(|(owner, blocks)| {
            let name = &owner["metadata"]["name"];
            json!({"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": uid(owner), "blockOwnerDeletion": blocks})
        })
        .collect();
    let mut map = config_map(name, "1");
    map["metadata"]["ownerReferences"] = json!(owners);
    map["metadata"]["finalizers"] = json!(finalizers);
    map
}

const MAPS: &str = "v1/configmaps";

async fn gone(on: &Server, name: &str) {
    on.until(&format!("{MAPS}/{name}"), |reply| reply.code == 404).await;
}

async fn delete(on: &Server, name: &str, policy: &str) -> Value {
    on.ask("DELETE", &format!("{MAPS}/{name}"), json!({"propagationPolicy": policy})).await.ok()
}

fn is_terminating(object: &Value) -> bool {
    object["metadata"]["deletionTimestamp"].is_string()
}

/// Runs all scripts of this file, one after the other.
pub async fn all(on: &Server) {
    dependents_go_in_the_background(on).await;
    an_owner_in_the_foreground_waits_for_those_that_block_it(on).await;
    a_circle_goes_in_the_foreground(on).await;
    orphans_stay(on).await;
    references_to_owners_that_are_gone_are_removed_while_others_are_there(on).await;
    owners_that_do_not_exist_are_gone(on).await;
    owners_of_unknown_kinds_are_not(on).await;
}

async fn dependents_go_in_the_background(on: &Server) {
    let owner = on.create(MAPS, config_map("owner", "1")).await;
    let child = on.create(MAPS, owned("child", &[(&owner, true)], &[])).await;
    on.create(MAPS, owned("grandchild", &[(&child, false)], &[])).await;
    assert_eq!(delete(on, "owner", "Background").await["kind"], "Status");
    gone(on, "child").await;
    gone(on, "grandchild").await;
}

async fn an_owner_in_the_foreground_waits_for_those_that_block_it(on: &Server) {
    let owner = on.create(MAPS, config_map("owner", "1")).await;
    on.create(MAPS, owned("blocks", &[(&owner, true)], &["flyball.test/a"])).await;
    on.create(MAPS, owned("other", &[(&owner, false)], &["flyball.test/a"])).await;
    let left = delete(on, "owner", "Foreground").await;
    assert_eq!(left["metadata"]["finalizers"], json!(["foregroundDeletion"]));
    // Both dependents are deleted, but the owner waits only for `blocks`, because only its reference has `blockOwnerDeletion`.
    for name in ["blocks", "other"] {
        on.until(&format!("{MAPS}/{name}"), |reply| is_terminating(&reply.body)).await;
    }
    on.get(&format!("{MAPS}/owner")).await.ok();
    let free = json!({"metadata": {"finalizers": null}});
    on.merge(&format!("{MAPS}/blocks"), free.clone()).await.ok();
    gone(on, "owner").await;
    on.get(&format!("{MAPS}/other")).await.ok();
    on.merge(&format!("{MAPS}/other"), free).await.ok();
}

async fn a_circle_goes_in_the_foreground(on: &Server) {
    let one = on.create(MAPS, config_map("one", "1")).await;
    let two = on.create(MAPS, owned("two", &[(&one, true)], &[])).await;
    let back = &owned("", &[(&two, true)], &[])["metadata"]["ownerReferences"];
    on.merge(&format!("{MAPS}/one"), json!({"metadata": {"ownerReferences": back}})).await.ok();
    delete(on, "one", "Foreground").await;
    gone(on, "one").await;
    gone(on, "two").await;
}

async fn orphans_stay(on: &Server) {
    let owner = on.create(MAPS, config_map("owner", "1")).await;
    on.create(MAPS, owned("child", &[(&owner, true)], &[])).await;
    let left = delete(on, "owner", "Orphan").await;
    assert_eq!(left["metadata"]["finalizers"], json!(["orphan"]));
    gone(on, "owner").await;
    let child = on.get(&format!("{MAPS}/child")).await.ok();
    assert_eq!((child["metadata"].get("ownerReferences"), is_terminating(&child)), (None, false));
    delete(on, "child", "Background").await;
}

async fn references_to_owners_that_are_gone_are_removed_while_others_are_there(on: &Server) {
    let one = on.create(MAPS, config_map("one", "1")).await;
    let two = on.create(MAPS, config_map("two", "1")).await;
    on.create(MAPS, owned("child", &[(&one, true), (&two, true)], &[])).await;
    delete(on, "one", "Background").await;
    let left = |count: usize| {
        move |reply: &crate::Reply| {
            reply.body["metadata"]["ownerReferences"].as_array().is_some_and(|owners| owners.len() == count)
        }
    };
    let child = on.until(&format!("{MAPS}/child"), left(1)).await;
    assert_eq!(child.body["metadata"]["ownerReferences"][0]["uid"], json!(uid(&two)));
    delete(on, "two", "Foreground").await;
    gone(on, "child").await;
    gone(on, "two").await;
}

/// An owner also counts as missing if a different object has its name, or if it is in a different namespace than the dependent.
async fn owners_that_do_not_exist_are_gone(on: &Server) {
    let mut never = config_map("never", "1");
    never["metadata"]["uid"] = json!("00000000-1111-4111-8111-000000000000");
    on.create(MAPS, owned("child", &[(&never, true)], &[])).await;
    gone(on, "child").await;
    let mut namesake = on.create(MAPS, config_map("namesake", "1")).await;
    namesake["metadata"]["uid"] = json!("00000000-1111-4111-8111-000000000001");
    on.create(MAPS, owned("child", &[(&namesake, true)], &[])).await;
    gone(on, "child").await;
    on.get(&format!("{MAPS}/namesake")).await.ok();

    let other = "kube-public";
    let uri = format!("/api/v1/namespaces/{other}/configmaps");
    let owner = on.create(&uri, config_map("elsewhere", "1")).await;
    on.create(MAPS, owned("child", &[(&owner, true)], &[])).await;
    gone(on, "child").await;
    on.ask("DELETE", &format!("{uri}/elsewhere"), Value::Null).await.ok();
}

/// If the garbage collector cannot look an owner up, it keeps the dependent.
async fn owners_of_unknown_kinds_are_not(on: &Server) {
    let mut child = owned("child", &[(&json!({"metadata": {"name": "x", "uid": "x"}}), true)], &[]);
    let owner = &mut child["metadata"]["ownerReferences"][0];
    owner["apiVersion"] = json!("unknown.example.com/v1");
    owner["kind"] = json!("Unknown");
    on.create(MAPS, child).await;
    // The failed look-up does not block the garbage collector: a dependent that is created later is deleted.
    let mut never = config_map("never", "1");
    never["metadata"]["uid"] = json!("00000000-1111-4111-8111-000000000002");
    on.create(MAPS, owned("later", &[(&never, true)], &[])).await;
    gone(on, "later").await;
    assert!(!is_terminating(&on.get(&format!("{MAPS}/child")).await.ok()));
}
