use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use e2e::{Cluster, eventually};
use flyball_sync::{Clock, Monotonic};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
const REPLICAS: usize = 3;

fn replay(kubeconfig: &Path, args: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_replay"));
    command.args(["--kube", "--json"]).args(args).env("KUBECONFIG", kubeconfig);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts")
}

/// Waits until the program has ended. Returns its exit status, the JSON object on stdout, and stderr.
fn ended(child: Child) -> (i32, Value, String) {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the program cannot be awaited");
    let stdout = serde_json::from_slice(&stdout).unwrap_or_default();
    (status.code().expect("it was not killed"), stdout, String::from_utf8(stderr).expect("it prints text"))
}

fn ask(cluster: &Cluster, method: &str, path: &str, body: &Value) -> Value {
    let body = (!body.is_null()).then(|| body.to_string());
    let reply = cluster.request(method, path, body.as_deref()).unwrap();
    assert!((200..300).contains(&reply.status), "{method} {path}: {}", reply.body);
    serde_json::from_str(&reply.body).unwrap()
}

const PODS: &str = "/api/v1/namespaces/default/pods";

fn pods(cluster: &Cluster) -> Vec<Value> {
    ask(cluster, "GET", PODS, &Value::Null)["items"].as_array().unwrap().clone()
}

/// Sets whether a pod is ready. The test does this itself, because there is no kubelet.
fn set_ready(cluster: &Cluster, mut pod: Value, address: &str, ready: bool) {
    let path = format!("{PODS}/{}/status", pod["metadata"]["name"].as_str().unwrap());
    let ready = if ready { "True" } else { "False" };
    pod["status"] = json!({
        "phase": "Running", "podIP": address, "podIPs": [{"ip": address}],
        "conditions": [{"type": "Ready", "status": ready}],
    });
    ask(cluster, "PUT", &path, &pod);
}

/// Creates a ReplicaSet and a Service, and makes their pods ready. Waits until Kubernetes' own controllers report this.
fn rolled_out(cluster: &mut Cluster) {
    cluster.start_controller_manager(&["replicaset-controller", "endpointslice-controller"]).unwrap();
    ask(cluster, "POST", "/api/v1/nodes", &json!({"metadata": {"name": "node"}}));
    let template = json!({
        "metadata": {"labels": {"app": "web"}},
        "spec": {"nodeName": "node", "containers": [{"name": "main", "image": "none"}]},
    });
    let spec =
        json!({"replicas": REPLICAS, "selector": {"matchLabels": {"app": "web"}}, "template": template});
    let replicaset = json!({"metadata": {"name": "web"}, "spec": spec});
    ask(cluster, "POST", "/apis/apps/v1/namespaces/default/replicasets", &replicaset);
    let service =
        json!({"metadata": {"name": "web"}, "spec": {"selector": {"app": "web"}, "ports": [{"port": 80}]}});
    ask(cluster, "POST", "/api/v1/namespaces/default/services", &service);
    assert!(eventually(LIMIT, || (pods(cluster).len() == REPLICAS).then_some(())).is_some());
    for (number, pod) in pods(cluster).into_iter().enumerate() {
        set_ready(cluster, pod, &format!("10.1.0.{number}"), true);
    }
    let reported = eventually(LIMIT, || {
        let replicaset =
            ask(cluster, "GET", "/apis/apps/v1/namespaces/default/replicasets/web", &Value::Null);
        let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices?labelSelector=kubernetes.io/service-name=web";
        let slices = ask(cluster, "GET", slices, &Value::Null);
        let ready = slices.to_string().matches("\"ready\":true").count();
        (replicaset["status"]["readyReplicas"] == json!(REPLICAS) && ready == REPLICAS).then_some(())
    });
    assert!(reported.is_some(), "Kubernetes' controllers did not report the ready pods");
}

/// Writes a copy of the kubeconfig with a different current context, and returns the path of the copy.
fn context(cluster: &Cluster, name: &str) -> PathBuf {
    let mut config: Value = serde_json::from_slice(&fs::read(cluster.kubeconfig()).unwrap()).unwrap();
    config["current-context"] = json!(name);
    let path = cluster.folder().join(format!("kubeconfig-{name}"));
    fs::write(&path, config.to_string()).unwrap();
    path
}

