//! Compares selectors with a reference implementation, on random texts and selectors, and on the corpus of the fuzz target.

use std::cell::Cell;

use drivers::cache::selector::{Seen, run};
use drivers::corpus::replay;
use testkit::random::{cases, cases_are_chosen};

#[test]
fn random_selectors_match_the_oracle() {
    let seen = Cell::new(Seen::default());
    cases("selector", CASES, 24, |bytes| {
        let mut now = seen.get();
        run(bytes, &mut now);
        seen.set(now);
    });
    if cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    let Seen { read, refused, spelled, foreign, matched, missed } = seen.get();
    let rarest = [read, refused, spelled, foreign, matched, missed].into_iter().min();
    assert!(rarest >= Some(1_000), "{:?}", seen.get());
}

#[test]
fn the_corpus_matches_the_oracle_selector() {
    replay("selector", |bytes| run(bytes, &mut Seen::default()));
}

const CASES: u64 = if cfg!(debug_assertions) { 30_000 } else { 300_000 };
