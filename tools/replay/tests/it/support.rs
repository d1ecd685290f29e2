//! Runs the program, and builds small traces for it.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

/// Returns a command that runs the program with these arguments.
pub(crate) fn replay(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_replay"));
    command.args(args);
    command
}

/// Runs the program; returns exit status, stdout and stderr.
pub(crate) fn outcome(args: &[&str]) -> (i32, String, String) {
    let Output { status, stdout, stderr } = replay(args).output().expect("the program starts");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    (status.code().expect("it was not killed"), text(stdout), text(stderr))
}

/// Returns the content of the file with the recorded trace.
pub(crate) fn recorded() -> Vec<u8> {
    fs::read(concat!(env!("CARGO_MANIFEST_DIR"), "/data/kube-1.36-rollout.jsonl.zst"))
        .expect("the trace is missing")
}

/// Writes a file for a test, and returns its path.
pub(crate) fn file(name: &str, content: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    fs::write(&path, content).expect("the directory for tests can be written");
    path
}

const RESOURCES: [&str; 6] = ["pods", "services", "nodes", "deployments", "replicasets", "endpointslices"];

/// Returns the lines of a small trace: one ReplicaSet with one pod, and one Service. The pod becomes ready.
pub(crate) fn small() -> Vec<String> {
    let pod = |version: u32, ready: &str| {
        format!(
            r#"{{"metadata":{{"name":"p","namespace":"a","uid":"u1","resourceVersion":"{version}","labels":{{"app":"x"}},"ownerReferences":[{{"kind":"ReplicaSet","name":"r","uid":"u2","controller":true}}]}},"status":{{"podIP":"10.0.0.1","conditions":[{{"type":"Ready","status":"{ready}"}}]}}}}"#
        )
    };
    let replicaset = r#"{"metadata":{"name":"r","namespace":"a","uid":"u2","resourceVersion":"3"},"status":{"replicas":1,"readyReplicas":1}}"#;
    let service = r#"{"metadata":{"name":"s","namespace":"a","uid":"u3","resourceVersion":"4"},"spec":{"selector":{"app":"x"}}}"#;
    let slice = r#"{"metadata":{"name":"s-1","namespace":"a","uid":"u4","resourceVersion":"5","labels":{"kubernetes.io/service-name":"s"}},"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}}]}"#;
    let list = |resource: &str, kind: &str, version: u32, items: &str| {
        format!(
            r#"{{"t":0.5,"resource":"{resource}","type":"{kind}","object":{{"metadata":{{"resourceVersion":"{version}"}},"items":[{items}]}}}}"#
        )
    };
    let items = |resource: &str| match resource {
        "replicasets" => replicaset,
        "services" => service,
        "endpointslices" => slice,
        _ => "",
    };
    let mut lines: Vec<String> =
        RESOURCES.iter().map(|resource| list(resource, "LIST", 10, items(resource))).collect();
    let event = |t: f64, kind: &str, object: &str| {
        format!(r#"{{"t":{t},"resource":"pods","type":"{kind}","object":{object}}}"#)
    };
    lines.push(event(1.0, "ADDED", &pod(11, "False")));
    lines.push(event(1.1, "BOOKMARK", r#"{"metadata":{"resourceVersion":"12"}}"#));
    lines.push(event(1.2, "MODIFIED", &pod(13, "True")));
    lines.extend(RESOURCES.iter().map(|resource| {
        let pod = pod(13, "True");
        list(resource, "FINAL", 20, if *resource == "pods" { &pod } else { items(resource) })
    }));
    lines
}

/// Writes the lines to a file; returns its path.
pub(crate) fn written(name: &str, lines: &[String]) -> String {
    file(name, (lines.join("\n") + "\n").as_bytes()).display().to_string()
}
