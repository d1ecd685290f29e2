//! The store against the naive one: random lives, and the corpus of the fuzz target.

use std::cell::RefCell;

use testkit::naive_feed::MergeCells;
use testkit::random::cases;

use crate::corpus::replay;
use crate::store_driver::{run, tally};

#[test]
fn random_lives_agree_with_the_naive_store() {
    let tally = RefCell::new(tally());
    cases("store", CASES, 1_000, |bytes| run(bytes, &mut MergeCells::default(), &mut tally.borrow_mut()));
    let rare = tally.into_inner().below(FLOOR);
    assert!(rare.is_empty(), "hardly happened: {rare:?}");
}

#[test]
fn the_corpus_agrees_with_the_naive_store() {
    replay("store_ops", |bytes| run(bytes, &mut MergeCells::default(), &mut tally()));
}

/// 10⁵ where that takes minutes; an unoptimised build does a part of it, and meets a part of what is rare.
const CASES: u64 = if cfg!(debug_assertions) { 1_000 } else { 100_000 };
const FLOOR: u64 = if cfg!(debug_assertions) { 10 } else { 1_000 };
