//! Code that several binaries share has to be in a library. If instead each binary included the same file by its path, each would also compile those
//! items of the file that it does not use. So the file would need `allow(dead_code)`, which would also hide items that no binary uses.

use super::Source;

/// The forbidden attributes, each with the alternative.
const PATH: &str = "`#[path]`: put shared code into a library";
const DEAD: &str = "`allow(dead_code)`: remove unused code, or use `expect` with a reason";

pub(super) fn check(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, attribute) in attributes(source) {
        if is_path(&attribute) {
            complaints.push(source.at(number, PATH));
        }
        if allows_dead_code(&attribute) {
            complaints.push(source.at(number, DEAD));
        }
    }
    complaints
}

/// Returns the content of each attribute without spaces, with the number of its first line.
fn attributes(source: &Source) -> Vec<(usize, String)> {
    let code =
        source.lines.iter().enumerate().flat_map(|(at, line)| {
            line.code.chars().filter(|c| !c.is_whitespace()).map(move |c| (at + 1, c))
        });
    let code: Vec<(usize, char)> = code.collect();
    let mut found = Vec::new();
    for (at, &(number, _)) in code.iter().enumerate().filter(|(_, (_, c))| *c == '#') {
        let rest = code[at + 1..].iter().map(|(_, c)| *c);
        let mut rest = rest.skip_while(|c| *c == '!');
        if rest.next() != Some('[') {
            continue;
        }
        let mut depth = 1;
        let inside = rest.take_while(|c| {
            depth += i32::from(*c == '[') - i32::from(*c == ']');
            depth > 0
        });
        found.push((number, inside.collect()));
    }
    found
}

/// Returns whether an attribute is `path`, directly or inside `cfg_attr`.
fn is_path(attribute: &str) -> bool {
    attribute.starts_with("path=") || attribute.starts_with("cfg_attr(") && attribute.contains(",path=")
}

/// Returns whether an attribute allows the lint `dead_code`, or the lint group `unused`, which contains it.
fn allows_dead_code(attribute: &str) -> bool {
    let lists = attribute.match_indices("allow(").map(|(at, word)| &attribute[at + word.len()..]);
    let mut lints = lists.flat_map(|list| list.split(')').next().unwrap_or_default().split(','));
    lints.any(|lint| lint == "dead_code" || lint == "unused")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> Vec<String> {
        check(&Source::read("a.rs", text).unwrap())
    }

    #[test]
    fn a_file_included_by_its_path_fails() {
        assert_eq!(complaints("mod a;\n"), [""; 0]);
        assert_eq!(complaints("fn a() {}\n#[path = \"../b.rs\"]\nmod b;\n"), [format!("a.rs:2: {PATH}")]);
        assert_eq!(complaints("#[cfg_attr(test, path = \"b.rs\")]\nmod b;\n").len(), 1);
        assert_eq!(
            complaints("// #[path = \"b.rs\"] would be wrong\nconst A: &str = \"#[path]\";\n"),
            [""; 0]
        );
        assert_eq!(complaints("#[serde(path = \"b\")]\nstruct A;\n"), [""; 0]);
    }

    #[test]
    fn dead_code_that_is_allowed_fails() {
        assert_eq!(complaints("#![allow(dead_code)]\n"), [format!("a.rs:1: {DEAD}")]);
        assert_eq!(
            complaints("#[allow(\n    unused_mut,\n    dead_code,\n    reason = \"so\"\n)]\nfn a() {}\n")
                .len(),
            1
        );
        assert_eq!(complaints("#![allow(unused)]\n").len(), 1);
        assert_eq!(complaints("#[cfg_attr(not(test), allow(dead_code))]\nfn a() {}\n").len(), 1);
        assert_eq!(
            complaints(
                "macro_rules! a {\n    () => {\n        #[allow(dead_code)]\n        fn b() {}\n    };\n}\n"
            )
            .len(),
            1
        );
        assert_eq!(complaints("#[expect(dead_code, reason = \"dropped\")]\nfn a() {}\n"), [""; 0]);
        assert_eq!(complaints("#[allow(unused_mut)]\nfn a() {}\n"), [""; 0]);
    }
}
