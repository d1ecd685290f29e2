//! The output of a run.

use crate::support::{outcome, replay, small, written};

/// Returns the names of the fields in order. The name of a field of a nested object has the form `object.field`.
fn names(json: &serde_json::Value, prefix: &str) -> Vec<String> {
    let object = json.as_object().expect("not an object");
    let inner = object.iter().flat_map(|(name, value)| {
        let name = format!("{prefix}{name}");
        if value.is_object() { names(value, &format!("{name}.")) } else { vec![name] }
    });
    inner.collect()
}

#[test]
fn json_is_one_object_with_exactly_the_fields_that_are_fixed() {
    let (status, stdout, stderr) = outcome(&["--json", "--faults", "all", "--fail", "20", "--seed", "3"]);
    assert_eq!((status, &*stderr), (0, ""), "{stdout}");
    assert_eq!(stdout.lines().count(), 1, "{stdout}");
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("stdout is not JSON");
    let mut fixed = [
        "events",
        "adds",
        "reconciles",
        "retries",
        "panics",
        "relists",
        "faults.drops",
        "faults.gone",
        "faults.panics",
        "seconds",
        "events_per_second",
        "queue_latency_us.p50",
        "queue_latency_us.p99",
        "queue_latency_us.max",
        "checked.replicasets",
        "checked.services",
        "differences",
        "converged",
    ];
    let mut found = names(&json, "");
    fixed.sort();
    found.sort();
    assert_eq!(found, fixed);
    assert_eq!(json["events"], 17_630);
    assert_eq!(json["checked"], serde_json::json!({"replicasets": 315, "services": 236}));
    assert_eq!((&json["differences"], &json["converged"]), (&0.into(), &true.into()));
    let number = |name: &str| json[name].as_f64().expect("not a number");
    assert!((number("events_per_second") * number("seconds") - 17_630.0).abs() < 1.0);
    let latency = |name: &str| json["queue_latency_us"][name].as_f64().expect("not a number");
    assert!(0.0 < latency("p50") && latency("p50") <= latency("p99") && latency("p99") <= latency("max"));
}

#[cfg(target_os = "linux")]
#[test]
fn cpu_and_memory_are_printed_on_request() {
    let path = written("usage.jsonl", &small());
    let (status, stdout, stderr) = outcome(&[&path, "--json", "--usage"]);
    assert_eq!((status, &*stderr), (0, ""), "{stdout}");
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("stdout is not JSON");
    let memory = |name: &str| json["memory"][name].as_u64().expect("not a number");
    assert!(0 < memory("before") && memory("before") <= memory("peak"), "{stdout}");
    let (cpu, seconds) = (json["cpu_seconds"].as_f64(), json["seconds"].as_f64());
    let (cpu, seconds) = (cpu.expect("not a number"), seconds.expect("it is a number"));
    let threads = std::thread::available_parallelism().expect("the number of cores is unknown").get() as f64;
    // The CPU time and the duration are measured one after the other, so the comparison has a small tolerance.
    assert!(0.0 < cpu && cpu <= seconds * (threads + 1.0) + 0.01, "{stdout}");
    let (status, stdout, _) = outcome(&[&path, "--usage"]);
    assert_eq!(status, 0, "{stdout}");
    assert!(stdout.contains("  CPU  ") && stdout.contains("MiB at most"), "{stdout}");
    // At the speed `max`, the times of the changes are not measured, so there is no latency.
    assert!(json["change_latency_us"].is_null(), "{json}");
    let (status, stdout, _) = outcome(&[&path, "--json", "--usage", "--speed", "2"]);
    assert_eq!(status, 0, "{stdout}");
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("stdout is not JSON");
    let latency = |name: &str| json["change_latency_us"][name].as_f64().expect("not a number");
    assert!(0.0 < latency("p50") && latency("p50") <= latency("max"), "{stdout}");
}

#[test]
fn a_summary_for_people_is_the_default() {
    let path = written("small.jsonl", &small());
    let (status, stdout, stderr) = outcome(&[&path, "--repeat", "0.05", "--scale", "2"]);
    assert_eq!((status, &*stderr), (0, ""), "{stdout}");
    for part in
        ["small.jsonl", "passes  ", "4 in ", "checked  2 ReplicaSets, 2 Services", "converged: 0 differences"]
    {
        assert!(stdout.contains(part), "{part:?} is missing in\n{stdout}");
    }
}

#[test]
fn a_cluster_that_settled_on_something_else_is_not_converged() {
    let mut lines = small();
    let last = lines.len() - 2;
    assert!(lines[last].contains("replicasets"));
    lines[last] = lines[last].replace("\"readyReplicas\":1", "\"readyReplicas\":0");
    let path = written("other.jsonl", &lines);
    let (status, stdout, _) = outcome(&[&path]);
    assert_eq!(status, 1, "{stdout}");
    assert!(
        stdout.contains("ReplicaSet a/r: we stored 1 of 1 ready, the cluster had 0 of 1 ready"),
        "{stdout}"
    );
    let (status, stdout, _) = outcome(&[&path, "--json"]);
    assert_eq!(status, 1, "{stdout}");
    assert!(stdout.contains(r#""differences":1,"converged":false}"#), "{stdout}");
}

#[test]
fn a_fault_that_never_fired_is_an_error() {
    // The fault `drops` cuts watches only before events, so it cannot occur in a trace without events.
    let mut lines = small();
    lines.drain(6..9);
    let path = written("no-events.jsonl", &lines);
    let (status, stdout, stderr) = outcome(&[&path, "--faults", "drops"]);
    assert_eq!(status, 1, "{stdout}");
    assert!(stderr.contains("the fault `drops` was asked for and never fired"), "{stderr}");
}

#[test]
fn a_trace_is_played_at_its_own_speed_when_asked_to() {
    let path = written("timed.jsonl", &small());
    let (status, stdout, _) = outcome(&[&path, "--speed", "2", "--json"]);
    assert_eq!(status, 0, "{stdout}");
    let json: serde_json::Value = serde_json::from_str(&stdout).expect("stdout is not JSON");
    let seconds = json["seconds"].as_f64().expect("not a number");
    assert!(seconds >= 0.1, "0.2 s of trace at twice the speed took {seconds} s");
}

#[cfg(target_os = "linux")]
#[test]
fn a_result_that_cannot_be_printed_is_an_error_unless_the_pipe_is_closed() {
    let path = written("printed.jsonl", &small());
    let full = || std::fs::File::options().write(true).open("/dev/full").expect("/dev/full is missing");
    for args in [&[&*path][..], &[&path, "--json"]] {
        let output = replay(args).stdout(full()).output().expect("the program starts");
        let stderr = String::from_utf8(output.stderr).expect("it prints text");
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with("replay: stdout: No space left on device"), "{stderr}");
    }
    let (reader, closed) = std::io::pipe().expect("no pipe");
    drop(reader);
    let output = replay(&[&path]).stdout(closed).output().expect("the program starts");
    assert_eq!((output.status.code(), &*output.stderr), (Some(0), &b""[..]));
    // If an error message cannot be printed, the program must not panic.
    let output = replay(&["/there/is/no/such/file"]).stderr(full()).output().expect("the program starts");
    assert_eq!(output.status.code(), Some(2));
}
