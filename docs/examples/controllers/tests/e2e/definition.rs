//! Two definitions of the resource Website: the one that the program prints, and a lax one, which is installed first and accepts any `spec`.

use std::process::Command;
use std::time::Duration;

use e2e::{Cluster, eventually};
use serde_json::{Value, from_slice, from_str, json};

/// The namespace with the website that is created under the lax definition.
pub(crate) const BEFORE: &str = "before";
/// The name of the website in [`BEFORE`]; the controller cannot decode it.
pub(crate) const UNREADABLE: &str = "unreadable";

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
/// The time within which the server must apply a new definition.
const LIMIT: Duration = Duration::from_secs(30);

/// Installs the lax definition, creates a website that the controller cannot decode, and then installs the definition that `website crd` prints.
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
    // The server has written the status of the definition since it was created, so its resource version has changed, and it is read again before it
    // is replaced.
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
