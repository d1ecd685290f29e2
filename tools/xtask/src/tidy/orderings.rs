//! Every atomic operation needs a comment that names the operation with which its ordering pairs, or states why it needs no ordering.

use super::Source;

const ORDERINGS: [&str; 5] =
    ["Ordering::Relaxed", "Ordering::Acquire", "Ordering::Release", "Ordering::AcqRel", "Ordering::SeqCst"];

/// The maximum distance between the comment and the operation, in lines.
const REACH: usize = 8;

pub(super) fn check(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in source.shipped() {
        if ORDERINGS.iter().any(|ordering| line.code.contains(ordering)) && !explained(source, number) {
            complaints.push(source.at(number, "an atomic operation without an `// Ordering:` comment"));
        }
    }
    complaints
}

fn explained(source: &Source, number: usize) -> bool {
    let says = |at: usize| source.lines[at].comment.contains("Ordering:");
    let here = number - 1;
    if says(here) {
        return true;
    }
    for at in (here.saturating_sub(REACH)..here).rev() {
        if says(at) {
            return true;
        }
        let code = source.lines[at].code.trim();
        // The comment must belong to the same statement as the operation, so no statement may end between the comment and the operation.
        if source.lines[at].is_blank() || code.ends_with([';', '}']) {
            return false;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(text: &str) -> usize {
        check(&Source::read("a/src/b.rs", &format!("fn f() {{\n{text}}}\n")).unwrap()).len()
    }

    #[test]
    fn an_explained_operation_passes() {
        assert_eq!(complaints("// Ordering: Relaxed, a counter.\na.load(Ordering::Relaxed);\n"), 0);
        assert_eq!(complaints("a.load(Ordering::Relaxed); // Ordering: a counter.\n"), 0);
        let long = "// Ordering: Acquire, pairs with\n// the Release in `b`.\na.compare_exchange(\n    0,\n    1,\n    Ordering::Acquire,\n    Ordering::Relaxed,\n);\n";
        assert_eq!(complaints(long), 0);
    }

    #[test]
    fn a_bare_one_fails() {
        assert_eq!(complaints("a.load(Ordering::Relaxed);\n"), 1);
        assert_eq!(
            complaints("// Ordering: Relaxed.\na.load(Ordering::Relaxed);\nb.load(Ordering::Relaxed);\n"),
            1
        );
        assert_eq!(complaints("let c = a.cmp(&b) == Ordering::Less;\n"), 0);
    }
}
