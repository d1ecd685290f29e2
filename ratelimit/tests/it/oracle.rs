//! Each policy against its slow, obvious model, step by step.

use drivers::bucket::{keyed, token_bucket, wait_queue};
use drivers::limiter::{aimd, policies};
use testkit::random::cases;

/// An unoptimised build runs a tenth; `.ci/run` runs all, optimised.
const LIVES: u64 = if cfg!(debug_assertions) { 10_000 } else { 100_000 };

#[test]
fn a_limiter_does_what_its_oracle_says() {
    cases("limiter", LIVES, 700, policies::run);
}

#[test]
fn an_adaptive_limit_does_what_its_oracle_says() {
    cases("adaptive", LIVES, 700, aimd::run);
}

#[test]
fn a_bucket_does_what_its_oracle_says() {
    cases("bucket", LIVES, 700, token_bucket::run);
}

#[test]
fn every_key_has_a_bucket_as_its_oracle_says() {
    cases("keyed", LIVES, 400, keyed::run);
}

#[test]
fn a_line_does_what_its_oracle_says() {
    cases("line", LIVES, 400, wait_queue::run);
}
