//! The store against the naive one: random lives, and the corpus of the fuzz target.

use testkit::naive_feed::MergeCells;
use testkit::random::cases;

use crate::corpus::replay;
use crate::store_driver::run;

#[test]
fn random_lives_agree_with_the_naive_store() {
    cases("store", CASES, 1_000, |bytes| run(bytes, &mut MergeCells::default()));
}

#[test]
fn the_corpus_agrees_with_the_naive_store() {
    replay("store_ops", |bytes| run(bytes, &mut MergeCells::default()));
}

/// 10⁵ where that takes a minute; an unoptimised build does a part of it.
const CASES: u64 = if cfg!(debug_assertions) { 1_000 } else { 100_000 };
