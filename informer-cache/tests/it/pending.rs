//! Compares the merge table of pending changes with a reference implementation that keeps every change. The inputs cover every cell of the table, and
//! include the corpus of the fuzz target.

use std::cell::RefCell;

use drivers::cache::store::run_subscription;
use drivers::corpus::replay;
use testkit::oracle::subscription::MergeCells;
use testkit::random::{cases, cases_are_chosen, thorough};

#[test]
fn every_cell_of_the_merge_table_is_entered_and_agrees() {
    let cells = RefCell::new(MergeCells::default());
    let (lives, rarely) = floors();
    cases("subscription", lives, 600, |bytes| run_subscription(bytes, &mut cells.borrow_mut()));
    if cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    let cells = cells.into_inner();
    let rare = cells.below(1_000);
    assert!(rare.is_empty(), "rarely entered: {rare:?}");
    let rare = cells.crossings_below(rarely);
    assert!(rare.is_empty(), "rarely delivered through a filter: {rare:?}");
    let rare = cells.narrowings_below(rarely);
    assert!(rare.is_empty(), "rarely selected: {rare:?}");
}

#[test]
fn the_corpus_matches_the_oracle_subscription() {
    replay("subscription", |bytes| run_subscription(bytes, &mut MergeCells::default()));
}

/// Returns the number of operation sequences, and the minimum number of hits for each cell that only subscriptions with a filter or a selection can
/// reach.
fn floors() -> (u64, u64) {
    if thorough() { (100_000, 1_000) } else { (15_000, 200) }
}
