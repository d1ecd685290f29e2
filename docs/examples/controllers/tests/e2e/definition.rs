//! Two definitions of websites: the definition that the program prints, and an earlier definition that accepts any object.

use std::process::Command;
use std::time::Duration;

use e2e::{Cluster, eventually};
use serde_json::{Value, from_slice, from_str, json};

/// A namespace with a website that was created under the earlier definition.
pub(crate) const BEFORE: &str = "before";
/// The name of that website.
pub(crate) const UNREADABLE: &str = "unreadable";

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The maximum time until the server applies a new definition.
const LIMIT: Duration = Duration::from_secs(30);

/// Installs an earlier definition, creates an unreadable website, and installs the definition that `website crd` prints.
pub(crate) fn install(cluster: &Cluster) {
    let printed = Command::new(env!("CARGO_BIN_EXE_website")).arg("crd").output().unwrap();
    let definition: Value = from_slice(&printed.stdout).unwrap();
    let mut lax = definition.clone();
    lax["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] =
        json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    write(cluster, "POST", DEFINITIONS, &lax);
    write(cluster, "POST", "/api/v1/namespaces", &json!({"metadata": {"name": BEFORE}}));
    let sites = format!("/apis/examples.flyball.rs/v1/namespaces/{BEFORE}/websites");
    let unreadable = |name| {
        let spec = json!({"html": 5, "replicas": "many"});
        json!({"apiVersion": "examples.flyball.rs/v1", "kind": "Website", "metadata": {"name": name}, "spec": spec})
            .to_string()
    };
    let status = |name| cluster.request("POST", &sites, Some(&unreadable(name))).unwrap().status;
    eventually(LIMIT, || (status(UNREADABLE) == 201).then_some(())).expect("it accepts any object");

    let path = format!("{DEFINITIONS}/websites.examples.flyball.rs");
    // The definition is read again, because the server has written its status in the meantime.
    let mut installed: Value = from_str(&cluster.request("GET", &path, None).unwrap().body).unwrap();
    installed["spec"] = definition["spec"].clone();
    write(cluster, "PUT", &path, &installed);
    let sites = format!("{sites}?dryRun=All");
    let status = || cluster.request("POST", &sites, Some(&unreadable("another"))).unwrap().status;
    eventually(LIMIT, || (status() == 422).then_some(())).expect("it accepts only websites");
}

fn write(cluster: &Cluster, method: &str, path: &str, object: &Value) {
    let reply = cluster.request(method, path, Some(&object.to_string())).unwrap();
    assert!(matches!(reply.status, 200 | 201), "{method} {path}: {reply:?}");
}
