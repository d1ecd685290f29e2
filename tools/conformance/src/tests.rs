//! Makes both comparisons on the committed scripts, and checks that each rule is needed for both.

use std::path::Path;

use testkit::client_go::{Rule, Rules};

use crate::committed::Committed;
use crate::kind::{Kind, play};
use crate::parity::differs;
use crate::{committed, examples};

fn committed(kind: Kind) -> Committed {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts");
    Committed::read(&folder, kind).expect("scripts or answers are missing")
}

/// Returns the positions of the scripts to which the reference with `rules` gives answers that differ from `answers`.
fn differing(
    kind: Kind,
    rules: Rules,
    scripts: &[Vec<String>],
    answers: &[Vec<String>],
) -> impl Iterator<Item = usize> {
    assert_eq!(scripts.len(), answers.len());
    let differs = move |at: &usize| differs(&answers[*at], &play(kind.reference(rules), &scripts[*at]));
    (0..scripts.len()).filter(differs)
}

#[test]
fn with_all_rules_the_reference_answers_as_flyball_does() {
    for kind in Kind::ALL {
        let Committed { scripts, .. } = committed(kind);
        let answers: Vec<_> = scripts.iter().map(|script| play(kind.flyball(), script)).collect();
        assert_eq!(differing(kind, Rules::ALL, &scripts, &answers).next(), None, "{kind:?}");
    }
}

#[test]
fn without_rules_the_reference_answers_as_client_go_does() {
    for kind in Kind::ALL {
        let Committed { scripts, answers } = committed(kind);
        assert_eq!(differing(kind, Rules::NONE, &scripts, &answers).next(), None, "{kind:?}");
    }
}

/// If one rule is flipped, the answers to at least ten scripts must differ in each of the two comparisons. Otherwise
/// the scripts would not test this rule.
#[test]
fn each_rule_is_needed_for_both_equalities() {
    const ENOUGH: usize = 10;
    let mut needed = Vec::new();
    for kind in Kind::ALL {
        let Committed { scripts, answers } = committed(kind);
        let ours: Vec<_> = scripts.iter().map(|script| play(kind.flyball(), script)).collect();
        for rule in kind.rules() {
            let without = differing(kind, Rules::ALL.flipped(rule), &scripts, &ours).take(ENOUGH).count();
            assert_eq!(without, ENOUGH, "{kind:?}: without {}", rule.name());
            let with = differing(kind, Rules::NONE.flipped(rule), &scripts, &answers).take(ENOUGH).count();
            assert_eq!(with, ENOUGH, "{kind:?}: with {} alone", rule.name());
            needed.push(rule);
        }
    }
    assert!(Rule::ALL.iter().all(|rule| needed.contains(rule)), "{needed:?}");
}

#[test]
fn there_are_a_few_thousand_scripts() {
    let enough = [(Kind::Queue, 2000, 80_000), (Kind::Limiter, 500, 20_000), (Kind::Store, 2000, 80_000)];
    for (kind, scripts, lines) in enough {
        let committed = committed(kind);
        assert!(committed.scripts.len() >= scripts, "{kind:?}: {}", committed.scripts.len());
        let count = committed.scripts.iter().map(Vec::len).sum::<usize>();
        assert!(count >= lines, "{kind:?}: {count} lines");
    }
}

/// `DIFFERENCES.md` is correct: the answers of flyball, and of the reference without rules, are the ones on the page.
#[test]
fn the_page_of_differences_holds() {
    for example in examples::all() {
        let name = example.heading;
        let ours = play(example.kind.flyball(), &example.script);
        let theirs = play(example.kind.reference(Rules::NONE), &example.script);
        assert!(!differs(&ours, &example.flyball), "{name}: flyball answers {ours:?}");
        assert!(!differs(&theirs, &example.client_go), "{name}: client-go answers {theirs:?}");
    }
}

/// Each rule has its own table on the page. With only this rule on, the reference gives flyball's answers to the
/// script of this table; with all rules except this one on, it gives client-go's.
#[test]
fn each_rule_has_its_example() {
    for rule in Rule::ALL {
        let example = examples::all().into_iter().find(|example| example.heading == rule.name());
        let example = example.unwrap_or_else(|| panic!("{} is not on the page", rule.name()));
        assert_ne!(example.flyball, example.client_go, "{}", rule.name());
        let alone = play(example.kind.reference(Rules::NONE.flipped(rule)), &example.script);
        assert!(!differs(&alone, &example.flyball), "{}: with this rule alone {alone:?}", rule.name());
        let without = play(example.kind.reference(Rules::ALL.flipped(rule)), &example.script);
        assert!(!differs(&without, &example.client_go), "{}: without this rule {without:?}", rule.name());
    }
    let headings = examples::all().into_iter().map(|example| example.heading);
    for heading in headings.filter(|heading| *heading != "No differences") {
        assert!(Rule::ALL.iter().any(|rule| rule.name() == heading), "{heading} is not a rule");
    }
}

/// The committed scripts include those of the page, and client-go itself gave the answers that the page states.
#[test]
fn the_page_of_differences_is_committed() {
    for kind in Kind::ALL {
        let Committed { scripts, answers } = committed(kind);
        for example in examples::all().into_iter().filter(|example| example.kind == kind) {
            let at = scripts.iter().position(|script| *script == example.script);
            let at = at.unwrap_or_else(|| panic!("{} is not committed: record again", example.heading));
            assert!(!differs(&answers[at], &example.client_go), "{}: {:?}", example.heading, answers[at]);
        }
    }
}

#[test]
fn scripts_survive_their_file() {
    let blocks = vec![vec!["a".to_owned(), "b".to_owned()], vec![], vec!["c".to_owned()]];
    assert_eq!(committed::split(&committed::join(&blocks)), blocks);
}
