//! Compares the queue with a slow reference implementation: the same operations must give the same results. Every invariant is checked
//! after every step.

use std::cell::RefCell;
use std::thread;

use drivers::queue::driver;
use drivers::queue::options::{Covered, rows};
use testkit::coverage::states::{Cells, Column};
use testkit::random::{cases, cases_are_chosen, thorough};

/// Enough random bytes for about two hundred operations.
const MAX_LEN: usize = 520;

/// Returns the divisor of the number of operation sequences: 10, or 1 if the run is thorough. The minimum that `floor` returns is divided by 20
/// instead of 10, because small counts vary more.
fn divisor() -> u64 {
    if thorough() { 1 } else { 10 }
}

fn floor() -> u64 {
    if thorough() { 1_000 } else { 50 }
}

/// Runs `case` on random bytes. Returns how often each cell of the state table was entered.
fn run_sequences(name: &str, count: u64, case: fn(&[u8]) -> Cells) -> Cells {
    let total = RefCell::new(Cells::default());
    cases(name, count / divisor(), MAX_LEN, |bytes| total.borrow_mut().merge(&case(bytes)));
    total.into_inner()
}

/// A thorough run has more than 100 000 operation sequences, and enters every cell of the state table at least 1000 times.
#[test]
fn every_cell() {
    let total = thread::scope(|scope| {
        let kinds = [
            scope.spawn(|| run_sequences("with_backoff", 8_000, driver::limited)),
            scope.spawn(|| run_sequences("held_with_backoff", 80_000, driver::limited_held)),
            scope.spawn(|| run_sequences("without_backoff", 7_000, driver::unlimited)),
            scope.spawn(|| run_sequences("held_without_backoff", 20_000, driver::unlimited_held)),
            scope.spawn(|| run_sequences("without_time", 13_000, driver::timeless)),
        ];
        let mut total = Cells::default();
        let ended = kinds.map(thread::ScopedJoinHandle::join);
        for cells in ended {
            total.merge(&cells.expect("the difference is printed above"));
        }
        total
    });
    let rare = total.below(floor());
    // A run with fewer sequences, for example to replay a failure, cannot reach these counts.
    assert!(rare.is_empty() || cases_are_chosen(), "too rarely seen: {rare:?}");
}

/// Like `every_cell`, for each of the other orders.
#[test]
fn every_cell_by_priority() {
    in_order("by_priority", driver::by_priority);
}

#[test]
fn every_cell_by_group() {
    in_order("by_group", driver::by_group);
}

/// With rates, some cells are rarer: a key that its group's rate holds back is not leased.
#[test]
fn every_operation_by_rate() {
    run_sequences("by_rate", 100_000, driver::by_rate);
}

fn in_order(name: &str, case: fn(&[u8]) -> Cells) {
    let rare = run_sequences(name, 160_000, case).below(floor());
    let rare: Vec<_> = rare.iter().filter(|(_, column, _)| *column != Column::Tail).collect();
    assert!(rare.is_empty() || cases_are_chosen(), "too rarely seen: {rare:?}");
}

/// Operation sequences of queues with every combination of options that compiles.
#[test]
fn every_combination_of_options() {
    let covered = RefCell::new(Covered::default());
    cases("every_combination_of_options", 10_000, MAX_LEN, |bytes| {
        driver::combined(bytes, &mut covered.borrow_mut());
    });
    let covered = covered.into_inner();
    if !cases_are_chosen() {
        assert_eq!(covered.amiss(50), [""; 0], "too rarely seen together");
        assert_eq!(covered.rows(), rows().len());
    }
}

#[test]
fn many_deadlines() {
    cases("many_deadlines", 500, 1_500, |bytes| {
        driver::deadlines(bytes);
    });
}
