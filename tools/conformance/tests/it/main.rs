//! EDGE. Tests of the program's interface: which lines it accepts, and how it formats the answers.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs the program, and returns its exit status, stdout and stderr.
fn run(arguments: &[&str], script: &[u8]) -> (i32, String, String) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_conformance"))
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program does not start");
    let mut stdin = child.stdin.take().expect("no pipe");
    // If the program rejects its arguments, it does not read its input, and the write fails. This error is ignored.
    drop(stdin.write_all(script));
    drop(stdin);
    let Output { status, stdout, stderr } = child.wait_with_output().expect("the program cannot be awaited");
    let text = |bytes| String::from_utf8(bytes).expect("it prints text");
    (status.code().expect("it was not killed"), text(stdout), text(stderr))
}

/// Runs a script, and compares the answers.
fn answers(kind: &str, lines: &[(&str, &str)]) {
    let script: String = lines.iter().map(|(line, _)| format!("{line}\n")).collect();
    let expected: Vec<_> = lines.iter().map(|(_, answer)| *answer).collect();
    let (status, stdout, stderr) = run(&[kind], script.as_bytes());
    assert_eq!(stdout.lines().collect::<Vec<_>>(), expected);
    assert_eq!((status, stderr.as_str()), (0, ""));
}

#[test]
fn the_queue_answers_each_operation() {
    answers(
        "queue",
        &[
            (r#"{"op":"config","base_ms":5,"max_ms":1000000}"#, "{}"),
            (r#"{"op":"add","k":"a"}"#, "{}"),
            (r#"{"op":"add_after","k":"b","ms":50}"#, "{}"),
            (r#"{"op":"add_rate_limited","k":"c"}"#, "{}"),
            (r#"{"op":"get"}"#, r#"{"k":"a"}"#),
            (r#"{"op":"get"}"#, r#"{"empty":true}"#),
            (r#"{"op":"done","k":"a"}"#, "{}"),
            (r#"{"op":"requeues","k":"c"}"#, r#"{"n":1}"#),
            (r#"{"op":"forget","k":"c"}"#, "{}"),
            (r#"{"op":"requeues","k":"c"}"#, r#"{"n":0}"#),
            (r#"{"op":"advance","ms":4}"#, "{}"),
            (r#"{"op":"len"}"#, r#"{"n":0}"#),
            (r#"{"op":"advance","ms":46}"#, "{}"),
            (r#"{"op":"len"}"#, r#"{"n":2}"#),
            (r#"{"op":"shutting_down"}"#, r#"{"v":false}"#),
            (r#"{"op":"shutdown"}"#, "{}"),
            (r#"{"op":"shutting_down"}"#, r#"{"v":true}"#),
            (r#"{"op":"get"}"#, r#"{"k":"c"}"#),
            (r#"{"op":"get"}"#, r#"{"k":"b"}"#),
            (r#"{"op":"get"}"#, r#"{"shutdown":true}"#),
        ],
    );
}

#[test]
fn limiters_answer_each_operation() {
    answers(
        "limiter",
        &[
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":5000000}"#),
            (r#"{"op":"config","kind":"exponential","base_ms":1,"max_ms":3}"#, "{}"),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":1000000}"#),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":2000000}"#),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":3000000}"#),
            (r#"{"op":"when","k":"b"}"#, r#"{"ns":1000000}"#),
            (r#"{"op":"requeues","k":"a"}"#, r#"{"n":3}"#),
            (r#"{"op":"forget","k":"a"}"#, "{}"),
            (r#"{"op":"requeues","k":"a"}"#, r#"{"n":0}"#),
            (r#"{"op":"config","kind":"fast_slow","fast_ms":5,"slow_ms":10000,"fast":1}"#, "{}"),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":5000000}"#),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":10000000000}"#),
            (
                r#"{"op":"config","kind":"max_of","of":[{"kind":"exponential","base_ms":1,"max_ms":9},{"kind":"fast_slow","fast_ms":2,"slow_ms":3,"fast":1},{"kind":"exponential","base_ms":1,"max_ms":2}]}"#,
                "{}",
            ),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":2000000}"#),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":3000000}"#),
            (r#"{"op":"when","k":"a"}"#, r#"{"ns":4000000}"#),
            (r#"{"op":"requeues","k":"a"}"#, r#"{"n":3}"#),
        ],
    );
}

#[test]
fn the_store_answers_each_operation() {
    answers(
        "store",
        &[
            (r#"{"op":"keys"}"#, r#"{"l":[]}"#),
            (r#"{"op":"by_index","name":"i","v":"x"}"#, r#"{"error":true}"#),
            (r#"{"op":"values","name":"i"}"#, r#"{"error":true}"#),
            (r#"{"op":"upsert","k":"b","o":{"i":["x","é"],"n":1}}"#, "{}"),
            (r#"{"op":"index","name":"i"}"#, "{}"),
            (r#"{"op":"upsert","k":"a","o":{"i":["x","x"]}}"#, "{}"),
            (r#"{"op":"get","k":"b"}"#, r#"{"o":{"i":["x","é"],"n":1}}"#),
            (r#"{"op":"get","k":"c"}"#, r#"{"absent":true}"#),
            (r#"{"op":"keys"}"#, r#"{"l":["a","b"]}"#),
            (r#"{"op":"by_index","name":"i","v":"x"}"#, r#"{"l":["a","b"]}"#),
            (r#"{"op":"by_index","name":"i","v":"y"}"#, r#"{"l":[]}"#),
            (r#"{"op":"by_index","name":"j","v":"x"}"#, r#"{"error":true}"#),
            (r#"{"op":"values","name":"i"}"#, r#"{"l":["x","é"]}"#),
            (r#"{"op":"index","name":"j"}"#, "{}"),
            (r#"{"op":"values","name":"j"}"#, r#"{"l":[]}"#),
            (r#"{"op":"delete","k":"b"}"#, "{}"),
            (r#"{"op":"delete","k":"b"}"#, "{}"),
            (r#"{"op":"values","name":"i"}"#, r#"{"l":["x"]}"#),
            (r#"{"op":"replace","items":{"c":{"j":["y"]},"d":{}},"rv":"7"}"#, "{}"),
            (r#"{"op":"keys"}"#, r#"{"l":["c","d"]}"#),
            (r#"{"op":"by_index","name":"j","v":"y"}"#, r#"{"l":["c"]}"#),
            (r#"{"op":"values","name":"i"}"#, r#"{"l":[]}"#),
        ],
    );
}

/// When all 64 slots for names are taken, no index with a further name can be added.
#[test]
fn more_index_names_than_places_are_refused() {
    let of = |op: &str, n: u32| format!("{{\"op\":\"{op}\",\"name\":\"{n}\"}}\n");
    let script: String =
        (0..66).map(|n| of("index", n)).chain([of("values", 63), of("values", 64)]).collect();
    let (status, stdout, _) = run(&["store"], script.as_bytes());
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!((status, lines.len()), (0, 68));
    assert!(lines[..64].iter().all(|line| *line == "{}"), "{lines:?}");
    assert!(lines[64..66].iter().all(|line| line.starts_with(r#"{"error":""#)), "{lines:?}");
    assert_eq!(lines[66..], [r#"{"l":[]}"#, r#"{"error":true}"#]);
}

#[test]
fn an_invalid_line_of_a_store_changes_nothing() {
    let invalid = [
        r#"{"op":"index"}"#,
        r#"{"op":"index","name":7}"#,
        r#"{"op":"upsert","k":"a"}"#,
        r#"{"op":"upsert","k":"a","o":"x"}"#,
        r#"{"op":"upsert","o":{}}"#,
        r#"{"op":"delete"}"#,
        r#"{"op":"replace","items":[],"rv":"7"}"#,
        r#"{"op":"replace","items":{"b":7},"rv":"7"}"#,
        r#"{"op":"replace","items":{}}"#,
        r#"{"op":"replace","items":{},"rv":"seven"}"#,
        r#"{"op":"by_index","name":"i"}"#,
        r#"{"op":"add","k":"a"}"#,
    ];
    let mut script = String::from("{\"op\":\"upsert\",\"k\":\"a\",\"o\":{}}\n");
    script.extend(invalid.iter().map(|line| format!("{line}\n")));
    script += "{\"op\":\"keys\"}";
    let (status, stdout, _) = run(&["store"], script.as_bytes());
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!((status, lines.len(), lines[13]), (0, 14, r#"{"l":["a"]}"#));
    for line in &lines[1..13] {
        assert!(line.starts_with(r#"{"error":""#), "{line}");
    }
}

#[test]
fn an_invalid_line_is_an_answer_and_the_next_one_follows() {
    let invalid: [&[u8]; 12] = [
        b"",
        b"x",
        b"[]",
        b"\xff",
        br#"{"op":"fly","k":"a"}"#,
        br#"{"op":"add"}"#,
        br#"{"op":"add","k":1}"#,
        br#"{"op":"add_after","k":"a"}"#,
        br#"{"op":"add_after","k":"a","ms":-1}"#,
        br#"{"op":"advance","ms":0.5}"#,
        br#"{"op":"advance","ms":9223372036855}"#,
        br#"{"op":"config","base_ms":1,"max_ms":2}"#,
    ];
    let mut script = br#"{"op":"add","k":"a"}"#.to_vec();
    for line in invalid {
        script.push(b'\n');
        script.extend(line);
    }
    script.extend(b"\n{\"op\":\"get\"}");
    let (status, stdout, _) = run(&["queue"], &script);
    let lines: Vec<_> = stdout.lines().collect();
    assert_eq!(status, 0);
    assert_eq!((lines.len(), lines[0], lines[13]), (14, "{}", r#"{"k":"a"}"#));
    for line in &lines[1..13] {
        assert!(line.starts_with(r#"{"error":""#) && line.ends_with(r#""}"#), "{line}");
    }
}

#[test]
fn an_empty_line_ends_a_script_when_there_are_many() {
    let (status, stdout, _) =
        run(&["queue", "--many"], b"{\"op\":\"add\",\"k\":\"a\"}\n\n{\"op\":\"len\"}\n");
    assert_eq!((status, stdout.as_str()), (0, "{}\n\n{\"n\":0}\n"));
}

#[test]
fn parity_without_its_program_says_so() {
    let (status, _, stderr) =
        run(&["parity", "--client-go", "no-such-program", "--scripts", "1", "--seed", "1"], b"");
    assert_eq!(status, 1);
    assert!(stderr.contains("no-such-program does not start"), "{stderr}");
}
