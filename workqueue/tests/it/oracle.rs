//! The queue against the slow obvious one: same operations, same answers, every invariant after every step.

use std::cell::RefCell;
use std::thread;

use testkit::cells::{Cells, Doing};
use testkit::random::cases;

use crate::driver;

/// Food for about two hundred operations.
const MAX_LEN: usize = 520;

/// Runs `case` on random bytes; which cells of the state table that entered, and how often.
fn lives(name: &str, count: u64, case: fn(&[u8]) -> Cells) -> Cells {
    let total = RefCell::new(Cells::default());
    cases(name, count, MAX_LEN, |bytes| total.borrow_mut().merge(&case(bytes)));
    total.into_inner()
}

/// A hundred thousand lives, and every cell of the state table a thousand times.
#[test]
fn every_cell() {
    let total = thread::scope(|scope| {
        let kinds = [
            scope.spawn(|| lives("with_backoff", 8_000, driver::limited)),
            scope.spawn(|| lives("held_with_backoff", 66_000, driver::limited_held)),
            scope.spawn(|| lives("without_backoff", 7_000, driver::unlimited)),
            scope.spawn(|| lives("held_without_backoff", 20_000, driver::unlimited_held)),
            scope.spawn(|| lives("without_time", 13_000, driver::timeless)),
        ];
        let mut total = Cells::default();
        let ended = kinds.map(thread::ScopedJoinHandle::join);
        for cells in ended {
            total.merge(&cells.expect("a difference, told above"));
        }
        total
    });
    let rare = total.below(1_000);
    // A shorter run on request, a replayed failure say, cannot reach the floor.
    assert!(rare.is_empty() || std::env::var_os("FLYBALL_CASES").is_some(), "too rarely seen: {rare:?}");
}

/// Every cell a thousand times, for each of the other orders.
#[test]
fn every_cell_by_priority() {
    in_order("by_priority", driver::by_priority);
}

#[test]
fn every_cell_by_group() {
    in_order("by_group", driver::by_group);
}

fn in_order(name: &str, case: fn(&[u8]) -> Cells) {
    let rare = lives(name, 140_000, case).below(1_000);
    let rare: Vec<_> = rare.iter().filter(|(_, doing, _)| *doing != Doing::Tail).collect();
    assert!(rare.is_empty() || std::env::var_os("FLYBALL_CASES").is_some(), "too rarely seen: {rare:?}");
}

#[test]
fn many_deadlines() {
    cases("many_deadlines", 500, 1_500, |bytes| {
        driver::deadlines(bytes);
    });
}
