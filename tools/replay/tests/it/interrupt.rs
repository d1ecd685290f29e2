//! After Ctrl-C, a run shuts down in order within a second, with the exit status 130.
#![cfg(unix)]

use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use flyball_sync::{Clock, Monotonic};

use crate::support::{replay, small, written};

/// Runs the program for 400 ms, sends it SIGINT, and returns its stderr.
fn interrupted(args: &[&str]) -> String {
    let mut command = replay(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    // The pipe to stdin stays open, but no data is written to it.
    let _stdin = child.stdin.take();
    // No message is sent on this channel, so `recv_timeout` waits for the whole timeout.
    let (_never, moment) = mpsc::channel::<()>();
    assert!(moment.recv_timeout(Duration::from_millis(400)).is_err());

    let begin = Monotonic.now();
    let kill = Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("no `kill`");
    assert!(kill.success(), "the program ended before the signal: {args:?}");
    let output = child.wait_with_output().expect("it ends");
    let took = Monotonic.now().since(begin);
    let stderr = String::from_utf8(output.stderr).expect("it prints text");
    assert_eq!(output.status.code(), Some(130), "{args:?}: {stderr}");
    assert!(took < Duration::from_secs(1), "{args:?} took {took:?}");
    assert!(output.stdout.is_empty(), "{args:?}: a result was printed");
    stderr
}

#[test]
fn ctrl_c_ends_a_run_in_order_within_a_second() {
    let path = written("interrupted.jsonl", &small());
    // In this run the program is idle: it waits for the time of the next event.
    let waiting = interrupted(&[&path, "--speed", "0.001"]);
    assert!(waiting.contains("interrupted after 1 of 3 places; 0 keys were left"), "{waiting}");
    // In this run the program is under full load, with retries and panics.
    let args = [
        "--scale",
        "100",
        "--repeat",
        "600",
        "--faults",
        "panics",
        "--fail",
        "90",
        "--workers",
        "64",
        "--json",
    ];
    let busy = interrupted(&[&[&*path], &args[..]].concat());
    assert!(busy.contains("replay: interrupted after "), "{busy}");
    // In this run the program is blocked in a read of a pipe into which nothing is written, so it cannot check for a stop request.
    let reading = interrupted(&["/dev/stdin"]);
    assert!(reading.contains("interrupted while the trace was read"), "{reading}");
}
