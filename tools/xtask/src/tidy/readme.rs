//! Checks the readme of each published crate, which is also the front page of its docs: the order of the headings, a whole program with its output, an
//! intra-doc link in the table of types, and dependency lines that work before the crates are on crates.io.

use anyhow::Result;

use crate::workspace::Workspace;

/// The first headings of every readme, in this order. Further headings may follow.
const FIRST: [&str; 5] = ["Install", "Example", "Types", "When not to use it", "Guarantees"];
/// The last headings of every readme, in this order.
const LAST: [&str; 3] = ["Features", "Tests and evidence", "License"];

pub(super) fn check(workspace: &Workspace) -> Result<Vec<String>> {
    let folder = |name: &str| {
        let package = workspace.published().find(|package| package.name == name)?;
        Some(package.folder(workspace).display().to_string())
    };
    let mut complaints = Vec::new();
    for package in workspace.published() {
        let path = package.folder(workspace).join("README.md").display().to_string();
        let text = workspace.read(&path)?;
        let sections = sections(&text);
        complaints.extend(headings(&path, &sections));
        complaints.extend(program(&path, &text, section(&sections, "Example")));
        complaints.extend(links(&path, section(&sections, "Types")));
        complaints.extend(dependencies(&path, &text, &package.name, folder));
    }
    Ok(complaints)
}

/// Returns the headings of the second level, each with the lines of its section.
fn sections(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut sections: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut code = false;
    for line in text.lines() {
        code ^= line.starts_with("```");
        match line.strip_prefix("## ") {
            Some(heading) if !code => sections.push((heading, Vec::new())),
            _ => sections.last_mut().into_iter().for_each(|(_, lines)| lines.push(line)),
        }
    }
    sections
}

fn section<'a, 'b>(sections: &'b [(&str, Vec<&'a str>)], heading: &str) -> &'b [&'a str] {
    sections.iter().find(|(found, _)| *found == heading).map_or(&[], |(_, lines)| lines)
}

fn headings(page: &str, sections: &[(&str, Vec<&str>)]) -> Vec<String> {
    let found: Vec<&str> = sections.iter().map(|(heading, _)| *heading).collect();
    match found.starts_with(&FIRST) && found.ends_with(&LAST) {
        true => Vec::new(),
        false => {
            vec![format!("{page}: the headings do not begin with {FIRST:?} and end with {LAST:?}: {found:?}")]
        }
    }
}

/// Checks that the first Rust block is in the section `Example`, is a program without hidden lines, and is followed by its output.
fn program(page: &str, text: &str, example: &[&str]) -> Vec<String> {
    let block = |lines: &[&str]| -> Option<Vec<String>> {
        let start = lines.iter().position(|line| line.starts_with("```rust"))?;
        let code = lines[start + 1..].iter().take_while(|line| !line.starts_with("```"));
        Some(code.map(|line| (*line).to_owned()).collect())
    };
    let first = block(&text.lines().collect::<Vec<_>>());
    let (Some(code), true) = (block(example), first.is_some() && first == block(example)) else {
        return vec![format!("{page}: the first Rust block is not in the section Example")];
    };
    let mut complaints = Vec::new();
    if let Some(hidden) = code.iter().find(|line| line.trim() == "#" || line.trim_start().starts_with("# ")) {
        complaints.push(format!("{page}: the example has a hidden line: {hidden}"));
    }
    if !code.iter().any(|line| line.contains("fn main()")) {
        complaints.push(format!("{page}: the example has no fn main"));
    }
    if !example.iter().any(|line| line.starts_with("```text")) {
        complaints.push(format!("{page}: the example has no output"));
    }
    complaints
}

/// Checks that no row of a table begins with an item without a link, and that there is an intra-doc link.
fn links(page: &str, types: &[&str]) -> Vec<String> {
    // A row before a line of dashes is the head of a table.
    let head = |at: usize| types.get(at + 1).is_some_and(|next| next.starts_with("|--"));
    let rows = types.iter().enumerate().filter(|(at, line)| line.starts_with("| ") && !head(*at));
    let rows: Vec<&str> = rows.map(|(_, line)| *line).collect();
    let plain = rows.iter().filter(|row| row.starts_with("| `")).map(|row| {
        let cell = row.split('|').nth(1).unwrap_or_default();
        format!("{page}: the row of{cell}begins with no link")
    });
    let mut complaints: Vec<String> = plain.collect();
    let intra_doc = |row: &&&str| row.split("`]").skip(1).any(|rest| !rest.starts_with('('));
    if rows.iter().find(intra_doc).is_none() {
        complaints.push(format!("{page}: the table of types has no intra-doc link"));
    }
    complaints
}

