//! Compares the store with a reference implementation, on random operation sequences and on the corpus of the fuzz target.

use drivers::cache::store::{NAMES, run, tally};
use drivers::corpus::replay;
use parking_lot::Mutex;
use testkit::coverage::pairs::PairCounts;
use testkit::oracle::subscription::MergeCells;
use testkit::random::{cases_are_chosen, cases_in_parallel, thorough};

#[test]
fn random_operation_sequences_match_the_oracle_store() {
    let (all, pairs) = (Mutex::new(tally()), Mutex::new(PairCounts::new(NAMES)));
    let (sequences, floor, pair_floor) = floors();
    cases_in_parallel("store", sequences, 1_000, |bytes| {
        let mut cases = tally();
        run(bytes, &mut MergeCells::default(), &mut cases);
        all.lock().add(&cases);
        pairs.lock().count_sequence(&cases);
    });
    if cases_are_chosen() {
        return; // the floors are for the usual number of cases
    }
    let rare = all.into_inner().below(floor);
    assert!(rare.is_empty(), "rare: {rare:?}");
    let rare = pairs.into_inner().below(pair_floor, never_together);
    assert!(rare.is_empty(), "rare in one operation sequence: {rare:?}");
}

/// Returns whether two events cannot occur in the same operation sequence.
fn never_together(a: &str, b: &str) -> bool {
    let transforms = matches!(a, "transformed" | "stored: transformed");
    transforms && b == "stored: as it came"
}

#[test]
fn the_corpus_matches_the_oracle_store() {
    replay("store_ops", |bytes| run(bytes, &mut MergeCells::default(), &mut tally()));
}

/// Returns the number of operation sequences, the minimum number of times that each event must occur, and the minimum number of sequences in which
/// each pair of events must occur. These numbers are lower if the run is not thorough.
/// A sequence takes 8 ms, most of which compares the complete states after each operation, so even a thorough run has only 25 000; `cargo xtask deep`
/// has more.
fn floors() -> (u64, u64, u64) {
    if thorough() { (25_000, 250, 5) } else { (1_000, 10, 1) }
}
