//! The store against the naive one: random lives, and the corpus of the fuzz target.

use std::cell::RefCell;

use drivers::cache::store::{NAMES, run, tally};
use drivers::corpus::replay;
use testkit::coverage::pairs::Together;
use testkit::oracle::subscription::MergeCells;
use testkit::random::cases;

#[test]
fn random_lives_agree_with_the_naive_store() {
    let (all, pairs) = (RefCell::new(tally()), RefCell::new(Together::new(NAMES)));
    cases("store", CASES, 1_000, |bytes| {
        let mut life = tally();
        run(bytes, &mut MergeCells::default(), &mut life);
        all.borrow_mut().add(&life);
        pairs.borrow_mut().life(&life);
    });
    if std::env::var_os("FLYBALL_CASES").is_some() {
        return; // not the number of cases the floors are for
    }
    let rare = all.into_inner().below(FLOOR);
    assert!(rare.is_empty(), "hardly happened: {rare:?}");
    let rare = pairs.into_inner().below(PAIR_FLOOR, never_together);
    assert!(rare.is_empty(), "hardly happened in one life: {rare:?}");
}

/// What one life cannot come by.
fn never_together(a: &str, b: &str) -> bool {
    let transforms = matches!(a, "transformed" | "stored: transformed");
    // A store that transforms keeps no history here.
    let history = matches!(b, "history" | "history by version" | "history too short" | "stored: as it came");
    transforms && history
}

#[test]
fn the_corpus_agrees_with_the_naive_store() {
    replay("store_ops", |bytes| run(bytes, &mut MergeCells::default(), &mut tally()));
}

/// 10⁵ where that takes minutes; an unoptimised build does a part of it, and meets a part of what is rare.
const CASES: u64 = if cfg!(debug_assertions) { 1_000 } else { 100_000 };
/// In how many lives each two things have to happen.
const PAIR_FLOOR: u64 = if cfg!(debug_assertions) { 1 } else { 20 };
const FLOOR: u64 = if cfg!(debug_assertions) { 10 } else { 1_000 };
