//! After a bad file or an invalid argument, the exit status is 2, and stderr contains the cause and, for a file, the line number.

use crate::support::{file, outcome, recorded, small, written};

fn refused(name: &str, lines: &[String], line: usize, cause: &str) {
    let path = written(&format!("{name}.jsonl"), lines);
    let (status, stdout, stderr) = outcome(&[&path, "--json"]);
    assert_eq!((status, &*stdout), (2, ""), "{name}: {stderr}");
    let expected = format!("line {line}: {cause}");
    assert!(stderr.contains(&expected), "{name}: {stderr:?} does not say {expected:?}");
}

fn changed(line: usize, change: impl FnOnce(&str) -> String) -> Vec<String> {
    let mut lines = small();
    lines[line - 1] = change(&lines[line - 1]);
    lines
}

#[test]
fn a_trace_with_a_bad_line_is_refused_by_line_and_cause() {
    let without = |line: usize| {
        let mut lines = small();
        lines.remove(line - 1);
        lines
    };
    let mut blank = small();
    blank.insert(3, String::new());
    let twice = |line: usize| {
        let mut lines = small();
        lines.insert(line, lines[line - 1].clone());
        lines
    };
    refused("not-json", &["nonsense".into()], 1, "bad JSON: expected ident (column 2)");
    refused("blank-line", &blank, 4, "bad JSON: EOF");
    refused("cut-line", &changed(7, |line| line[..60].into()), 7, "bad JSON: EOF while parsing");
    refused("not-a-line", &changed(7, |_| "[]".into()), 7, "not a trace line");
    refused(
        "no-type",
        &changed(7, |line| line.replace("type", "tipe")),
        7,
        "not a trace line: missing field",
    );
    refused(
        "no-uid",
        &changed(7, |line| line.replacen("uid", "xid", 1)),
        7,
        "not a trace line: missing field `uid`",
    );
    refused(
        "unknown-resource",
        &changed(7, |line| line.replace("pods", "jobs")),
        7,
        "unknown resource \"jobs\"",
    );
    refused("unknown-type", &changed(7, |line| line.replace("ADDED", "ADD")), 7, "unknown type \"ADD\"");
    refused("no-time", &changed(7, |line| line.replace("\"t\":1", "\"t\":-1")), 7, "time -1 is not a time");
    refused(
        "late",
        &changed(7, |line| line.replace("\"t\":1", "\"t\":1e10")),
        7,
        "time 10000000000 is not a time",
    );
    refused(
        "too-late",
        &changed(7, |line| line.replace("\"t\":1", "\"t\":1e999")),
        7,
        "bad JSON: number out of range",
    );
    refused(
        "no-items",
        &changed(1, |line| line.replace("items", "itemz")),
        1,
        "not a trace line: missing field `items`",
    );
    refused(
        "no-final-items",
        &changed(10, |line| line.replace("items", "itemz")),
        10,
        "not a trace line: missing field `items`",
    );
    refused(
        "bad-final-item",
        &changed(10, |line| line.replacen("uid", "xid", 1)),
        10,
        "not a trace line: missing field `uid`",
    );
    refused(
        "no-name",
        &changed(7, |line| line.replace("\"name\":\"p\"", "\"name\":\"\"")),
        7,
        "not a trace line: metadata.name is empty",
    );
    for line in [5, 14] {
        let twice = |line: &str| {
            let (before, items) = line.split_once("\"items\":[").expect("the line is not a list");
            let item = items.strip_suffix("]}}").expect("the list does not end the line");
            format!("{before}\"items\":[{item},{item}]}}}}")
        };
        let lines = changed(line, twice);
        refused(&format!("twice-in-{line}"), &lines, line, "two objects of the list are named \"a/r\"");
    }
    let mut nothing = small();
    for line in [11, 14] {
        let (before, _) = nothing[line - 1].split_once("\"items\":").expect("the line is not a list");
        nothing[line - 1] = format!("{before}\"items\":null}}}}");
    }
    refused("nothing", &nothing, 16, "the trace has nothing to compare");

    refused(
        "no-version",
        &changed(7, |line| line.replace("\"11\"", "\"x\"")),
        7,
        "not a trace line: resourceVersion \"x\" is not a number",
    );
    refused(
        "version-back",
        &changed(9, |line| line.replace("\"13\"", "\"9\"")),
        9,
        "resourceVersion of pods goes back",
    );
    refused(
        "version-twice",
        &changed(9, |line| line.replace("\"13\"", "\"12\"")),
        9,
        "resourceVersion 12 of pods",
    );
    refused("event-before-list", &without(1), 6, "ADDED of pods before its LIST");
    refused("final-before-list", &without(2), 10, "FINAL of services before its LIST");
    refused("second-list", &twice(2), 3, "a second LIST of services");
    refused("second-final", &twice(10), 11, "FINAL of pods after its FINAL");
    refused("no-final", &small()[..9], 10, "the trace ends without a FINAL of pods");
    refused("no-final-of-one", &without(14), 15, "the trace ends without a FINAL of replicasets");
    refused("only-a-list", &small()[..1], 2, "the trace ends without a FINAL of pods");
    refused("empty-line", &[], 1, "bad JSON: EOF");
}

