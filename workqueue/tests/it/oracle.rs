//! The queue against the slow obvious one: same operations, same answers, every invariant after every step.

use std::cell::RefCell;

use testkit::cells::Cells;
use testkit::random::cases;

use crate::driver;

/// Food for about two hundred operations.
const MAX_LEN: usize = 450;

/// Runs `case` on random bytes and requires that every cell of the state table was entered a thousand times.
fn every_cell(name: &str, sequences: u64, case: fn(&[u8]) -> Cells) {
    let total = RefCell::new(Cells::default());
    cases(name, sequences, MAX_LEN, |bytes| {
        let cells = case(bytes);
        total.borrow_mut().merge(&cells);
    });
    let rare = total.borrow().below(1_000);
    // A shorter run on request, a replayed failure say, cannot reach the floor.
    assert!(
        rare.is_empty() || std::env::var_os("FLYBALL_CASES").is_some(),
        "{name}: too rarely seen: {rare:?}"
    );
}

#[test]
fn with_backoff() {
    every_cell("with_backoff", 50_000, driver::limited);
}

#[test]
fn without_backoff() {
    every_cell("without_backoff", 30_000, driver::unlimited);
}

#[test]
fn without_time() {
    cases("without_time", 20_000, MAX_LEN, |bytes| {
        driver::timeless(bytes);
    });
}

#[test]
fn many_deadlines() {
    cases("many_deadlines", 500, 1_500, |bytes| {
        driver::deadlines(bytes);
    });
}
