//! Checks that tables of the book contain only names that exist: for each `Type::method` in the last column of a table, both words occur in the
//! sources.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

const CRATES: [&str; 9] = [
    "sync",
    "ratelimit",
    "workqueue",
    "informer-cache",
    "controller",
    "ops",
    "kube-adapter",
    "kube-lease",
    "kube-testing",
];
/// Types that belong to kube or kube-runtime, so not all of their methods are in these sources.
const OF_KUBE: [&str; 2] = ["Api", "Action"];

fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension() == Some(OsStr::new("rs")) {
            text.push_str(&fs::read_to_string(&path).unwrap());
        }
    }
}

/// All words of all sources; `fn x` becomes the word `fn_x`.
fn words() -> BTreeSet<String> {
    let mut text = String::new();
    for folder in CRATES {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder).join("src"), &mut text);
    }
    let text = text.replace("fn ", "fn_");
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
    words.map(str::to_owned).collect()
}

#[test]
fn tables_name_existing_items() {
    let words = words();
    let mut wrong = Vec::new();
    let pages = ["kube-runtime", "client-go", "controller-runtime", "delay-queue", "governor"]
        .map(|page| format!("src/migration/{page}.md"));
    for page in pages.into_iter().chain(["src/troubleshooting.md".to_owned()]) {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(&page)).unwrap();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| ")).collect();
        assert!(rows.len() > 14, "{page}: {} rows", rows.len());
        for row in rows {
            let last = row.trim_end_matches(" |").rsplit(" | ").next().unwrap();
            for code in last.split('`').skip(1).step_by(2) {
                let mut path =
                    code.split("::").filter(|part| part.chars().all(|c| c.is_alphanumeric() || c == '_'));
                let (Some(of), Some(name), None) = (path.next(), path.next(), path.next()) else { continue };
                // A field is a word like any other, so fields are only accepted of structs that have public fields.
                let is_item = name.starts_with(char::is_uppercase)
                    || ["Config", "Options"].iter().any(|end| of.ends_with(end));
                let known = words.contains(&format!("fn_{name}")) || words.contains(name) && is_item;
                let ours = of.starts_with(char::is_uppercase) && !OF_KUBE.contains(&of);
                if ours && !(words.contains(of) && known) {
                    wrong.push(format!("{page}: {code}"));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Checks the names of metrics, the fields of the debug page and the texts of the probes' responses.
#[test]
fn troubleshooting_names_existing_metrics() {
    let mut text = String::new();
    for folder in ["controller", "ops"] {
        sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder).join("src"), &mut text);
    }
    let page = include_str!("../../src/troubleshooting.md");
    let rows: Vec<_> = page.lines().filter(|line| line.starts_with("| ")).skip(1).collect();
    assert!(rows.len() >= 15);
    let (mut metrics, mut wrong) = (0, Vec::new());
    for row in rows {
        for code in row.split('`').skip(1).step_by(2) {
            let plain = code.chars().all(|c| c.is_ascii_lowercase() || c == '_');
            let metric = plain
                && [
                    "workqueue_",
                    "controller_",
                    "flyball_controller_",
                    "client_throttle_",
                    "leader_election_",
                ]
                .iter()
                .any(|prefix| code.starts_with(prefix));
            let answer =
                code.starts_with("the ") || code.starts_with("a key ") || code.starts_with("a cache ");
            let field =
                ["lastError", "objects", "relists", "watchRestarts", "caches", "elections"].contains(&code);
            metrics += usize::from(metric);
            let there = if answer { text.contains(code) } else { text.contains(&format!("\"{code}\"")) };
            if (metric || answer || field) && !there {
                wrong.push(code);
            }
        }
    }
    assert!(wrong.is_empty() && metrics >= 15, "{metrics}, {wrong:#?}");
}
