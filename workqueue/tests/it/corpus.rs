//! The committed corpora of the fuzz targets, replayed as ordinary tests.

use drivers::corpus::replay;
use drivers::queue::{driver, simulation};
use testkit::coverage::states::Cells;

/// The corpus reaches every cell of the state table.
#[test]
fn queue_ops() {
    let mut cells = Cells::default();
    replay("queue_ops", |bytes| cells.merge(&driver::queue_ops(bytes)));
    assert_eq!(cells.below(1), []);
}

#[test]
fn deadlines() {
    replay("deadlines", |bytes| _ = driver::deadlines(bytes));
}

#[test]
fn queue_simulation() {
    replay("queue_simulation", simulation::run);
}

#[test]
fn order_ops() {
    replay("order_ops", |bytes| _ = driver::order_ops(bytes));
}