#[cfg(unix)]
#[test]
fn a_line_without_an_end_is_refused() {
    let (status, stdout, stderr) = outcome(&["/dev/zero"]);
    assert_eq!((status, &*stdout), (2, ""), "{stderr}");
    assert!(stderr.contains("/dev/zero: line 1: line too long"), "{stderr}");
}

#[test]
fn a_file_that_cannot_be_read_is_refused() {
    let (status, _, stderr) = outcome(&["/there/is/no/such/file"]);
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("/there/is/no/such/file: No such file"), "{stderr}");
    let (status, _, stderr) = outcome(&[env!("CARGO_TARGET_TMPDIR")]);
    assert_eq!(status, 2, "{stderr}");
    assert!(stderr.contains("is a directory"), "{stderr}");

    let refused = |name: &str, content: &[u8], cause: &str| {
        let (status, stdout, stderr) = outcome(&[&file(name, content).display().to_string()]);
        assert_eq!((status, &*stdout), (2, ""), "{name}: {stderr}");
        assert!(stderr.contains(cause), "{name}: {stderr:?} does not say {cause:?}");
    };
    let trace = recorded();
    refused("empty.zst", b"", "line 1: the trace is empty");
    refused("truncated.zst", &trace[..trace.len() / 2], "bad zstd data: it is cut off");
    refused("header-only.zst", &trace[..8], "line 1: bad zstd data: it is cut off");
    refused("three-bytes.zst", &trace[..3], "line 1: bad JSON");
    refused("binary", &[0, 159, 146, 150], "line 1: bad JSON");
    let mut corrupt = trace;
    let middle = corrupt.len() / 2;
    corrupt[middle..middle + 64].fill(0x55);
    refused("corrupt.zst", &corrupt, ": line ");
}

#[test]
fn senseless_arguments_are_refused_with_their_cause() {
    for (args, cause) in [
        (&["--workers", "0"][..], "0 is not in 1..=4096"),
        (&["--workers", "-1"], "--workers"),
        (&["--workers", "many"], "invalid digit"),
        (&["--fail", "100"], "100 is not in 0..=99"),
        (&["--fail", "-5"], "--fail"),
        (&["--faults", "floods"], "possible values: none, drops, gone, panics, all"),
        (&["--speed", "-1"], "between 0.001 and 1000000"),
        (&["--speed", "0"], "between 0.001 and 1000000"),
        (&["--speed", "NaN"], "between 0.001 and 1000000"),
        (&["--speed", "fast"], "neither `max` nor a number"),
        (&["--repeat", "-1"], "between 0 and 1000000 seconds"),
        (&["--repeat", "soon"], "not a number"),
        (&["--scale", "0"], "0 is not in 1..=1000"),
        (&["--seed", "x"], "invalid digit"),
        (&["--unknown"], "--unknown"),
        (&["one", "two"], "two"),
    ] {
        let (status, stdout, stderr) = outcome(args);
        assert_eq!((status, &*stdout), (2, ""), "{args:?}: {stderr}");
        assert!(stderr.contains(cause), "{args:?}: {stderr:?} does not say {cause:?}");
    }
}