#[test]
#[ignore = "needs an API server: cargo xtask e2e"]
fn it_agrees_with_the_originals_and_sees_what_changes() {
    let mut cluster = Cluster::start().unwrap();
    rolled_out(&mut cluster);
    let child = replay(cluster.kubeconfig(), &["--seconds", "6"]);
    // This change may happen before or during the run; the final state is the same in both cases.
    let last = pods(&cluster).pop().unwrap();
    set_ready(&cluster, last, "10.1.0.9", true);
    let (status, summary, stderr) = ended(child);
    assert_eq!(status, 0, "{stderr}");
    // The second Service is one that the API server creates itself. It has no selector.
    let objects = ["pods", "replicasets", "services"].map(|kind| summary["objects"][kind].as_u64().unwrap());
    assert_eq!(objects, [REPLICAS as u64, 1, 2], "{summary}");
    assert_eq!(summary["checked"], json!({"replicasets": 1, "services": 1}), "{summary}");
    assert_eq!((&summary["agree"], &summary["differences"]), (&summary["checked"], &json!(0)), "{summary}");
    assert_eq!((&summary["lasting"], &summary["skipped"]), (&json!([]), &json!(0)), "{summary}");
    assert!(summary["reconciles"].as_u64().unwrap() >= 2, "{summary}");
    assert!(stderr.contains("1 of 1 ReplicaSets, 1 of 1 Services"), "{stderr}");
}

#[test]
#[ignore = "needs an API server: cargo xtask e2e"]
fn what_the_cluster_does_not_catch_up_with_is_named() {
    let mut cluster = Cluster::start().unwrap();
    rolled_out(&mut cluster);
    cluster.stop_controller_manager().unwrap();
    let child = replay(cluster.kubeconfig(), &["--seconds", "15"]);
    let last = pods(&cluster).pop().unwrap();
    let address = last["status"]["podIP"].as_str().unwrap().to_owned();
    set_ready(&cluster, last, &address, false);
    let (status, summary, stderr) = ended(child);
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(summary["differences"], 2, "{summary}");
    let names: Vec<&str> =
        summary["lasting"].as_array().unwrap().iter().map(|one| one["what"].as_str().unwrap()).collect();
    assert!(names.contains(&"ReplicaSet default/web") && names.contains(&"Service default/web"), "{summary}");
    let replicaset =
        summary["lasting"].as_array().unwrap().iter().find(|one| one["what"] == "ReplicaSet default/web");
    let replicaset = replicaset.unwrap();
    assert_eq!(
        (&replicaset["ours"], &replicaset["theirs"]),
        (&json!("2 of 3 ready"), &json!("3 of 3 ready"))
    );
}

#[test]
#[ignore = "needs an API server: cargo xtask e2e"]
fn missing_permission_is_reported() {
    let cluster = Cluster::start().unwrap();
    let (status, summary, stderr) = ended(replay(&context(&cluster, "nobody"), &["--seconds", "30"]));
    assert_eq!((status, summary), (1, Value::Null), "{stderr}");
    assert!(
        stderr.contains("is forbidden") && stderr.contains("needs the verbs `list` and `watch`"),
        "{stderr}"
    );
}

#[cfg(unix)]
#[test]
#[ignore = "needs an API server: cargo xtask e2e"]
fn ctrl_c_ends_it_in_order_within_a_second() {
    let cluster = Cluster::start().unwrap();
    let child = replay(cluster.kubeconfig(), &[]);
    // No message is sent on this channel, so `recv_timeout` waits for the whole timeout.
    let (_never, moment) = std::sync::mpsc::channel::<()>();
    assert!(moment.recv_timeout(Duration::from_secs(3)).is_err());
    let begin = Monotonic.now();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("no `kill`");
    assert!(kill.success(), "the program ended before the signal");
    let (status, summary, stderr) = ended(child);
    let took = Monotonic.now().since(begin);
    assert_eq!((status, &summary["synced"]), (130, &json!(true)), "{stderr}");
    assert!(took < Duration::from_secs(1), "{took:?}");
}
