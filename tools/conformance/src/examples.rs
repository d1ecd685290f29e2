//! PURE. The scripts of the page `DIFFERENCES.md`: one for each rule, and some for which the answers do not differ.

use crate::kind::Kind;

const PAGE: &str = include_str!("../DIFFERENCES.md");

/// A table of the page.
#[derive(Debug)]
pub(crate) struct Example {
    /// The heading above the table: the name of a rule, or "No differences".
    #[cfg_attr(not(test), expect(dead_code, reason = "only tests read the heading"))]
    pub(crate) heading: &'static str,
    pub(crate) kind: Kind,
    pub(crate) script: Vec<String>,
    pub(crate) flyball: Vec<String>,
    pub(crate) client_go: Vec<String>,
}

/// The scripts of one kind.
pub(crate) fn scripts(kind: Kind) -> Vec<Vec<String>> {
    all().into_iter().filter(|example| example.kind == kind).map(|example| example.script).collect()
}

/// Every table of the page. The header of the first column is the kind of the script; the other columns contain the
/// answers.
pub(crate) fn all() -> Vec<Example> {
    let mut examples: Vec<Example> = Vec::new();
    let mut heading = "";
    for line in PAGE.lines() {
        if let Some(text) = line.strip_prefix("## ") {
            heading = text;
        }
        let starts = |kind: &Kind| line.starts_with(&format!("| {} |", kind.name()));
        if let Some(kind) = Kind::ALL.into_iter().find(starts) {
            let (script, flyball, client_go) = Default::default();
            examples.push(Example { heading, kind, script, flyball, client_go });
        }
        let cells: Vec<&str> = line.split('`').skip(1).step_by(2).collect();
        if let (true, [line, flyball, client_go], Some(example)) =
            (line.starts_with('|'), cells.as_slice(), examples.last_mut())
        {
            example.script.push((*line).to_owned());
            example.flyball.push((*flyball).to_owned());
            example.client_go.push((*client_go).to_owned());
        }
    }
    examples
}
