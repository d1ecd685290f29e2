//! Replays the corpora of the fuzz targets, so that ordinary tests cover the inputs that fuzzing found.

use drivers::bucket::{token_bucket, wait_queue};
use drivers::corpus::replay;
use drivers::limiter::{limiter_ops, simulation};

#[test]
fn bucket_math() {
    replay("bucket_math", token_bucket::run);
}

#[test]
fn bucket_ops() {
    replay("bucket_ops", wait_queue::run);
}

#[test]
fn limiter_ops() {
    replay("limiter_ops", limiter_ops::run);
}

#[test]
fn limiter_simulation() {
    replay("limiter_simulation", simulation::run);
}
