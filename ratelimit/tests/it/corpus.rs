//! Replays the corpora of the fuzz targets: what fuzzing has found stays found.

use std::fs;
use std::path::Path;

use crate::{bucket_driver, limiter_ops, line_driver};

fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(target);
    let files = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut replayed = 0;
    for file in files {
        let path = file.unwrap().path();
        eprintln!("{}", path.display());
        run(&fs::read(&path).unwrap());
        replayed += 1;
    }
    assert!(replayed >= 24, "{target}: only {replayed} files");
}

#[test]
fn bucket_math() {
    replay("bucket_math", bucket_driver::run);
}

#[test]
fn bucket_ops() {
    replay("bucket_ops", line_driver::run);
}

#[test]
fn limiter_ops() {
    replay("limiter_ops", limiter_ops::run);
}
