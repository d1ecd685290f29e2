//! Checks the tables of the README: the number of changed lines of each program must be the number in its source, and the tests that the tables name
//! must exist.

use std::fs;
use std::path::Path;

fn read(path: &str) -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    fs::read_to_string(folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Returns the rows of the first table of the README, as cells.
fn rows(readme: &str) -> Vec<Vec<String>> {
    let table = readme.lines().skip_while(|line| !line.starts_with("| program")).skip(2);
    table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect())
        .collect()
}

/// Returns the target of the first Markdown link in `cell`.
fn target(cell: &str) -> &str {
    cell.split_once("](").and_then(|(_, rest)| rest.split_once(')')).expect("a link").0
}

fn lines(text: &str) -> Vec<&str> {
    let code = text.lines().map(str::trim);
    code.filter(|line| !line.is_empty() && !line.starts_with("//")).collect()
}

/// Returns the number of lines that a diff from `kube` to `ours` adds.
fn added(kube: &[&str], ours: &[&str]) -> usize {
    let mut longest = vec![vec![0; ours.len() + 1]; kube.len() + 1];
    for (row, kube) in kube.iter().enumerate() {
        for (column, ours) in ours.iter().enumerate() {
            longest[row + 1][column + 1] = match kube == ours {
                true => longest[row][column] + 1,
                false => longest[row][column + 1].max(longest[row + 1][column]),
            };
        }
    }
    ours.len() - longest[kube.len()][ours.len()]
}

/// Returns the number of lines of a program that only its module for flyball has.
fn changed(path: &str) -> usize {
    if Path::new(env!("CARGO_MANIFEST_DIR")).join(path).is_dir() {
        let [kube, ours] = ["kube_runtime", "flyball"].map(|engine| read(&format!("{path}/{engine}.rs")));
        return added(&lines(&kube), &lines(&ours));
    }
    let program = read(path);
    let preamble = |engine: &str| {
        let begin = format!("    {engine} {{\n");
        let text = program.split_once(&begin).map(|(_, rest)| rest.split_once("    }\n").expect("its end").0);
        text.map(|text| lines(text).join("\n"))
    };
    match (preamble("kube_runtime"), preamble("flyball")) {
        (Some(kube), Some(ours)) => {
            added(&kube.lines().collect::<Vec<_>>(), &ours.lines().collect::<Vec<_>>())
        }
        // The only difference is the import that the macro adds.
        _ => 1,
    }
}

#[test]
fn each_program_changes_as_many_lines_as_the_table_says() {
    let readme = read("README.md");
    let rows = rows(&readme);
    assert!(rows.len() >= 9, "{rows:?}");
    for row in &rows {
        let program = target(&row[0]);
        assert_eq!(row[2], changed(program).to_string(), "{program}");
    }
    let programs = read("src/lib.rs");
    for program in programs.lines().filter_map(|line| line.strip_prefix("pub mod ")) {
        let name = program.trim_end_matches(';');
        assert!(rows.iter().any(|row| row[0].contains(&format!("src/{name}"))), "{name} has no row");
    }
}

#[test]
fn the_tests_that_the_table_names_are_there() {
    let readme = read("README.md");
    let tests = read("tests/e2e/main.rs");
    for row in rows(&readme) {
        assert!(row[3].contains('`'), "{}", row[0]);
        for test in row[3].split('`').skip(1).step_by(2) {
            assert!(tests.lines().any(|line| line.trim() == test), "{test} of {}", row[0]);
        }
    }
}

/// The target of each link to a test is the file that contains this test.
#[test]
fn the_tests_that_are_linked_are_there() {
    let readme = read("README.md");
    let (_, failing) = readme.split_once("| what happens |").expect("the table of failures");
    let links: Vec<_> = failing
        .split("[`")
        .skip(1)
        .map(|link| {
            let (name, rest) = link.split_once("`](").expect("a link");
            (name, rest.split_once(')').expect("its end").0)
        })
        .collect();
    assert!(links.len() >= 9, "{links:?}");
    for (name, path) in links {
        assert!(read(path).contains(&format!("async fn {name}()")), "{name} in {path}");
    }
}

#[test]
fn lines_are_counted_as_a_diff_does() {
    assert_eq!(added(&["a", "b", "c"], &["a", "x", "c", "y"]), 2);
    assert_eq!(added(&["a", "b"], &["a"]), 0);
}