/// Checks that each dependency on a flyball crate has a comment with its path, and that the readme has such a line for its own crate.
fn dependencies(page: &str, text: &str, own: &str, folder: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut complaints = Vec::new();
    let mut found = false;
    for (at, line) in text.lines().enumerate().filter(|(_, line)| line.starts_with("flyball-")) {
        let Some((name, _)) = line.split_once(" = ") else { continue };
        found |= name == own;
        let path = folder(name).unwrap_or_default();
        if !line.contains(&format!("# until it is on crates.io: {{ path = \"../flyball/{path}\"")) {
            complaints.push(format!("{page}:{}: no comment with the path of {name}, {path}", at + 1));
        }
    }
    if !found {
        complaints.push(format!("{page}: no line of Cargo.toml for {own}"));
    }
    complaints
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
# flyball-a\n\nA.\n\n## Install\n\n```toml\n[dependencies]\n\
flyball-a = \"0.1\" # until it is on crates.io: { path = \"../flyball/a-folder\" }\n```\n\n\
## Example\n\n```rust\n#[derive(Debug)]\nstruct A;\nfn main() {}\n```\n\n```text\nA\n```\n\n\
## Types\n\n| type | what it is |\n|---|---|\n| [`A`] | a |\n\n\
## When not to use it\n\n## Guarantees\n\n## More\n\n```rust\n# fn main() {}\n```\n\n\
## Features\n\n## Tests and evidence\n\n## License\n";

    fn complaints(text: &str) -> Vec<String> {
        let sections = sections(text);
        let folder = |name: &str| (name == "flyball-a").then(|| "a-folder".to_owned());
        let mut complaints = headings("a.md", &sections);
        complaints.extend(program("a.md", text, section(&sections, "Example")));
        complaints.extend(links("a.md", section(&sections, "Types")));
        complaints.extend(dependencies("a.md", text, "flyball-a", folder));
        complaints
    }

    /// Replaces a text that occurs in `GOOD`, and returns the only complaint.
    fn broken(from: &str, to: &str) -> String {
        assert!(GOOD.contains(from), "{from}");
        let mut complaints = complaints(&GOOD.replacen(from, to, 1));
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        complaints.remove(0)
    }

    #[test]
    fn a_readme_with_all_parts_passes() {
        assert_eq!(complaints(GOOD), Vec::<String>::new());
    }

    #[test]
    fn headings_in_a_different_order_fail() {
        assert!(
            broken("## When not to use it\n\n## Guarantees", "## Guarantees\n\n## When not to use it")
                .contains("headings")
        );
        assert!(broken("## Tests and evidence\n\n", "").contains("headings"));
        assert!(broken("## License\n", "## License\n\n## More\n").contains("headings"));
    }

    #[test]
    fn an_example_that_is_not_a_whole_program_fails() {
        assert_eq!(
            broken("fn main() {}\n", "# let a = A;\nfn main() {}\n"),
            "a.md: the example has a hidden line: # let a = A;"
        );
        assert_eq!(broken("fn main() {}\n", "#\nfn main() {}\n"), "a.md: the example has a hidden line: #");
        assert_eq!(broken("fn main() {}\n", "let a = A;\n"), "a.md: the example has no fn main");
        assert_eq!(broken("```text\nA\n```\n", ""), "a.md: the example has no output");
        let early = "A.\n\n```rust\nlet a = 1;\n```\n";
        assert_eq!(broken("A.\n", early), "a.md: the first Rust block is not in the section Example");
    }

    #[test]
    fn a_table_without_intra_doc_links_fails() {
        assert_eq!(
            broken("[`A`]", "[`A`](https://docs.rs/a)"),
            "a.md: the table of types has no intra-doc link"
        );
        assert_eq!(
            broken("| [`A`] | a |\n", "| [`A`] | a |\n| `B` | b |\n"),
            "a.md: the row of `B` begins with no link"
        );
    }

    #[test]
    fn a_dependency_without_its_true_path_fails() {
        assert!(
            broken(" # until it is on crates.io: { path = \"../flyball/a-folder\" }", "").contains("a.md:9")
        );
        assert!(broken("flyball/a-folder", "flyball/a").contains("a.md:9"));
        assert_eq!(broken("flyball-a = ", "other = "), "a.md: no line of Cargo.toml for flyball-a");
    }
}
