//! The committed corpora of the fuzz targets, replayed as ordinary tests.

use std::fs;
use std::path::Path;

use testkit::cells::Cells;

use crate::driver;

fn replay(target: &str, case: impl Fn(&[u8]) -> Cells) -> Cells {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut total = Cells::default();
    let mut count = 0;
    for file in files {
        let path = file.expect("a readable folder").path();
        let bytes = fs::read(&path).expect("a readable file");
        println!("{}", path.display());
        total.merge(&case(&bytes));
        count += 1;
    }
    assert!(count > 0, "{} is empty", folder.display());
    total
}

/// The corpus reaches every cell of the state table.
#[test]
fn queue_ops() {
    let cells = replay("queue_ops", driver::queue_ops);
    assert_eq!(cells.below(1), []);
}

#[test]
fn deadlines() {
    replay("deadlines", driver::deadlines);
}

#[test]
fn order_ops() {
    replay("order_ops", driver::order_ops);
}
